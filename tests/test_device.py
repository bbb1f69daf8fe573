"""The device and its precision. There is no GPU here: what one would choose is asked of the functions that choose."""

from dataclasses import replace

import pytest
import torch
from baselines.test_baselines import made
from stick_figures import seen_from_the_front, stick_figures

from di2pose import recipes
from di2pose.device import choose_device, precision_of
from di2pose.errors import InputError
from di2pose.network import Di2PoseNetwork
from di2pose.noise import hypothesis_generators
from di2pose.tokenizer.tokenizer import PoseTokenizer

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def in_bfloat16():
    return torch.autocast("cpu", torch.bfloat16)


def figures(count=6):
    return stick_figures(count, torch.Generator().manual_seed(0))


def test_auto_is_bfloat16_on_a_gpu_that_has_it_and_float32_elsewhere(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    assert (precision_of("auto", CUDA), precision_of("auto", CPU)) == (torch.bfloat16, torch.float32)
    assert (precision_of("float32", CUDA), precision_of("float16", CUDA)) == (torch.float32, torch.float16)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    assert precision_of("auto", CUDA) == torch.float32
    with pytest.raises(InputError, match="this cuda has no hardware for bfloat16"):
        precision_of("bfloat16", CUDA)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert precision_of("bfloat16", CPU) == torch.bfloat16


def test_each_rank_takes_its_own_gpu_and_a_gpu_computes_in_tf32(monkeypatch):
    assert choose_device("cpu") == CPU
    before, chosen = torch.get_float32_matmul_precision(), []
    assert before == "highest"
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    try:
        assert choose_device("cuda") == torch.device("cuda:3")
        assert chosen == [torch.device("cuda:3")]
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("changes", [{}, {"quantiser": "vq", "levels": (64,)}])
def test_the_tokenizer_is_float32_under_autocast(changes):
    torch.manual_seed(0)
    tokenizer = PoseTokenizer(replace(recipes.tiny().tokenizer, **changes)).eval()
    poses = figures()
    with torch.no_grad():
        tokens = tokenizer.encode(poses)
        soft = torch.nn.functional.one_hot(tokens, tokenizer.config.codes).float()
        plain = tokenizer.decode(tokens), tokenizer.decode_soft(soft), tokenizer.loss(poses)["loss"]
        with in_bfloat16():
            assert torch.equal(tokenizer.encode(poses), tokens)
            found = tokenizer.decode(tokens), tokenizer.decode_soft(soft), tokenizer.loss(poses)["loss"]
    for one, other in zip(plain, found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", ["di2pose", "regression", "gaussian", "pct"])
def test_every_kind_predicts_and_learns_in_bfloat16(kind):
    torch.manual_seed(0)
    model, poses = (Di2PoseNetwork(recipes.tiny()) if kind == "di2pose" else made(kind)).eval(), figures()
    features = seen_from_the_front(poses, 32)

    def noise(hypotheses):
        return hypothesis_generators(0, range(len(poses)), hypotheses)

    with torch.no_grad():
        plain = model.predict(features, 2, model.config.sample_steps, noise(2)).joints_mm
        with in_bfloat16():
            found = model.predict(features, 2, model.config.sample_steps, noise(2)).joints_mm
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert (found - plain).norm(dim=-1).median() < 30  # a token that is drawn otherwise is another pose
    model.train()
    with in_bfloat16():
        loss = model.loss({"features": features, "joints_mm": poses}, noise(1))["loss"]
    assert loss.dtype == torch.float32
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
