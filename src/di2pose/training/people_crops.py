"""Rendered people on disk as crops for a feature cache, and crops under the patch of an occlusion protocol."""

from typing import Literal, Protocol, runtime_checkable

import numpy as np
from PIL import Image

from di2pose.data.feature_cache import TEXT, Crop
from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, Dataset, Sample
from di2pose.files import Json
from di2pose.image.blazepose import CROP
from di2pose.image.crop import Roi
from di2pose.occlusion.protocols import occlude_limb
from di2pose.pose.skeleton import H36M_17

OcclusionProtocol = Literal["occ-40", "occ-80"]
PATCH_SEED = 0
"""Of the patches' places and textures: the default of `di2pose evaluate`."""
NUMBERS = ("roll", "yaw", "pitch", "distance_m", "photo_fov", "side_ratio", "stature_m", "hidden")
WORDS = ("pose_class", "occlusion", "crop")
"""Labels that a cache keeps as numbers; the words are in the settings of the set."""


@runtime_checkable
class CropSource(Protocol):
    """Crops by number, and what a cache's header says of them."""

    about: Json

    def __len__(self) -> int: ...

    def crop(self, i: int) -> Crop: ...


class PeopleCrops:
    """The pictures of a dataset that `di2pose people render` wrote."""

    def __init__(self, people: Dataset) -> None:
        self.people = people
        self.about = about_people(people.header["settings"])

    def __len__(self) -> int:
        return len(self.people)

    def crop(self, i: int) -> Crop:
        sample = self.people[i]
        return person_crop(self.people.read_image(sample), sample, self.about["people"])


class PatchedCrops:
    """The same crops under the patch of an occlusion protocol; the joints that it hides are labelled as occluded.

    The crop is the whole picture here, and stays the region of every method: the detector is not put to the test. A
    joint beyond the photo's border cannot be chosen for the patch, and is out of the frame under it, too.
    """

    def __init__(self, source: CropSource, protocol: OcclusionProtocol) -> None:
        self.source, self.size = source, patch_size(protocol)
        self.about = {**source.about, "occlusion": protocol}

    def __len__(self) -> int:
        return len(self.source)

    def crop(self, i: int) -> Crop:
        pixels, labels, texts = self.source.crop(i)
        outside = labels["visibility"] == OUT_OF_FRAME
        points = np.where(outside[:, None], np.nan, labels["joints_2d"])
        record = Sample(texts["id"], labels["joints_mm"], joints_2d=points)
        whole = Roi((CROP / 2, CROP / 2), CROP, 0.0)
        made = occlude_limb(Image.fromarray(pixels), record, H36M_17, self.size, PATCH_SEED, roi=whole)
        visibility = np.where(made.hidden, OCCLUDED, labels["visibility"]).astype(np.int8)
        hidden = np.asarray((visibility >= OCCLUDED).mean(), np.float32)
        return np.asarray(made.image), {**labels, "visibility": visibility, "hidden": hidden}, texts


def patch_size(protocol: OcclusionProtocol) -> int:
    """Side of the protocol's patch in pixels of the 256-pixel region."""
    return int(protocol.removeprefix("occ-"))


def about_people(settings: Json) -> Json:
    return {"source": "people", "people": settings, "skeleton": "h36m_17"}


def person_crop(picture: Image.Image, sample: Sample, settings: Json) -> Crop:
    """What a feature cache keeps of a picture. The camera points at the crop's centre: crop axes are camera axes."""
    extra = sample.extra
    labels: dict[str, np.ndarray] = {
        "joints_mm": np.asarray(sample.joints_mm, np.float32),
        "root_mm": np.asarray(sample.root_mm, np.float32),
        "joints_2d": np.asarray(sample.joints_2d, np.float32),
        "rotation": np.eye(3, dtype=np.float32),
        "roi": np.array(extra["roi"], np.float32),
        "focal": np.asarray(np.nan if sample.camera is None else sample.camera.focal[0], np.float32),
        "visibility": np.asarray(sample.visibility, np.int8),
        "valid": sample.valid,
        **{name: np.asarray(extra[name], np.float32) for name in NUMBERS},
        **{name: np.asarray(settings[name].index(extra[name]), np.int8) for name in WORDS},
        "truncated": np.asarray(extra["truncated"], np.int8),
    }
    return np.asarray(picture), labels, {name: getattr(sample, name) for name in TEXT}
