"""The blocks of the pose encoder and decoder.  B batch, J joints, D channels, X joints that see each other."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.errors import InputError


def joint_shift(x: Float[Tensor, "B J D"], joints: int) -> Float[Tensor, "B J D"]:
    """Joint Shift: X = `joints` channel groups, group g moved by g - X // 2 joints, zeros moving in.

    The first group brings joint j + X // 2 to place j, the last brings j - X // 2, the middle one stays. The groups
    come from tensor_split: always exactly X, of sizes that differ by one at most.
    """
    if joints < 1 or joints % 2 == 0 or joints > x.shape[-1]:
        raise InputError(f"joint shift needs an odd count of joints from 1 to {x.shape[-1]} (channels), got {joints}")
    reach = joints // 2
    groups = F.pad(x, (0, 0, reach, reach)).tensor_split(joints, dim=-1)
    moved = [group.roll(g - reach, dims=1) for g, group in enumerate(groups)]
    return torch.cat(moved, dim=-1)[:, reach : reach + x.shape[1]]


class JointShiftBlock(nn.Module):
    """JS-Block: project, shift, project. The order of norms and activations is AS-MLP's, on one axis."""

    def __init__(self, width: int, joints: int) -> None:
        super().__init__()
        self.joints = joints
        self.before = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
        self.middle = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.after = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "B J D"]) -> Float[Tensor, "B J D"]:
        x = joint_shift(self.before(x), self.joints)
        return self.after(self.middle(x))


def channel_mlp(width: int, ratio: float) -> nn.Sequential:
    hidden = round(width * ratio)
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class LocalMLP(nn.Module):
    """Local-MLP block, with AS-MLP's two norms and two residuals."""

    def __init__(self, width: int, joints: int = 3, mlp_ratio: float = 1.0) -> None:
        super().__init__()
        self.shift_norm = nn.LayerNorm(width)
        self.shift = JointShiftBlock(width, joints)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = channel_mlp(width, mlp_ratio)

    def forward(self, x: Float[Tensor, "B J D"]) -> Float[Tensor, "B J D"]:
        x = x + self.shift(self.shift_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class MixerBlock(nn.Module):
    """MLP-Mixer block, PCT's choice: every joint sees every joint through an MLP over the joint axis."""

    def __init__(self, width: int, joints: int, hidden: int = 64, mlp_ratio: float = 1.0) -> None:
        super().__init__()
        self.joint_norm = nn.LayerNorm(width)
        self.joint_mlp = nn.Sequential(nn.Linear(joints, hidden), nn.GELU(), nn.Linear(hidden, joints))
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = channel_mlp(width, mlp_ratio)

    def forward(self, x: Float[Tensor, "B J D"]) -> Float[Tensor, "B J D"]:
        x = x + self.joint_mlp(self.joint_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mlp(self.mlp_norm(x))
