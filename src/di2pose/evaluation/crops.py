"""`di2pose evaluate crops`: what diffusion adds on crops whose features are cached, beside BlazePose's own 3D.

All methods see the same crop: BlazePose's landmarks, the adapter's regression, one pass decoded softly, and poses
decoded from diffusion tokens.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro

from di2pose import __version__
from di2pose.calibration import Calibration
from di2pose.errors import InputError
from di2pose.evaluation.crop_errors import (
    ALL,
    DRAWN,
    LIMBS,
    MEAN,
    ORACLE,
    PEER,
    PEER_BOTH,
    Figure,
    JointErrors,
    JointSet,
    joint_groups,
    one_pose_errors,
    sample_errors,
    summarise,
    to_json,
)
from di2pose.evaluation.estimates import (
    Estimates,
    Truth,
    estimate_crops,
    fingerprint,
    load_model,
    plain_rows,
    pose_classes,
    read_truth,
)
from di2pose.evaluation.shards import write_text
from di2pose.evaluation.spread import SpreadFigures, ratio_gap, spread_figures
from di2pose.evaluation.visibility import STATES, Confusion, confusion, true_states
from di2pose.pose.aggregate import covariance
from di2pose.training.feature_cache import FeatureCache

Summary = dict[str, dict[str, dict[str, Figure]]]
PEERS = {
    PEER: "BlazePose heavy's own 3D (peer)",
    PEER_BOTH: "BlazePose heavy's own 3D, mean with the mirrored crop's",
}


def evaluate_crops(
    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")],
    features: Path,
    hypotheses: int = 8,
    steps: tuple[int, ...] = (),
    seeds: tuple[int, ...] = (0, 1, 2),
    limit: int | None = None,
    plain: bool = False,
    device: str = "cpu",
    out: Path | None = None,
) -> None:
    """Measure a model on cached crops with known poses; BlazePose's own 3D of the same crops is the peer.

    Prints Markdown: errors of every estimate over all, seen and hidden joints, error against steps, spread against
    error, and the visibility head's confusion. Joints are in crop axes; camera axes give the same errors.

    Args:
        model: checkpoint folder, run of `di2pose train`, or name of a model in the package
        features: feature cache of held-out crops (`di2pose people features`, `di2pose features`)
        hypotheses: samples for each crop
        steps: counts of reverse steps, one or several; left out: the model's own. The tables are about the model's own
            if it is among them, else about the first
        seeds: of the sampler's noise; figures are means over them
        limit: only the first so many crops
        plain: only rendered people with nothing before them and nothing of them outside the picture
        device: cpu, cuda, mps
        out: write all figures to this JSON file, too
    """
    if hypotheses < 2 or not seeds or (limit is not None and limit < 1):
        raise InputError(
            "expected 2 hypotheses or more, a seed or more and a limit of 1 or more, "
            f"got {hypotheses}, {seeds} and {limit}"
        )
    network, cache = load_model(model, device), FeatureCache(features)
    rows = (plain_rows(cache) if plain else np.arange(len(cache)))[:limit]
    own = network.config.sample_steps
    counts = steps or (own,)
    chosen = own if own in counts else counts[0]
    truth = read_truth(cache, rows)
    estimates = estimate_crops(network, cache, rows, hypotheses, counts, seeds)
    report: dict[str, Any] = {
        "program": f"di2pose {__version__}",
        "model": Path(model).name,
        "model_fingerprint": fingerprint(network),
        "features": cache.folder.name,
        "occlusion": cache.header.get("occlusion", "none"),
        "splits": sorted({cache.index[row]["split"] for row in rows.tolist()}),
        "crops": len(rows),
        "plain": plain,
        "hypotheses": hypotheses,
        "steps": chosen,
        "seeds": list(seeds),
        "axes": "crop",
        "both_ways": cache.both_ways,
    }
    text = [_heading(report)]
    for joint_set in (LIMBS, ALL):
        summary = _summary(joint_set, truth, estimates, chosen, seeds)
        report[joint_set.title] = to_json(summary)
        text.append(_error_table(joint_set, summary, hypotheses))
    if len(counts) > 1:
        by_steps = {count: _summary(LIMBS, truth, estimates, count, seeds) for count in counts}
        report["error_against_steps"] = {str(count): to_json(summary) for count, summary in by_steps.items()}
        text.append(_steps_table(by_steps, hypotheses))
    if classes := pose_classes(cache, rows):
        known = _groups(LIMBS, truth)["all"]
        masks = {name: known & mask[:, None] for name, mask in classes.items()}
        by_pose = _summary(LIMBS, truth, estimates, chosen, seeds, masks)
        report["error_by_pose"] = to_json(by_pose)
        text.append(_pose_table(by_pose, classes, hypotheses))
    found, gap = measure_spread(truth, estimates, chosen, seeds)
    report["spread"] = {group: asdict(figures) for group, figures in found.items()} | {"hidden_over_seen": gap}
    text.append(_spread_table(found, gap))
    true = true_states(truth.visibility.numpy())
    if estimates.visibility is not None and (true == "seen").any():  # not where only what a patch hides is labelled
        calibration = network.calibration or Calibration.neutral()
        head = confusion(true, calibration.state(estimates.visibility.numpy()))
        report["visibility"] = {"states": STATES, "counts": head.counts, "accuracy": head.accuracy}
        report["visibility"] |= {"balanced_accuracy": head.balanced_accuracy}
        text.append(confusion_table(head))
    print("\n\n".join(text))
    if out is not None:
        write_text(out, json.dumps(report, indent=1) + "\n")


def _summary(
    joint_set: JointSet,
    truth: Truth,
    estimates: Estimates,
    steps: int,
    seeds: tuple[int, ...],
    groups: dict[str, np.ndarray] | None = None,
) -> Summary:
    """Over the given groups of joints; None: seen, hidden and so on."""
    runs: dict[str, list[JointErrors]] = {
        name: [errors] for name, errors in one_pose_errors(joint_set, truth, estimates).items()
    }
    for seed in seeds:
        for name, errors in sample_errors(joint_set, truth, estimates.samples_mm[steps, seed]).items():
            runs.setdefault(name, []).append(errors)
    return summarise(runs, _groups(joint_set, truth) if groups is None else groups)


def _groups(joint_set: JointSet, truth: Truth) -> dict[str, np.ndarray]:
    columns = list(joint_set.joints)
    known = truth.joints_mm[:, columns].isfinite().all(-1)
    return joint_groups(truth.visibility[:, columns].numpy(), known.numpy())


def measure_spread(
    truth: Truth, estimates: Estimates, steps: int, seeds: tuple[int, ...]
) -> tuple[dict[str, SpreadFigures], dict[str, float]]:
    """On the limbs, mid-hip aligned, all seeds together: spread against error, and the ratios hidden over seen."""
    spreads, errors = [], []
    for seed in seeds:
        samples = estimates.samples_mm[steps, seed]
        aligned = samples - samples[:, :, LIMBS.root].mean(2, keepdim=True)
        trace = torch.diagonal(covariance(aligned[:, :, LIMBS.joints]), dim1=-2, dim2=-1).sum(-1)
        spreads.append(trace.clamp_min(0).sqrt().numpy())
        errors.append(sample_errors(LIMBS, truth, samples)[MEAN]["mpjpe"])
    groups = {name: np.tile(mask, (len(seeds), 1)) for name, mask in _groups(LIMBS, truth).items()}
    found = spread_figures(np.concatenate(spreads), np.concatenate(errors), groups)
    return found, ratio_gap(found)


def _heading(report: dict[str, Any]) -> str:
    ways = " and their mirror images" if report["both_ways"] else ""
    return (
        f"{report['features']}: {report['crops']} {'plain ' * report['plain']}crops{ways} (split "
        f"{', '.join(report['splits'])}; occlusion protocol {report['occlusion']}); model {report['model']} "
        f"({report['model_fingerprint']}), {report['hypotheses']} hypotheses, {report['steps']} steps, "
        f"sampling seeds {', '.join(map(str, report['seeds']))}."
    )


def _error_table(joint_set: JointSet, summary: Summary, hypotheses: int) -> str:
    """MPJPE / PA-MPJPE over the groups, with the deviation over seeds, and the ratio to the peer where there is one."""
    first = next(iter(summary.values()))
    groups = [group for group in ("all", "seen", "hidden") if group in first]
    head = [f"{joint_set.title}, mm"]
    for group in groups:
        head += [f"{group} ({first[group]['mpjpe'].joints} joints)", *(["ratio to peer"] if PEER in summary else [])]
    rows = []
    for name, row in summary.items():
        cells = [_named(name, hypotheses)]
        for group in groups:
            errors = row[group]
            cells.append(f"{_mm(errors['mpjpe'])} / {_mm(errors['pa_mpjpe'])}")
            if PEER in summary:
                cells.append(" / ".join(f"{errors[metric].ratio:.3f}" for metric in errors))
        rows.append(cells)
    return "MPJPE / PA-MPJPE\n\n" + markdown(head, rows)


def _steps_table(by_steps: dict[int, Summary], hypotheses: int) -> str:
    head = [f"steps ({LIMBS.title}, MPJPE / PA-MPJPE)", *(_named(name, hypotheses) for name in DRAWN)]
    rows = [
        [str(count)]
        + [f"{_mm(summary[name]['all']['mpjpe'])} / {_mm(summary[name]['all']['pa_mpjpe'])}" for name in DRAWN]
        for count, summary in by_steps.items()
    ]
    return markdown(head, rows)


def _pose_table(summary: Summary, classes: dict[str, np.ndarray], hypotheses: int) -> str:
    """A row for each kind of pose: every estimate but the oracle, and the ratio of the mean of samples to the peer."""
    shown = [name for name in summary if name not in (*ORACLE, PEER_BOTH)]
    head = [f"pose ({LIMBS.title}, MPJPE / PA-MPJPE)", "crops", *(_named(name, hypotheses) for name in shown)]
    rows = []
    for group, mask in classes.items():
        cells = [summary[name][group] for name in shown]
        rows.append([group, str(mask.sum()), *(f"{_mm(c['mpjpe'])} / {_mm(c['pa_mpjpe'])}" for c in cells)])
        if PEER in summary:
            rows[-1].append(" / ".join(f"{figure.ratio:.3f}" for figure in summary[MEAN][group].values()))
    if PEER in summary:
        head.append(f"{_named(MEAN, hypotheses)}, ratio to peer")
    return markdown(head, rows)


def _spread_table(found: dict[str, SpreadFigures], gap: dict[str, float]) -> str:
    head = [f"{LIMBS.title}, raw spread", "joints", "spread, mm", "error of the mean, mm", "rank correlation"]
    rows = [
        [group, str(f.joints), f"{f.spread_mm:.1f}", f"{f.error_mm:.1f}", f"{f.rank_correlation:.3f}"]
        for group, f in found.items()
    ]
    table = markdown(head, rows)
    if not gap:
        return table
    return (
        f"{table}\n\nHidden over seen: spread {gap['spread']:.2f}, error {gap['error']:.2f}; "
        f"the one over the other {gap['spread_over_error']:.2f}."
    )


def confusion_table(head: Confusion) -> str:
    """Rows are the truth, columns what was said; a row's shares in brackets."""
    rows = []
    for state, counts in zip(STATES, head.counts, strict=True):
        total = max(sum(counts), 1)
        rows.append([state, *(f"{count} ({count / total:.0%})" for count in counts)])
    table = markdown(["true state", *(f"said {state}" for state in STATES)], rows)
    return f"{table}\n\nAccuracy {head.accuracy:.3f}, mean over the states {head.balanced_accuracy:.3f}."


def _named(name: str, hypotheses: int) -> str:
    if name in PEERS:
        return PEERS[name]
    words = name.replace("of samples", f"of {hypotheses}")
    return f"{words} (oracle)" if name in ORACLE else words


def _mm(figure: Figure) -> str:
    return f"{figure.mm:.1f}" + (f" ± {figure.deviation_mm:.1f}" if figure.deviation_mm is not None else "")


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table, numbers to the right."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))
