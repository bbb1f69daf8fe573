"""Skeletons as values, and conversion between them by the meaning of each joint.

A skeleton is its joint names in order and a tree of parents; left and right follow from the names. One name can mean
different points in two skeletons (H36M's "head" is the top of the head, SMPL's the base of the skull), and two names
one point (H36M's "thorax" is LSP's "neck"): see MEANING. RULES says how a missing point is built.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from di2pose.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    Array = TypeVar("Array", Tensor, np.ndarray)
else:
    Array = TypeVar("Array")  # PyTorch, which is imported only when it is used, or numpy


@dataclass(frozen=True)
class Skeleton:
    """Named joints in order; `parents[j]` is the index of joint j's parent, -1 for the one root."""

    name: str
    joints: tuple[str, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(set(self.joints)) != len(self.joints):
            raise InputError(f"skeleton {self.name}: every joint name must occur once, got {self.joints}")
        if len(self.parents) != self.count:
            raise InputError(f"skeleton {self.name}: {self.count} joints need as many parents, got {len(self.parents)}")
        if self.parents.count(-1) != 1 or any(not -1 <= p < self.count for p in self.parents):
            raise InputError(f"skeleton {self.name}: parents must be joint indices and one -1, got {self.parents}")
        if len(self.outward) < self.count - 1:
            raise InputError(f"skeleton {self.name}: the parents run in a circle, got {self.parents}")

    @property
    def count(self) -> int:
        return len(self.joints)

    @cached_property
    def root(self) -> int:
        """The joint without a parent: the pelvis where the skeleton has one."""
        return self.parents.index(-1)

    @cached_property
    def bones(self) -> tuple[tuple[int, int], ...]:
        """(child, parent) of every joint but the root, in joint order."""
        return tuple((child, parent) for child, parent in enumerate(self.parents) if parent != -1)

    @cached_property
    def outward(self) -> tuple[int, ...]:
        """Numbers of the bones, each after the bone that carries it."""
        order: list[int] = []
        reached, left = {self.root}, list(range(len(self.bones)))
        while (bone := next((k for k in left if self.bones[k][1] in reached), None)) is not None:
            left.remove(bone)
            order.append(bone)
            reached.add(self.bones[bone][0])
        return tuple(order)

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(left, right) indices of every joint that has both sides, in the order of the left ones."""
        twins = [(k, f"right_{name[5:]}") for k, name in enumerate(self.joints) if name.startswith("left_")]
        return tuple((left, self.joints.index(twin)) for left, twin in twins if twin in self.joints)

    @cached_property
    def mirror_order(self) -> tuple[int, ...]:
        """The permutation that swaps left and right; it is its own inverse."""
        swap = {a: b for left, right in self.pairs for a, b in ((left, right), (right, left))}
        return tuple(swap.get(joint, joint) for joint in range(self.count))

    def index(self, name: str) -> int:
        if name not in self.joints:
            raise InputError(f"skeleton {self.name} has no joint '{name}'; its joints are {', '.join(self.joints)}")
        return self.joints.index(name)

    def indices(self, *names: str) -> tuple[int, ...]:
        return tuple(self.index(name) for name in names)


def _tree(name: str, text: str) -> Skeleton:
    """`joint:parent` words in joint order; the root has no parent."""
    words = [word.partition(":") for word in text.split()]
    joints = tuple(joint for joint, _, _ in words)
    return Skeleton(name, joints, tuple(joints.index(parent) if parent else -1 for _, _, parent in words))


# "thorax" is the base of the neck, "nose" the data set's Neck/Nose (its mocap head joint), "head" the top of the head.
H36M_17 = _tree(
    "h36m_17",
    """pelvis right_hip:pelvis right_knee:right_hip right_ankle:right_knee left_hip:pelvis left_knee:left_hip
    left_ankle:left_knee spine:pelvis thorax:spine nose:thorax head:nose left_shoulder:thorax left_elbow:left_shoulder
    left_wrist:left_elbow right_shoulder:thorax right_elbow:right_shoulder right_wrist:right_elbow""",
)
# The feet follow, so that a model of these gives the 17 first; "toe" is the big toe.
H36M_21 = Skeleton(
    "h36m_21",
    (*H36M_17.joints, "left_heel", "left_toe", "right_heel", "right_toe"),
    (*H36M_17.parents, *H36M_17.indices("left_ankle", "left_ankle", "right_ankle", "right_ankle")),
)
LIMB_12 = tuple(name for name in H36M_17.joints if name.startswith(("left_", "right_")))
"""The limb joints, in H36M_17's order: the joints whose meaning hardly differs between skeletons."""
LSP_14 = _tree(
    "lsp_14",
    """right_ankle:right_knee right_knee:right_hip right_hip:right_shoulder left_hip:left_shoulder left_knee:left_hip
    left_ankle:left_knee right_wrist:right_elbow right_elbow:right_shoulder right_shoulder:neck left_shoulder:neck
    left_elbow:left_shoulder left_wrist:left_elbow neck head_top:neck""",
)
COCO_17 = _tree(
    "coco_17",
    """nose left_eye:nose right_eye:nose left_ear:left_eye right_ear:right_eye left_shoulder:nose right_shoulder:nose
    left_elbow:left_shoulder right_elbow:right_shoulder left_wrist:left_elbow right_wrist:right_elbow
    left_hip:left_shoulder right_hip:right_shoulder left_knee:left_hip right_knee:right_hip left_ankle:left_knee
    right_ankle:right_knee""",
)
SMPL_24 = _tree(
    "smpl_24",
    """pelvis left_hip:pelvis right_hip:pelvis spine1:pelvis left_knee:left_hip right_knee:right_hip spine2:spine1
    left_ankle:left_knee right_ankle:right_knee spine3:spine2 left_foot:left_ankle right_foot:right_ankle neck:spine3
    left_collar:spine3 right_collar:spine3 head:neck left_shoulder:left_collar right_shoulder:right_collar
    left_elbow:left_shoulder right_elbow:right_shoulder left_wrist:left_elbow right_wrist:right_elbow
    left_hand:left_wrist right_hand:right_wrist""",
)
# OpenPose's 18 joints, its default BODY_25, and what AlphaPose and rtmlib call Halpe-26 ("hip" is between the hips).
COCO_18 = _tree(
    "coco_18",
    """nose:neck neck right_shoulder:neck right_elbow:right_shoulder right_wrist:right_elbow left_shoulder:neck
    left_elbow:left_shoulder left_wrist:left_elbow right_hip:neck right_knee:right_hip right_ankle:right_knee
    left_hip:neck left_knee:left_hip left_ankle:left_knee right_eye:nose left_eye:nose right_ear:right_eye
    left_ear:left_eye""",
)
BODY_25 = _tree(
    "body_25",
    """nose:neck neck:pelvis right_shoulder:neck right_elbow:right_shoulder right_wrist:right_elbow left_shoulder:neck
    left_elbow:left_shoulder left_wrist:left_elbow pelvis right_hip:pelvis right_knee:right_hip right_ankle:right_knee
    left_hip:pelvis left_knee:left_hip left_ankle:left_knee right_eye:nose left_eye:nose right_ear:right_eye
    left_ear:left_eye left_big_toe:left_ankle left_small_toe:left_ankle left_heel:left_ankle right_big_toe:right_ankle
    right_small_toe:right_ankle right_heel:right_ankle""",
)
HALPE_26 = _tree(
    "halpe_26",
    """nose:neck left_eye:nose right_eye:nose left_ear:left_eye right_ear:right_eye left_shoulder:neck
    right_shoulder:neck left_elbow:left_shoulder right_elbow:right_shoulder left_wrist:left_elbow
    right_wrist:right_elbow left_hip:pelvis right_hip:pelvis left_knee:left_hip right_knee:right_hip
    left_ankle:left_knee right_ankle:right_knee head_top:neck neck:pelvis pelvis left_big_toe:left_ankle
    right_big_toe:right_ankle left_small_toe:left_ankle right_small_toe:right_ankle left_heel:left_ankle
    right_heel:right_ankle""",
)
MPII_16 = _tree(
    "mpii_16",
    """right_ankle:right_knee right_knee:right_hip right_hip:pelvis left_hip:pelvis left_knee:left_hip
    left_ankle:left_knee pelvis neck:pelvis upper_neck:neck head_top:upper_neck right_wrist:right_elbow
    right_elbow:right_shoulder right_shoulder:neck left_shoulder:neck left_elbow:left_shoulder left_wrist:left_elbow""",
)
# OpenPose's experimental 25B model; order as in its poseParameters.cpp. Unlike BODY_25 it has no mid hip.
BODY_25B = _tree(
    "body_25b",
    """nose:upper_neck left_eye:nose right_eye:nose left_ear:left_eye right_ear:right_eye left_shoulder:upper_neck
    right_shoulder:upper_neck left_elbow:left_shoulder right_elbow:right_shoulder left_wrist:left_elbow
    right_wrist:right_elbow left_hip:left_shoulder right_hip:right_shoulder left_knee:left_hip right_knee:right_hip
    left_ankle:left_knee right_ankle:right_knee upper_neck head_top:upper_neck left_big_toe:left_ankle
    left_small_toe:left_ankle left_heel:left_ankle right_big_toe:right_ankle right_small_toe:right_ankle
    right_heel:right_ankle""",
)
BLAZEPOSE_33 = _tree(
    "blazepose_33",
    """nose left_eye_inner:nose left_eye:left_eye_inner left_eye_outer:left_eye right_eye_inner:nose
    right_eye:right_eye_inner right_eye_outer:right_eye left_ear:left_eye_outer right_ear:right_eye_outer
    left_mouth:nose right_mouth:nose left_shoulder:nose right_shoulder:nose left_elbow:left_shoulder
    right_elbow:right_shoulder left_wrist:left_elbow right_wrist:right_elbow left_pinky:left_wrist
    right_pinky:right_wrist left_index:left_wrist right_index:right_wrist left_thumb:left_wrist
    right_thumb:right_wrist left_hip:left_shoulder right_hip:right_shoulder left_knee:left_hip right_knee:right_hip
    left_ankle:left_knee right_ankle:right_knee left_heel:left_ankle right_heel:right_ankle left_foot_index:left_ankle
    right_foot_index:right_ankle""",
)
MPI_INF_3DHP_28 = _tree(
    "mpi_inf_3dhp_28",
    """spine3:spine2 spine4:spine3 spine2:spine spine:pelvis pelvis neck:spine4 head:neck head_top:head
    left_clavicle:neck left_shoulder:left_clavicle left_elbow:left_shoulder left_wrist:left_elbow left_hand:left_wrist
    right_clavicle:neck right_shoulder:right_clavicle right_elbow:right_shoulder right_wrist:right_elbow
    right_hand:right_wrist left_hip:pelvis left_knee:left_hip left_ankle:left_knee left_foot:left_ankle
    left_toe:left_foot right_hip:pelvis right_knee:right_hip right_ankle:right_knee right_foot:right_ankle
    right_toe:right_foot""",
)
MPI_INF_3DHP_17 = _tree(
    "mpi_inf_3dhp_17",
    """head_top:head neck:spine right_shoulder:neck right_elbow:right_shoulder right_wrist:right_elbow
    left_shoulder:neck left_elbow:left_shoulder left_wrist:left_elbow right_hip:pelvis right_knee:right_hip
    right_ankle:right_knee left_hip:pelvis left_knee:left_hip left_ankle:left_knee pelvis spine:pelvis head:neck""",
)
SKELETONS: dict[str, Skeleton] = {
    skeleton.name: skeleton
    for skeleton in (
        H36M_17, H36M_21, LSP_14, COCO_17, COCO_18, BODY_25, HALPE_26, MPII_16, SMPL_24, BODY_25B,
        BLAZEPOSE_33, MPI_INF_3DHP_28, MPI_INF_3DHP_17,
    )
}

# Joints that are not named after the point they stand for. Elsewhere name = point: "neck" is the base of the neck,
# "head" the mocap joint at the base of the skull, "head_top" the top of the skull, "nose" the tip of the nose. H36M's
# meanings hold for every skeleton that contains its 17 joints.
MEANING: dict[str, dict[str, str]] = {
    "h36m_17": {"thorax": "neck", "nose": "head", "head": "head_top"},  # as SPIN's and MPI-INF-3DHP's own mappings do
    "smpl_24": {"spine1": "lower_spine", "spine2": "mid_spine", "spine3": "upper_spine"},
}

# point -> sets of points whose mean replaces it, the first one that the source has or can build. None is exact.
RULES: dict[str, tuple[tuple[str, ...], ...]] = {
    "pelvis": (("left_hip", "right_hip"),),  # good to 1-3 cm: some pelvis joints lie above the line of the hips
    "neck": (("left_shoulder", "right_shoulder"),),  # 2-5 cm low, and it moves when the shoulders are raised
    "spine": (("mid_spine",), ("pelvis", "neck")),  # SMPL's spine2 is half way up; the mean ignores a bent back
    "mid_spine": (("spine",),),
    "head": (("nose",),),  # the nose tip lies about 10 cm in front of the skull base; H36M calls this joint Neck/Nose
    "nose": (("head",),),
}
_TOES = ("big_toe", "foot_index", "toe")  # the same toe, marked on the skin, by a model, by mocap
for _side in ("left", "right"):
    for _toe in _TOES:
        RULES[f"{_side}_{_toe}"] = tuple((f"{_side}_{other}",) for other in _TOES if other != _toe)


def get(name: str) -> Skeleton:
    """A skeleton by name; case, '_' and '-' do not matter ('coco17' is COCO_17)."""
    known = {key.replace("_", ""): skeleton for key, skeleton in SKELETONS.items()}
    if (key := name.lower().replace("_", "").replace("-", "")) not in known:
        raise InputError(f"no skeleton is called '{name}'; known are {', '.join(SKELETONS)}")
    return known[key]


def convert(joints: Array, source: Skeleton, target: Skeleton) -> tuple[Array, Array]:
    """(..., J_source, D) -> (..., J_target, D), and which joints of the target are known, (J_target,) bool.

    A joint is copied where the source has the same point, else built by RULES, else NaN and False in the mask. A NaN
    in the source reaches only the joints built from it.
    """
    _check(joints, source)
    columns = [_combine(joints, parts) for parts in _plan(source, target)]
    known = [parts != () for parts in _plan(source, target)]
    if isinstance(joints, np.ndarray):
        return np.stack(columns, axis=-2), np.array(known)
    import torch

    return torch.stack(columns, dim=-2), torch.tensor(known, device=joints.device)


def same_points(source: Skeleton, target: Skeleton) -> tuple[list[int], list[int]]:
    """Numbers of the joints that both have, in the source and in the target; nothing is built of others."""
    points = [_point(source, name) for name in source.joints]
    shared = [k for k, name in enumerate(target.joints) if _point(target, name) in points]
    return [points.index(_point(target, target.joints[k])) for k in shared], shared


def mirror(joints: Array, skeleton: Skeleton) -> Array:
    """The pose in a mirror: x becomes -x and left and right change places. Twice is the identity."""
    _check(joints, skeleton)
    swapped = joints[..., list(skeleton.mirror_order), :]  # a copy
    swapped[..., 0] *= -1
    return swapped


def bone_lengths(joints: Array, skeleton: Skeleton) -> Array:
    """Length of every bone of `skeleton.bones`, (..., J, D) -> (..., bones), in the unit of the joints."""
    _check(joints, skeleton)
    children, parents = (list(side) for side in zip(*skeleton.bones, strict=True))
    difference = joints[..., children, :] - joints[..., parents, :]
    if isinstance(difference, np.ndarray):
        return np.linalg.norm(difference, axis=-1)
    import torch

    return torch.linalg.vector_norm(difference, dim=-1)


def _check(joints: Any, skeleton: Skeleton) -> None:
    shape = tuple(joints.shape)
    is_numpy = isinstance(joints, np.ndarray)
    floating = np.issubdtype(joints.dtype, np.floating) if is_numpy else joints.is_floating_point()
    if len(shape) < 2 or shape[-2] != skeleton.count or shape[-1] not in (2, 3) or not floating:
        raise InputError(
            f"{skeleton.name} poses must be floating point of shape (..., {skeleton.count}, 3) or "
            f"(..., {skeleton.count}, 2), got {joints.dtype} of shape {shape}"
        )


def _combine(joints: Array, parts: tuple[tuple[int, float], ...]) -> Array:
    if not parts:
        return joints[..., 0, :] * np.nan
    total = joints[..., parts[0][0], :] * parts[0][1]
    for joint, weight in parts[1:]:
        total = total + joints[..., joint, :] * weight
    return total


@lru_cache
def _plan(source: Skeleton, target: Skeleton) -> tuple[tuple[tuple[int, float], ...], ...]:
    """For every target joint the source joints and weights that build it; () where it cannot be built."""
    have = {_point(source, name): joint for joint, name in enumerate(source.joints)}
    return tuple(tuple(_make(_point(target, name), have, frozenset()).items()) for name in target.joints)


def _point(skeleton: Skeleton, joint: str) -> str:
    name = "h36m_17" if set(H36M_17.joints) <= set(skeleton.joints) else skeleton.name
    return MEANING.get(name, {}).get(joint, joint)


def _make(point: str, have: dict[str, int], tried: frozenset[str]) -> dict[int, float]:
    """Source joint -> weight."""
    if point in have:
        return {have[point]: 1.0}
    for ingredients in RULES.get(point, ()):
        if tried & set(ingredients):
            continue
        made = [_make(ingredient, have, tried | {point}) for ingredient in ingredients]
        if all(made):
            weights: dict[int, float] = {}
            for part in made:
                for joint, weight in part.items():
                    weights[joint] = weights.get(joint, 0.0) + weight / len(made)
            return weights
    return {}
