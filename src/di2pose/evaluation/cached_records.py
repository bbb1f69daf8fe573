"""A feature cache as a source of records: what `data.sample.Dataset` is for pictures, with poses in crop axes.

Errors do not depend on the axes: truth and estimates of a crop turn together when they are brought into camera axes.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.data.feature_cache import FLIPPED, FeatureCache
from di2pose.data.sample import SEEN, UNKNOWN, Dataset, Sample
from di2pose.errors import InputError
from di2pose.image.blazepose import CROP
from di2pose.image.crop import ROI_MARGIN
from di2pose.image.movenet import OBSERVER, keypoints_of
from di2pose.pipeline.observations import PersonView, keypoint_observation, observed_joints
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import BLAZEPOSE_33, COCO_17, H36M_17, convert, get

HEADER = "features.json"


class CachedRecords:
    """The crops of a feature cache. They have no picture, box or camera; `extra["row"]` is the crop's number."""

    def __init__(self, folder: Path | str) -> None:
        self.cache = FeatureCache(folder)
        self.folder, self.name = self.cache.folder, self.cache.folder.name
        self.skeleton = get(self.cache.header.get("skeleton", H36M_17.name))
        self.joints_mm = self.cache.column("joints_mm").astype(np.float32)
        known = self.cache.column("valid") if "valid" in self.cache.fields else True
        self.valid = np.asarray(np.isfinite(self.joints_mm).all(-1) & known)
        told = "visibility" in self.cache.fields
        self.visibility = self.cache.column("visibility") if told else np.full(self.valid.shape, UNKNOWN, np.int8)

    @property
    def source(self) -> str:
        """Name of the dataset that the crops are of."""
        return str(self.cache.header.get("source", self.name))

    @property
    def only_hidden_labelled(self) -> bool:
        """A patch on footage that tells no visibility: joints under it are labelled, all others count as seen."""
        return bool((self.visibility > SEEN).any() and not (self.visibility == SEEN).any())

    @cached_property
    def index(self) -> list[dict[str, Any]]:
        """id, subject, action, sequence, split of every crop, and its frame, which is the number that ends its id."""
        lines = []
        for row, line in enumerate(self.cache.index):
            digits = re.search(r"\d+$", line["id"])
            frame = row if digits is None else int(digits.group())
            lines.append({**line, "frame": frame, "image": None, "extra": {"row": row}})
        return lines

    def column(self, name: str) -> np.ndarray:
        """subject, action, sequence or split of every crop, as an array of strings."""
        return np.array([line[name] for line in self.cache.index])

    def select(self, **wanted: str | Sequence[str]) -> np.ndarray:
        """Numbers of the crops that match all of e.g. split="test", subject=("S9", "S11")."""
        return self.cache.select(**wanted)

    def __len__(self) -> int:
        return len(self.cache)

    def __getitem__(self, row: int) -> Sample:
        visibility = self.visibility[row]
        return Sample(
            **self.index[row],
            joints_mm=self.joints_mm[row],
            valid=self.valid[row],
            visibility=None if (visibility == UNKNOWN).all() else visibility,
        )

    def read_image(self, sample: Sample) -> Image.Image:
        raise InputError(f"record {sample.id} of {self.name} has no picture: it is a crop of a feature cache")

    def truth_17(self, rows: np.ndarray) -> Float[np.ndarray, "n 17 3"]:
        """True joints of some crops on Human3.6M's skeleton, pelvis at 0; NaN where not annotated."""
        joints, _ = convert(np.where(self.valid[rows, :, None], self.joints_mm[rows], np.nan), self.skeleton, H36M_17)
        if not np.isfinite(joints[:, H36M_17.root]).all():
            raise InputError(f"{self.folder}: some crops have no pelvis, at which poses are aligned")
        return joints - joints[:, H36M_17.root][:, None]

    def views(self, rows: np.ndarray, flipped: bool) -> list[PersonView] | None:
        """Where the people of some crops were seen, in the pixels of their crops, by the mean of both looks with
        `flipped`; None where a crop is no camera's view, or the cache holds no landmarks."""
        if not {"landmarks_2d", "landmarks", "focal"} <= set(self.cache.fields):
            return None
        told = self.cache.read(rows, *(name for name in self.cache.fields if "landmarks" in name), "focal")
        if not np.isfinite(told["focal"]).all():
            return None
        looks = [
            (told[f"{prefix}landmarks_2d"].astype(np.float64), told[f"{prefix}landmarks"][..., 3].astype(np.float64))
            for prefix in (("", FLIPPED) if flipped else ("",))
        ]
        points, shown = observed_joints(looks, CROP, BLAZEPOSE_33)
        others = self._second_sightings(rows, flipped)
        margin = CROP * (1 - 1 / ROI_MARGIN) / 2
        box = (margin, margin, CROP - margin, CROP - margin)
        return [
            PersonView(
                Camera((focal, focal), (CROP / 2, CROP / 2), (CROP, CROP)),
                box,
                False,
                CROP,
                points[row],
                shown[row],
                tuple((each[row], noise[row]) for each, noise in others),
            )
            for row, focal in enumerate(told["focal"].tolist())
        ]

    def _second_sightings(self, rows: np.ndarray, flipped: bool) -> list[tuple[np.ndarray, np.ndarray]]:
        """Where the second observer, if there is one, sees the joints: pixels of the crops, and how far off."""
        names = [prefix + OBSERVER for prefix in (("", FLIPPED) if flipped else ("",))]
        if not set(names) <= set(self.cache.fields):
            return []
        marks = [keypoints_of(tokens.astype(np.float64)) for tokens in self.cache.read(rows, *names).values()]
        points, scores = observed_joints([(look[..., :2], look[..., 2]) for look in marks], CROP, COCO_17)
        return [keypoint_observation(points, scores, CROP)]

    def plain_rows(self) -> np.ndarray:
        """Numbers of the crops of rendered people with nothing before them and nothing of them outside the picture."""
        if missing := {"occlusion", "truncated"} - set(self.cache.fields):
            raise InputError(
                f"{self.folder} does not say what stands before its people (no {', '.join(sorted(missing))}): plain "
                "crops can be told only in caches of `di2pose people features`"
            )
        return np.flatnonzero((self.cache.column("occlusion") == 0) & (self.cache.column("truncated") == 0))


Records = Dataset | CachedRecords


def open_records(folder: Path, images: Path | None = None) -> Records:
    """A prepared dataset or a feature cache, whichever the folder holds."""
    return CachedRecords(folder) if (folder / HEADER).is_file() else Dataset(folder, images)
