"""What the measurements of this folder share: frames of real footage, observers, labelled photos, rendered people.

Results are compared on Human3.6M's 17 joints, or on all that model and truth have; 'seen' is the old name of 'visible'.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from people_found import LABELS as PHOTOS
from people_found import Photo, match, of_person

from di2pose import Di2Pose
from di2pose.assets import ASSETS, Asset, extract, fetch
from di2pose.data.frames import Frames
from di2pose.data.sample import Dataset, Sample
from di2pose.errors import InputError
from di2pose.evaluation.predictors import CachedPredictor, PicturePredictor, Predictions, load_predictor
from di2pose.evaluation.protocol import Protocol, select_records
from di2pose.evaluation.records import CachedRecords
from di2pose.image.boxes import Box
from di2pose.image.detect import PersonMatcher
from di2pose.image.read import read_image
from di2pose.occlusion.patches import Rectangle, keyed_generator
from di2pose.occlusion.protocols import occlude_limb
from di2pose.pose.skeleton import COCO_17, H36M_17, LIMB_12, Skeleton, convert
from di2pose.result import Person

HYPOTHESES = 8
SCORE = 0.9
"""Of given keypoints."""
BATCH = 32
STATES = ("visible", "occluded", "out_of_frame")
LABELS = Path(__file__).parent / "people_labels.json"


@dataclass(frozen=True)
class Frame:
    """A record of real footage, its picture with the protocol's patch, and where that is."""

    sample: Sample
    picture: Image.Image
    patch: Rectangle | None
    skeleton: Skeleton
    """Of the record."""

    @property
    def limbs_2d(self) -> np.ndarray:
        """(12, 2) true pixels of LIMB_12."""
        if self.sample.joints_2d is None:
            raise InputError(f"record {self.sample.id} has no 2D joints")
        return self.sample.joints_2d[list(self.skeleton.indices(*LIMB_12))].astype(np.float64)

    @property
    def behind(self) -> np.ndarray:
        """(12,) bool: limb joints behind the patch."""
        return np.zeros(len(LIMB_12), bool) if self.patch is None else self.patch.strictly_contains(self.limbs_2d)

    @property
    def truth_mm(self) -> np.ndarray:
        """(17, 3), middle of the hips at 0, camera axes; NaN where not annotated."""
        known = np.where(self.sample.valid[:, None], self.sample.joints_mm, np.nan)
        return at_hips(convert(known, self.skeleton, H36M_17)[0])


def frames(dataset: Dataset, protocol: Protocol, seed: int) -> Iterator[Frame]:
    """The records of a protocol, with the patches that `di2pose evaluate --seed` puts on their pictures."""
    region = PersonMatcher()
    for row in select_records(protocol, dataset).tolist():
        sample = dataset[row]
        picture, patch = dataset.read_image(sample), None
        if protocol.occlusion is not None:
            size = protocol.occlusion.size
            found = occlude_limb(picture, sample, dataset.skeleton, size, seed, roi=region(sample, picture))
            picture, patch = found.image, found.patch
        yield Frame(sample, picture, patch, dataset.skeleton)


def noisy_keypoints(frame: Frame, noise: float, seed: int) -> np.ndarray:
    """(17, 3) in COCO's order: the true limb joints with Gaussian noise of that share of the body's extent in the
    picture, its longer side. Face, joints behind the patch and joints outside the picture are missing. The same draws
    for every amount of noise."""
    points = frame.limbs_2d
    extent = float(np.nanmax(np.ptp(points, axis=0)))
    draws = keyed_generator("observer", seed, frame.sample.id).standard_normal(points.shape)
    inside = ((points >= 0) & (points <= np.array(frame.picture.size))).all(-1)
    points = np.where((inside & ~frame.behind)[:, None], points + noise * extent * draws, np.nan)
    given = np.full((COCO_17.count, 3), np.nan)
    given[list(COCO_17.indices(*LIMB_12))] = np.concatenate([points, np.full((len(points), 1), SCORE)], axis=1)
    return given


class Footage:
    """A model on frames of real footage: its own observers, or given keypoints."""

    def __init__(self, model: str, dataset: Dataset) -> None:
        found = load_predictor(model, dataset)
        if not isinstance(found, PicturePredictor):
            raise InputError(f"{model} is no model that keypoints can be given to")
        self.predictor, self.skeleton = found, found.pipeline.skeleton
        self.reads_pixels = getattr(found.pipeline.encoder, "reads_pixels", True)

    def predict(self, frame: Frame, noise: float | None, seed: int) -> Predictions:
        """As `di2pose evaluate` has it, B = 1. `noise` None: by the model's own observers; else by the true keypoints
        with that noise, given as a user gives them."""
        if noise is None:
            return self.predictor.predict([frame.picture], [frame.sample], HYPOTHESES, None, seed)
        given = noisy_keypoints(frame, noise, seed)
        if np.isnan(given[:, 0]).all():
            raise InputError(f"record {frame.sample.id}: no limb joint is in sight")
        camera = frame.sample.camera
        result = self.predictor.pipeline(
            frame.picture, keypoints=given, camera=camera, seed=seed, hypotheses=HYPOTHESES
        )
        (person,) = result.people
        parts = (person.samples_mm, person.joints_mm, person.state, person.r90_mm)
        samples, joints, state, r90 = (each[None] for each in parts)
        return Predictions(samples, fitted_mm=joints, states=state, r90_mm=r90)


@dataclass(frozen=True)
class LabelledPerson:
    """Somebody in a photo, as a human sees it."""

    box: Box
    """Of what can be seen, pixels."""
    label: str
    """'standing' (legs straight, whole in the picture), 'cut' (below the hips, and plainly stands) or 'other'."""
    states: tuple[str, ...] | None
    """Of LIMB_12, clothes counting as the body; '' where it is hard to tell; None: not labelled."""


@dataclass(frozen=True)
class LabelledPhoto:
    name: str
    picture: Image.Image
    people: tuple[LabelledPerson, ...]


def labelled_photos(file: Path = LABELS) -> Iterator[LabelledPhoto]:
    """The photos and video frames of people_labels.json, fetched; what tests/data/people_photos.json says of a photo
    stands only there."""
    known = {entry["sha256"]: entry for entry in json.loads(PHOTOS.read_text())}
    entries = [known.get(entry.get("sha256"), {}) | entry for entry in json.loads(file.read_text())]
    parts = ("client", "package", "version", "member", "sha256", "bytes", "licence")
    for entry in (each for each in entries if "frame" not in each):
        entry["asset"] = f"photo-{entry['sha256'][:12]}"
        ASSETS[entry["asset"]] = Asset(entry["asset"], *(entry[part] for part in parts), note="a labelled photo")
    for entry in entries:
        name = Path(entry["member"]).name
        if "frame" in entry:
            folder = (extract(entry["asset"], entry["member"]) / entry["member"]).parent
            picture, name = Frames(folder).read(f"{name}#{entry['frame']}"), f"{name} frame {entry['frame']}"
        else:
            picture = read_image(fetch(entry["asset"]))
        yield LabelledPhoto(name, picture, tuple(map(_labelled_person, entry["people"])))


def _labelled_person(entry: dict[str, Any]) -> LabelledPerson:
    states = None
    if "occluded" in entry:
        said = {"": entry.get("unsure", ())} | {state: entry[state] for state in STATES[1:]}
        others = {joint: state for state, joints in said.items() for joint in joints}
        if wrong := others.keys() - set(LIMB_12):
            raise InputError(f"{LABELS.name}: {', '.join(sorted(wrong))} is no limb joint")
        states = tuple(others.get(joint, "visible") for joint in LIMB_12)
    x0, y0, x1, y1 = map(float, entry["box"])
    return LabelledPerson((x0, y0, x1, y1), entry["label"], states)


def find_people(model: Di2Pose, photo: LabelledPhoto, seed: int) -> list[Person | None]:
    """Each labelled person as a user's call finds them; None who is not found."""
    people = model(photo.picture, max_people=20, seed=seed, hypotheses=HYPOTHESES).people
    boxes, kinds = tuple(each.box for each in photo.people), tuple(each.label for each in photo.people)
    labels = Photo(ASSETS["astronaut"], photo.picture.size, "", boxes, kinds, ())  # matching opens no file
    owners = match([of_person(each) for each in people], labels).owners
    return [next((each for each, who in zip(people, owners, strict=True) if who == k), None) for k in range(len(boxes))]


def cached_predictions(
    model: str, cache: Path, limit: int | None, seed: int
) -> tuple[CachedRecords, Skeleton, Predictions]:
    """A model's predictions for the first crops of a feature cache, and the skeleton they are on."""
    records = CachedRecords(cache)
    predictor = load_predictor(model, records)
    assert isinstance(predictor, CachedPredictor)
    parts = []
    rows = range(min(len(records), limit or len(records)))
    for first in rows[::BATCH]:
        crops = [records[row] for row in rows[first : first + BATCH]]
        parts.append(predictor.predict([None] * len(crops), crops, HYPOTHESES, None, seed))
    names = [name for name, part in vars(parts[0]).items() if isinstance(part, np.ndarray)]
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return records, predictor.skeleton, Predictions(**joined)


def at_hips(joints_mm: np.ndarray) -> np.ndarray:
    """(..., 17 or more, 3) with the middle of the hips at 0."""
    hips = list(H36M_17.indices("left_hip", "right_hip"))
    return joints_mm - joints_mm[..., hips, :].mean(-2, keepdims=True)


def new_names(states: np.ndarray) -> np.ndarray:
    """States by today's names."""
    return np.where(states == "seen", "visible", states)


def integers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def run(main: Any) -> None:
    """As a command: an InputError is a sentence, not a trace."""
    try:
        tyro.cli(main)
    except InputError as error:
        raise SystemExit(f"error: {error}") from error


def mean_and_range(values: Sequence[float]) -> str:
    """'64.5' of one seed, '64.5 (64.3 to 64.8)' of several."""
    mean = f"{np.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.1f} to {max(values):.1f})"
