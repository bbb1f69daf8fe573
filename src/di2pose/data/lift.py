"""Lifting: poses seen as 17 simulated 2D keypoints, written as a feature cache.  n poses, COCO's 17 keypoints.

An arena for comparisons that two cores can settle: a sample costs microseconds, what is hidden is known exactly, and
`train`, `evaluate` and `ablate` take the cache like any other. The keypoints of real footage come out of a cache with
MoveNet's tokens. Keypoints lie in [-1, 1]^2 of a square crop; poses have the axes of the ray through its centre.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from di2pose.data.bvh import PITCH_DEGREES
from di2pose.data.feature_cache import ROWS, TEXT, FeatureCache, write_features
from di2pose.data.poses import augment_motion, whole_poses
from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, Dataset
from di2pose.errors import InputError
from di2pose.image.keypoint_encoder import RATE, KeypointEncoder, as_window
from di2pose.image.movenet import OBSERVER
from di2pose.noise import generator_of, seed_of
from di2pose.pose.skeleton import COCO_17, H36M_17, H36M_21, Skeleton

if TYPE_CHECKING:
    from torch import Tensor

KEYPOINTS = COCO_17.count
FACE = 5
"""Nose, eyes and ears: COCO's first keypoints, which Human3.6M's joints do not have."""
LIMBS = list(H36M_17.indices(*COCO_17.joints[FACE:]))


@dataclass(frozen=True)
class Observer:
    """How well the simulated 2D detector sees. Lengths are shares of the body's extent in the picture."""

    noise: float | tuple[float, float]
    """Scale of a keypoint's error, Student's t with 3 degrees of freedom in x and y; of a person's, where it is drawn
    for each, evenly in the logarithm."""
    patched: float
    """Share of the people behind a square patch, a limb joint at its centre."""
    patch: tuple[float, float]
    """Least and largest side of the patch, over the crop's."""
    cut: float
    """Share of the people whom the picture's lower edge cuts."""
    swapped: float
    """Share of the people of whom left and right limbs are taken for each other."""
    dropped: tuple[float, float] = (0.0, 0.0)
    """Share of a person's keypoints that are missing wherever they are, drawn evenly; none where it is below 0."""
    one_score: float = 0.0
    """Share of the people all of whose keypoints have one score, as labels and some detectors give it."""
    annotated: float = 0.0
    """Share of the people whose shoulders and hips lie where annotators put them, as ANNOTATED has it."""
    whole: bool = True
    """Whether windows have all their frames; else some are short, or of a low rate."""


OBSERVERS = {
    "clear": Observer(noise=0.01, patched=0.25, patch=(0.1, 0.3), cut=0.05, swapped=0.0),
    "hard": Observer(noise=0.025, patched=0.8, patch=(0.2, 0.5), cut=0.2, swapped=0.03),
    "any": Observer((0.0005, 0.03), 0.3, (0.1, 0.5), cut=0.1, swapped=0.005, dropped=(-1.5, 0.65), one_score=0.25,
                    annotated=0.75, whole=False),
    "true": Observer(0.0, 0.0, patch=(0.1, 0.3), cut=0.0, swapped=0.0),
    "missing-30": Observer(0.0, 0.0, patch=(0.1, 0.3), cut=0.0, swapped=0.0, dropped=(0.3, 0.3)),
    "missing-60": Observer(0.0, 0.0, patch=(0.1, 0.3), cut=0.0, swapped=0.0, dropped=(0.6, 0.6)),
}  # fmt: skip
"""Two noise settings to compare with; observers of every quality to train with; true keypoints, all or some of them."""
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
FACELESS = 0.4
"""Share of the people without keypoints of the face, as labels of mocap and of MPII have it."""
ANNOTATED = {"shoulder": ((-0.04, 0.20), (-0.1, 0.1)), "hip": ((-0.05, 0.14), (-0.25, 0.1))}
"""Joint -> by how much an annotator's lies above ours, in trunk lengths, and farther from the other side's, over their
distance. MoveNet's, of 1,024 rendered people: shoulders 0.08 above, hips 0.05 above and 0.08 nearer (medians)."""
SLOW, SLOWNESS = 0.5, 0.8
"""Of videos: the share of an error's variance that goes from frame to frame, and its correlation there."""
SHORT, SPARSE, PAN = 0.4, 0.3, 0.2
"""Shares of the windows that are shorter (half of them one frame), have fewer frames a second, and follow a camera that
pans, by up to a body size a second."""


class Keypoints:
    """Simulated keypoints of a set of poses, or of windows of a motion round each pose, RATE frames a second by one
    body and camera: a crop source. Chunk k of ROWS records depends on the seed and k alone."""

    def __init__(
        self, poses_mm: np.ndarray, texts: list[dict[str, str]], observer: Observer, count: int, seed: int,
        skeleton: Skeleton = H36M_17, motions: "Motions | None" = None, frames: int = 1,
    ) -> None:  # fmt: skip
        """poses_mm: in the axes of cameras, or in the world of `motions`. skeleton: of the poses; Human3.6M's 17 joints
        first. frames: of a window, which needs motions"""
        self.poses_mm, self.texts, self.observer, self.count, self.seed = poses_mm, texts, observer, count, seed
        self.skeleton, self.motions, self.frames = skeleton, motions, frames
        self._chunk = lru_cache(maxsize=2)(self._draw)

    def __len__(self) -> int:
        return self.count

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        keypoints, joints_mm, visibility, chosen = self._chunk(i // ROWS)
        row = i % ROWS
        text = self.texts[chosen[row]]
        labels = {"joints_mm": joints_mm[row], "visibility": visibility[row]}
        return keypoints[row], labels, text | {"id": f"{text['id']}#{i}"}

    def _draw(self, chunk: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Keypoints (ROWS, 17, 4) or (ROWS, T, 17, 4), poses in crop axes, visibility of the joints, and whose poses
        they are."""
        T, key = self.frames, (self.seed, "lift" if self.motions is None else "windows", chunk)
        random = np.random.default_rng(seed_of(*key))
        chosen = random.integers(len(self.poses_mm), size=ROWS)
        poses_mm, travel_mm, there = self._frames(chosen, random)               # ROWS T
        joints_mm, moved_mm = (
            x.numpy() for x in augment_motion(poses_mm, travel_mm, generator_of(*key), self.skeleton, T)
        )
        points_mm = np.concatenate([face_points(joints_mm, random, T), joints_mm[:, LIMBS], joints_mm], axis=1)
        points_mm = points_mm + moved_mm[:, None]
        near, far = DISTANCE_M
        distance = np.repeat(1000 * near * (far / near) ** random.uniform(size=(ROWS, 1)), T, 0)
        depth = np.maximum(points_mm[..., 2] + distance, 500)
        flat = (points_mm[..., :2] * (distance / depth)[..., None]).reshape(ROWS, T, -1, 2)  # mm at the pelvis's depth
        farthest = np.linalg.norm(flat[:, T // 2, :KEYPOINTS], axis=-1).max(1)
        half = farthest * random.uniform(*SIDE, size=ROWS)
        places = flat / half[:, None, None, None] + self._shift(random)         # [-1, 1]^2
        hidden, outside = self._hide(places, random)
        of_all = slice(None), slice(KEYPOINTS)
        seen = observe(places.reshape(ROWS * T, -1, 2)[of_all], (hidden | outside)[of_all], outside[of_all],
                       np.repeat(farthest / half, T), self.observer, random, T)  # fmt: skip
        seen = seen.reshape(ROWS, T, KEYPOINTS, -1) * there[..., None, None]
        middle = slice(T // 2, None, T)
        visibility = np.where(outside, OUT_OF_FRAME, np.where(hidden, OCCLUDED, SEEN))[middle, KEYPOINTS:]
        return seen if T > 1 else seen[:, 0], joints_mm[middle], visibility.astype(np.int8), chosen

    def _frames(self, chosen: np.ndarray, random: np.random.Generator) -> "tuple[Tensor, Tensor, np.ndarray]":
        """Poses (ROWS * T, J, 3) in camera axes, the way of their roots from the middle frame, and which frames are
        there (ROWS, T)."""
        import torch

        poses_mm, root_mm, there = self.poses_mm[chosen], np.zeros((ROWS, 3)), np.ones((ROWS, 1), bool)
        if self.motions is not None:
            rows, there = self.motions.window(chosen, self.frames)
            if not self.observer.whole:
                there &= self._kept(random)
            turn = _cameras(random)[:, None]                                    # ROWS 1 3 3
            roots = self.motions.root_mm
            root_mm = ((roots[rows] - roots[chosen][:, None])[:, :, None] @ turn).reshape(-1, 3)
            poses_mm = (self.poses_mm[rows] @ turn).reshape(-1, *self.poses_mm.shape[1:])
        return torch.from_numpy(poses_mm.astype(np.float32)), torch.from_numpy(root_mm.astype(np.float32)), there

    def _shift(self, random: np.random.Generator) -> np.ndarray:
        """Of all places of a frame: crops are not quite centred, and cameras pan."""
        if self.motions is None:
            return -0.05 * random.standard_normal((ROWS, 1, 1, 2))
        pan = random.uniform(-1, 1, size=(ROWS, 1, 1, 2)) * (random.uniform(size=(ROWS, 1, 1, 1)) < PAN)
        return np.asarray(pan * ((np.arange(self.frames) - self.frames // 2) / RATE)[:, None, None])

    def _hide(
        self, places: Float[np.ndarray, "ROWS T P 2"], random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which points (ROWS * T, P) lie behind a patch, at a limb of the middle frame, and which outside the picture,
        or, of pictures alone, outside the crop."""
        rows, middle = np.arange(ROWS), places[:, self.frames // 2]
        limb = middle[rows, random.integers(FACE, KEYPOINTS, size=ROWS)][:, None, None]
        side = random.uniform(*self.observer.patch, size=(ROWS, 1, 1, 1))       # half of the side in [-1, 1]
        patched = random.uniform(size=(ROWS, 1, 1)) < self.observer.patched
        hidden = patched & (np.abs(places - limb) < side).all(-1)
        edge = random.uniform(-0.1, 0.8, size=(ROWS, 1, 1))
        outside = (random.uniform(size=(ROWS, 1, 1)) < self.observer.cut) & (places[..., 1] > edge)
        if self.motions is None:
            outside |= (np.abs(places) > 1.0).any(-1)
        return hidden.reshape(-1, places.shape[2]), outside.reshape(-1, places.shape[2])

    def _kept(self, random: np.random.Generator) -> np.ndarray:
        """Which frames a window has: it may be short, or of a low rate; the middle one is always there."""
        away = np.abs(np.arange(self.frames) - self.frames // 2)
        kind = random.uniform(size=(ROWS, 1))
        reach = random.integers(1, self.frames // 2 + 1, size=(ROWS, 1)) * (kind > SHORT / 2)
        every = np.where(random.uniform(size=(ROWS, 1)) < SPARSE, random.integers(2, 9, size=(ROWS, 1)), 1)
        return ((kind > SHORT) | (away <= reach)) & (away % every == 0)


@dataclass(frozen=True, eq=False)
class Motions:
    """Where the poses of a dataset stand in time and in the world, which has y up."""

    sequence: np.ndarray
    """Number of each pose's clip; poses of a clip are neighbours, ordered in time."""
    time_s: np.ndarray
    root_mm: np.ndarray

    def window(self, rows: np.ndarray, frames: int) -> tuple[np.ndarray, np.ndarray]:
        """Poses of the frames round each row, RATE a second, and whether there is such a pose (n, frames)."""
        wanted = self.time_s[rows][:, None] + (np.arange(frames) - frames // 2) / RATE
        key = self.sequence * 1e5                                               # clips are shorter than a day
        near = np.searchsorted(key + self.time_s, key[rows][:, None] + wanted - 0.25 / RATE)
        near = np.minimum(near, len(self.time_s) - 1)
        same = self.sequence[near] == self.sequence[rows][:, None]
        there = same & (np.abs(self.time_s[near] - wanted) < 0.25 / RATE)
        return np.where(there, near, rows[:, None]), there


def _cameras(random: np.random.Generator) -> Float[np.ndarray, "n 3 3"]:
    """x_camera = x_world @ turn: any yaw, pitch as `bvh.virtual_camera` has it."""
    angles = np.stack([180 + random.uniform(*PITCH_DEGREES, size=ROWS), random.uniform(0, 360, size=ROWS)], 1)
    return Rotation.from_euler("XY", angles, degrees=True).as_matrix().transpose(0, 2, 1)


def observe(
    places: Float[np.ndarray, "n 17 2"],
    hidden: np.ndarray,
    outside: np.ndarray,
    body: Float[np.ndarray, " n"],
    observer: Observer,
    random: np.random.Generator,
    frames: int = 1,
) -> Float[np.ndarray, "n 17 4"]:
    """x, y, score and 1 of every keypoint as the detector gives them; zeros where it is missing. Every `frames` rows
    are of one person: what is drawn for a person is theirs, and errors change slowly in part."""

    def drawn(least: float, most: float) -> np.ndarray:
        """Evenly for each person, (n, 1)."""
        return np.repeat(random.uniform(least, most, size=(len(places) // frames, 1)), frames, 0)

    noise: float | np.ndarray
    least, most = observer.noise if isinstance(observer.noise, tuple) else (observer.noise, None)
    noise = least if most is None else least * (most / least) ** drawn(0, 1)
    if observer.annotated:
        chosen = drawn(0, 1) < observer.annotated
        places = places + _annotated(places, {name: [drawn(*way) for way in ways] for name, ways in ANNOTATED.items()},
                                     chosen)  # fmt: skip
    scale = noise * 2 * body[:, None] * np.where(hidden, HALLUCINATED, 1.0)
    error = random.standard_t(3, size=places.shape)
    if frames > 1:
        error = _slowly(error.reshape(-1, frames, *error.shape[1:]), random).reshape(error.shape)
    error = scale[..., None] * error
    swapped = random.uniform(size=len(places)) < observer.swapped
    mirrored = np.where(np.arange(KEYPOINTS) < FACE, np.arange(KEYPOINTS), COCO_17.mirror_order)
    places = np.where(swapped[:, None, None], places[:, mirrored], places)
    relative = np.linalg.norm(error, axis=-1) / (2 * body[:, None])
    score = np.exp(-relative / 0.08) - 0.3 * hidden + SCORE_NOISE * random.standard_normal(relative.shape)
    missing = outside | (hidden & (random.uniform(size=hidden.shape) < MISSING))
    missing[drawn(0, 1)[:, 0] < FACELESS, :FACE] = True
    if any(observer.dropped):
        share = np.maximum(drawn(*observer.dropped), 0)
        missing |= random.uniform(size=missing.shape) < share
        missing &= ~missing.all(1, keepdims=True)
    if observer.one_score:
        alike = drawn(0, 1) < observer.one_score
        score = np.where(alike, drawn(0.5, 1), score)
    found = np.concatenate([places + error, np.clip(score, 0, 1)[..., None], np.ones((*score.shape, 1))], -1)
    return np.where(missing[..., None], 0, found).astype(np.float32)


def _annotated(
    places: Float[np.ndarray, "n 17 2"], ways: dict[str, list[np.ndarray]], chosen: np.ndarray
) -> Float[np.ndarray, "n 17 2"]:
    """Offsets of annotators' shoulders and hips: shares (n, 1) of the trunk upwards and of the joint's way outwards."""
    pairs = {name: list(COCO_17.indices(f"left_{name}", f"right_{name}")) for name in ways}
    trunk = (places[:, pairs["shoulder"]] - places[:, pairs["hip"]]).mean(1, keepdims=True)
    moved = np.zeros_like(places)
    for name, (above, apart) in ways.items():
        pair = places[:, pairs[name]]
        moved[:, pairs[name]] = above[..., None] * trunk + apart[..., None] * (pair - pair[:, ::-1])
    return moved * chosen[..., None]


def _slowly(error: Float[np.ndarray, "n T 17 2"], random: np.random.Generator) -> Float[np.ndarray, "n T 17 2"]:
    """Errors of the same size, of which the share SLOW is a slow process through the frames."""
    slow = random.standard_t(3, size=error.shape)
    for t in range(1, error.shape[1]):
        slow[:, t] = SLOWNESS * slow[:, t - 1] + (1 - SLOWNESS**2) ** 0.5 * slow[:, t]
    return (1 - SLOW) ** 0.5 * error + SLOW**0.5 * slow


def face_points(
    joints_mm: Float[np.ndarray, "n J 3"], random: np.random.Generator, frames: int = 1
) -> Float[np.ndarray, "n 5 3"]:
    """Nose, eyes and ears, from the top and base of the skull and the line of the shoulders, the head turned a bit, in
    every `frames` rows alike."""
    used = H36M_17.indices("nose", "head", "left_shoulder", "right_shoulder")
    base, top, left, right = (joints_mm[:, joint] for joint in used)
    size = np.linalg.norm(top - base, axis=-1, keepdims=True)
    up = (top - base) / np.maximum(size, 1)
    side = left - right
    side = side - (side * up).sum(-1, keepdims=True) * up
    side = side / np.maximum(np.linalg.norm(side, axis=-1, keepdims=True), 1)
    front = np.cross(side, up)
    yaw = np.repeat(HEAD_YAW * random.standard_normal((len(joints_mm) // frames, 1)), frames, 0)
    front, side = np.cos(yaw) * front + np.sin(yaw) * side, np.cos(yaw) * side - np.sin(yaw) * front
    shape = [(0.35, 0.70, 0.0), (0.55, 0.60, 0.22), (0.55, 0.60, -0.22), (0.45, 0.05, 0.5), (0.45, 0.05, -0.5)]
    return np.stack([base + size * (u * up + f * front + s * side) for u, f, s in shape], axis=1)


class MoveNetKeypoints:
    """The keypoints that MoveNet saw in the crops of another cache, in windows without other frames; its labels
    stay."""

    def __init__(self, cache: FeatureCache, frames: int = 1) -> None:
        if OBSERVER not in cache.fields:
            raise InputError(f"{cache.folder} holds no keypoints of MoveNet: give features an encoder with +movenet")
        self.cache, self.frames = cache, frames
        self.labels = [name for name in ("joints_mm", "valid", "visibility") if name in cache.fields]

    def __len__(self) -> int:
        return len(self.cache)

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        parts = self.cache.read(np.array([i]), OBSERVER, *self.labels)
        tokens = parts.pop(OBSERVER).astype(np.float32)
        seen = np.concatenate([tokens[..., :2], tokens[..., 4:5], np.ones((1, KEYPOINTS, 1), np.float32)], axis=-1)
        labels = {name: value[0] for name, value in parts.items()}
        return as_window(seen, self.frames)[0], labels, dict(self.cache.index[i])


def lift(
    data: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")],
    out: Path,
    observer: Literal["clear", "hard", "any", "true", "missing-30", "missing-60"] = "clear",
    split: Literal["train", "test"] = "train",
    count: int = 262144,
    seed: int = 0,
    window: int = 1,
    mirrored: bool = False,
) -> None:
    """Write a feature cache of simulated 2D keypoints, to compare lifting methods on: poses of a prepared dataset by
    other bodies, turned, before a drawn camera, partly hidden. Of a cache with MoveNet's tokens: those keypoints.

    Args:
        data: prepared dataset with 3D poses (`di2pose data prepare bvh`), or feature cache with MoveNet's tokens
        out: folder of the feature cache
        observer: how well the simulated detector sees
        split: whose poses, of the dataset's splits
        count: how many records
        seed: another seed draws other bodies, cameras and errors
        window: frames of motion, 24 a second, round each pose; 1: the pose alone. Needs a dataset of motion (bvh); of
            a cache with MoveNet's tokens the other frames are missing
        mirrored: the mirror images, too: `evaluate` then makes the flip test, as `di2pose lift` does
    """
    encoder = KeypointEncoder(window)
    if (data / "features.json").is_file():
        cache = FeatureCache(data)
        about = {name: cache.header[name] for name in ("skeleton", "source")}
        write_features(MoveNetKeypoints(cache, window), encoder, out, about, mirrored)
        return
    dataset = Dataset(data)
    skeleton = H36M_21 if dataset.skeleton == H36M_21 else H36M_17
    joints, rows = whole_poses(dataset.joints_mm, dataset.skeleton, skeleton)
    chosen = dataset.column("split")[rows] == split
    poses, rows = joints[chosen], rows[chosen]
    if not len(rows) or count < 1:
        raise InputError(f"nothing to write: {data} has {len(rows)} whole poses of split {split}, --count is {count}")
    texts = [{name: str(dataset.index[row][name]) for name in TEXT} for row in rows.tolist()]
    motions = None
    if window > 1:
        poses, motions = _motions(dataset, poses, rows)
    source = Keypoints(poses, texts, OBSERVERS[observer], count, seed, skeleton, motions, window)
    about = {"skeleton": skeleton.name, "source": dataset.name, "observer": observer, "split": split, "seed": seed}
    write_features(source, encoder, out, about, mirrored)


def _motions(dataset: Dataset, poses_mm: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, Motions]:
    """Poses of a dataset's rows turned back to the world, and where they stand."""
    extra = [dataset.index[row]["extra"] for row in rows.tolist()]
    if not all({"rotation", "root_mm", "time_s"} <= each.keys() for each in extra):
        raise InputError(f"{dataset.folder} says nothing of time and place: prepare BVH files anew, or take --window 1")
    turns, root_mm, time_s = (np.array([each[name] for each in extra]) for name in ("rotation", "root_mm", "time_s"))
    _, first, clip = np.unique(dataset.column("sequence")[rows], return_index=True, return_inverse=True)
    sequence = np.argsort(np.argsort(first))[clip]
    if (np.diff(sequence * 1e5 + time_s) <= 0).any():
        raise InputError(f"{dataset.folder}: expected clip after clip, each ordered in time; prepare it anew")
    return (poses_mm @ turns).astype(np.float32), Motions(sequence, time_s, root_mm)
