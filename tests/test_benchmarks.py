"""The benchmark of speed runs, and what it measures against computes the same thing."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import torch

from di2pose.diffusion import Schedule, diffusion_loss, forward_sample, posterior


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))


def test_the_reference_sampler_has_the_same_posterior_and_the_same_loss():
    reference = import_module("reference_sampler")
    schedule, generator = Schedule(12, 20, 0.6), torch.Generator().manual_seed(0)
    logits = torch.randn(3, 7, 12, generator=generator)
    k0 = torch.randint(12, (3, 7), generator=generator)
    for s in (1, 2, 11, 20):
        ks, steps = forward_sample(k0, s, schedule, generator), torch.full((3,), s)
        found = reference.log_posterior(reference.log_p0_of(logits), ks, steps, schedule).exp().movedim(1, -1)
        wanted = posterior(logits.softmax(-1), ks, s - 1, s, schedule)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
        ours = diffusion_loss(logits, k0, ks, steps, schedule, 0.1)["loss"]
        theirs = reference.reference_loss(logits, k0, ks, steps, schedule, 0.1)
        torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-3)


def test_the_benchmark_of_speed_fills_its_table(tmp_path, capsys):
    """The sections that use the inner parts; the others use the public call."""
    only = {"denoiser": 4, "sampler": 6, "stations": 6, "features": 1}
    import_module("speed").main(only=",".join(only), out=tmp_path / "speed.json", threads=1, quick=True)
    rows = json.loads((tmp_path / "speed.json").read_text())["rows"]
    assert {name: sum(row["section"] == name for row in rows) for name in only} == only
    assert all(row["value"] > 0 for row in rows if row["section"] in ("stations", "features"))
    printed = capsys.readouterr().out
    assert all(row["what"] in printed for row in rows)
    import_module("speed_network").main("reference", quick=True)  # the process whose memory `training` measures
    assert int(capsys.readouterr().out) > 0
