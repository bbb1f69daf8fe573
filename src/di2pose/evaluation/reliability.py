"""How true a calibration is on other people than its own: balls, curve, states.  n crops, H hypotheses, J joints."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image, ImageDraw, ImageFont

from di2pose.calibration import Calibration, sample_covariance
from di2pose.errors import InputError
from di2pose.evaluation.calibration import ball_level, coverage
from di2pose.evaluation.crops import confusion_table, markdown
from di2pose.evaluation.visibility import STATES, Confusion, confusion
from di2pose.pose.skeleton import H36M_17

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

    @classmethod
    def join(cls, parts: Sequence["Answers"]) -> "Answers":
        if not parts:
            raise InputError("expected one feature cache or more, got none")
        names = ("samples_mm", "visibility", "truth_mm", "true_state")
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    @property
    def known(self) -> Bool[np.ndarray, "n J"]:
        """Joints that count: annotated, and not the pelvis."""
        known: np.ndarray = np.isfinite(self.truth_mm).all(-1)
        return known & (np.arange(known.shape[1]) != H36M_17.root)

    @property
    def error_mm(self) -> Float[np.ndarray, "n J"]:
        """Of the mean of the hypotheses; NaN where not annotated."""
        error: np.ndarray = np.linalg.norm(self.samples_mm.mean(1, dtype=np.float64) - self.truth_mm, axis=-1)
        return error


@dataclass(frozen=True)
class Group:
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
class Report:
    """`groups` by 'all', 'true STATE' and 'said STATE'; `states` is None where nobody knows which joints are seen."""

    groups: dict[str, Group]
    states: Confusion | None


def reliability_report(answers: Answers, calibration: Calibration) -> Report:
    """Apply a calibration to answers that it was not fitted on."""
    said, known = calibration.state(answers.visibility), answers.known
    covariance = calibration.covariance_mm2(answers.samples_mm, said)
    radius, error = calibration.r90_mm(covariance, said), answers.error_mm
    level, raw = (_levels(answers, c) for c in (covariance, sample_covariance(answers.samples_mm)))
    masks = {"all": known}
    masks |= {f"true {state}": known & (answers.true_state == state) for state in STATES}
    masks |= {f"said {state}": known & (said == state) for state in STATES}
    groups = {
        name: Group(
            joints=int(mask.sum()),
            covered=float((error[mask] <= radius[mask]).mean()),
            mean_r90_mm=float(radius[mask].mean()),
            mean_error_mm=float(error[mask].mean()),
            curve=tuple(coverage(level[mask], NOMINAL).tolist()),
            raw_curve=tuple(coverage(raw[mask], NOMINAL).tolist()),
        )
        for name, mask in masks.items()
        if mask.any()
    }
    told = bool((answers.true_state[known] == "seen").any())  # not where only what a patch hides is labelled
    return Report(groups, confusion(np.where(known, answers.true_state, ""), said) if told else None)


def _levels(answers: Answers, covariance_mm2: np.ndarray) -> Float[np.ndarray, "n J"]:
    """Level of the ball that just holds the truth; NaN where that is not known."""
    known = answers.known
    sigma = np.sqrt(np.trace(covariance_mm2, axis1=-2, axis2=-1) / 3)
    levels = np.full(known.shape, np.nan)
    mean = answers.samples_mm.mean(1, dtype=np.float64)
    truth = answers.truth_mm.astype(np.float64)
    levels[known] = ball_level(mean[known], np.maximum(sigma[known], LEAST_MM), truth[known])
    return levels


def report_text(name: str, report: Report) -> str:
    """Three Markdown tables: the 90 % balls, the curve, the states."""
    balls = markdown(
        [f"90 % balls, {name}", "joints", "hold the truth", "mean radius, mm", "mean error, mm"],
        [
            [group, str(f.joints), f"{f.covered:.1%}", f"{f.mean_r90_mm:.0f}", f"{f.mean_error_mm:.0f}"]
            for group, f in report.groups.items()
        ],
    )
    shown = _curves(report)
    curve = markdown(
        ["nominal", "all, raw spread", *shown],
        [
            [f"{nominal:.0%}", f"{report.groups['all'].raw_curve[k]:.0%}", *(f"{c[k]:.0%}" for c in shown.values())]
            for k, nominal in enumerate(NOMINAL)
        ],
    )
    states = [] if report.states is None else [confusion_table(report.states)]
    return "\n\n".join([balls, curve, *states])


def _curves(report: Report) -> dict[str, tuple[float, ...]]:
    """By the true state where it is known, else by the said one."""
    kind = "said" if report.states is None else "true"
    return {name: f.curve for name, f in report.groups.items() if name == "all" or name.startswith(kind)}


SIDE, LEFT, TOP, LEGEND = 420, 70, 50, 190
INK, GRID, DIAGONAL = (30, 30, 30), (228, 228, 228), (150, 150, 150)
COLOURS = {"all": INK, "seen": (31, 119, 180), "occluded": (214, 39, 40), "out_of_frame": (44, 160, 44)}
RAW = (255, 127, 14)


def draw_curves(reports: dict[str, Report], path: Path) -> None:
    """Nominal against actual coverage, a panel for each report; on the diagonal the spread is true."""
    picture = Image.new("RGB", (len(reports) * (LEFT + SIDE + LEGEND), TOP + SIDE + 60), "white")
    pen = ImageDraw.Draw(picture)
    for number, (name, report) in enumerate(reports.items()):
        _panel(pen, number * (LEFT + SIDE + LEGEND) + LEFT, name, report)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    picture.save(temporary, "PNG")
    os.replace(temporary, path)


def _panel(pen: ImageDraw.ImageDraw, left: int, name: str, report: Report) -> None:
    font = ImageFont.load_default(14)

    def place(nominal: float, actual: float) -> tuple[float, float]:
        return left + SIDE * nominal, TOP + SIDE * (1 - actual)

    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        pen.line([place(0, tick), place(1, tick)], fill=GRID)
        pen.line([place(tick, 0), place(tick, 1)], fill=GRID)
        pen.text((left - 8, place(0, tick)[1]), f"{tick:.0%}", INK, font, anchor="rm")
        pen.text((place(tick, 0)[0], TOP + SIDE + 8), f"{tick:.0%}", INK, font, anchor="mt")
    pen.line([place(0, 0), place(1, 1)], fill=DIAGONAL, width=1)
    pen.text((left, 16), f"{name}: joints inside the ball, over its nominal level", INK, font)
    pen.text((left + SIDE / 2, TOP + SIDE + 34), "nominal", INK, font, anchor="mt")
    lines = {"all, raw spread": (report.groups["all"].raw_curve, RAW)}
    lines |= {title: (curve, COLOURS[title.split()[-1]]) for title, curve in _curves(report).items()}
    for row, (title, (curve, colour)) in enumerate(lines.items()):
        pen.line([place(0, 0), *(place(*point) for point in zip(NOMINAL, curve, strict=True))], fill=colour, width=2)
        pen.text((left + SIDE + 14, TOP + 20 * row), title.replace("_", " "), colour, font)
    pen.rectangle((*place(0, 1), *place(1, 0)), outline=INK)
