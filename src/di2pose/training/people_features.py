"""Rendered people as crops for a feature cache: from a folder of pictures, or drawn on the fly and not kept."""

import io
import multiprocessing
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from PIL import Image

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, Dataset, Sample
from di2pose.errors import InputError
from di2pose.files import Json
from di2pose.image.blazepose import CROP
from di2pose.image.crop import Roi
from di2pose.image.encoder import load_encoder
from di2pose.occlusion.protocols import occlude_limb
from di2pose.people.render import Plan, begin_worker, check_counts, make_plan
from di2pose.pose.skeleton import H36M_17
from di2pose.training.feature_cache import TEXT, Crop, write_features

OcclusionProtocol = Literal["occ-40", "occ-80"]
PATCH_SEED = 0
"""Of the patches' places and textures: the default of `di2pose evaluate`."""
NUMBERS = ("roll", "yaw", "pitch", "distance_m", "photo_fov", "side_ratio", "stature_m", "hidden")
WORDS = ("pose_class", "occlusion", "crop")
"""Labels that a cache keeps as numbers; the words are in the settings of the set."""


class PeopleCrops:
    """The pictures of a dataset that `di2pose people render` wrote."""

    def __init__(self, people: Dataset) -> None:
        self.people = people
        self.about = _about(people.header["settings"])

    def __len__(self) -> int:
        return len(self.people)

    def crop(self, i: int) -> Crop:
        sample = self.people[i]
        return _crop(self.people.read_image(sample), sample, self.about["people"])


class RenderedCrops:
    """People drawn when they are asked for: the same pictures as `di2pose people render`, never on disk."""

    def __init__(self, plan: Plan, count: int) -> None:
        from di2pose.people.sampling import settings

        self.plan, self.count = plan, count
        self.about = _about(settings(plan))

    def __len__(self) -> int:
        return self.count

    def crop(self, i: int) -> Crop:
        from di2pose.people.sampling import picture

        made = picture(self.plan, i)
        return _crop(Image.open(io.BytesIO(made.jpeg)), made.sample, self.about["people"])


class PatchedCrops:
    """The same crops under the patch of an occlusion protocol; the joints that it hides are labelled as occluded.

    The crop is the whole picture here, and stays the region of every method: the detector is not put to the test. A
    joint beyond the photo's border cannot be chosen for the patch, and is out of the frame under it, too.
    """

    def __init__(self, source: PeopleCrops | RenderedCrops, protocol: OcclusionProtocol) -> None:
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


def _about(settings: Json) -> Json:
    return {"source": "people", "people": settings, "skeleton": "h36m_17"}


def _crop(picture: Image.Image, sample: Sample, settings: Json) -> Crop:
    """What a feature cache keeps of a picture. The camera looks at the crop's centre: crop axes are camera axes."""
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


def people_features(
    out: Path,
    motion: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
    count: int = 1000,
    seed: int = 0,
    workers: int = 1,
    split: Literal["train", "test"] = "train",
    encoder: Literal["blazepose-heavy", "blazepose-full", "blazepose-lite"] = "blazepose-heavy",
    runtime: Literal["torch", "litert"] = "litert",
    movenet: bool = True,
    backgrounds: Path | None = None,
    occlusion: OcclusionProtocol | None = None,
    attacked: float = 0.0,
    natural: bool = False,
    mirrored: bool = False,
    settled: float = 0.0,
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
        runtime: of the encoder: litert is faster on a CPU than torch
        movenet: with the keypoint tokens of the second observer
        backgrounds: folder of photos without people to put behind most figures
        occlusion: put the patch of this protocol on a limb of everybody: the same people as without, to measure on
        attacked: share of people behind a large patch, cropped as by a detector that the patch misleads: to learn from
        natural: poses as often as they are in the motion, mostly upright, instead of rare kinds more often
        mirrored: keep what the encoder sees in the mirror, too: to measure as photos are looked at
        settled: share of people who sit, kneel, lie or bend, on furniture and seen as in photos of such scenes
    """
    check_counts(count, workers)
    people = RenderedCrops(make_plan(motion, split, seed, backgrounds, attacked, natural, settled), count)
    source = people if occlusion is None else PatchedCrops(people, occlusion)
    source.crop(0)  # fills every cache (bodies, clothes, motion, compiled loops) before workers start
    arguments = (source, out, encoder + "+movenet" * movenet, runtime, mirrored)
    if workers == 1:
        _encode(*arguments)
        return
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=_rank, args=(rank, workers, *arguments)) for rank in range(workers)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    if failed := [rank.exitcode for rank in ranks if rank.exitcode]:
        raise InputError(f"{len(failed)} of {workers} workers stopped with code {failed[0]}: see above; run it again")
    print(f"{count} people in {out}")


def _rank(rank: int, world: int, *arguments: Any) -> None:
    """One of `world` processes."""
    begin_worker()
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    _encode(*arguments)


def _encode(source: RenderedCrops | PatchedCrops, out: Path, encoder: str, runtime: str, mirrored: bool) -> None:
    """Encode every crop into the cache."""
    write_features(source, load_encoder(encoder, runtime=runtime), out, {"runtime": runtime, **source.about}, mirrored)
