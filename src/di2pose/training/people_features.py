"""Rendered people as crops for a feature cache: from a folder of pictures, or drawn on the fly and not kept."""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from PIL import Image

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, Sample
from di2pose.errors import InputError
from di2pose.image.blazepose import CROP, BlazePose
from di2pose.image.crop import Roi
from di2pose.occlusion.protocols import occlude_limb
from di2pose.people.render import check_attacked
from di2pose.people.store import People
from di2pose.pose.skeleton import H36M_17
from di2pose.training.feature_cache import write_features

OcclusionProtocol = Literal["occ-40", "occ-80"]
PATCH_SEED = 0
"""Of the patches' places and textures: the default of `di2pose evaluate`."""
NUMBERS = ("roll", "yaw", "pitch", "distance_m", "photo_fov", "side_ratio", "stature_m", "hidden")
CODES = ("pose_class", "occlusion", "crop", "truncated")


class PeopleCrops:
    """The pictures of a folder that `di2pose people render` wrote."""

    def __init__(self, people: People) -> None:
        self.people = people
        self.about = {"source": "people", "people": people.header, "skeleton": "h36m_17"}

    def __len__(self) -> int:
        return len(self.people)

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        columns = ("joints_mm", "root_mm", "joints_2d", "visibility", "focal", "subject", "clip", *NUMBERS, *CODES)
        row = {name: self.people.labels(name)[i] for name in columns}
        return self.people.image(i), _labels(row), _texts(row, self.people.header, i)


class RenderedCrops:
    """People drawn when they are asked for: the same pictures as `di2pose people render`, never on disk."""

    def __init__(
        self,
        motion: Path | None,
        count: int,
        seed: int,
        split: str,
        backgrounds: Path | None,
        attacked: float = 0.0,
        natural: bool = False,
    ) -> None:
        from di2pose.people.backdrop import photo_files
        from di2pose.people.crew import Plan
        from di2pose.people.deepmimic import motion_folder
        from di2pose.people.render import header_of

        self.plan = Plan(motion_folder(motion), split, seed, photo_files(backgrounds), attacked, natural)
        self.count = count
        self.header = header_of(self.plan)
        self.about = {"source": "people", "people": self.header, "skeleton": "h36m_17"}

    def __len__(self) -> int:
        return self.count

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        from di2pose.people.crew import picture
        from di2pose.people.store import decode

        made = picture(self.plan, i)
        return decode(made.jpeg), _labels(made.labels), _texts(made.labels, self.header, i)


class PatchedCrops:
    """The same crops under the patch of an occlusion protocol; the joints that it hides are labelled as occluded.

    The crop is the whole picture here, and stays the region of every method: the detector is not put to the test. A
    joint beyond the photo's border cannot be chosen for the patch, and is out of the frame under it, too.
    """

    def __init__(self, source: "PeopleCrops | RenderedCrops", protocol: OcclusionProtocol) -> None:
        self.source, self.size = source, patch_size(protocol)
        self.about = {**source.about, "occlusion": protocol}

    def __len__(self) -> int:
        return len(self.source)

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
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


def _labels(row: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """What a feature cache keeps of a picture. The camera looks at the crop's centre: crop axes are camera axes."""
    size = 256.0
    return {
        "joints_mm": np.asarray(row["joints_mm"], np.float32),
        "root_mm": np.asarray(row["root_mm"], np.float32),
        "joints_2d": np.asarray(row["joints_2d"], np.float32),
        "rotation": np.eye(3, dtype=np.float32),
        "roi": np.array([size / 2, size / 2, size, 0], np.float32),
        "focal": np.asarray(row["focal"], np.float32),
        "visibility": np.asarray(row["visibility"], np.int8),
        "valid": np.ones(len(row["joints_mm"]), bool),
        **{name: np.asarray(row[name], np.float32) for name in NUMBERS},
        **{name: np.asarray(row[name], np.int8) for name in CODES},
    }


def _texts(row: Mapping[str, Any], header: Mapping[str, Any], i: int) -> dict[str, str]:
    split = str(header["split"])
    return {
        "id": f"people_{split}_{header['seed']}_{i:07d}",
        "subject": str(row["subject"]),
        "action": str(header["pose_class"][int(row["pose_class"])]),
        "sequence": str(row["clip"]),
        "split": split,
    }


def people_features(
    out: Path,
    motion: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
    count: int = 1000,
    seed: int = 0,
    workers: int = 1,
    split: Literal["train", "test"] = "train",
    encoder: Literal["blazepose-heavy", "blazepose-full", "blazepose-lite"] = "blazepose-heavy",
    runtime: Literal["torch", "litert"] = "litert",
    movenet: bool = False,
    backgrounds: Path | None = None,
    occlusion: OcclusionProtocol | None = None,
    attacked: float = 0.0,
    natural: bool = False,
    mirrored: bool = False,
) -> None:
    """Render people straight into cached features: the pictures of `people render`, but only features and labels kept.

    Run it again to go on after a stop, or with a larger --count to extend the set.

    Args:
        out: folder of the feature cache
        motion: folder of BVH clips (the CMU motion capture database in its BVH conversion: the most varied people);
            by default 20 open clips, fetched with pip
        count: how many people
        seed: another seed gives other people
        workers: processes, one core each
        split: train, or test: other motion subjects and other clothes
        encoder: the frozen backbone
        runtime: litert is faster on a CPU (extra `litert`); torch runs everywhere
        movenet: add MoveNet's keypoint tokens
        backgrounds: folder of photos without people to put behind most figures
        occlusion: put the patch of this protocol on a limb of everybody: the same people as without, to measure on
        attacked: share of people behind a large patch, cropped as by a detector that the patch misleads: to learn from
        natural: poses as often as they are in the motion, mostly upright, instead of rare kinds more often
        mirrored: keep what the encoder sees in the mirror, too: to measure as photos are looked at
    """
    check_attacked(attacked)
    if count < 1 or workers < 1:
        raise InputError(f"--count and --workers must be 1 or more, got {count} and {workers}")
    people = RenderedCrops(motion, count, seed, split, backgrounds, attacked, natural)
    source = people if occlusion is None else PatchedCrops(people, occlusion)
    source.crop(0)  # fills every cache (bodies, clothes, motion, compiled loops, weights) before workers start
    arguments = (source, out, encoder, runtime, movenet, mirrored)
    if workers == 1:
        _encode(*arguments)
        return
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=_rank, args=(rank, workers, _encode, arguments)) for rank in range(workers)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    if failed := [rank.exitcode for rank in ranks if rank.exitcode]:
        raise InputError(f"{len(failed)} of {workers} workers stopped with code {failed[0]}: see above; run it again")
    print(f"{count} people in {out}")


def _encode(
    source: RenderedCrops | PatchedCrops, out: Path, encoder: str, runtime: Any, movenet: bool, mirrored: bool
) -> None:
    variant: Any = encoder.removeprefix("blazepose-")
    network = BlazePose(variant, movenet=movenet, runtime=runtime)
    write_features(source, network, out, {"runtime": runtime, **source.about}, mirrored)


def _rank(rank: int, world: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    import torch

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    torch.set_num_threads(1)
    work(*arguments)
