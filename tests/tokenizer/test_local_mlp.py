import pytest
import torch

from di2pose.errors import InputError
from di2pose.tokenizer import LocalMLP, MixerBlock, joint_shift


def test_the_worked_example_of_three_joints():
    """Channel c of joint j holds 10 * c + j: the first group looks ahead, the middle stays, the last looks back."""
    x = torch.tensor([[[0, 10, 20], [1, 11, 21], [2, 12, 22], [3, 13, 23]]]).float()
    assert joint_shift(x, 3).tolist() == [[[1, 10, 0], [2, 11, 20], [3, 12, 21], [0, 13, 22]]]
    assert torch.equal(joint_shift(x, 1), x)


@pytest.mark.parametrize(
    ("width", "joints", "sizes"), [(2048, 3, [683, 683, 682]), (512, 3, [171, 171, 170]), (7, 5, [2, 2, 1, 1, 1])]
)
def test_there_are_always_as_many_groups_as_joints(width, joints, sizes):
    x = torch.arange(17.0).view(1, 17, 1).expand(1, 17, width) + 1
    moved = joint_shift(x, joints)[0, 8] - 9  # what reached joint 8, relative to itself
    offsets = range(joints // 2, -joints // 2, -1)
    assert moved.tolist() == [offset for offset, size in zip(offsets, sizes, strict=True) for _ in range(size)]


def test_even_and_too_large_counts_are_errors():
    for joints in (0, 2, 4, 9, -1):
        with pytest.raises(InputError, match="odd count of joints from 1 to 8"):
            joint_shift(torch.randn(1, 17, 8), joints)


@pytest.mark.parametrize(("block", "reached"), [(LocalMLP(12, 3), [7, 8, 9]), (MixerBlock(12, 17), [*range(17)])])
def test_local_blocks_reach_exactly_x_joints_and_the_mixer_every_joint(block, reached):
    x = torch.randn(1, 17, 12, requires_grad=True)
    block(x)[0, 8].square().sum().backward()
    assert (x.grad[0].abs().sum(-1) > 0).nonzero().flatten().tolist() == reached
