"""Does a calibrated spread hold what it promises? Coverage on held-out joints, as tables and as a picture.

A joint's spread is read as a 3D Gaussian round the predicted point. Its confidence level is the probability inside the
smallest ball that holds the truth; for a true spread the levels are uniform on [0, 1], and a share q of the truths lies
inside the ball of level q.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image, ImageDraw, ImageFont
from scipy.stats import chi2

from di2pose.calibration import Calibration, sample_covariance
from di2pose.errors import InputError
from di2pose.evaluation.scoring import STATES, Confusion, confusion
from di2pose.files import replacing
from di2pose.pose.skeleton import H36M_17
from di2pose.text_table import markdown

NOMINAL = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
LEAST_MM = 1e-3
"""Hypotheses that agree to the bit have no spread; this stands for it, so that a level exists (it is 1)."""


@dataclass(frozen=True)
class Answers:
    """What a model says of n crops, and the truth; crop axes, pelvis at 0."""

    samples_mm: Float[np.ndarray, "n H J 3"]
    visibility: Float[np.ndarray, "n J 4"]
    """Probabilities of seen, hidden by the body, hidden by something else, out of the frame."""
    truth_mm: Float[np.ndarray, "n J 3"]
    """NaN where not annotated."""
    true_state: np.ndarray
    """(n, J) 'seen', 'occluded', 'out_of_frame'; '' where nobody knows."""
    estimate_mm: Float[np.ndarray, "n J 3"]
    """What a user gets: bones kept and fitted, or the mean of the samples where that cannot be had."""
    unclear: Bool[np.ndarray, "n J"]
    """Joints that are not called seen, whatever the visibility is."""

    @classmethod
    def join(cls, parts: Sequence["Answers"]) -> "Answers":
        if not parts:
            raise InputError("expected one feature cache or more, got none")
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    @property
    def known(self) -> Bool[np.ndarray, "n J"]:
        """Joints that count: annotated, and not the pelvis."""
        known: np.ndarray = np.isfinite(self.truth_mm).all(-1)
        return known & (np.arange(known.shape[1]) != H36M_17.root)

    @property
    def error_mm(self) -> Float[np.ndarray, "n J"]:
        """Of the estimate; NaN where not annotated."""
        error: np.ndarray = np.linalg.norm(self.estimate_mm - self.truth_mm, axis=-1)
        return error


@dataclass(frozen=True)
class CoveredGroup:
    """Some joints: how many, how many of their 90 % balls hold the truth, how large those are, and the whole curve."""

    joints: int
    covered: float
    mean_r90_mm: float
    mean_error_mm: float
    curve: tuple[float, ...]
    """Share of truths inside the ball of each NOMINAL level, the calibrated covariance read as a Gaussian."""
    raw_curve: tuple[float, ...]
    """The same of the hypotheses' own spread."""


@dataclass(frozen=True)
class CoverageReport:
    """`groups` by 'all', 'true STATE' and 'said STATE'; `states` is None where nobody knows which joints are seen."""

    groups: dict[str, CoveredGroup]
    states: Confusion | None


def ball_level(
    error_mm: Float[np.ndarray, "*n"], covariance_mm2: Float[np.ndarray, "*n 3 3"]
) -> Float[np.ndarray, "*n"]:
    """Level of the ball that just holds a truth so far off; its sigma is that of the mean variance of the axes, since
    a covariance of few hypotheses is too uncertain to be taken as it is."""
    sigma = np.maximum(np.sqrt(np.trace(covariance_mm2, axis1=-2, axis2=-1) / 3), LEAST_MM)
    level: np.ndarray = chi2.cdf(np.square(error_mm / sigma), df=3)
    return level


def coverage(level: Float[np.ndarray, " n"], levels: Sequence[float] = NOMINAL) -> tuple[float, ...]:
    """Share of the truths inside the ball of each nominal level; equal to `levels` when the spread is true."""
    if not len(level):
        raise InputError("coverage needs at least one joint, got none")
    return tuple((level[:, None] <= np.asarray(levels)).mean(0).tolist())


def coverage_report(answers: Answers, calibration: Calibration) -> CoverageReport:
    """Apply a calibration to answers that it was not fitted on."""
    said, known = calibration.state(answers.visibility, answers.unclear), answers.known
    covariance, error = calibration.covariance_mm2(answers.samples_mm, said), answers.error_mm
    radius = calibration.r90_mm(covariance, said)
    level, raw = (ball_level(error, c) for c in (covariance, sample_covariance(answers.samples_mm)))
    kinds = {"true": answers.true_state, "said": said}
    masks = {f"{kind} {state}": known & (table == state) for kind, table in kinds.items() for state in STATES}
    groups = {
        name: CoveredGroup(
            joints=int(mask.sum()),
            covered=float((error[mask] <= radius[mask]).mean()),
            mean_r90_mm=float(radius[mask].mean()),
            mean_error_mm=float(error[mask].mean()),
            curve=coverage(level[mask]),
            raw_curve=coverage(raw[mask]),
        )
        for name, mask in {"all": known, **masks}.items()
        if mask.any()
    }
    told = bool((answers.true_state[known] == "seen").any())  # not where only what a patch hides is labelled
    return CoverageReport(groups, confusion(np.where(known, answers.true_state, ""), said) if told else None)


def coverage_text(name: str, report: CoverageReport) -> str:
    """Three Markdown tables: the 90 % balls, the curve, the states."""
    balls = [
        [group, str(f.joints), f"{f.covered:.1%}", f"{f.mean_r90_mm:.0f}", f"{f.mean_error_mm:.0f}"]
        for group, f in report.groups.items()
    ]
    curves = _curves(report)
    shares = [[f"{share:.0%}" for share in row] for row in zip(NOMINAL, *curves.values(), strict=True)]
    parts = [
        markdown([f"90 % balls, {name}", "joints", "hold the truth", "mean radius, mm", "mean error, mm"], balls),
        markdown(["nominal", *curves], shares),
    ]
    return "\n\n".join(parts if report.states is None else [*parts, report.states.text()])


def _curves(report: CoverageReport) -> dict[str, tuple[float, ...]]:
    """The raw spread's, then by the true state where it is known, else by the said one."""
    kind = "said" if report.states is None else "true"
    chosen = {name: f.curve for name, f in report.groups.items() if name == "all" or name.startswith(kind)}
    return {"all, raw spread": report.groups["all"].raw_curve, **chosen}


SIDE, LEFT, TOP, LEGEND = 420, 70, 50, 190
INK, GRID, DIAGONAL = (30, 30, 30), (228, 228, 228), (150, 150, 150)
COLOURS = {
    "all": INK, "spread": (255, 127, 14), "seen": (31, 119, 180), "occluded": (214, 39, 40),
    "out_of_frame": (44, 160, 44),
}  # fmt: skip
"""By the last word of a curve's name."""


def draw_curves(reports: dict[str, CoverageReport], path: Path) -> None:
    """Nominal against actual coverage, a panel for each report; on the diagonal the spread is true."""
    width, bottom = LEFT + SIDE + LEGEND, TOP + SIDE
    picture = Image.new("RGB", (len(reports) * width, bottom + 60), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(14)
    for number, (name, report) in enumerate(reports.items()):
        left = number * width + LEFT
        right = left + SIDE
        for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
            x, y = left + SIDE * tick, bottom - SIDE * tick
            pen.line([(left, y), (right, y)], fill=GRID)
            pen.line([(x, bottom), (x, TOP)], fill=GRID)
            pen.text((left - 8, y), f"{tick:.0%}", INK, font, anchor="rm")
            pen.text((x, bottom + 8), f"{tick:.0%}", INK, font, anchor="mt")
        pen.line([(left, bottom), (right, TOP)], fill=DIAGONAL, width=1)
        pen.text((left, 16), f"{name}: joints inside the ball, over its nominal level", INK, font)
        pen.text((left + SIDE / 2, bottom + 34), "nominal", INK, font, anchor="mt")
        for row, (title, curve) in enumerate(_curves(report).items()):
            points = [(left + SIDE * x, bottom - SIDE * y) for x, y in zip(NOMINAL, curve, strict=True)]
            colour = COLOURS[title.split()[-1]]
            pen.line([(left, bottom), *points], fill=colour, width=2)
            pen.text((right + 14, TOP + 20 * row), title.replace("_", " "), colour, font)
        pen.rectangle((left, TOP, right, bottom), outline=INK)
    with replacing(path) as temporary:
        picture.save(temporary, "PNG")
