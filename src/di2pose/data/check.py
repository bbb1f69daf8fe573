"""`di2pose data check DIR`: is a prepared dataset what it says? Counts, ranges, bones, left and right, reprojection,
and a contact sheet."""

from pathlib import Path

import numpy as np
import tyro
from PIL import Image, ImageDraw

from di2pose.data.sample import OUT_OF_FRAME, UNKNOWN, Dataset, Sample
from di2pose.errors import InputError
from di2pose.files import replacing
from di2pose.pose.skeleton import Skeleton, bone_lengths
from di2pose.text_table import aligned

MOST_ROWS = 100_000
"""Statistics are taken on at most this many records, evenly spread."""
ADULT_MM = {
    ("hip", "knee"): (330, 520),
    ("knee", "ankle"): (330, 520),
    ("shoulder", "elbow"): (220, 370),
    ("elbow", "wrist"): (170, 320),
}
"""Medians of adults lie inside; CMU's short forearms (190 mm) set the lower end of theirs."""
BENT = 0.08
"""A knee or elbow counts as bent when it is this part of the limb's length away from the straight line."""
GOOD_PX, BAD_PX = 0.5, 3.0
MOST_OUTSIDE = 0.5
"""Part of the joints of a split that may lie outside of the picture."""
RIGHT, LEFT, MIDDLE, WHITE = (40, 220, 60), (70, 130, 255), (255, 210, 60), (255, 255, 255)
TILE, COLUMNS = 288, 6
"""Pixels of a picture of the contact sheet, and how many stand in a row."""
MARGIN = 0.15
"""Of a box, on each side."""


def check(folder: tyro.conf.Positional[Path], out: Path | None = None, samples: int = 24, seed: int = 0) -> int:
    """Check a prepared dataset and draw a contact sheet. The exit code is 1 if something is wrong.

    Args:
        folder: A folder written by `di2pose data prepare`.
        out: Where sheet.png goes; default: `check` inside the dataset.
        samples: How many random records to draw.
        seed: Seed of that draw.
    """
    dataset = Dataset(folder)
    report = CheckReport(dataset)
    rows = np.sort(np.random.default_rng(seed).permutation(len(dataset))[:samples])
    sheet = Image.new("RGB", (COLUMNS * TILE, -(-len(rows) // COLUMNS) * (TILE + 16)))
    other_sizes = []
    for k, row in enumerate(rows.tolist()):
        sample, image = dataset[row], None
        if sample.image is not None:
            try:
                image = dataset.read_image(sample)
                if sample.camera is not None and sample.camera.size not in (None, image.size):
                    other_sizes.append(f"{sample.id}: {image.size}, not {sample.camera.size}")
            except InputError as error:
                report.problems.append(f"record {sample.id}: {error}")
        x, y = k % COLUMNS * TILE, k // COLUMNS * (TILE + 16)
        sheet.paste(draw_tile(sample, dataset.skeleton, image), (x, y))
        ImageDraw.Draw(sheet).text((x + 4, y + TILE + 2), f"{sample.id} {sample.action}", fill=WHITE)
    if other_sizes:
        report.warnings.append(
            f"{len(other_sizes)} of {len(rows)} pictures have another size than their camera says, "
            f"e.g. {other_sizes[0]}"
        )
    path = (out or folder / "check") / "sheet.png"
    with replacing(path) as temporary:
        sheet.save(temporary)
    print(f"{report}\ncontact sheet: {path}")
    return 1 if report.problems else 0


class CheckReport:
    """What can be said of a dataset without its pictures. Problems make the command fail, warnings do not."""

    def __init__(self, dataset: Dataset) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self.problems: list[str] = []
        self.dataset = dataset
        self.rows = np.unique(np.linspace(0, len(dataset) - 1, min(len(dataset), MOST_ROWS)).astype(int))
        valid = dataset.valid[self.rows][..., None]
        self.joints = np.where(valid, dataset.joints_mm[self.rows].astype(np.float64), np.nan)
        self.place = dict(zip(dataset.skeleton.joints, np.moveaxis(self.joints, 1, 0), strict=True))
        for section in (self.counts, self.ranges, self.bones, self.sides, self.reprojection, self.outside):
            section()

    def __str__(self) -> str:
        found = [f"WARNING: {text}" for text in self.warnings] + [f"PROBLEM: {text}" for text in self.problems]
        return "\n".join(self.lines + (found or ["no problem found"]))

    def counts(self) -> None:
        dataset, skipped = self.dataset, len(self.dataset.header["skipped"])
        self.lines.append(f"{dataset.name}: {len(dataset)} records, {dataset.skeleton.name}, {skipped} skipped")
        for name in ("split", "subject", "action"):
            values, counts = np.unique(dataset.column(name), return_counts=True)
            shown = [f"{value or '(none)'} {count}" for value, count in zip(values, counts, strict=True)]
            self.lines.append(f"{name} ({len(values)}): {', '.join(shown[:30] + ['...'] * (len(shown) > 30))}")
        if twice := len(dataset) - len({line["id"] for line in dataset.index}):
            self.problems.append(f"{twice} ids occur more than once")
        if broken := int((dataset.valid & ~np.isfinite(dataset.joints_mm).all(-1)).any(-1).sum()):
            self.problems.append(f"{broken} records have NaN or infinite joints that count as annotated")
        if len(self.rows) < len(dataset):
            self.lines.append(f"the following on {len(self.rows)} records, evenly spread")

    def ranges(self) -> None:
        place, roots = self.place, self.dataset.root_mm[self.rows]
        shares = zip(place, self.dataset.valid[self.rows].mean(0), strict=True)
        if part := [f"{name} {share:.0%}" for name, share in shares if share < 1]:
            self.lines.append(f"joints not annotated everywhere: {', '.join(part)}")
        for axis, name in enumerate(("x right", "y down", "z away")):
            low, high = np.nanmin(self.joints[..., axis]), np.nanmax(self.joints[..., axis])
            self.lines.append(f"{name}: {low:.0f} to {high:.0f} mm from the root")
        distance = np.linalg.norm(roots, axis=-1)
        if np.isfinite(distance).any():
            self.lines.append(f"root: {np.nanmin(distance):.0f} to {np.nanmax(distance):.0f} mm from the camera")
            if np.nanmin(roots[:, 2]) <= 0:
                self.problems.append("a root lies behind the camera")
        if "pelvis" in place and np.nanmax(np.abs(place["pelvis"]), initial=0) > 1:
            self.problems.append("poses are not root-relative: the pelvis is not at 0")
        if upper := next((name for name in ("thorax", "neck", "upper_neck") if name in place), None):
            upright = float(np.mean(place[upper][:, 1] < (place["left_hip"] + place["right_hip"])[:, 1] / 2))
            self.lines.append(f"upright (neck above the hips): {upright:.1%}")
            if upright < 0.5:
                self.problems.append("most poses are upside down: y must point down")

    def bones(self) -> None:
        skeleton, rows = self.dataset.skeleton, []
        for (child, parent), lengths in zip(skeleton.bones, bone_lengths(self.joints, skeleton).T, strict=True):
            if np.isfinite(lengths).any():
                low, middle, high = np.nanpercentile(lengths, [5, 50, 95])
                name = f"{skeleton.joints[parent]} - {skeleton.joints[child]}"
                rows.append((name, f"{middle:.1f}", f"{low:.1f} to {high:.1f}"))
        self.lines.append(aligned(("bone lengths in mm", "median", "5 % to 95 %"), rows))
        for (upper, lower), (low, high) in ADULT_MM.items():
            for side in ("left", "right"):
                lengths = np.linalg.norm(self.place[f"{side}_{upper}"] - self.place[f"{side}_{lower}"], axis=-1)
                if not np.isfinite(lengths).any():
                    continue
                median = float(np.nanmedian(lengths))
                text = f"{side} {upper} - {lower} has a median of {median:.1f} mm, adults have {low} to {high}"
                if not low / 2 < median < high * 2:
                    self.problems.append(f"{text}: wrong unit?")
                elif not low < median < high:
                    self.warnings.append(text)

    def sides(self) -> None:
        """Knees bend forwards and elbows backwards. Forwards is left x up (camera axes are right-handed), so a pose
        whose sides were swapped, or that was mirrored, bends the wrong way."""
        place = self.place
        up = place["left_shoulder"] + place["right_shoulder"] - place["left_hip"] - place["right_hip"]
        across = place["left_hip"] - place["right_hip"] + place["left_shoulder"] - place["right_shoulder"]
        forwards = np.cross(across, up)
        for (upper, bend, lower), sign in ((("hip", "knee", "ankle"), 1), (("shoulder", "elbow", "wrist"), -1)):
            right_way = []
            for side in ("left", "right"):
                start, middle, end = (place[f"{side}_{name}"] for name in (upper, bend, lower))
                offset = middle - (start + end) / 2
                length = np.linalg.norm(middle - start, axis=-1) + np.linalg.norm(end - middle, axis=-1)
                bent = np.linalg.norm(offset, axis=-1) > BENT * length
                right_way += (sign * (offset[bent] * forwards[bent]).sum(-1) > 0).tolist()
            if not right_way:
                continue
            share = sum(right_way) / len(right_way)
            self.lines.append(f"{bend}s that bend the human way: {share:.1%} of {len(right_way)} bent ones")
            if len(right_way) >= 20 and share < 0.5:
                self.problems.append(f"most {bend}s bend the wrong way: left and right are swapped, or poses mirrored")

    def reprojection(self) -> None:
        """Distance from the projected 3D joints to the 2D joints."""
        dataset, of_camera = self.dataset, dict[str, list[int]]()
        for row in self.rows.tolist():
            if (camera := dataset.index[row]["camera"]) is not None:
                of_camera.setdefault(camera, []).append(row)
        pixels = np.zeros(0)
        for key, members in of_camera.items():
            points = dataset.cameras[key].project(dataset.joints_mm[members] + dataset.root_mm[members][:, None])
            error = np.linalg.norm(points - dataset.joints_2d[members], axis=-1)
            pixels = np.append(pixels, error[np.isfinite(error)])
        if not len(pixels):
            self.lines.append("reprojection: no record has a camera, a root and 2D joints")
            return
        median = float(np.median(pixels))
        self.lines.append(
            f"reprojection: median {median:.3f} px, 95 % {np.percentile(pixels, 95):.3f} px, "
            f"worst {pixels.max():.3f} px ({len(pixels)} joints, {len(of_camera)} cameras)"
        )
        if median > BAD_PX:
            self.problems.append(f"3D joints do not project onto the 2D joints: median {median:.1f} px")
        elif median > GOOD_PX:
            self.warnings.append(f"the median reprojection error is {median:.2f} px")

    def outside(self) -> None:
        """Joints outside of the picture, by split: a wrong size of the pictures puts most of them there."""
        splits = self.dataset.column("split")[self.rows]
        for split in np.unique(splits):
            valid, visibility = (a[self.rows[splits == split]] for a in (self.dataset.valid, self.dataset.visibility))
            outside = float((visibility == OUT_OF_FRAME).sum() / max(valid.sum(), 1))
            if (valid & (visibility != UNKNOWN)).any():
                self.lines.append(f"joints outside of the picture{f' ({split})' if split else ''}: {outside:.1%}")
            if outside > MOST_OUTSIDE:
                self.warnings.append(
                    f"{outside:.0%} of the joints{f' of split {split}' if split else ''} lie outside of their picture: "
                    "are its size in the camera file and the pictures those that were annotated?"
                )


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
            _draw_bones(tile, skeleton, sample.joints_mm[:, axes] * scale + np.array([centre * TILE, TILE / 2]))
        return tile
    x0, y0, x1, y1 = sample.box or (*np.nanmin(points, 0), *np.nanmax(points, 0))
    side = max(x1 - x0, y1 - y0) * (1 + 2 * MARGIN)
    corner, zoom = np.array([x0 + x1 - side, y0 + y1 - side]) / 2, TILE / side
    affine = (1 / zoom, 0, corner[0], 0, 1 / zoom, corner[1])
    tile = image.transform((TILE, TILE), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)
    _draw_bones(tile, skeleton, (points - corner) * zoom)
    draw = ImageDraw.Draw(tile)
    if sample.box is not None:
        draw.rectangle(((np.array([x0, y0, x1, y1]) - [*corner, *corner]) * zoom).tolist(), outline=WHITE)
    if sample.joints_2d is not None:
        for x, y in (sample.joints_2d[np.isfinite(sample.joints_2d).all(1)] - corner) * zoom:
            draw.ellipse([x - 2, y - 2, x + 2, y + 2], fill=WHITE)
    return tile


def _draw_bones(tile: Image.Image, skeleton: Skeleton, points: np.ndarray) -> None:
    draw = ImageDraw.Draw(tile)
    for child, parent in skeleton.bones:
        while parent != -1 and not np.isfinite(points[parent]).all():
            parent = skeleton.parents[parent]  # over a joint that is not annotated
        if parent != -1 and np.isfinite(points[child]).all():
            names = skeleton.joints[child] + skeleton.joints[parent]
            colour = RIGHT if "right_" in names else LEFT if "left_" in names else MIDDLE
            draw.line([(float(x), float(y)) for x, y in points[[child, parent]]], fill=colour, width=3)
