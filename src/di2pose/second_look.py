"""A second look at people: other regions than the detector's, and which of them to keep.

What stands before a person misleads a detector: crops come turned, off or of another size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from di2pose.image.encoder import PERSON, Encoder, to_picture
from di2pose.image.region import next_region
from di2pose.model import PoseModel
from di2pose.person_crop import EncodedCrops, PersonCrop, encode_crops

TURNED = np.radians(15)
"""Regions turned by less are not looked at upright, too."""
FARTHEST, LARGEST = 0.3, np.log(2.0)
"""Most that a second look may lie off the first, in sides, and differ from it in size (log): else it shows another."""


def surest_looks(first: EncodedCrops, rows: Sequence[int], encoder: Encoder, model: PoseModel) -> EncodedCrops:
    """The same people, but for each of the rows the look of the greatest certainty: the one that was taken, upright
    where that was turned, and at the places where the landmarks of those two lie. Looks that show nobody come last.

    A model that cannot tell its certainty stays with the first look; an encoder without landmarks has fewer looks.
    """
    if not len(rows):
        return first
    looks, owners = [first.pick(rows)], [list(rows)]

    def take(crops: Mapping[int, PersonCrop], of: list[int]) -> None:
        if crops:
            taken = list(crops.values())
            looks.append(EncodedCrops(taken, encode_crops(encoder, taken, first.output.features.device)))
            owners.append([of[place] for place in crops])

    take(upright_crops(looks[0].crops), owners[0])
    for seen, of in list(zip(looks, owners, strict=True)):
        take(moved_crops(seen, encoder), of)
    if len(looks) == 1:
        return first
    every = EncodedCrops.join(looks)
    sure = model.certainty(every.output.features)
    if sure is None:
        return first
    sure = sure.cpu()
    if every.output.person is not None:
        sure = sure - 1e3 * (every.output.person.cpu() < PERSON)
    best: dict[int, int] = {}
    for place, row in enumerate(row for some in owners for row in some):
        if row not in best or sure[place] > sure[best[row]]:
            best[row] = place
    count = len(first.crops)
    chosen = [count + best[row] if row in best else row for row in range(count)]
    return EncodedCrops.join([first, every]).pick(chosen)


def upright_crops(crops: Sequence[PersonCrop]) -> dict[int, PersonCrop]:
    """Number of a crop -> the same region upright, where it is turned noticeably."""
    turned = {row: crop for row, crop in enumerate(crops) if abs(crop.region.angle) > TURNED}
    return {row: crop.at(replace(crop.region, angle=0.0)) for row, crop in turned.items()}


def moved_crops(seen: EncodedCrops, encoder: Encoder) -> dict[int, PersonCrop]:
    """Number of a crop -> the region that its landmarks call for; not where that would lie on somebody else."""
    if seen.output.landmarks_2d is None or seen.output.skeleton is None:
        return {}
    moved = {}
    points = seen.output.landmarks_2d.double().cpu().numpy()
    for row, (crop, landmarks) in enumerate(zip(seen.crops, points, strict=True)):
        before = crop.region
        region = next_region(to_picture(encoder, before, landmarks), before, seen.output.skeleton)
        apart = np.hypot(region.centre[0] - before.centre[0], region.centre[1] - before.centre[1])
        if apart < FARTHEST * before.side and abs(np.log(region.side / before.side)) < LARGEST:
            moved[row] = crop.at(region)
    return moved
