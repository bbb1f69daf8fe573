"""The numbers of a run with all that they depend on."""

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float

from di2pose import __version__
from di2pose.data.human36m import ACTIONS, action_of
from di2pose.data.sample import SEEN, UNKNOWN
from di2pose.errors import InputError
from di2pose.evaluation import scoring
from di2pose.evaluation.bootstrap import drawn_groups, mean_interval
from di2pose.evaluation.cached_records import Records
from di2pose.evaluation.ensemble import HYPOTHESES, ensemble_figures, ensemble_tables
from di2pose.evaluation.paper import paper_number
from di2pose.evaluation.predictor import PEER
from di2pose.evaluation.protocol import Protocol
from di2pose.evaluation.record_log import RecordLine, RecordResult

METRICS = {
    "mpjpe": ("MPJPE", "mean joint distance after root alignment"),
    "pa_mpjpe": ("PA-MPJPE", "mean joint distance after similarity (Procrustes) alignment on the counted joints"),
    "pck": ("PCK@150", "per cent of the joints nearer than 150 mm after root alignment"),
    "auc": ("AUC", "mean PCK, in per cent, over the thresholds 0, 5, ..., 150 mm"),
    "pa_mpjpe_worst": ("PA-MPJPE, own worst", "at the placement that is worst for PA-MPJPE, not for MPJPE"),
    "clean_mpjpe": ("MPJPE clean", "the clean picture, on the joints visible at the worst placement"),
    "clean_pa_mpjpe": ("PA-MPJPE clean", "the clean picture, on the joints visible at the worst placement"),
    "degradation_mpjpe": ("MPJPE added", "worst placement minus clean, on the same visible joints"),
    "mpjpe_relative": ("MPJPE, relative worst", "where MPJPE grows by the largest factor over the clean picture's"),
    "pa_mpjpe_relative": ("PA-MPJPE, relative worst", "at the same placement"),
    "clean_mpjpe_relative": ("MPJPE clean, relative worst", "the clean picture, on the joints visible there"),
    "energy": ("energy", "energy score of all hypotheses, mean over the joints, root-aligned"),
}
"""Metric -> heading, and what it is and how it is aligned."""
METRICS |= {
    f"{metric}_{group}": (
        f"{METRICS[metric][0]} {group.replace('_', ' ')}",
        f"{METRICS[metric][1]}; mean over the {group.replace('_', ' ')} joints of all records",
    )
    for metric in ("mpjpe", "pa_mpjpe")
    for group in scoring.GROUPS
}
WITH_INTERVAL = ("mpjpe", "pa_mpjpe", "mpjpe_hidden")
"""Metrics whose numbers have a bootstrap interval."""
FORMAT_VERSION = 3
"""Of report.json. 2 had neither `calibration` nor intervals."""
KINDS = range(2, 31)
"""A dataset with so many different actions has a table by action, too."""

Json = dict[str, Any]


class ActionTable(TypedDict):
    """Means over the records of each action, by key; None where an action has none."""

    names: list[str]
    counts: list[int]
    mean_mm: dict[str, list[float | None]]


class EvaluationReport(TypedDict):
    """Everything that a run found; all but `run` and `numbers` by protocol."""

    format_version: int
    program: str
    run: Json
    """What must be the same for a run to go on, and what its numbers depend on: see `evaluate_dataset`."""
    numbers: list[Json]
    """Each with its protocol: see `_number`."""
    actions: dict[str, ActionTable]
    spread: dict[str, dict[str, Json]]
    """Group of joints -> figures of spread against error; `hidden_over_seen` their ratios."""
    calibration: dict[str, dict[str, dict[str, Json]]]
    """Number of hypotheses, above 1 -> group of joints -> energy score and coverage: see `ensemble_figures`."""
    states: dict[str, Json]
    """What is said of the joints against the truth: counts[true][said] in the order of STATES, and its accuracy."""
    skipped: dict[str, list[dict[str, str]]]
    records: dict[str, Json]
    """ids, sequences, the worst placements of a search; `interval_by`, what is drawn for its intervals; `values`: key
    -> every record's mean over the seeds; `coverage_90`: number of hypotheses -> share of every record's joints."""


def build_report(
    run: Json, protocols: Sequence[Protocol], dataset: Records, lines: dict[str, list[RecordLine]]
) -> EvaluationReport:
    """Everything that a run found. `lines`: protocol -> one line per record that it counts, in dataset order."""
    report = EvaluationReport(
        format_version=FORMAT_VERSION, program=f"di2pose {__version__}", run=run,
        numbers=[], actions={}, spread={}, calibration={}, states={}, skipped={}, records={},
    )  # fmt: skip
    for protocol in protocols:
        name = protocol.id
        good: list[RecordLine] = []
        skipped = report["skipped"][name] = []
        for line in lines[name]:
            reason = line.get("skipped") or line["results"][name].get("skipped")
            if reason is None:
                good.append(line)
            else:
                skipped.append({"id": line["id"], "reason": reason})
        if not good:
            raise InputError(f"protocol {name}: all {len(skipped)} records were left out: {skipped[0]['reason']}")
        results = [line["results"][name] for line in good]
        rows = [line["row"] for line in good]
        sequences = dataset.column("sequence")[rows]
        interval_by, drawn = drawn_groups(sequences)
        records = report["records"][name] = {"ids": [line["id"] for line in good], "sequences": sequences.tolist()}
        records |= {"interval_by": interval_by, "values": {}}
        for part in ("worst_placement", "worst_placements"):
            if all(part in result for result in results):
                records[part] = [result[part] for result in results]
        _add_numbers(report, protocol, results, dataset.column("action")[rows], drawn)
        _add_joints(report, name, results, drawn)
    return report


def group_of(metric: str) -> str | None:
    """The group of joints that a metric is about."""
    return next((group for group in scoring.GROUPS if metric in (f"mpjpe_{group}", f"pa_mpjpe_{group}")), None)


def _order(key: str) -> tuple[int, int]:
    """By the number of hypotheses, then oracles last; what is not drawn stays as it comes."""
    hypotheses, estimate, _ = key.split("/")
    return int(hypotheses), scoring.DRAWN.index(estimate) if estimate in scoring.DRAWN else 0


def _add_numbers(
    report: EvaluationReport,
    protocol: Protocol,
    results: Sequence[RecordResult],
    actions: np.ndarray,
    drawn: np.ndarray,
) -> None:
    """Every record's value of each key, a number for each key, and where there are actions a table of their means."""
    if protocol.by_action:
        if unknown := [action for action in actions if action_of(action) not in ACTIONS]:
            raise InputError(f"'{unknown[0]}' is not one of the 15 actions of Human3.6M: {', '.join(ACTIONS)}")
        actions = np.array([action_of(action) for action in actions])
    found, counts = np.unique(actions, return_counts=True)
    names = list(ACTIONS) if protocol.by_action else found[np.argsort(-counts, kind="stable")].tolist()
    table: ActionTable = {"names": names, "counts": [int((actions == name).sum()) for name in names], "mean_mm": {}}
    if protocol.by_action or len(names) in KINDS:
        report["actions"][protocol.id] = table
    numbers: dict[str, Json] = {}
    for key in sorted(dict.fromkeys(key for result in results for key in result["values"]), key=_order):
        seeds = max(len(result["values"].get(key, ())) for result in results)  # 1 where nothing is drawn
        mm = np.array([result["values"].get(key, [None] * seeds) for result in results], float)  # n S
        report["records"][protocol.id]["values"][key] = [None if np.isnan(v) else float(v) for v in mm.mean(1)]
        group = group_of(key.split("/")[2])
        weights = np.array([1 if group is None else r.get("groups", {}).get(group, 0) for r in results], float)
        known = np.isfinite(mm).all(1)
        by_seed = _means(mm, weights, known)
        if by_seed is None:
            continue  # e.g. no record has a hidden joint
        by_action = [_means(mm, weights, known & (actions == name)) for name in names]
        if group is None:
            table["mean_mm"][key] = [None if mean is None else float(mean.mean()) for mean in by_action]
        if protocol.by_action:
            by_seed = np.mean([mean for mean in by_action if mean is not None], axis=0)
        number = numbers[key] = _number(report["run"], protocol, key, by_seed, int(weights[known].sum()))
        if number["metric"] in WITH_INTERVAL:
            shares = weights[known]
            if protocol.by_action:  # every action counts alike
                _, member, members = np.unique(actions[known], return_inverse=True, return_counts=True)
                shares = 1 / members[member]
            number["interval"] = mean_interval(mm[known].mean(1), drawn[known], report["run"]["seed"], shares)
            number["interval_by"] = report["records"][protocol.id]["interval_by"]
    for number in numbers.values():
        peer = numbers.get(f"0/{PEER}/{number['metric']}")
        if peer is not None and peer["value"] and number["unit"] == "mm":
            number["ratio"] = number["value"] / peer["value"]
    report["numbers"] += numbers.values()


def _means(mm: Float[np.ndarray, "n S"], weights: np.ndarray, rows: np.ndarray) -> Float[np.ndarray, " S"] | None:
    return np.average(mm[rows], axis=0, weights=weights[rows]) if rows.any() else None


def _number(run: Json, protocol: Protocol, key: str, by_seed: np.ndarray, count: int) -> Json:
    hypotheses, estimate, metric = key.split("/")
    drawn = int(hypotheses) > 0 and estimate not in scoring.ORACLES
    value, source = (drawn and paper_number(protocol.id, metric, run["source"])) or (None, None)
    return {
        "protocol": protocol.id,
        "joints": len(protocol.joints),
        "root": " + ".join(protocol.root),
        "every": protocol.sampling.every,
        "hypotheses": int(hypotheses),  # 0: an estimate that is not drawn
        "estimate": estimate,
        "oracle": estimate in scoring.ORACLES,
        "metric": metric,
        "meaning": METRICS[metric][1],
        "unit": "%" if metric in scoring.SHARES else "mm",
        "value": float(by_seed.mean()),
        "deviation": float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None,  # over the sampling seeds
        "interval": None,  # 95 %, of the main metrics: what other records of the kind might have given
        "interval_by": None,  # what was drawn for it: 'sequence' or 'record'
        "ratio": None,  # to the peer's number on the same crops
        "count": count,  # records; joints, for the metrics of a group of joints
        "seed": run["seed"],
        "steps": run["steps"],
        "paper": value,
        "paper_source": source,
    }


def _add_joints(report: EvaluationReport, name: str, results: Sequence[RecordResult], drawn: np.ndarray) -> None:
    """Spread against error, what the hypotheses are worth, and the confusion of states, over the joints of all."""
    visibility = np.array([result.get("visibility", [UNKNOWN] * len(result["pose"])) for result in results])  # n K
    told = bool((visibility == SEEN).any())
    groups = scoring.joint_groups(visibility, rest_seen=not told and bool((visibility > SEEN).any()))
    masks = {group: mask[:, None] for group, mask in ({"all": np.ones_like(visibility, bool)} | groups).items()}
    if "error_mm" in results[0]:
        error, spread = (np.array([r[part] for r in results], float) for part in ("error_mm", "spread_mm"))  # n S K
        known = np.isfinite(error)
        report["spread"][name] = scoring.spread_figures(spread, error, {g: mask & known for g, mask in masks.items()})
    for count in results[0].get("ensembles", {}):
        if not all(count in result.get("ensembles", {}) for result in results):
            continue  # a run that an older version began
        tables = ensemble_tables([result["ensembles"][count] for result in results])
        report["calibration"].setdefault(name, {})[count] = ensemble_figures(
            tables, masks, drawn, report["run"]["seed"]
        )
        records = report["records"][name]
        records["values"][f"{count}/{HYPOTHESES}/energy"] = _row_means(tables["energy_mm"])
        if "coverage_90" in tables:
            records.setdefault("coverage_90", {})[count] = _row_means(tables["coverage_90"])
    heard = [row for row, result in enumerate(results) if "said" in result]
    if told and heard:
        said = np.array(scoring.STATES)[np.array([results[row]["said"] for row in heard])]
        table = scoring.confusion(scoring.true_states(visibility[heard]), said)
        shares = {"accuracy": table.accuracy, "balanced_accuracy": table.balanced_accuracy}
        report["states"][name] = {"counts": [list(row) for row in table.counts], **shares}


def _row_means(values: Float[np.ndarray, "n S K"]) -> list[float | None]:
    """Of what is finite in each row; None where nothing is."""
    return [float(row[np.isfinite(row)].mean()) if np.isfinite(row).any() else None for row in values]
