"""Contact sheets: records drawn with their projected skeleton, right side green, left side blue."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from di2pose.data.record import Sample
from di2pose.files import replacing
from di2pose.pose.skeleton import Skeleton

RIGHT, LEFT, MIDDLE = (40, 220, 60), (70, 130, 255), (255, 210, 60)
WHITE = (255, 255, 255)
TILE = 288
MARGIN = 0.15


def draw_tile(sample: Sample, skeleton: Skeleton, image: Image.Image | None) -> Image.Image:
    """The person cut out of the picture, with the 3D joints projected as lines and the 2D joints as white dots. Without
    a picture: the pose as the camera sees it, and from the side with the camera to the left, without perspective."""
    points = sample.joints_2d
    if sample.camera is not None and sample.root_mm is not None:
        points = sample.camera.project(sample.joints_mm + sample.root_mm)
    if image is None or points is None or not np.isfinite(points).any():
        tile = Image.new("RGB", (TILE, TILE), (24, 26, 30))
        reach = np.nanmax(np.abs(sample.joints_mm), 0)
        scale = TILE * min(0.47 / max(reach[1], 1.0), 0.25 / max(reach[0], reach[2], 1.0))
        for centre, axes in ((0.27, [0, 1]), (0.73, [2, 1])):
            _bones(tile, skeleton, sample.joints_mm[:, axes] * scale + np.array([centre * TILE, TILE / 2]))
        return tile
    box = sample.box or (*np.nanmin(points, 0), *np.nanmax(points, 0))
    side = max(box[2] - box[0], box[3] - box[1]) * (1 + 2 * MARGIN)
    x0, y0 = corner = np.array([box[0] + box[2] - side, box[1] + box[3] - side]) / 2
    zoom = TILE / side
    tile = image.transform(
        (TILE, TILE), Image.Transform.AFFINE, (1 / zoom, 0, x0, 0, 1 / zoom, y0), Image.Resampling.BILINEAR
    )
    draw = ImageDraw.Draw(tile)
    if sample.box is not None:
        draw.rectangle(((np.array(box) - [*corner, *corner]) * zoom).tolist(), outline=WHITE)
    _bones(tile, skeleton, (points - corner) * zoom)
    if sample.joints_2d is not None:
        for x, y in (sample.joints_2d[np.isfinite(sample.joints_2d).all(1)] - corner) * zoom:
            draw.ellipse([x - 2, y - 2, x + 2, y + 2], fill=WHITE)
    return tile


def _bones(tile: Image.Image, skeleton: Skeleton, points: np.ndarray) -> None:
    draw = ImageDraw.Draw(tile)
    for child, parent in skeleton.bones:
        while parent != -1 and not np.isfinite(points[parent]).all():
            parent = skeleton.parents[parent]  # over a joint that is not annotated
        if parent != -1 and np.isfinite(points[child]).all():
            names = skeleton.joints[child] + skeleton.joints[parent]
            colour = RIGHT if "right_" in names else LEFT if "left_" in names else MIDDLE
            draw.line([(float(x), float(y)) for x, y in points[[child, parent]]], fill=colour, width=3)


def write_sheet(path: Path, tiles: Sequence[tuple[Image.Image, str]], columns: int = 6) -> Path:
    """A picture of (tile, caption) pairs."""
    sheet = Image.new("RGB", (columns * TILE, -(-len(tiles) // columns) * (TILE + 16)), (0, 0, 0))
    for k, (tile, caption) in enumerate(tiles):
        x, y = k % columns * TILE, k // columns * (TILE + 16)
        sheet.paste(tile, (x, y))
        ImageDraw.Draw(sheet).text((x + 4, y + TILE + 2), caption, fill=(220, 220, 220))
    with replacing(path) as temporary:
        sheet.save(temporary)
    return path
