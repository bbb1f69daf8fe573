from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from di2pose import network, recipes
from di2pose.config import DenoiserConfig
from di2pose.diffusion import Condition, Denoiser
from di2pose.diffusion import denoiser as module
from di2pose.errors import InputError
from di2pose.model import load_model, save_model
from di2pose.network import Di2PoseNetwork
from di2pose.noise import hypothesis_generators

CONFIG = DenoiserConfig(tokens=6, codes=11, steps=8, feature_width=20, width=32, layers=2, heads=4)


@pytest.fixture
def denoiser():
    torch.manual_seed(0)
    return Denoiser(CONFIG).eval()


def inputs(batch):
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(12, (batch, 6), generator=generator), torch.randint(1, 9, (batch,), generator=generator)


@pytest.mark.parametrize("length", [1, 7])
def test_hypotheses_share_a_condition_of_any_length_and_equal_a_copied_one(denoiser, length):
    y = torch.randn(2, length, 20)
    ks, s = inputs(6)
    shared = denoiser(ks, s, denoiser.encode_condition(y))
    copied = denoiser(ks, s, denoiser.encode_condition(y.repeat_interleave(3, dim=0)))
    torch.testing.assert_close(shared, copied, atol=1e-5, rtol=1e-4)


def test_it_listens_to_the_image_the_step_and_every_token_with_all_its_weights(denoiser):
    y, (ks, s) = torch.randn(1, 5, 20), inputs(1)
    base = denoiser(ks, s, denoiser.encode_condition(y))
    assert (denoiser(ks, s, denoiser.encode_condition(y + 1)) - base).abs().max() > 1e-4
    assert (denoiser(ks, s % 8 + 1, denoiser.encode_condition(y)) - base).abs().max() > 1e-5
    other = ks.clone()
    other[0, 5] = (other[0, 5] + 1) % 12
    assert (denoiser(other, s, denoiser.encode_condition(y)) - base)[0, 0].abs().max() > 1e-6
    ks, s = torch.arange(12).view(2, 6), torch.tensor([1, 8])
    denoiser(ks, s, denoiser.encode_condition(torch.randn(2, 5, 20))).square().mean().backward()
    # keys' biases shift all scores of a query alike: softmax does not see them
    silent = [n for n, p in denoiser.named_parameters() if p.grad is None]
    assert silent == []


def test_bad_input_is_named(denoiser, as_user):
    ks, s = inputs(3)
    condition = denoiser.encode_condition(torch.randn(2, 5, 20))
    with pytest.raises(InputError, match=r"\(B, L, 20\)"):
        denoiser.encode_condition(torch.randn(2, 5, 21))
    for tokens, steps, message in (
        (ks, s, "3 token rows cannot be shared out over 2 images"),
        (ks[:2, :5], s[:2], r"\(B, 6\)"),
        (ks[:2] + 12, s[:2], r"0\.\.11"),
        (ks[:2], s[:2] * 0, r"1\.\.8"),
    ):
        with pytest.raises(InputError, match=message):
            denoiser(tokens, steps, condition)
    with pytest.raises(InputError, match="multiple of heads"):
        DenoiserConfig(width=30, heads=4)


@pytest.mark.parametrize("asked", [[1, 7, 30], list(range(36)), list(range(6, 12))])
def test_lazy_p0_of_some_tokens_is_that_of_the_whole_pass(denoiser, asked, monkeypatch):
    """For any number of the tokens of a row, at a step that all rows share, in blocks of rows."""
    ks, condition = inputs(6)[0], denoiser.encode_condition(torch.randn(2, 5, 20))
    whole = denoiser(ks, torch.full((6,), 3), condition).softmax(-1).flatten(0, 1)[asked]
    predict = denoiser.lazy_p0(condition, [8, 3, 0])
    (found,) = predict(ks, 3, torch.tensor(asked))
    torch.testing.assert_close(found, whole, atol=1e-5, rtol=1e-4)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 44)
    blocks = list(predict(ks, 3, torch.tensor(asked)))
    assert max(len(block) for block in blocks) <= 4
    torch.testing.assert_close(torch.cat(blocks), whole, atol=1e-5, rtol=1e-4)


def test_the_class_of_the_denoiser_is_chosen_by_the_configuration(monkeypatch, tmp_path, as_user):
    """By a table or by an entry point of another package; it needs no lazy p0, and is loaded by its checkpoint."""

    class Unconditional(torch.nn.Module):
        def __init__(self, config, schedule):
            super().__init__()
            self.table = torch.nn.Embedding(config.codes + 1, config.codes)

        def encode_condition(self, y, noise, to_latents):
            return Condition([y], [y])

        def forward(self, ks, s, condition):
            return self.table(ks)

    config = recipes.tiny()
    config = replace(config, denoiser=replace(config.denoiser, architecture="unconditional"))
    with pytest.raises(InputError, match="no denoiser is called 'unconditional': choose from transformer"):
        Di2PoseNetwork(config)
    point = SimpleNamespace(name="unconditional", load=lambda: Unconditional)
    monkeypatch.setattr(network, "entry_points", lambda group: [point] if group == "di2pose.denoisers" else [])
    model = Di2PoseNetwork(config).eval()
    batch = {"features": torch.randn(2, 5, 32), "joints_mm": torch.randn(2, 17, 3) * 200}
    model.loss(batch, torch.Generator())["loss"].backward()
    again = load_model(save_model(model, tmp_path / "model"))
    found = [each.predict(batch["features"], 3, 4, hypothesis_generators(0, "ab", 3)).tokens for each in (model, again)]
    assert torch.equal(*found)
    assert again.certainty(batch["features"]).shape == (2,)
