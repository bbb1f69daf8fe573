"""Lifting: poses seen as 17 simulated 2D keypoints, written as a feature cache.  n poses, COCO's 17 keypoints.

An arena for comparisons that two cores can settle: a sample costs microseconds, what is hidden is known exactly, and
`train`, `evaluate` and `ablate` take the cache like any other. Keypoints lie in [-1, 1]^2 of a square crop; poses have
the axes of the ray through its centre.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from jaxtyping import Float

from di2pose.data.feature_cache import ROWS, TEXT, write_features
from di2pose.data.poses import augment, whole_poses
from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, Dataset
from di2pose.errors import InputError
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.noise import generator_of, seed_of
from di2pose.pose.skeleton import COCO_17, H36M_17

CHANNELS = 4
"""Of a keypoint's token: x, y, score, 1 where it is there; all 0 where it is missing."""
KEYPOINTS = COCO_17.count
FACE = 5
"""Nose, eyes and ears: COCO's first keypoints, which Human3.6M's joints do not have."""


@dataclass(frozen=True)
class Observer:
    """How well the simulated 2D detector sees. Lengths are shares of the body's extent in the picture."""

    noise: float
    """Scale of a keypoint's error, Student's t with 3 degrees of freedom in x and y."""
    patched: float
    """Share of the people behind a square patch, a limb joint at its centre."""
    patch: tuple[float, float]
    """Least and largest side of the patch, over the crop's."""
    cut: float
    """Share of the people whom the picture's lower edge cuts."""
    swapped: float
    """Share of the people of whom left and right limbs are taken for each other."""


OBSERVERS = {
    "clear": Observer(noise=0.01, patched=0.25, patch=(0.1, 0.3), cut=0.05, swapped=0.0),
    "hard": Observer(noise=0.025, patched=0.8, patch=(0.2, 0.5), cut=0.2, swapped=0.03),
}
"""The two published settings."""
MISSING = 0.5
"""Share of the hidden keypoints that are missing; the others are hallucinated, HALLUCINATED times as far off."""
HALLUCINATED = 6.0
DISTANCE_M = (2.0, 12.0)
"""Of the camera, drawn evenly in the logarithm."""
SIDE = (1.2, 1.7)
"""Crop's side over twice the distance of the farthest keypoint from its centre, as detectors' crops have it."""
HEAD_YAW = math.radians(20)
"""Deviation of the head's yaw from the shoulders'."""
SCORE_NOISE = 0.15


class Keypoints:
    """Simulated keypoints of a set of poses: a crop source and its encoder. Chunk k of ROWS records depends on the seed
    and k alone."""

    name = "keypoints"
    layout = FeatureLayout(tuple(TokenBlock(name, 1, CHANNELS, CHANNELS * j) for j, name in enumerate(COCO_17.joints)))
    """A block of channels for each keypoint, so that attention can tell the tokens apart."""

    def __init__(
        self, poses_mm: np.ndarray, texts: list[dict[str, str]], observer: Observer, count: int, seed: int
    ) -> None:
        self.poses_mm, self.texts, self.observer, self.count, self.seed = poses_mm, texts, observer, count, seed
        self._chunk = lru_cache(maxsize=2)(self._draw)

    def __len__(self) -> int:
        return self.count

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        keypoints, joints_mm, visibility, chosen = self._chunk(i // ROWS)
        row = i % ROWS
        text = self.texts[chosen[row]]
        labels = {"joints_mm": joints_mm[row], "visibility": visibility[row]}
        return keypoints[row], labels, text | {"id": f"{text['id']}#{i}"}

    def cache_parts(self, crops: Float[np.ndarray, "B 17 4"]) -> dict[str, np.ndarray]:
        return {joint: crops[:, j : j + 1].astype(np.float16) for j, joint in enumerate(COCO_17.joints)}

    def _draw(self, chunk: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Keypoints (ROWS, 17, 4), poses in crop axes, visibility of Human3.6M's joints, and whose poses they are."""
        import torch

        random = np.random.default_rng(seed_of(self.seed, "lift", chunk))
        chosen = random.integers(len(self.poses_mm), size=ROWS)
        poses = torch.from_numpy(np.ascontiguousarray(self.poses_mm[chosen], dtype=np.float32))
        joints_mm = augment(poses, generator_of(self.seed, "lift", chunk)).numpy()
        points_mm = np.concatenate([face_points(joints_mm, random), _limbs(joints_mm), joints_mm], axis=1)
        near, far = DISTANCE_M
        distance = 1000 * near * (far / near) ** random.uniform(size=(ROWS, 1))
        depth = np.maximum(points_mm[..., 2] + distance, 500)
        flat = points_mm[..., :2] * (distance / depth)[..., None]               # mm at the pelvis's depth
        farthest = np.linalg.norm(flat[:, :KEYPOINTS], axis=-1).max(1)
        half = farthest * random.uniform(*SIDE, size=ROWS)
        centre = 0.05 * half[:, None] * random.standard_normal((ROWS, 2))
        places = (flat - centre[:, None]) / half[:, None, None]                 # [-1, 1]^2
        hidden, outside = self._hide(places, random)
        visibility = np.where(outside, OUT_OF_FRAME, np.where(hidden, OCCLUDED, SEEN))[:, KEYPOINTS:]
        seen = observe(places[:, :KEYPOINTS], (hidden | outside)[:, :KEYPOINTS], outside[:, :KEYPOINTS],
                       farthest / half, self.observer, random)  # fmt: skip
        return seen, joints_mm, visibility.astype(np.int8), chosen

    def _hide(self, places: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Which points lie behind a patch, and which outside the picture."""
        rows = np.arange(len(places))
        limb = places[rows, random.integers(FACE, KEYPOINTS, size=len(places))]
        side = random.uniform(*self.observer.patch, size=(len(places), 1, 1))   # half of the side in [-1, 1]
        patched = random.uniform(size=(len(places), 1)) < self.observer.patched
        hidden = patched & (np.abs(places - limb[:, None]) < side).all(-1)
        edge = random.uniform(-0.1, 0.8, size=(len(places), 1))
        cut = random.uniform(size=(len(places), 1)) < self.observer.cut
        return hidden, (cut & (places[..., 1] > edge)) | (np.abs(places) > 1).any(-1)


def observe(
    places: Float[np.ndarray, "n 17 2"],
    hidden: np.ndarray,
    outside: np.ndarray,
    body: Float[np.ndarray, " n"],
    observer: Observer,
    random: np.random.Generator,
) -> Float[np.ndarray, "n 17 4"]:
    """x, y, score and 1 of every keypoint as the detector gives them; zeros where it is missing."""
    scale = observer.noise * 2 * body[:, None] * np.where(hidden, HALLUCINATED, 1.0)
    error = scale[..., None] * random.standard_t(3, size=places.shape)
    swapped = random.uniform(size=len(places)) < observer.swapped
    mirrored = np.arange(KEYPOINTS)
    mirrored[FACE:] = mirrored[FACE:].reshape(-1, 2)[:, ::-1].reshape(-1)       # left and right alternate
    places = np.where(swapped[:, None, None], places[:, mirrored], places)
    relative = np.linalg.norm(error, axis=-1) / (2 * body[:, None])
    score = np.exp(-relative / 0.08) - 0.3 * hidden + SCORE_NOISE * random.standard_normal(relative.shape)
    missing = outside | (hidden & (random.uniform(size=hidden.shape) < MISSING))
    found = np.concatenate([places + error, np.clip(score, 0, 1)[..., None], np.ones((*score.shape, 1))], -1)
    return np.where(missing[..., None], 0, found).astype(np.float32)


def face_points(joints_mm: Float[np.ndarray, "n 17 3"], random: np.random.Generator) -> Float[np.ndarray, "n 5 3"]:
    """Nose, eyes and ears, from the top and base of the skull and the line of the shoulders, the head turned a bit."""
    used = H36M_17.indices("nose", "head", "left_shoulder", "right_shoulder")
    base, top, left, right = (joints_mm[:, joint] for joint in used)
    size = np.linalg.norm(top - base, axis=-1, keepdims=True)
    up = (top - base) / np.maximum(size, 1)
    side = left - right
    side = side - (side * up).sum(-1, keepdims=True) * up
    side = side / np.maximum(np.linalg.norm(side, axis=-1, keepdims=True), 1)
    front = np.cross(side, up)
    yaw = HEAD_YAW * random.standard_normal((len(joints_mm), 1))
    front, side = np.cos(yaw) * front + np.sin(yaw) * side, np.cos(yaw) * side - np.sin(yaw) * front
    shape = [(0.35, 0.70, 0.0), (0.55, 0.60, 0.22), (0.55, 0.60, -0.22), (0.45, 0.05, 0.5), (0.45, 0.05, -0.5)]
    return np.stack([base + size * (u * up + f * front + s * side) for u, f, s in shape], axis=1)


def _limbs(joints_mm: np.ndarray) -> np.ndarray:
    return joints_mm[:, H36M_17.indices(*COCO_17.joints[FACE:])]


def lift(
    data: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")],
    out: Path,
    observer: Literal["clear", "hard"] = "clear",
    split: Literal["train", "test"] = "train",
    count: int = 262144,
    seed: int = 0,
) -> None:
    """Write a feature cache of simulated 2D keypoints, to compare lifting methods on: poses of a prepared dataset by
    other bodies, turned, before a drawn camera, partly hidden.

    Args:
        data: prepared dataset with 3D poses (`di2pose data prepare bvh`)
        out: folder of the feature cache
        observer: how well the simulated detector sees
        split: whose poses, of the dataset's splits
        count: how many records
        seed: another seed draws other bodies, cameras and errors
    """
    dataset = Dataset(data)
    joints, rows = whole_poses(dataset.joints_mm, dataset.skeleton)
    chosen = dataset.column("split")[rows] == split
    poses, rows = joints[chosen], rows[chosen]
    if not len(rows) or count < 1:
        raise InputError(f"nothing to write: {data} has {len(rows)} whole poses of split {split}, --count is {count}")
    lines = (dict(dataset.index[row]) for row in rows.tolist())
    texts = [{name: str(line[name]) for name in TEXT} for line in lines]
    source = Keypoints(poses, texts, OBSERVERS[observer], count, seed)
    about = {"skeleton": H36M_17.name, "source": dataset.name, "observer": observer, "split": split, "seed": seed}
    write_features(source, source, out, about)
