from dataclasses import replace

import pytest
import torch

from di2pose import recipes
from di2pose.errors import InputError
from di2pose.pose.metrics import mpjpe
from di2pose.pose.skeleton import SKELETONS
from di2pose.tokenizer import PoseTokenizer
from di2pose.tokenizer.tokenizer import chain_order

TINY = recipes.tiny().tokenizer


def poses(count, seed=0):
    x = 300 * torch.randn(count, 17, 3, generator=torch.Generator().manual_seed(seed))
    return x - x[:, :1]


def tokenizer(**changes):
    torch.manual_seed(0)
    return PoseTokenizer(replace(TINY, **changes)).eval()


@pytest.mark.parametrize(
    ("block", "code_embed", "loss"), [("local", "mlp", "l1"), ("mixer", "linear", "mpjpe"), ("local", "table", "l1")]
)
def test_every_variant_encodes_decodes_and_learns(block, code_embed, loss):
    model = tokenizer(block=block, code_embed=code_embed, loss=loss)
    tokens = model.encode(poses(5))
    assert tokens.shape == (5, TINY.tokens)
    assert tokens.dtype == torch.int64
    joints = model.decode(tokens)
    assert joints.shape == (5, 17, 3)
    assert joints.dtype == torch.float32
    assert (joints[:, 0] == 0).all()
    losses = model.loss(poses(5))
    torch.testing.assert_close(mpjpe(joints, poses(5)).mean(), losses["mpjpe_mm"])
    losses["loss"].backward()
    dead = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert dead == []
    assert model.joint_embed.weight.grad.abs().sum() > 0  # through the quantiser


@pytest.mark.parametrize("code_embed", ["linear", "mlp", "table"])
def test_soft_decoding_of_one_hot_probabilities_is_decoding(code_embed):
    model = tokenizer(code_embed=code_embed)
    if model.code_table is not None:
        torch.nn.init.normal_(model.code_table.weight)
    tokens = model.encode(poses(4))
    one_hot = torch.nn.functional.one_hot(tokens, TINY.codes).float()
    torch.testing.assert_close(model.decode_soft(one_hot), model.decode(tokens), atol=1e-3, rtol=0)


def test_a_linear_code_embedding_leaves_each_joint_d_numbers_and_the_mlp_does_not():
    """The rank trap of docs/paper.md: what reaches the decoder's joints, over all poses, has rank d per joint."""
    ranks = {}
    for kind in ("linear", "mlp"):
        model = tokenizer(code_embed=kind)
        codes = 2 * torch.rand(200, TINY.tokens, 3, generator=torch.Generator().manual_seed(0)) - 1
        embedded = model.code_embed(codes) - model.code_embed(torch.zeros_like(codes))
        joint = (embedded.transpose(1, 2) @ model.tokens_to_joints.weight.T)[..., 0]  # joint 0: 200 x W
        ranks[kind] = int(torch.linalg.matrix_rank(joint.detach().double(), rtol=1e-6))
    assert ranks["linear"] == 3
    assert ranks["mlp"] > 20


def test_an_absolute_pose_gives_the_tokens_of_its_root_relative_one():
    model = tokenizer()
    moved = poses(3) + torch.tensor([100.0, -50.0, 4000.0])
    assert (model.encode(moved) == model.encode(poses(3))).float().mean() > 0.99


def test_the_joint_order_permutes_inside_only():
    chain = tokenizer(joint_order="chain")
    index = tokenizer()
    index.load_state_dict(chain.state_dict())
    assert not torch.equal(chain.encode(poses(8)), index.encode(poses(8)))
    assert chain.order.tolist() == [3, 2, 1, 0, 4, 5, 6, 10, 9, 8, 7, 13, 12, 11, 16, 15, 14]
    for skeleton in SKELETONS.values():
        assert sorted(chain_order(skeleton)) == list(range(skeleton.count))


def test_usage_counts_codes_and_perplexity():
    model = tokenizer()
    tokens = torch.zeros(4, TINY.tokens, dtype=torch.int64)
    assert model.usage(tokens) == (1, 1.0, pytest.approx(1.0))
    tokens[:2] = 7
    assert model.usage(tokens) == (2, 2.0, pytest.approx(2.0))


def test_bad_input_is_named(as_user):
    model = tokenizer()
    with pytest.raises(InputError, match=r"\(B, 17, 3\) in millimetres, got \(2, 16, 3\)"):
        model.encode(torch.zeros(2, 16, 3))
    with pytest.raises(InputError, match=r"\(B, 16\), got \(2, 15\)"):
        model.decode(torch.zeros(2, 15, dtype=torch.int64))
    with pytest.raises(InputError, match=r"0\.\.124, got 0\.\.125"):
        model.decode(torch.arange(110, 126).view(1, 16) * (torch.arange(16) > 0))
    with pytest.raises(InputError, match=r"\(B, 16, 125\)"):
        model.decode_soft(torch.zeros(2, 16, 124))
    for bad in ({"levels": (5, 1)}, {"local_joints": 2}, {"tokens": 0}):
        with pytest.raises(InputError):
            replace(TINY, **bad)


def test_latents_are_what_encode_rounds():
    model = tokenizer()
    half = model.quantiser.levels // 2
    digits = (model.latents(poses(5)) * half).round().long() + half
    assert torch.equal((digits * model.quantiser.basis).sum(-1), model.encode(poses(5)))


def middle_features(model):
    """What the encoder makes of joints that all lie at one place."""
    with torch.no_grad():
        x = model.joint_embed(torch.full((1, 17, 3), 0.3))
        if model.encoder_joint is not None:
            x = x + model.encoder_joint
        return model.encoder(x[:, model.order])[0]


@pytest.mark.parametrize("order", ["index", "chain"])
def test_joint_vectors_tell_joints_apart_that_local_blocks_cannot(order):
    plain, named = (middle_features(tokenizer(joint_embed=on, joint_order=order)) for on in (False, True))
    torch.testing.assert_close(plain[4:12], plain[4].expand(8, -1))  # the shift marks the ends alone
    distances = torch.cdist(named, named) + 1e3 * torch.eye(17)
    assert distances.min() > 1e-2


def test_a_joint_keeps_its_vector_whatever_the_order():
    """The vectors belong to joints, not to places in the order."""
    model = tokenizer(joint_embed=True, joint_order="chain", decoder_blocks=1)
    with torch.no_grad():
        for block in model.decoder[:-1]:
            for parameter in block.parameters():
                parameter.zero_()
        model.tokens_to_joints.weight.zero_()
        model.tokens_to_joints.bias.zero_()
        found = model.to_joints(model.decoder[-1](model.decoder_joint))
        wanted = 1000 * (found - found[0])
        torch.testing.assert_close(model.decode(model.encode(poses(1)))[0], wanted, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("mix", [False, True])
def test_the_tokens_of_a_channel_have_full_rank_only_with_the_mix(mix):
    model = tokenizer(tokens=40, token_mix=mix)
    with torch.no_grad():
        latents = model._channels(poses(200).double().float() / 1000)[..., 0]  # 200 x 40
        latents = latents - model.to_channels.bias[0]
    rank = int(torch.linalg.matrix_rank(latents.double(), rtol=1e-5))
    assert rank > 30 if mix else rank <= 18
