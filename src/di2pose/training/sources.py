"""Training records by number: poses for the tokenizer, cached features with poses for the denoiser.  n records, J
joints of the model's skeleton."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from di2pose.data.feature_cache import FeatureCache
from di2pose.data.poses import whole_poses
from di2pose.data.sample import UNKNOWN, Dataset
from di2pose.errors import InputError
from di2pose.image.encoder import FeatureLayout
from di2pose.noise import seed_of
from di2pose.pose.skeleton import H36M_17, Skeleton, convert, same_points

TRAIN = "train"


class MemorySource:
    """Records in memory, each tensor with a row a record; poses are `joints_mm` (n, J, 3)."""

    def __init__(self, **records: Tensor) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records["joints_mm"])

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in self.records.values())).hexdigest()[:16]

    def batch(self, rows: np.ndarray) -> dict[str, Tensor]:
        return {name: tensor[torch.from_numpy(rows)] for name, tensor in self.records.items()}


def read_poses(
    records: Dataset | FeatureCache, target: Skeleton = H36M_17
) -> tuple[Float32[np.ndarray, "n J 3"], Int64[np.ndarray, " n"], np.ndarray, np.ndarray]:
    """Root-relative poses on the target's joints; the number, split and id of each one's record. Records on a skeleton
    that has not all joints of the target, nor others to make them of, are refused."""
    skeleton = records.skeleton
    known = convert(np.zeros((skeleton.count, 3), np.float32), skeleton, target)[1]
    if missing := [name for name, there in zip(target.joints, known, strict=True) if not there]:
        lacking = f"{target.name} needs {', '.join(missing)}, too (or train with --set tokenizer.skeleton=h36m_17)"
        raise InputError(f"{records.folder} has the joints of {skeleton.name}: {lacking}")
    joints_mm = records.joints_mm if isinstance(records, Dataset) else records.column("joints_mm")
    joints, rows = whole_poses(joints_mm, skeleton, target)
    lines: list[Any] = [records.index[row] for row in rows.tolist()]
    splits, ids = (np.array([str(line[name]) for line in lines]) for name in ("split", "id"))
    return joints, rows, splits, ids


def pose_sources(
    folders: Sequence[Path], share: float = 1.0, target: Skeleton = H36M_17
) -> tuple[MemorySource, MemorySource]:
    """All poses of split `train`, or a share of them, and all others: of feature caches the same as `feature_sources`
    chooses."""
    if not folders:
        raise InputError("--data needs one folder or more: prepared datasets, rendered people, feature caches")
    opened = [FeatureCache(each) if (each / "features.json").is_file() else Dataset(each) for each in folders]
    parts = [read_poses(records, target) for records in opened]
    joints, _, splits, ids = (np.concatenate(each) for each in zip(*parts, strict=True))
    poses = torch.from_numpy(joints)
    train, held_out = _split(splits, ids, share, folders)
    return MemorySource(joints_mm=poses[train]), MemorySource(joints_mm=poses[held_out])


def _split(splits: np.ndarray, ids: np.ndarray, share: float, folders: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the records of split `train`, or of a share of them, and of all others. The share is chosen by the ids
    alone: a smaller one is a part of a larger one, whatever the seed."""
    if not 0 < share <= 1:
        raise InputError(f"--share must lie above 0 and be 1 at most, got {share}")
    named = ", ".join(map(str, folders))
    train, held_out = np.flatnonzero(splits == TRAIN), np.flatnonzero(splits != TRAIN)
    if not len(train):
        raise InputError(f"{named}: no record of split '{TRAIN}' to learn from")
    if not len(held_out):
        raise InputError(
            f"{named}: all records are of split '{TRAIN}', none is held out to measure on: add such a folder"
        )
    if share < 1:
        lots = np.array([seed_of("share", each) for each in ids[train].tolist()])
        train = np.sort(train[np.argsort(lots, kind="stable")[: max(1, round(share * len(train)))]])
    return train, held_out


class FeatureSource:
    """Crops of feature caches that hold the same kind of features, some perhaps without the second observer; read from
    the memory map batch by batch."""

    def __init__(
        self,
        caches: Sequence[FeatureCache],
        places: Int64[np.ndarray, "n 2"],
        joints_mm: Float32[np.ndarray, "n J 3"],
        target: Skeleton = H36M_17,
    ) -> None:
        self.caches = list(caches)
        self.places = places
        """(number of the cache, number of the crop in it) of each record."""
        self.joints_mm = torch.from_numpy(joints_mm)
        self.visibility = torch.from_numpy(_labels(self.caches, places, target, "visibility", UNKNOWN))
        self.joints_2d = torch.from_numpy(_labels(self.caches, places, target, "joints_2d", np.nan))
        """Crop pixels."""

    def __len__(self) -> int:
        return len(self.places)

    @property
    def layout(self) -> FeatureLayout:
        return fullest(self.caches).layout

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.joints_mm.numpy().tobytes() + self.places.tobytes()).hexdigest()[:16]

    def batch(self, rows: np.ndarray) -> dict[str, Tensor]:
        places = self.places[rows]
        features = torch.empty(len(rows), self.layout.length, self.layout.width)
        for number in np.unique(places[:, 0]).tolist():
            mine = places[:, 0] == number
            features[torch.from_numpy(mine)] = self.caches[number].features(places[mine, 1], layout=self.layout)
        chosen = torch.from_numpy(rows)
        labels = {name: getattr(self, name)[chosen] for name in ("joints_mm", "visibility", "joints_2d")}
        return {"features": features} | labels


def open_caches(folders: Sequence[Path]) -> list[FeatureCache]:
    """Feature caches of the same kind of features."""
    if not folders:
        raise InputError("--features needs one folder or more, as `di2pose features` makes them")
    caches = [FeatureCache(folder) for folder in folders]
    if not all(fullest(caches).layout.extends(cache.layout) for cache in caches):
        named = ", ".join(map(str, folders))
        raise InputError(f"the features of {named} differ in kind: make them all with the same encoder options")
    return caches


def feature_sources(
    caches: Sequence[FeatureCache], share: float = 1.0, target: Skeleton = H36M_17
) -> tuple[FeatureSource, FeatureSource]:
    """All crops of split `train`, or a share of them, and all others."""
    found = [read_poses(cache, target) for cache in caches]
    joints, rows, splits, ids = (np.concatenate(each) for each in zip(*found, strict=True))
    places = np.stack([np.repeat(np.arange(len(found)), [len(poses) for poses, *_ in found]), rows], 1)
    parts = _split(splits, ids, share, [cache.folder for cache in caches])
    one, other = (FeatureSource(caches, places[rows], joints[rows], target) for rows in parts)
    return one, other


def fullest(caches: Sequence[FeatureCache]) -> FeatureCache:
    """The cache of the most features."""
    return max(caches, key=lambda cache: cache.layout.length)


def _labels(
    caches: Sequence[FeatureCache], places: np.ndarray, target: Skeleton, name: str, unknown: float
) -> np.ndarray:
    """The labels of that name of the target's joints, (n, J) int64 or (n, J, 2) float32; `unknown` where a cache has
    none, or not that joint."""
    shape, kind = ((), np.int64) if name == "visibility" else ((2,), np.float32)
    found = np.full((len(places), target.count, *shape), unknown, kind)
    for number, cache in enumerate(caches):
        mine = np.flatnonzero(places[:, 0] == number)
        if name in cache.fields:
            there, here = same_points(cache.skeleton, target)
            found[mine[:, None], here] = cache.column(name)[places[mine, 1]][:, there]
    return found
