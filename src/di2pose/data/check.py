"""`di2pose data check DIR`: is a prepared dataset what it says? Counts, ranges, bones, left and right, reprojection,
and a contact sheet."""

from pathlib import Path

import numpy as np
import tyro

from di2pose.data.contact_sheet import draw_tile, write_sheet
from di2pose.data.record import OUT_OF_FRAME, UNKNOWN
from di2pose.data.sample import Dataset
from di2pose.errors import InputError
from di2pose.pose.skeleton import bone_lengths
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


def check(folder: tyro.conf.Positional[Path], out: Path | None = None, samples: int = 24, seed: int = 0) -> int:
    """Check a prepared dataset and draw a contact sheet. The exit code is 1 if something is wrong.

    Args:
        folder: A folder written by `di2pose data prepare`.
        out: Where sheet.png goes; default: `check` inside the dataset.
        samples: How many random records to draw.
        seed: Seed of that draw.
    """
    dataset = Dataset(folder)
    report = examine(dataset)
    rows = np.sort(np.random.default_rng(seed).permutation(len(dataset))[:samples])
    tiles, other_sizes = [], []
    for sample in (dataset[int(row)] for row in rows):
        image = None
        if sample.image is not None:
            try:
                image = dataset.read_image(sample)
                if sample.camera is not None and sample.camera.size not in (None, image.size):
                    other_sizes.append(f"{sample.id}: {image.size}, not {sample.camera.size}")
            except InputError as error:
                report.problems.append(f"record {sample.id}: {error}")
        caption = " ".join(filter(None, (sample.id, sample.action)))
        tiles.append((draw_tile(sample, dataset.skeleton, image), caption))
    if other_sizes:
        report.warnings.append(
            f"{len(other_sizes)} of {len(rows)} pictures have another size than their camera says, "
            f"e.g. {other_sizes[0]}"
        )
    print(f"{report}\ncontact sheet: {write_sheet((out or folder / 'check') / 'sheet.png', tiles)}")
    return 1 if report.problems else 0


def examine(dataset: Dataset) -> "CheckReport":
    """Everything that needs no picture."""
    report = CheckReport(dataset)
    report.counts()
    if len(report.rows) < len(dataset):
        report.lines.append(f"the following on {len(report.rows)} records, evenly spread")
    report.ranges()
    report.bones()
    report.sides()
    report.reprojection()
    report.outside()
    return report


class CheckReport:
    """Lines to print; problems make the command fail, warnings do not."""

    def __init__(self, dataset: Dataset) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self.problems: list[str] = []
        self.dataset = dataset
        self.rows = np.unique(np.linspace(0, len(dataset) - 1, min(len(dataset), MOST_ROWS)).astype(int))
        valid = dataset.valid[self.rows][..., None]
        self.joints = np.where(valid, dataset.joints_mm[self.rows].astype(np.float64), np.nan)
        self.place = dict(zip(dataset.skeleton.joints, np.moveaxis(self.joints, 1, 0), strict=True))

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
            medians = []
            for side in ("left", "right"):
                lengths = np.linalg.norm(self.place[f"{side}_{upper}"] - self.place[f"{side}_{lower}"], axis=-1)
                if not np.isfinite(lengths).any():
                    continue
                medians.append(float(np.nanmedian(lengths)))
                text = f"{side} {upper} - {lower} has a median of {medians[-1]:.1f} mm, adults have {low} to {high}"
                if not low / 2 < medians[-1] < high * 2:
                    self.problems.append(f"{text}: wrong unit?")
                elif not low < medians[-1] < high:
                    self.warnings.append(text)
            if len(medians) == 2 and abs(medians[0] - medians[1]) > 0.1 * max(medians):
                both = f"{medians[0]:.1f} and {medians[1]:.1f} mm"
                self.warnings.append(f"left and right {upper} - {lower} differ: {both}")

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
