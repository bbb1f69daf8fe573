"""`di2pose features`: run a frozen encoder once over all crops of a prepared dataset, and keep what it saw."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from di2pose.data.sample import OCCLUDED, Dataset, Sample
from di2pose.errors import InputError
from di2pose.image.blazepose import CROP, BlazePose, Block, Layout
from di2pose.image.crop import (
    Roi,
    apply,
    crop,
    crop_camera,
    invert,
    roi_from_box,
    roi_from_keypoints,
    upright_matrix,
    warp,
)
from di2pose.image.find import Finder
from di2pose.image.vitpose import HEIGHT, TOKENS, WIDTH, VitPose
from di2pose.occlusion.protocols import occlude_limb
from di2pose.people.store import HEADER as PEOPLE_HEADER
from di2pose.people.store import People
from di2pose.pose.skeleton import Skeleton
from di2pose.training.feature_cache import TEXT, BothWays, FeatureCache, write_features
from di2pose.training.people_features import PATCH_SEED, OcclusionProtocol, PatchedCrops, PeopleCrops, patch_size

__all__ = ["DatasetCrops", "FeatureCache", "features", "region"]

BODY_TO_SIDE = 1.15
"""The detector's circle over the distance of the farthest joint from the hips: median on real footage."""

EncoderName = Literal["blazepose-heavy", "blazepose-full", "blazepose-lite", "vitpose"]


class DatasetCrops:
    """The crops of a prepared dataset's records that have an image and a place in it.

    The place is `extra["roi"]` (x, y, side, angle) where a record has it, else the hip-centred turned square that
    BlazePose's detector would give for its 2D joints, else its upright box. With `paper` it is the 256x192 box crop.

    With `find` it is what the detector does find in the picture, and no annotation but the record's box is looked at.
    `occlusion` first puts that protocol's patch on the picture, sized by what is found without it; then the detector
    meets it as a user's would, and the joints under it are labelled as occluded.
    """

    def __init__(
        self,
        dataset: Dataset,
        paper: bool = False,
        find: Finder | None = None,
        occlusion: OcclusionProtocol | None = None,
    ) -> None:
        if occlusion is not None and find is None:
            raise InputError("an occlusion protocol tries the detector, too: give a Finder with it")
        self.dataset, self.paper, self.find, self.occlusion = dataset, paper, find, occlusion
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

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        row = int(self.rows[i])
        sample = self.dataset[row]
        image = self.dataset.read_image(sample)
        joints = len(sample.joints_mm)
        seen = np.full(joints, -1) if sample.visibility is None else sample.visibility
        if self.find is not None and self.occlusion is not None:
            clean, size = self.find(sample, image), patch_size(self.occlusion)
            patched = occlude_limb(image, sample, self.dataset.skeleton, size, PATCH_SEED, roi=clean)
            image, seen = patched.image, np.where(patched.hidden, OCCLUDED, seen)
        roi = region(sample, self.dataset.skeleton) if self.find is None else self.find(sample, image)
        if self.paper:
            matrix = upright_matrix(sample.box or _box_of(sample))
            pixels, rotation, focal = warp(image, matrix, (WIDTH, HEIGHT)), np.eye(3), np.nan
        else:
            matrix, pixels, rotation, focal = roi.matrix(CROP), crop(image, roi, CROP), np.eye(3), np.nan
            if sample.camera is not None:
                camera, rotation = crop_camera(sample.camera, roi, CROP)
                focal = camera.focal[0]
        flat = np.full((joints, 2), np.nan) if sample.joints_2d is None else apply(invert(matrix), sample.joints_2d)
        labels: dict[str, np.ndarray] = {
            "joints_mm": (sample.joints_mm @ rotation.T).astype(np.float32),
            "joints_2d": flat.astype(np.float32),
            "rotation": rotation.astype(np.float32),
            "roi": np.array([*roi.centre, roi.side, roi.angle], np.float32),
            "focal": np.array(focal, np.float32),
            "row": np.array(row, np.int64),
            "visibility": seen.astype(np.int8),
            "valid": sample.valid,
        }
        return pixels, labels, {name: getattr(sample, name) for name in TEXT}


def region(sample: Sample, skeleton: Skeleton) -> Roi:
    """Where a record's crop is taken; see DatasetCrops."""
    if "roi" in sample.extra:
        x, y, side, angle = (float(value) for value in sample.extra["roi"])
        return Roi((x, y), side, angle)
    ends = list(skeleton.indices("left_hip", "right_hip", "left_shoulder", "right_shoulder"))
    if sample.joints_2d is not None and np.isfinite(sample.joints_2d[ends]).all():
        hip, neck = sample.joints_2d[ends[:2]].mean(0), sample.joints_2d[ends[2:]].mean(0)
        up = (neck - hip) / max(float(np.linalg.norm(neck - hip)), 1e-6)
        radius = BODY_TO_SIDE * float(np.nanmax(np.linalg.norm(sample.joints_2d - hip, axis=-1)))
        return roi_from_keypoints(hip.tolist(), (hip + radius * up).tolist())
    return roi_from_box(sample.box or _box_of(sample))


def _box_of(sample: Sample) -> tuple[float, float, float, float]:
    if sample.joints_2d is None:
        raise InputError(f"record {sample.id} has neither a box nor 2D joints: it cannot be cropped")
    (x0, y0), (x1, y1) = np.nanmin(sample.joints_2d, axis=0), np.nanmax(sample.joints_2d, axis=0)
    return float(x0), float(y0), float(x1), float(y1)


def features(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")],
    out: Path,
    encoder: EncoderName = "blazepose-heavy",
    map16: bool = False,
    movenet: bool = False,
    runtime: Literal["torch", "litert"] = "torch",
    weights: str | None = None,
    images: Path | None = None,
    device: str = "cpu",
    detect: bool = False,
    occlusion: OcclusionProtocol | None = None,
    mirrored: bool = False,
) -> None:
    """Cache a frozen encoder's features of a prepared dataset.

    Run it again to go on after a stop; start it with torchrun to split it over processes. On a CPU start one process a
    core, with OMP_NUM_THREADS=1.

    Args:
        folder: the prepared dataset, as `di2pose data prepare` or `di2pose people render` made it
        out: folder of the cache
        encoder: the frozen backbone
        map16: keep BlazePose's 16x16 map too (98 KB more a crop)
        movenet: add MoveNet's keypoint tokens
        runtime: litert is faster on a CPU and needs the extra `litert`
        weights: hub name or folder of ViTPose's weights
        images: where the images are, if not where the dataset says
        device: cpu, cuda, mps
        detect: crop what BlazePose's detector finds at the record's box, instead of the region that the labels give
        occlusion: put the patch of this protocol on every picture before the detector looks at it: to measure on
        mirrored: keep what the encoder sees in the mirror, too: to measure as photos are looked at
    """
    source = _source(folder, images, encoder == "vitpose", detect, occlusion)
    network: BlazePose | VitPose
    if encoder == "vitpose":
        network = VitPose(weights) if weights else VitPose()
        layout = Layout((Block("tokens", TOKENS, network.width, 0),))
    else:
        variant: Any = encoder.removeprefix("blazepose-")
        network = BlazePose(variant, map16=map16, movenet=movenet, runtime=runtime)
        layout = network.layout
    about = {"encoder": encoder, "runtime": runtime, "weights": weights, **source.about}
    network = network.to(device)
    write_features(source, BothWays(network) if mirrored else network, out, layout, about)


def _source(
    folder: Path, images: Path | None, paper: bool, detect: bool, occlusion: OcclusionProtocol | None
) -> DatasetCrops | PeopleCrops | PatchedCrops:
    if paper and (detect or occlusion is not None):
        raise InputError("--detect and --occlusion are for BlazePose's turned square, not for ViTPose's box crop")
    if not (folder / PEOPLE_HEADER).is_file():
        find = Finder() if detect or occlusion is not None else None
        return DatasetCrops(Dataset(folder, images), paper, find, occlusion)
    if paper:
        raise InputError(f"{folder} holds square crops of rendered people; ViTPose needs the whole picture")
    if detect:
        raise InputError(f"{folder} holds crops of rendered people: there is no picture for --detect to look at")
    people = PeopleCrops(People(folder))
    return people if occlusion is None else PatchedCrops(people, occlusion)
