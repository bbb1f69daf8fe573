"""`di2pose data check DIR`: is a prepared dataset what it says? Counts, ranges, bones, left and right, reprojection,
and a contact sheet to look at."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tyro

from di2pose.data.contact_sheet import draw_tile, write_sheet
from di2pose.data.record import OUT_OF_FRAME, UNKNOWN
from di2pose.data.sample import Dataset
from di2pose.errors import InputError
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


@dataclass
class CheckReport:
    """Lines to print; problems make the command fail, warnings do not."""

    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = [f"WARNING: {text}" for text in self.warnings] + [f"PROBLEM: {text}" for text in self.problems]
        return "\n".join(self.lines + (found or ["no problem found"]))


def check(folder: tyro.conf.Positional[Path], out: Path | None = None, samples: int = 24, seed: int = 0) -> int:
    """Check a prepared dataset and draw a contact sheet. The exit code is 1 if something is wrong.

    Args:
        folder: A folder written by `di2pose data prepare`.
        out: Where sheet.png and sheet.html go; default: `check` inside the dataset.
        samples: How many random records to draw.
        seed: Seed of that draw.
    """
    dataset = Dataset(folder)
    report = examine(dataset)
    rows = np.sort(np.random.default_rng(seed).permutation(len(dataset))[:samples])
    tiles = []
    others: list[tuple[str, tuple[int, int], tuple[int, int]]] = []
    """Records whose picture is not as large as their camera says."""
    for sample in (dataset[int(row)] for row in rows):
        image = None
        if sample.image is not None:
            try:
                image = dataset.read_image(sample)
                if sample.camera is not None and sample.camera.size not in (None, image.size):
                    others.append((sample.id, image.size, sample.camera.size))
            except InputError as error:
                report.problems.append(f"record {sample.id}: {error}")
        caption = " ".join(filter(None, (sample.id, sample.action)))
        tiles.append((draw_tile(sample, dataset.skeleton, image), caption))
    if others:
        id, (width, height), stated = others[0]
        report.warnings.append(
            f"{len(others)} of {len(rows)} pictures have another size than their camera says, e.g. {id}: "
            f"{width}x{height}, not {stated[0]}x{stated[1]}"
        )
    png, page = write_sheet(out or folder / "check", tiles, f"{dataset.name}: {len(dataset)} records", str(report))
    print(f"{report}\ncontact sheet: {png} and {page}")
    return 1 if report.problems else 0


def examine(dataset: Dataset) -> CheckReport:
    """Everything that needs no picture."""
    report = CheckReport()
    _counts(dataset, report)
    rows = np.unique(np.linspace(0, len(dataset) - 1, min(len(dataset), MOST_ROWS)).astype(int))
    if len(rows) < len(dataset):
        report.lines.append(f"the following on {len(rows)} records, evenly spread")
    joints = np.where(dataset.valid[rows][..., None], dataset.joints_mm[rows].astype(np.float64), np.nan)
    place = dict(zip(dataset.skeleton.joints, np.moveaxis(joints, 1, 0), strict=True))
    _ranges(dataset, rows, joints, place, report)
    _bones(dataset.skeleton, joints, place, report)
    _sides(place, report)
    _reprojection(dataset, rows, report)
    _frame(dataset, rows, report)
    return report


def _counts(dataset: Dataset, report: CheckReport) -> None:
    skipped = len(dataset.header["skipped"])
    report.lines.append(f"{dataset.name}: {len(dataset)} records, {dataset.skeleton.name}, {skipped} skipped")
    for name in ("split", "subject", "action"):
        values, counts = np.unique(dataset.column(name), return_counts=True)
        shown = ", ".join(f"{value or '(none)'} {count}" for value, count in zip(values[:30], counts[:30], strict=True))
        report.lines.append(f"{name} ({len(values)}): {shown}{', ...' if len(values) > 30 else ''}")
    twice = len(dataset) - len({line["id"] for line in dataset.index})
    if twice:
        report.problems.append(f"{twice} ids occur more than once")
    broken = int((dataset.valid & ~np.isfinite(dataset.joints_mm).all(-1)).any(-1).sum())
    if broken:
        report.problems.append(f"{broken} records have NaN or infinite joints that count as annotated")


def _ranges(
    dataset: Dataset, rows: np.ndarray, joints: np.ndarray, place: dict[str, np.ndarray], report: CheckReport
) -> None:
    part = [f"{name} {share:.0%}" for name, share in zip(place, dataset.valid[rows].mean(0), strict=True) if share < 1]
    if part:
        report.lines.append(f"joints not annotated everywhere: {', '.join(part)}")
    for axis, name in enumerate(("x right", "y down", "z away")):
        low, high = np.nanmin(joints[..., axis]), np.nanmax(joints[..., axis])
        report.lines.append(f"{name}: {low:.0f} to {high:.0f} mm from the root")
    distance = np.linalg.norm(dataset.root_mm[rows], axis=-1)
    if np.isfinite(distance).any():
        report.lines.append(f"root: {np.nanmin(distance):.0f} to {np.nanmax(distance):.0f} mm from the camera")
        if np.nanmin(dataset.root_mm[rows][:, 2]) <= 0:
            report.problems.append("a root lies behind the camera")
    if "pelvis" in place and np.nanmax(np.abs(place["pelvis"]), initial=0) > 1:
        report.problems.append("poses are not root-relative: the pelvis is not at 0")
    upper = next((name for name in ("thorax", "neck", "upper_neck") if name in place), None)
    if upper is not None:
        hips = (place["left_hip"] + place["right_hip"]) / 2
        upright = float(np.mean(place[upper][:, 1] < hips[:, 1]))
        report.lines.append(f"upright (neck above the hips): {upright:.1%}")
        if upright < 0.5:
            report.problems.append("most poses are upside down: y must point down")


def _bones(skeleton: Skeleton, joints: np.ndarray, place: dict[str, np.ndarray], report: CheckReport) -> None:
    rows = []
    for (child, parent), lengths in zip(skeleton.bones, bone_lengths(joints, skeleton).T, strict=True):
        if np.isfinite(lengths).any():
            low, middle, high = np.nanpercentile(lengths, [5, 50, 95])
            name = f"{skeleton.joints[parent]} - {skeleton.joints[child]}"
            rows.append((name, f"{middle:.1f}", f"{low:.1f} to {high:.1f}"))
    report.lines.append(aligned(("bone lengths in mm", "median", "5 % to 95 %"), rows))
    for (upper, lower), (low, high) in ADULT_MM.items():
        medians = {}
        for side in ("left", "right"):
            lengths = np.linalg.norm(place[f"{side}_{upper}"] - place[f"{side}_{lower}"], axis=-1)
            if not np.isfinite(lengths).any():
                continue
            median = medians[side] = float(np.nanmedian(lengths))
            text = f"{side} {upper} - {lower} has a median of {median:.1f} mm, adults have {low} to {high}"
            if not low / 2 < median < high * 2:
                report.problems.append(f"{text}: wrong unit?")
            elif not low < median < high:
                report.warnings.append(text)
        if len(medians) == 2 and abs(medians["left"] - medians["right"]) > 0.1 * max(medians.values()):
            both = f"{medians['left']:.1f} and {medians['right']:.1f} mm"
            report.warnings.append(f"left and right {upper} - {lower} differ: {both}")


def _sides(place: dict[str, np.ndarray], report: CheckReport) -> None:
    """Knees bend forwards and elbows backwards. Forwards is left x up (camera axes are right-handed), so a pose whose
    sides were swapped, or that was mirrored, bends the wrong way."""
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
        report.lines.append(f"{bend}s that bend the human way: {share:.1%} of {len(right_way)} bent ones")
        if len(right_way) >= 20 and share < 0.5:
            report.problems.append(f"most {bend}s bend the wrong way: left and right are swapped, or poses mirrored")


def _frame(dataset: Dataset, rows: np.ndarray, report: CheckReport) -> None:
    """Joints outside of the picture, by split: a wrong size of the pictures puts most of them there."""
    splits = dataset.column("split")[rows]
    for split in np.unique(splits):
        members = rows[splits == split]
        known = dataset.valid[members] & (dataset.visibility[members] != UNKNOWN)
        outside = float((dataset.visibility[members] == OUT_OF_FRAME).sum() / max(dataset.valid[members].sum(), 1))
        if known.any():
            report.lines.append(f"joints outside of the picture{f' ({split})' if split else ''}: {outside:.1%}")
        if outside > MOST_OUTSIDE:
            report.warnings.append(
                f"{outside:.0%} of the joints{f' of split {split}' if split else ''} lie outside of their picture: is "
                "its size right in the camera file (w, h), and are the pictures as large as those that were annotated?"
            )


def _reprojection(dataset: Dataset, rows: np.ndarray, report: CheckReport) -> None:
    """Distance from the projected 3D joints to the 2D joints."""
    of_camera: dict[str, list[int]] = {}
    for row in rows.tolist():
        if (camera := dataset.index[row]["camera"]) is not None:
            of_camera.setdefault(camera, []).append(row)
    errors = []
    for key, members in of_camera.items():
        points = dataset.cameras[key].project(dataset.joints_mm[members] + dataset.root_mm[members][:, None])
        error = np.linalg.norm(points - dataset.joints_2d[members], axis=-1)
        errors.append(error[np.isfinite(error)])
    pixels = np.concatenate(errors) if errors else np.zeros(0)
    if not len(pixels):
        report.lines.append("reprojection: no record has a camera, a root and 2D joints")
        return
    median, most = float(np.median(pixels)), float(pixels.max())
    report.lines.append(
        f"reprojection: median {median:.3f} px, 95 % {np.percentile(pixels, 95):.3f} px, worst {most:.3f} px "
        f"({len(pixels)} joints, {len(of_camera)} cameras)"
    )
    if median > BAD_PX:
        report.problems.append(f"3D joints do not project onto the 2D joints: median {median:.1f} px")
    elif median > GOOD_PX:
        report.warnings.append(f"the median reprojection error is {median:.2f} px")
