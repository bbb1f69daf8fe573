"""The crops of a feature cache as records, and the log of what was measured on each record."""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from PIL import Image

from di2pose.data.feature_cache import FLIPPED, FeatureCache
from di2pose.data.sample import SEEN, UNKNOWN, Dataset, Sample
from di2pose.errors import InputError
from di2pose.files import Json
from di2pose.image.blazepose import CROP
from di2pose.image.crop import ROI_MARGIN
from di2pose.image.movenet import OBSERVER, keypoints_of
from di2pose.pipeline.observations import PersonView, keypoint_observation, look_gap, observed_joints
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import BLAZEPOSE_33, COCO_17, H36M_17, Skeleton, convert, get, same_points


class CachedRecords:
    """What `data.sample.Dataset` is for pictures, with poses in crop axes.

    Errors do not depend on the axes: truth and estimates of a crop turn together when they are brought to camera axes.
    """

    def __init__(self, folder: Path | str) -> None:
        self.cache = FeatureCache(folder)
        self.folder, self.name = self.cache.folder, self.cache.folder.name
        self.source = str(self.cache.header.get("source", self.name))
        """Name of the dataset that the crops are of."""
        self.skeleton = get(self.cache.header.get("skeleton", H36M_17.name))
        self.joints_mm = self.cache.column("joints_mm").astype(np.float32)
        known = self.cache.column("valid") if "valid" in self.cache.fields else True
        self.valid = np.asarray(np.isfinite(self.joints_mm).all(-1) & known)
        labelled = "visibility" in self.cache.fields
        self.visibility = self.cache.column("visibility") if labelled else np.full(self.valid.shape, UNKNOWN, np.int8)
        self.only_hidden_labelled = bool((self.visibility > SEEN).any() and not (self.visibility == SEEN).any())
        """A patch on footage without visibility labels: joints under it are labelled, all others count as seen."""

    @cached_property
    def index(self) -> list[dict[str, Any]]:
        """id, subject, action, sequence, split of every crop, and its frame, which is the number that ends its id."""
        lines: list[dict[str, Any]] = []
        for row, line in enumerate(self.cache.index):
            digits = re.search(r"\d+$", line["id"])
            lines.append({**line, "frame": int(digits.group()) if digits else row, "image": None, "extra": {}})
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
        visibility = None if (self.visibility[row] == UNKNOWN).all() else self.visibility[row]
        arrays = {"joints_mm": self.joints_mm[row], "valid": self.valid[row], "visibility": visibility}
        return Sample(**self.index[row], **arrays, row=row)

    def read_image(self, sample: Sample) -> Image.Image:
        raise InputError(f"record {sample.id} of {self.name} has no picture: it is a crop of a feature cache")

    def truth(self, rows: np.ndarray, target: Skeleton) -> Float[np.ndarray, "n J 3"]:
        """True joints of some crops on the target's skeleton, its root at 0; NaN where not annotated."""
        joints, _ = convert(np.where(self.valid[rows, :, None], self.joints_mm[rows], np.nan), self.skeleton, target)
        if not np.isfinite(joints[:, target.root]).all():
            raise InputError(f"{self.folder}: some crops have no {target.joints[target.root]}, to align poses at")
        return joints - joints[:, target.root][:, None]

    def true_visibility(self, rows: np.ndarray, target: Skeleton) -> Int[np.ndarray, "n J"]:
        """Of the target's joints; UNKNOWN where not labelled, or where the records lack the joint."""
        found, (there, here) = np.full((len(rows), target.count), UNKNOWN), same_points(self.skeleton, target)
        found[:, here] = self.visibility[rows][:, there]
        return found

    def views(self, rows: np.ndarray, flipped: bool, target: Skeleton = H36M_17) -> list[PersonView] | None:
        """2D joints of the people of some crops, in crop pixels, by the mean of both looks with `flipped`; None where
        a crop has no camera, or the cache no landmarks."""
        if not {"landmarks_2d", "landmarks", "focal"} <= set(self.cache.fields):
            return None
        stored = self.cache.read(rows, *(name for name in self.cache.fields if "landmarks" in name), "focal")
        if not np.isfinite(stored["focal"]).all():
            return None
        prefixes = ("", FLIPPED) if flipped else ("",)
        looks = [
            (stored[f"{prefix}landmarks_2d"].astype(float), stored[f"{prefix}landmarks"][..., 3].astype(float))
            for prefix in prefixes
        ]
        points, shown = observed_joints(looks, CROP, BLAZEPOSE_33, target)
        gap = look_gap(looks, CROP, BLAZEPOSE_33, target)
        others = []
        if {prefix + OBSERVER for prefix in prefixes} <= set(self.cache.fields):
            tokens = self.cache.read(rows, *(prefix + OBSERVER for prefix in prefixes)).values()
            marks = [keypoints_of(each.astype(np.float64)) for each in tokens]
            second, scores = observed_joints([(look[..., :2], look[..., 2]) for look in marks], CROP, COCO_17, target)
            others.append(keypoint_observation(second, scores, CROP, target))
        margin = CROP * (1 - 1 / ROI_MARGIN) / 2
        box = (margin, margin, CROP - margin, CROP - margin)
        found = []
        for row, focal in enumerate(stored["focal"].tolist()):
            camera = Camera((focal, focal), (CROP / 2, CROP / 2), (CROP, CROP))
            more = tuple((each[row], noise[row]) for each, noise in others)
            found.append(PersonView(camera, box, False, CROP, points[row], shown[row], more, target, gap[row]))
        return found

    def plain_rows(self) -> np.ndarray:
        """Numbers of the crops of rendered people with nothing before them and nothing of them outside the picture."""
        if missing := {"occlusion", "truncated"} - set(self.cache.fields):
            raise InputError(
                f"{self.folder} does not say what stands before its people (no {', '.join(sorted(missing))}): plain "
                "crops are known only in caches of `di2pose people features`"
            )
        return np.flatnonzero((self.cache.column("occlusion") == 0) & (self.cache.column("truncated") == 0))


Records = Dataset | CachedRecords


def open_records(folder: Path, images: Path | None = None) -> Records:
    """The prepared dataset or the feature cache in a folder."""
    return CachedRecords(folder) if (folder / "features.json").is_file() else Dataset(folder, images)


class RecordLog:
    """One JSON line per record, appended to `<name>.rank<k>.jsonl`; this process writes its own rank's file.

    A line counts when it ends in a newline: a run that was killed in the middle of one loses that record only, which is
    then computed again. Any number of ranks may go on with what any other number began. A line holds `row`, `id`, and
    `skipped`, why the record was left out, or `results`: protocol -> `skipped`, or, with K joints and S seeds,

        values               [hypotheses, estimate, metric, joints (that count), numbers]: a number for each seed, or a
                             single one where nothing is drawn
        pose                 the mean of the hypotheses, at the protocol's root, mm
        patch                its corners in the picture
        visibility, said     K, where known: as in the dataset, and predicted states as places in STATES
        joints               error_mm, spread_mm: S x K, of the mean of the most hypotheses, above 1, and their spread
                             (the root of the trace of the unbiased covariance)
        worst_placements     number of hypotheses -> worst by MPJPE, by PA-MPJPE, by MPJPE over the clean picture's
        placement_errors_mm  of AdvOcc's search
    """

    def __init__(self, folder: Path, name: str, rank: int) -> None:
        self.folder, self.name = folder, name
        self.own = folder / f"{name}.rank{rank:04d}.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        if self.own.exists():
            with self.own.open("r+b") as file:  # drop an unfinished last line
                file.truncate(file.read().rfind(b"\n") + 1)

    def append(self, lines: Iterable[Json]) -> None:
        text = "".join(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n" for line in lines)
        with self.own.open("a", encoding="utf-8") as file:
            file.write(text)

    def read(self) -> dict[int, Json]:
        """Dataset row -> line, over the files of all ranks."""
        found: dict[int, Json] = {}
        for path in sorted(self.folder.glob(f"{self.name}.rank*.jsonl")):
            for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
                try:
                    record: Json = json.loads(line)
                    found.setdefault(int(record["row"]), record)
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(f"{path}, line {number} is damaged: delete the file and run again") from error
        return found
