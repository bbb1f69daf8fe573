"""`di2pose calibrate`: learn from held-out people how far a model's joints are off, and check it on other people.

The model of `di2pose.calibration`, fitted for each joint, apart where it is said to be seen and where it is not. Floor
and gain are the maximum likelihood ones of an isotropic Gaussian error of that mean square; the radius of the 90 % ball
is then taken from the errors themselves, whose tails are heavier than a Gaussian's.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import tyro
from jaxtyping import Bool, Float
from tqdm import tqdm

from di2pose import __version__
from di2pose.calibration import GAUSSIAN_R90, Calibration, sample_covariance
from di2pose.data.sample import UNKNOWN
from di2pose.errors import InputError
from di2pose.evaluation.cached_records import CachedRecords
from di2pose.evaluation.coverage import Answers, coverage_report, coverage_text, draw_curves
from di2pose.evaluation.predictor import CachedPredictor, fingerprint
from di2pose.evaluation.scoring import true_states
from di2pose.files import write_json, write_text
from di2pose.model import PoseModel, find_model, load_model
from di2pose.pose.skeleton import H36M_17

BATCH = 64
FEWEST = 100
"""Joints that a fit of its own needs; below it a joint takes the fit of all joints of its class."""
BLOCK = 10
"""Crops in a row that may show the same person in the same clothes: rendered people come in tens."""
LEAST_MM2 = 1.0
"""Mean square of an error below which no joint is believed to lie: keeps a weight finite where the spread is 0."""
AIM = 0.91
"""What a 90 % ball is to hold of the joints of the fit: people elsewhere are never quite those of the fit."""
DEFINITION_MM = 22.0
"""What two data sets disagree by about where a joint's centre is, about the least that is said of markerless labels:
rendered people know it exactly, and nobody else does."""
ROUNDS = 30


class Fit(NamedTuple):
    """Expected squared error = floor + gain * trace; the 90 % radius over its root; the mean trace."""

    floor_mm2: float
    gain: float
    radius_factor: float
    trace_mm2: float


def fit_error(trace_mm2: Float[np.ndarray, " n"], squared_mm2: Float[np.ndarray, " n"]) -> Fit:
    """Non-negative floor and gain under which the errors are likeliest.

    Minimises the sum of log v + squared / v, v = floor + gain * trace, by least squares with weights 1 / v^2.
    """
    if not len(squared_mm2):
        raise InputError("a calibration needs joints whose place is known, got none")
    floor, gain = float(squared_mm2.mean()), 0.0
    for _ in range(ROUNDS):
        weight = np.maximum(floor + gain * trace_mm2, LEAST_MM2) ** -2.0
        floor, gain = _non_negative_line(trace_mm2, squared_mm2, weight)
    expected = np.maximum(floor + gain * trace_mm2, LEAST_MM2)
    # Split conformal prediction: the smallest radius that holds a share of n + 1 joints of which these are n.
    rank = min(int(np.ceil(AIM * (len(expected) + 1))), len(expected))
    return Fit(floor, gain, float(np.sort(np.sqrt(squared_mm2 / expected))[rank - 1]), float(trace_mm2.mean()))


def _non_negative_line(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """(a, b) >= 0 with the least weighted sum of squares of y - a - b x."""
    mean_x, mean_y = float(np.average(x, weights=weight)), float(np.average(y, weights=weight))
    variance = float(np.average((x - mean_x) ** 2, weights=weight))
    slope = float(np.average((x - mean_x) * (y - mean_y), weights=weight)) / variance if variance > 1e-9 else 0.0
    if slope < 0:
        return mean_y, 0.0
    if mean_y < slope * mean_x:
        return 0.0, float((weight * x * y).sum() / (weight * x * x).sum())
    return mean_y - slope * mean_x, slope


def seen_threshold(seen_probability: Float[np.ndarray, " n"], seen: Bool[np.ndarray, " n"]) -> float:
    """The probability from which on to say 'seen', so that as many joints are said to be seen as are.

    Then as many of the seen are missed as others are taken for seen. A half where only one kind occurs.
    """
    if not len(seen) or seen.all() or not seen.any():
        return 0.5
    return float(np.quantile(seen_probability, 1 - seen.mean()))


def fit_calibration(answers: Answers, fitted_on: str) -> Calibration:
    """Fitted on the joints whose true place is known; the pelvis, which is 0, has no error."""
    known = answers.known
    told = known & (answers.true_state != "")
    threshold = seen_threshold(answers.visibility[told][:, 0], answers.true_state[told] == "seen")
    hidden = (answers.visibility[..., 0] < threshold) | answers.unclear
    trace = np.trace(sample_covariance(answers.samples_mm), axis1=-2, axis2=-1)
    squared = np.square(answers.error_mm) + DEFINITION_MM**2
    of_all = fit_error(trace[known], squared[known])
    classes: list[tuple[Fit, ...]] = []  # as CLASSES: seen, hidden
    for mine in (known & ~hidden, known & hidden):
        fits = [fit_error(trace[mine], squared[mine]) if mine.sum() >= FEWEST else of_all] * H36M_17.count
        for joint in np.flatnonzero(mine.sum(0) >= FEWEST).tolist():
            fits[joint] = fit_error(trace[mine[:, joint], joint], squared[mine[:, joint], joint])
        fits[H36M_17.root] = Fit(0.0, 1.0, GAUSSIAN_R90, 0.0)
        classes.append(tuple(fits))
    tables = {name: tuple(tuple(getattr(fit, name) for fit in fits) for fits in classes) for name in Fit._fields}
    return Calibration(
        **tables, seen_threshold=threshold, hypotheses=answers.samples_mm.shape[1], fitted_on=fitted_on, person=None
    )


def collect(
    model: PoseModel, records: CachedRecords, rows: np.ndarray, hypotheses: int, steps: int, seed: int, device: str
) -> Answers:
    """What the model says of some crops, and the truth. Without a visibility head all joints count as seen."""
    predictor = CachedPredictor(model, records, device=device)
    samples_mm, visibility, estimate_mm, unclear = [], [], [], []
    for some in tqdm(np.array_split(rows, max(-(-len(rows) // BATCH), 1)), unit="batch", disable=None):
        crops = [records[row] for row in some.tolist()]
        found = predictor.predict([None] * len(crops), crops, hypotheses, steps, seed)
        samples_mm.append(found.samples_mm)
        all_seen = np.broadcast_to([1.0, 0.0, 0.0, 0.0], (len(crops), H36M_17.count, 4))
        visibility.append(all_seen if found.visibility is None else found.visibility)
        estimate_mm.append(found.samples_mm.mean(1) if found.fitted_mm is None else found.fitted_mm)
        unclear.append(np.zeros(all_seen.shape[:2], bool) if found.unclear is None else found.unclear)
    told = records.visibility[rows].astype(int)
    return Answers(
        samples_mm=np.concatenate(samples_mm),
        visibility=np.concatenate(visibility),
        truth_mm=records.truth_17(rows),
        true_state=true_states(told if records.skeleton == H36M_17 else np.full((len(rows), H36M_17.count), UNKNOWN)),
        estimate_mm=np.concatenate(estimate_mm),
        unclear=np.concatenate(unclear),
    )


def calibrate(
    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")],
    features: tuple[Path, ...],
    check: tuple[Path, ...] = (),
    hypotheses: int = 8,
    steps: int | None = None,
    seed: int = 0,
    limit: int | None = None,
    device: str = "cpu",
    out: Path | None = None,
) -> None:
    """Fit a model's calibration on one half of held-out people, report on the other half, and write calibration.json.

    Prints Markdown: how many true joints the 90 % balls hold, nominal against actual coverage, the states' confusion.

    Args:
        model: of any kind: checkpoint folder, run of `di2pose train`, or name in the package; its folder receives
            calibration.json
        features: feature caches of held-out people with known visibility; crops in tens, every other ten for the fit
        check: caches to report on only, e.g. of real footage
        hypotheses: samples for each crop; the calibration is for the mean of so many
        steps: of the sampler; left out: the model's own
        seed: of the sampler's noise
        limit: only the first so many crops of each cache
        device: cpu, cuda, mps
        out: folder for calibration.md, calibration.png (the curves) and report.json, too
    """
    if hypotheses < 2 or (limit is not None and limit < 2 * BLOCK):
        raise InputError(
            f"expected 2 hypotheses or more and a limit of {2 * BLOCK} or more, got {hypotheses} and {limit}"
        )
    folder = find_model(model)
    network = load_model(folder, device)
    steps = steps or network.config.sample_steps
    caches = [CachedRecords(path) for path in features]

    def answers(records: CachedRecords, half: int | None = None) -> Answers:
        rows = np.arange(len(records))[:limit]
        rows = rows if half is None else rows[rows // BLOCK % 2 == half]
        return collect(network, records, rows, hypotheses, steps, seed, device)

    fitted, held_out = (Answers.join([answers(cache, half) for cache in caches]) for half in (0, 1))
    names = ", ".join(cache.name for cache in caches)
    fitted_on = f"{names}: {len(fitted.truth_mm)} crops, {steps} steps, weights {fingerprint(network)}"
    before = Calibration.read(folder)
    calibration = replace(fit_calibration(fitted, fitted_on), person=None if before is None else before.person)
    reports = {f"{names}, the other half": coverage_report(held_out, calibration)}
    reports |= {cache.name: coverage_report(answers(cache), calibration) for cache in map(CachedRecords, check)}
    heading = f"Fitted on {fitted_on}; {hypotheses} hypotheses; 'seen' from {calibration.seen_threshold:.2f} on."
    text = "\n\n".join([heading, *(coverage_text(name, report) for name, report in reports.items())])
    print(text)
    print(f"\nwritten: {calibration.write(folder)}")
    if out is not None:
        found = {name: asdict(report) for name, report in reports.items()}
        write_json(out / "report.json", {"program": f"di2pose {__version__}", "fitted_on": fitted_on, **found})
        write_text(out / "calibration.md", text + "\n")
        draw_curves(reports, out / "calibration.png")
