"""The loop's parts against their formulas, and what it does when something goes wrong."""

import csv
import os
import resource
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from di2pose import recipes
from di2pose.config import TrainingConfig
from di2pose.errors import InputError
from di2pose.network import Di2PoseNetwork
from di2pose.training import loop
from di2pose.training.log import read_rows
from di2pose.training.loop import Job, train
from di2pose.training.options import RunOptions
from di2pose.training.state import EMA, EpochSampler, adamw, learning_rate, read_state

TRAINING = TrainingConfig(
    learning_rate=0.05, betas=(0.9, 0.99), weight_decay=0.0, batch=8, epochs=1, warmup=0, ema=0.5, iterations=12
)


class Line(nn.Module):
    """y = 3 x + noise, learned by one weight: the smallest Trainable."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def loss(self, batch, generator):
        noise = torch.stack([torch.randn((), generator=g) for g in generator])
        error = self.weight.mean() * batch["x"] - 3 * batch["x"] - 0.01 * noise
        return {"loss": (error**2).mean(), "bias": error.mean()}


class Numbers:
    """Records 0..n-1; `trouble` maps a call's number to what happens then."""

    def __init__(self, count=20, trouble=()):
        self.x = torch.linspace(-1, 1, count)
        self.trouble, self.calls = dict(trouble), 0

    def __len__(self):
        return len(self.x)

    def batch(self, rows):
        self.calls += 1
        x = self.x[torch.from_numpy(rows)]
        return {"x": self.trouble.get(self.calls, lambda x: x)(x)}


def job(source=None, training=TRAINING, model=None, best=None, **identity):
    model = model or Line()
    exported, best = [], [] if best is None else best

    def validate(model, ranks):
        return {"mm": abs(float(model.weight.mean()) - 3)}

    def export(model, notes, name):
        (best if name == "best" else exported).append((float(model.weight.mean()), dict(notes)))

    identity = {"stage": "line", **identity}
    return Job("line", model, source or Numbers(), training, 0, validate, export, identity), exported


def terminate(x):
    os.kill(os.getpid(), signal.SIGTERM)
    return x


def rows_of(folder):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_rows(folder / "metrics.jsonl")]


def test_each_epoch_is_a_permutation_and_any_slice_of_the_stream_is_the_same():
    order = EpochSampler(10, seed=1)
    stream = order.rows(0, 30)
    epochs = stream.reshape(3, 10)
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs.tolist())
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 3
    assert np.array_equal(EpochSampler(10, seed=1).rows(7, 25), stream[7:25])
    assert not np.array_equal(EpochSampler(10, seed=2).rows(0, 30), stream)
    with pytest.raises(InputError, match="nothing to train on"):
        EpochSampler(0, seed=1)


def test_only_matrices_decay():
    model = Di2PoseNetwork(recipes.tiny())
    names = {id(p): name for name, p in model.named_parameters()}
    groups = adamw(model, replace(TRAINING, weight_decay=0.3)).param_groups
    decayed, free = ([names[id(p)] for p in group["params"]] for group in groups)
    assert (groups[0]["weight_decay"], groups[1]["weight_decay"]) == (0.3, 0.0)
    assert {"denoiser.position", "denoiser.token_embed.weight", "denoiser.norm.weight"} <= set(free)
    assert not any(name.endswith((".bias", "norm.weight", "embed.weight")) for name in decayed)
    assert "denoiser.to_logits.weight" in decayed
    assert len(decayed) + len(free) == sum(p.requires_grad for p in model.parameters())
    assert not any(name.startswith("tokenizer") for name in decayed + free)


def test_the_rate_warms_up_in_a_line_and_ends_in_a_cosine():
    config = replace(TRAINING, learning_rate=2.0, warmup=10)
    rates = [learning_rate(i, 110, config) for i in range(111)]
    assert rates[:10] == pytest.approx([0.2 * (i + 1) for i in range(10)])
    assert rates[10] == 2.0
    assert rates[60] == pytest.approx(1.0)
    assert rates[110] == pytest.approx(0.0)
    assert learning_rate(2, 20, replace(config, warmup=500)) == 2.0  # at most a tenth of the run


def test_the_average_is_the_weighted_mean_of_all_weights_so_far():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    average, history, decay = EMA(model, 0.9), [], 0.9
    for count in range(1, 8):
        nn.init.normal_(model.weight)
        history.append(model.weight.detach().clone())
        average.update(count)
        shares = torch.tensor([decay ** (count - i) for i in range(1, count + 1)])
        wanted = (shares.view(-1, 1, 1) / shares.sum() * torch.stack(history)).sum(0)
        torch.testing.assert_close(average.model.weight, wanted)


def test_it_learns_logs_and_exports(tmp_path):
    made, exported = job(training=replace(TRAINING, iterations=60, learning_rate=0.3))
    assert train(made, tmp_path, RunOptions(log_every=10, validate_every=30)) == 0
    rows = rows_of(tmp_path)
    assert [row["iteration"] for row in rows] == list(range(10, 61, 10))
    assert [row["iteration"] for row in rows if "held_out_mm" in row] == [30, 60]
    assert rows[-1]["loss"] < 0.05 * rows[0]["loss"]
    weight, notes = exported[-1]
    assert weight == pytest.approx(3, abs=0.2)
    assert notes["iteration"] == 60
    assert notes["held_out_mm"] == rows[-1]["held_out_mm"] == pytest.approx(abs(weight - 3))
    with (tmp_path / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(line["loss"]) for line in table] == [row["loss"] for row in rows]


def test_a_run_stopped_by_sigterm_goes_on_to_the_same_end_with_the_same_best_model(tmp_path):
    """A validation curve with two valleys, of which the first is the deeper one."""
    curve, seen = {3: 5.0, 6: 2.0, 9: 4.0, 12: 3.0}, []
    options, handler = RunOptions(log_every=3, validate_every=3), signal.getsignal(signal.SIGTERM)

    def validate(model, ranks):
        seen.append(float(model.weight.mean()))
        return {"mm": curve[3 * len(seen)]}

    def made(best, trouble=()):
        return replace(job(Numbers(trouble=trouble), best=best)[0], validate=validate)

    best = []
    assert train(made(best), tmp_path / "whole", options) == 0
    assert [(notes["iteration"], notes["held_out_mm"]) for _, notes in best] == [(3, 5.0), (6, 2.0)]
    assert best[-1][0] == seen[1]
    assert read_state(tmp_path / "whole" / "last.safetensors")[1]["best_mm"] == 2.0

    seen.clear()
    cut = []
    assert train(made(cut, {8: terminate}), tmp_path / "cut", options) == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is handler
    assert 1 <= read_state(tmp_path / "cut" / "last.safetensors")[1]["iteration"] < 12
    assert train(made(cut), tmp_path / "cut", options) == 0
    assert cut == best  # the second valley is not taken for a best one after the stop
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")


def test_validation_comes_fifty_times_a_run_but_not_more_often_than_every_500_iterations(tmp_path, monkeypatch):
    assert (loop.VALIDATIONS, loop.LEAST_INTERVAL) == (50, 500)
    monkeypatch.setattr(loop, "VALIDATIONS", 2)
    monkeypatch.setattr(loop, "LEAST_INTERVAL", 4)
    for iterations, validated in ((6, [4, 6]), (20, [10, 20])):
        out = tmp_path / str(iterations)
        assert train(job(training=replace(TRAINING, iterations=iterations))[0], out, RunOptions(log_every=99)) == 0
        assert [row["iteration"] for row in rows_of(out)] == validated


def test_accumulated_parts_give_the_step_of_the_whole_batch(tmp_path):
    for parts in (1, 3):
        assert train(job()[0], tmp_path / str(parts), RunOptions(accumulate=parts, log_every=1)) == 0
    whole, cut = (rows_of(tmp_path / str(parts)) for parts in (1, 3))
    assert [row["loss"] for row in cut] == pytest.approx([row["loss"] for row in whole], rel=1e-5)
    assert [row["bias"] for row in cut] == pytest.approx([row["bias"] for row in whole], rel=1e-4, abs=1e-6)
    with pytest.raises(InputError, match="batch of 8 cannot be cut into 1 ranks x 9 parts"):
        train(job()[0], tmp_path / "9", RunOptions(accumulate=9))


def test_a_nan_stops_with_the_iteration_and_the_last_good_checkpoint(tmp_path):
    made, _ = job(Numbers(trouble={7: lambda x: x * float("nan")}))
    with pytest.raises(InputError, match=r"loss became nan in iteration 7; the checkpoint of iteration 6 is kept"):
        train(made, tmp_path, RunOptions(save_minutes=0))
    tensors, facts = read_state(tmp_path / "last.safetensors")
    assert facts["iteration"] == 6
    assert tensors["model"]["weight"].isfinite().all()


def test_out_of_memory_saves_what_was_done(tmp_path):
    class Hungry(Line):
        def loss(self, batch, generator):
            if float(batch["x"][0]) == 99:
                torch.empty(1 << 50)
            return super().loss(batch, generator)

    made, _ = job(Numbers(trouble={5: lambda x: x * 0 + 99}), model=Hungry())
    with pytest.raises(InputError, match=r"out of memory in iteration 5: .*--accumulate"):
        train(made, tmp_path, RunOptions())
    assert read_state(tmp_path / "last.safetensors")[1]["iteration"] == 4


def test_a_full_disk_stops_and_keeps_the_checkpoint_before(tmp_path):
    train(job(training=replace(TRAINING, iterations=3))[0], tmp_path, RunOptions())
    before = (tmp_path / "last.safetensors").read_bytes()
    wide = Line()
    wide.weight = nn.Parameter(torch.zeros(64))  # a larger file
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (800, hard))
    try:
        with pytest.raises(InputError, match=r"could not be written .*last.safetensors, where there is one, is whole"):
            train(job(model=wide, training=replace(TRAINING, iterations=2))[0], tmp_path, RunOptions(resume=False))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "last.safetensors").read_bytes() == before
    assert not list(tmp_path.glob(".last*"))


def test_another_config_and_a_damaged_checkpoint_are_refused(tmp_path):
    train(job(config={"rate": 1, "width": 4})[0], tmp_path, RunOptions())
    stamp = (tmp_path / "last.safetensors").stat().st_mtime_ns
    assert train(job(config={"rate": 1, "width": 4})[0], tmp_path, RunOptions()) == 0  # complete: nothing is done
    assert (tmp_path / "last.safetensors").stat().st_mtime_ns == stamp
    with pytest.raises(InputError, match=r"holds another run \(config.rate was 1, is 2\): .*--no-resume"):
        train(job(config={"rate": 2, "width": 4})[0], tmp_path, RunOptions())
    assert train(job(config={"rate": 2, "width": 4})[0], tmp_path, RunOptions(resume=False)) == 0
    path = tmp_path / "last.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="cannot be read"):
        train(job()[0], tmp_path, RunOptions())


def test_half_precision_needs_hardware_but_the_loop_can(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="this cpu has no hardware for float16"):
        train(job()[0], tmp_path, RunOptions(precision="float16"))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})

    class Layer(Line):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def loss(self, batch, generator):
            found = self.layer(batch["x"][:, None])[:, 0]
            assert found.dtype == torch.bfloat16
            return {"loss": ((found.float() - self.weight) ** 2).mean()}

    def validate(model, ranks):
        assert model.layer(torch.ones(1)).dtype == torch.bfloat16  # what is measured, too
        return {"mm": 1.0}

    made = replace(job(model=Layer())[0], validate=validate)
    assert train(made, tmp_path, RunOptions(precision="bfloat16")) == 0
    assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    assert read_state(tmp_path / "last.safetensors")[0]["model"]["layer.weight"].dtype == torch.float32


def test_wrong_options_are_named(tmp_path):
    with pytest.raises(InputError, match="--log-every must be 1 or more"):
        RunOptions(log_every=0)
    with pytest.raises(InputError, match=r"--device is auto, cpu, cuda .* or mps, got quantum"):
        train(job()[0], tmp_path, RunOptions(device="quantum"))
