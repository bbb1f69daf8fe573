"""`di2pose calibrate`: fit on held-out people how far a model's joints are off, and check it on other people.

The model of `di2pose.calibration`, fitted for each joint, separately where it is predicted visible and where not. Floor
and gain are the maximum likelihood ones of an isotropic Gaussian error of that mean square; the radius of the 90 % ball
is then taken from the errors themselves, whose tails are heavier than a Gaussian's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import tyro
from jaxtyping import Bool, Float
from scipy.optimize import nnls
from tqdm import tqdm

from di2pose import __version__
from di2pose.calibration import GAUSSIAN_R90, Calibration, sample_covariance
from di2pose.errors import InputError
from di2pose.evaluation.predictors import CachedPredictor, fingerprint
from di2pose.evaluation.records import CachedRecords
from di2pose.evaluation.report import confusion_text
from di2pose.evaluation.scoring import STATES, ball_level, confusion, true_states
from di2pose.files import Json, write_json, write_text
from di2pose.model import PoseModel, find_model, load_model
from di2pose.text_table import markdown

FORMAT_VERSION = 2
"""Of calibrate's report.json. 1, without this number, had `raw_curve` by chi-squared about the fitted estimate: 2 has
F(3, 3(H - 1)) about the mean of the hypotheses, the coverage that `di2pose evaluate` reports."""
NOMINAL = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)

BATCH = 64
FEWEST = 100
"""Joints that a fit of its own needs; below it a joint takes the fit of all joints of its class."""
BLOCK = 10
"""Crops in a row that may show the same person in the same clothes: rendered people come in tens."""
LEAST_MM2 = 1.0
"""Lower bound of a joint's mean square error: keeps a weight finite where the spread is 0."""
AIM = 0.91
"""Share of the joints of the fit that a 90 % ball holds: above 90 %, since other people differ from them."""
DEFINITION_MM = 22.0
"""By how much datasets disagree about a joint's centre, about the least error reported for markerless labels; rendered
people have none."""
ROUNDS = 30


@dataclass(frozen=True)
class Answers:
    """Predictions for n crops, and the truth; crop axes, pelvis at 0."""

    samples_mm: Float[np.ndarray, "n H J 3"]
    visibility: Float[np.ndarray, "n J 4"]
    """Probabilities of seen, hidden by the body, hidden by something else, out of the frame."""
    truth_mm: Float[np.ndarray, "n J 3"]
    """NaN where not annotated."""
    true_state: np.ndarray
    """(n, J) 'visible', 'occluded', 'out_of_frame'; '' where unknown."""
    estimate_mm: Float[np.ndarray, "n J 3"]
    """What a user gets: bones kept and fitted, or the mean of the samples without landmarks."""
    unclear: Bool[np.ndarray, "n J"]
    """Joints whose place in the picture is not known: they have the hidden joints' fit."""
    apart_mm: Float[np.ndarray, "n J"]
    """How far their observers are apart."""

    @property
    def known(self) -> Bool[np.ndarray, "n J"]:
        """Joints that count: annotated, and not the pelvis."""
        known: np.ndarray = np.isfinite(self.truth_mm).all(-1)
        return known & (np.arange(known.shape[1]) != 0)

    def error_mm(self, joints_mm: Float[np.ndarray, "n J 3"]) -> Float[np.ndarray, "n J"]:
        """NaN where not annotated."""
        return np.asarray(np.linalg.norm(joints_mm - self.truth_mm, axis=-1))


class Fit(NamedTuple):
    """Expected squared error = floor + gain * trace + apart_gain * apart^2; the 90 % radius over its root; the mean
    trace."""

    floor_mm2: float
    gain: float
    apart_gain: float
    radius_factor: float
    trace_mm2: float


def fit_error(
    trace_mm2: Float[np.ndarray, " n"], apart_mm: Float[np.ndarray, " n"], squared_mm2: Float[np.ndarray, " n"]
) -> Fit:
    """Non-negative floor and gains under which the errors are likeliest.

    Minimises the sum of log v + squared / v, v the expected squared error, by least squares with weights 1 / v^2.
    """
    if not len(squared_mm2):
        raise InputError("a calibration needs joints whose place is known, got none")
    lines = np.stack([np.ones_like(trace_mm2), trace_mm2, apart_mm**2], axis=-1)
    factors = np.array([squared_mm2.mean(), 0.0, 0.0])
    for _ in range(ROUNDS):
        expected = np.maximum(lines @ factors, LEAST_MM2)
        factors = nnls(lines / expected[:, None], squared_mm2 / expected)[0]
    expected = np.maximum(lines @ factors, LEAST_MM2)
    # Split conformal prediction: the smallest radius that holds a share of n + 1 joints of which these are n.
    rank = min(int(np.ceil(AIM * (len(expected) + 1))), len(expected))
    radius = float(np.sort(np.sqrt(squared_mm2 / expected))[rank - 1])
    floor, gain, apart_gain = factors.tolist()
    return Fit(floor, gain, apart_gain, radius, float(trace_mm2.mean()))


def seen_threshold(seen_probability: Float[np.ndarray, " n"], seen: Bool[np.ndarray, " n"]) -> float:
    """The probability from which on a joint is called visible, so that as many are as should be; a half where only
    one kind occurs."""
    if not len(seen) or seen.all() or not seen.any():
        return 0.5
    return float(np.quantile(seen_probability, 1 - seen.mean()))


def fit_calibration(answers: Answers, fitted_on: str) -> Calibration:
    """Fitted on the joints whose true place is known; the pelvis, which is 0, has no error."""
    known, labelled = answers.known, answers.known & (answers.true_state != "")
    threshold = seen_threshold(answers.visibility[labelled][:, 0], answers.true_state[labelled] == "visible")
    hidden = (answers.visibility[..., 0] < threshold) | answers.unclear
    trace = np.trace(sample_covariance(answers.samples_mm), axis1=-2, axis2=-1)
    squared = np.square(answers.error_mm(answers.estimate_mm)) + DEFINITION_MM**2
    measured = trace, answers.apart_mm, squared
    of_all = fit_error(*(each[known] for each in measured))
    classes: list[tuple[Fit, ...]] = []  # as CLASSES: seen, hidden
    for mine in (known & ~hidden, known & hidden):
        enough = mine.sum() >= FEWEST
        fits = [fit_error(*(each[mine] for each in measured)) if enough else of_all] * known.shape[1]
        for joint in np.flatnonzero(mine.sum(0) >= FEWEST).tolist():
            fits[joint] = fit_error(*(each[mine[:, joint], joint] for each in measured))
        fits[0] = Fit(0.0, 1.0, 0.0, GAUSSIAN_R90, 0.0)
        classes.append(tuple(fits))
    tables = {name: tuple(tuple(getattr(fit, name) for fit in fits) for fits in classes) for name in Fit._fields}
    return Calibration(
        **tables, seen_threshold=threshold, hypotheses=answers.samples_mm.shape[1], fitted_on=fitted_on, person=None
    )


def collect(
    model: PoseModel,
    chosen: Sequence[tuple[CachedRecords, np.ndarray]],
    hypotheses: int,
    steps: int,
    seed: int,
    device: str,
) -> Answers:
    """Predictions for the `chosen` rows of some caches, and the truth. Without a visibility head all joints count as
    seen."""
    parts = []
    for records, rows in chosen:
        predictor = CachedPredictor(model, records, device=device)
        for some in tqdm(np.array_split(rows, max(-(-len(rows) // BATCH), 1)), unit="batch", disable=None):
            crops = [records[row] for row in some.tolist()]
            found = predictor.predict([None] * len(crops), crops, hypotheses, steps, seed)
            all_seen = np.broadcast_to([1.0, 0.0, 0.0, 0.0], (len(crops), model.skeleton.count, 4))
            answers = Answers(
                found.samples_mm,
                all_seen if found.visibility is None else found.visibility,
                records.truth(some, model.skeleton),
                true_states(records.true_visibility(some, model.skeleton)),
                found.samples_mm.mean(1) if found.fitted_mm is None else found.fitted_mm,
                np.zeros(all_seen.shape[:2], bool) if found.unclear is None else found.unclear,
                np.zeros(all_seen.shape[:2]) if found.apart_mm is None else found.apart_mm,
            )
            parts.append(answers)
    if not parts:
        raise InputError("expected one feature cache or more, got none")
    return Answers(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Answers)))


def coverage_report(answers: Answers, calibration: Calibration) -> Json:
    """A calibration applied to answers that it was not fitted on: `groups` by 'all', 'true STATE' and 'said STATE', and
    `states`, the confusion, None where the visibility is unknown.

    Of each group: its number of `joints`, the share of them `covered` by their 90 % balls, `mean_r90_mm`,
    `mean_error_mm`; `curve`, the share of truths inside the ball of each NOMINAL level of the calibrated covariance,
    which is stated; `raw_curve`, the same of the spread of the hypotheses about their mean.
    """
    said, known, samples = calibration.state(answers.visibility), answers.known, answers.samples_mm
    uncertain = (said != "visible") | answers.unclear
    covariance = calibration.covariance_mm2(samples, uncertain, answers.apart_mm)
    error = answers.error_mm(answers.estimate_mm)
    radius = calibration.r90_mm(covariance, uncertain)
    level = ball_level(error, np.trace(covariance, axis1=-2, axis2=-1) / 3)
    raw = ball_level(answers.error_mm(samples.mean(1)), samples.var(1, ddof=1).mean(-1), samples.shape[1])
    states = {"true": answers.true_state, "said": said}
    masks = {f"{kind} {state}": known & (table == state) for kind, table in states.items() for state in STATES}
    groups = {
        name: {
            "joints": int(mask.sum()),
            "covered": float((error[mask] <= radius[mask]).mean()),
            "mean_r90_mm": float(radius[mask].mean()),
            "mean_error_mm": float(error[mask].mean()),
            "curve": coverage(level[mask]),
            "raw_curve": coverage(raw[mask]),
        }
        for name, mask in {"all": known, **masks}.items()
        if mask.any()
    }
    labelled = bool((answers.true_state[known] == "visible").any())  # not where only joints under a patch are
    table = confusion(np.where(known, answers.true_state, ""), said) if labelled else None
    return {"groups": groups, "states": table}


def coverage(level: Float[np.ndarray, " n"]) -> list[float]:
    """Share of the truths inside the ball of each NOMINAL level; equal to NOMINAL when the spread is right."""
    return [float((level <= nominal).mean()) for nominal in NOMINAL]


def coverage_text(name: str, report: Json) -> str:
    """Three Markdown tables: the 90 % balls; the curves, of the raw spread, of all joints, and by the true state where
    it is known, else by the predicted one; the states."""
    groups, states = report["groups"], report["states"]
    balls = [
        [group, str(f["joints"]), f"{f['covered']:.1%}", f"{f['mean_r90_mm']:.0f}", f"{f['mean_error_mm']:.0f}"]
        for group, f in groups.items()
    ]
    chosen = ("all", "said" if states is None else "true")
    curves = {"all, raw spread": groups["all"]["raw_curve"]}
    curves |= {group: f["curve"] for group, f in groups.items() if group.startswith(chosen)}
    shares = [[f"{share:.0%}" for share in row] for row in zip(NOMINAL, *curves.values(), strict=True)]
    parts = [
        markdown([f"90 % balls, {name}", "joints", "hold the truth", "mean radius, mm", "mean error, mm"], balls),
        markdown(["nominal", *curves], shares),
    ]
    return "\n\n".join(parts if states is None else [*parts, confusion_text(states)])


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
        out: folder for calibration.md and report.json, too
    """
    if hypotheses < 2 or (limit is not None and limit < 2 * BLOCK):
        raise InputError(
            f"expected 2 hypotheses or more and a limit of {2 * BLOCK} or more, got {hypotheses} and {limit}"
        )
    folder = find_model(model)
    network = load_model(folder, device)
    steps = steps or network.config.sample_steps
    caches = [CachedRecords(path) for path in features]

    def answers(records: Sequence[CachedRecords], half: int | None = None) -> Answers:
        rows = [np.arange(len(each))[:limit] for each in records]
        rows = rows if half is None else [each[each // BLOCK % 2 == half] for each in rows]
        return collect(network, list(zip(records, rows, strict=True)), hypotheses, steps, seed, device)

    fitted, held_out = answers(caches, 0), answers(caches, 1)
    names = ", ".join(cache.name for cache in caches)
    fitted_on = f"{names}: {len(fitted.truth_mm)} crops, {steps} steps, weights {fingerprint(network)}"
    before = Calibration.read(folder)
    calibration = replace(fit_calibration(fitted, fitted_on), person=None if before is None else before.person)
    reports = {f"{names}, the other half": coverage_report(held_out, calibration)}
    reports |= {cache.name: coverage_report(answers([cache]), calibration) for cache in map(CachedRecords, check)}
    heading = f"Fitted on {fitted_on}; {hypotheses} hypotheses; 'visible' from {calibration.seen_threshold:.2f} on."
    text = "\n\n".join([heading, *(coverage_text(name, report) for name, report in reports.items())])
    print(text)
    print(f"\nwritten: {calibration.write(folder)}")
    if out is not None:
        head = {"format_version": FORMAT_VERSION, "program": f"di2pose {__version__}", "fitted_on": fitted_on}
        write_json(out / "report.json", head | reports)
        write_text(out / "calibration.md", text + "\n")
