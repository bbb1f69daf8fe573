"""`di2pose features`: run a frozen encoder once over all crops of a prepared dataset, and cache the features.

The crops are cut from pictures (`DatasetCrops`) or are pictures of rendered people (`PeopleCrops`), with or without the
patch of an occlusion protocol.
"""

from pathlib import Path
from typing import Annotated, Literal, Protocol, runtime_checkable

import numpy as np
import tyro
from PIL import Image

from di2pose.data import feature_cache
from di2pose.data.feature_cache import BATCH, TEXT, Crop, write_features
from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, Dataset, Sample
from di2pose.device import choose_device
from di2pose.errors import InputError
from di2pose.files import Json
from di2pose.image.blazepose import CROP
from di2pose.image.crop import ROI_MARGIN, Roi, apply, crop_camera, invert, roi_from_box, roi_from_keypoints
from di2pose.image.detect import Detection, PersonMatcher
from di2pose.image.encoder import DEFAULT_ENCODER, Encoder, crop_pixels, load_encoder
from di2pose.occlusion.protocols import occlude_limb
from di2pose.pose.skeleton import H36M_17, Skeleton, get

OcclusionProtocol = Literal["occ-40", "occ-80"]
PATCH_SEED = 0
"""Of the patches' places and textures: the default of `di2pose evaluate`."""
NUMBERS = ("roll", "yaw", "pitch", "distance_m", "photo_fov", "side_ratio", "stature_m", "hidden")
WORDS = ("pose_class", "occlusion", "crop")
"""Labels that a cache keeps as numbers; the words are in the settings of the set."""
GPU_BATCH = 64
"""Crops that a GPU encodes at once."""
BODY_TO_SIDE = 1.15
"""The detector's circle over the distance of the farthest joint from the hips: median on real footage."""


@runtime_checkable
class CropSource(feature_cache.CropSource, Protocol):
    """Crops by number, and what a cache's header says of them."""

    about: Json


class DatasetCrops:
    """An encoder's crops of a prepared dataset's records that have an image and a place in it: what `labelled` says.

    With `find` the region is the detector's, and no annotation but the record's box is used. `occlusion` first puts
    that protocol's patch on the picture, sized by the region found without it; the detector then runs on the patched
    picture, and the joints under the patch are labelled as occluded.
    """

    def __init__(
        self,
        dataset: Dataset,
        encoder: Encoder,
        find: PersonMatcher | None = None,
        occlusion: OcclusionProtocol | None = None,
    ) -> None:
        if occlusion is not None and find is None:
            raise InputError("an occlusion protocol tries the detector, too: give a PersonMatcher with it")
        self.dataset, self.encoder, self.find, self.occlusion = dataset, encoder, find, occlusion
        placed = ~np.isnan(dataset.box).any(-1) | ~np.isnan(dataset.joints_2d).all((1, 2))
        rows = [i for i, line in enumerate(dataset.index) if line["image"] and (placed[i] or "roi" in line["extra"])]
        self.rows = np.array(rows, dtype=np.int64)
        self.about = {"source": dataset.name, "skeleton": dataset.skeleton.name}
        if find is not None:
            self.about["regions"] = "detector"
        if occlusion is not None:
            self.about["occlusion"] = occlusion
        if not rows:
            raise InputError(
                f"no record of {dataset.folder} has both an image and a box or 2D joints: nothing to encode"
            )

    def __len__(self) -> int:
        return len(self.rows)

    def crop(self, i: int) -> Crop:
        row = int(self.rows[i])
        sample = self.dataset[row]
        image = self.dataset.read_image(sample)
        seen = np.full(len(sample.joints_mm), -1) if sample.visibility is None else sample.visibility
        if self.find is not None and self.occlusion is not None:
            clean, size = self.encoder.region(self.find.find(sample, image)), patch_size(self.occlusion)
            patched = occlude_limb(image, sample, self.dataset.skeleton, size, PATCH_SEED, roi=clean)
            image, seen = patched.image, np.where(patched.hidden, OCCLUDED, seen)
        skeleton = self.dataset.skeleton
        region = self.encoder.region(labelled(sample, skeleton) if self.find is None else self.find.find(sample, image))
        rotation, focal = np.eye(3), np.nan
        if sample.camera is not None:
            rotation = self.encoder.rotation(region, sample.camera)
            camera, turn = crop_camera(sample.camera, region, self.encoder.size[1])
            focal = camera.focal[0] if np.array_equal(rotation, turn) else np.nan  # else the crop is no camera's view
        into_crop = invert(self.encoder.matrix(region))
        flat = np.full((len(seen), 2), np.nan) if sample.joints_2d is None else apply(into_crop, sample.joints_2d)
        labels: dict[str, np.ndarray] = {
            "joints_mm": (sample.joints_mm @ rotation.T).astype(np.float32),
            "joints_2d": flat.astype(np.float32),
            "rotation": rotation.astype(np.float32),
            "roi": np.array([*region.centre, region.side, region.angle], np.float32),
            "focal": np.array(focal, np.float32),
            "row": np.array(row, np.int64),
            "visibility": seen.astype(np.int8),
            "valid": sample.valid,
        }
        return crop_pixels(self.encoder, image, region), labels, {name: getattr(sample, name) for name in TEXT}


def labelled(sample: Sample, skeleton: Skeleton) -> Detection:
    """A record's person as its labels have it, for the encoder to choose its region.

    The box is the record's, else that of its 2D joints. The turned square is `extra["roi"]` (x, y, side, angle) where a
    record has it, else the hip-centred one that BlazePose's detector would give for its 2D joints, else upright.
    """
    box, points = sample.box, sample.joints_2d
    if box is None and points is not None and np.isfinite(points).any():
        (x0, y0), (x1, y1) = np.nanmin(points, axis=0).tolist(), np.nanmax(points, axis=0).tolist()
        box = (x0, y0, x1, y1)
    if "roi" in sample.extra:
        x, y, side, angle = (float(value) for value in sample.extra["roi"])
        half = side / 2 / ROI_MARGIN
        return Detection(box or (x - half, y - half, x + half, y + half), 1.0, Roi((x, y), side, angle))
    if box is None:
        raise InputError(f"record {sample.id} has neither a box nor 2D joints: it cannot be cropped")
    ends = list(skeleton.indices("left_hip", "right_hip", "left_shoulder", "right_shoulder"))
    if points is None or not np.isfinite(points[ends]).all():
        return Detection(box, 1.0, roi_from_box(box))
    hip, neck = points[ends[:2]].mean(0), points[ends[2:]].mean(0)
    up = (neck - hip) / max(float(np.linalg.norm(neck - hip)), 1e-6)
    radius = BODY_TO_SIDE * float(np.nanmax(np.linalg.norm(points - hip, axis=-1)))
    return Detection(box, 1.0, roi_from_keypoints(hip.tolist(), (hip + radius * up).tolist()))


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
        self.source, self.size, self.skeleton = source, patch_size(protocol), get(source.about["skeleton"])
        self.about = {**source.about, "occlusion": protocol}

    def __len__(self) -> int:
        return len(self.source)

    def crop(self, i: int) -> Crop:
        pixels, labels, texts = self.source.crop(i)
        outside = labels["visibility"] == OUT_OF_FRAME
        points = np.where(outside[:, None], np.nan, labels["joints_2d"])
        record = Sample(texts["id"], labels["joints_mm"], joints_2d=points)
        whole = Roi((CROP / 2, CROP / 2), CROP, 0.0)
        made = occlude_limb(Image.fromarray(pixels), record, self.skeleton, self.size, PATCH_SEED, roi=whole)
        visibility = np.where(made.hidden, OCCLUDED, labels["visibility"]).astype(np.int8)
        hidden = np.asarray((visibility >= OCCLUDED).mean(), np.float32)
        return np.asarray(made.image), {**labels, "visibility": visibility, "hidden": hidden}, texts


def patch_size(protocol: OcclusionProtocol) -> int:
    """Side of the protocol's patch in pixels of the 256-pixel region."""
    return int(protocol.removeprefix("occ-"))


def about_people(settings: Json) -> Json:
    """What a cache's header says of rendered people."""
    return {"source": "people", "people": settings, "skeleton": settings.get("skeleton", H36M_17.name)}


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


def features(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")],
    out: Path,
    encoder: str = DEFAULT_ENCODER,
    runtime: Literal["torch", "litert"] = "litert",
    images: Path | None = None,
    device: str = "cpu",
    workers: int = 0,
    detect: bool = False,
    occlusion: OcclusionProtocol | None = None,
    flip: Annotated[bool, tyro.conf.arg(name="mirrored", aliases=["--flip"])] = False,
) -> None:
    """Cache a frozen encoder's features of a prepared dataset.

    Run it again to go on after a stop; start it with torchrun to split it over processes. On a CPU start one process a
    core, with OMP_NUM_THREADS=1.

    Args:
        folder: the prepared dataset, as `di2pose data prepare` or `di2pose people render` made it
        out: folder of the cache
        encoder: the frozen backbone: blazepose-heavy (-full, -lite; +movenet behind it adds tokens), or
            vitpose:FOLDER-OR-HUB-NAME
        runtime: accepted and ignored: BlazePose runs in LiteRT, ViTPose in PyTorch
        images: where the images are, if not where the dataset says
        device: cpu, cuda, mps; under torchrun `cuda` is each rank's own GPU
        workers: processes that read and crop pictures while the encoder runs, so many for each rank; for a GPU 8 or
            more. 0: the encoder's own process does it
        detect: crop what BlazePose's detector finds at the record's box, instead of the region that the labels give
        occlusion: put the patch of this protocol on every picture before detection, for evaluation
        flip: keep the features of the mirror images, too, for evaluation with the flip test
    """
    if workers < 0:
        raise InputError(f"--workers must be 0 or more, got {workers}")
    place = choose_device(device)
    network = load_encoder(encoder, place)
    dataset = Dataset(folder, images)
    source: CropSource
    if dataset.name == "people" and network.size == (CROP, CROP):
        if detect:
            raise InputError(f"{folder} holds crops of rendered people: there is no picture for --detect to look at")
        source = PeopleCrops(dataset)  # they are such crops already, with labels of their own
        source = source if occlusion is None else PatchedCrops(source, occlusion)
    else:
        find = PersonMatcher() if detect or occlusion is not None else None
        source = DatasetCrops(dataset, network, find, occlusion)
    batch = GPU_BATCH if place.type == "cuda" else BATCH
    about = {"runtime": "litert" if encoder.startswith("blazepose") else "torch", **source.about}
    write_features(source, network, out, about, flip, batch=batch, workers=workers)
