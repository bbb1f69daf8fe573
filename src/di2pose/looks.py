"""A second look at people: other regions than the detector's, and which of them to keep.

What stands before a person misleads a detector: crops come turned, off or of another size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from di2pose.image.blazepose import CROP
from di2pose.image.crop import Roi
from di2pose.image.region import next_region
from di2pose.photo import PERSON, Seen, View

TURNED = np.radians(15)
"""Regions turned by less are not looked at upright, too."""
FARTHEST, LARGEST = 0.3, np.log(2.0)
"""Most that a second look may lie off the first, in sides, and differ from it in size (log): else it shows another."""


def surest_looks(
    first: Seen,
    rows: Sequence[int],
    look: Callable[[Sequence[View]], Seen],
    certainty: Callable[[Seen], Float[Tensor, " B"]],
) -> Seen:
    """The same views, but for each of the rows the look of the greatest certainty: the one that was taken, upright
    where that was turned, and at the places where those two saw the body. Looks that show nobody come last."""
    looks, owners = [first.pick(rows)], [list(rows)]

    def take(views: Mapping[int, View], of: list[int]) -> None:
        if views:
            looks.append(look(list(views.values())))
            owners.append([of[place] for place in views])

    take(upright_views(looks[0].views), owners[0])
    for seen, of in list(zip(looks, owners, strict=True)):
        take(moved_views(seen), of)
    every = Seen.joined(looks)
    sure = certainty(every).cpu() - 1e3 * (every.person < PERSON)
    best: dict[int, int] = {}
    for place, row in enumerate(row for some in owners for row in some):
        if row not in best or sure[place] > sure[best[row]]:
            best[row] = place
    count = len(first.views)
    return Seen.joined([first, every]).pick([count + best[row] if row in best else row for row in range(count)])


def upright_views(views: Sequence[View]) -> dict[int, View]:
    """Number of a view -> the same region upright, where it is turned noticeably."""
    turned = {row: view for row, view in enumerate(views) if abs(view.detection.roi.angle) > TURNED}
    return {row: _elsewhere(view, replace(view.detection.roi, angle=0.0)) for row, view in turned.items()}


def moved_views(seen: Seen) -> dict[int, View]:
    """Number of a view -> the region that its landmarks call for; not where that would lie on somebody else."""
    moved = {}
    for row, (view, points) in enumerate(zip(seen.views, seen.landmarks_2d.double().numpy(), strict=True)):
        before = view.detection.roi
        region = next_region(before.to_image(points, CROP), before)
        apart = np.hypot(region.centre[0] - before.centre[0], region.centre[1] - before.centre[1])
        if apart < FARTHEST * before.side and abs(np.log(region.side / before.side)) < LARGEST:
            moved[row] = _elsewhere(view, region)
    return moved


def _elsewhere(view: View, region: Roi) -> View:
    return view._replace(detection=replace(view.detection, roi=region))
