"""Rendered people as crops for a feature cache: from a folder of pictures, or drawn on the fly and not kept."""

import io
import multiprocessing
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from PIL import Image

from di2pose.data.feature_cache import Crop, write_features
from di2pose.errors import InputError
from di2pose.image.encoder import load_encoder
from di2pose.training.features import CropSource, OcclusionProtocol, PatchedCrops, about_people, person_crop
from di2pose_people.render import begin_worker, check_counts
from di2pose_people.sampling import Plan, picture


class RenderedCrops:
    """People drawn on demand: the same pictures as `di2pose people render`, never on disk."""

    def __init__(self, plan: Plan, count: int) -> None:
        self.plan, self.count = plan, count
        self.about = about_people(plan.settings())

    def __len__(self) -> int:
        return self.count

    def crop(self, i: int) -> Crop:
        made = picture(self.plan, i)
        return person_crop(Image.open(io.BytesIO(made.jpeg)), made.sample, self.about["people"])


def people_features(
    people: Annotated[Plan, tyro.conf.arg(name="")],
    out: Path,
    count: int = 1000,
    workers: int = 1,
    encoder: Literal["blazepose-heavy", "blazepose-full", "blazepose-lite"] = "blazepose-heavy",
    movenet: bool = True,
    occlusion: OcclusionProtocol | None = None,
    mirrored: bool = False,
) -> None:
    """Render people straight into cached features: the pictures of `people render`, but only features and labels kept.

    Run it again to go on after a stop, or with a larger --count to extend the set.

    Args:
        people: which people are rendered
        out: folder of the feature cache
        count: how many people
        workers: processes, one core each
        encoder: the frozen backbone
        movenet: with the keypoint tokens of the second observer
        occlusion: put the patch of this protocol on a limb of every person: the same people as without, to measure on
        mirrored: keep the features of the mirrored crop, too: to measure with the flip test
    """
    check_counts(count, workers)
    crops = RenderedCrops(people, count)
    source = crops if occlusion is None else PatchedCrops(crops, occlusion)
    source.crop(0)  # fills every cache (bodies, clothes, motion, compiled loops) before workers start
    arguments = (source, out, encoder + "+movenet" * movenet, mirrored)
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


def _encode(source: CropSource, out: Path, encoder: str, mirrored: bool) -> None:
    """Encode every crop into the cache."""
    write_features(source, load_encoder(encoder), out, {"runtime": "litert", **source.about}, mirrored)
