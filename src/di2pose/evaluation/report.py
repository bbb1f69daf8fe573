"""The numbers of a run with all that they depend on."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float

from di2pose import __version__
from di2pose.data.human36m import ACTIONS, action_of
from di2pose.data.sample import SEEN, UNKNOWN
from di2pose.errors import InputError
from di2pose.evaluation.cached_records import Records
from di2pose.evaluation.joint_groups import (
    GROUPS,
    STATES,
    confusion,
    hidden_over_seen,
    joint_groups,
    spread_figures,
    true_states,
)
from di2pose.evaluation.paper import paper_number
from di2pose.evaluation.predictor import PEER
from di2pose.evaluation.protocol import Protocol
from di2pose.evaluation.runs import RecordLine, RecordResult
from di2pose.evaluation.scoring import DRAWN, ORACLES, SHARES

METRICS = {
    "mpjpe": ("MPJPE", "mean joint distance after root alignment"),
    "pa_mpjpe": ("PA-MPJPE", "mean joint distance after similarity (Procrustes) alignment on the counted joints"),
    "pck": ("PCK@150", "per cent of the joints nearer than 150 mm after root alignment"),
    "auc": ("AUC", "mean PCK, in per cent, over the thresholds 0, 5, ..., 150 mm"),
    "pa_mpjpe_worst": ("PA-MPJPE, own worst", "at the placement that is worst for PA-MPJPE, not for MPJPE"),
    "clean_mpjpe": ("MPJPE clean", "the clean picture, on the joints visible at the worst placement"),
    "clean_pa_mpjpe": ("PA-MPJPE clean", "the clean picture, on the joints visible at the worst placement"),
    "degradation_mpjpe": ("MPJPE added", "worst placement minus clean, on the same visible joints"),
}
"""Metric -> heading, and what it is and how it is aligned."""
METRICS |= {
    f"{metric}_{group}": (
        f"{METRICS[metric][0]} {group.replace('_', ' ')}",
        f"{METRICS[metric][1]}; mean over the {group.replace('_', ' ')} joints of all records",
    )
    for metric in ("mpjpe", "pa_mpjpe")
    for group in GROUPS
}
KINDS = range(2, 31)
"""A dataset with so many different actions has a table by action, too."""


class RunSettings(TypedDict):
    """What must be the same for a run to go on; and what its numbers depend on."""

    predictor: str
    prediction_skeleton: str
    dataset: str
    source: str
    dataset_skeleton: str
    hypotheses: list[int]
    steps: int | None
    seed: int
    more_seeds: list[int]
    plain: bool
    limit: int | None
    textures: str
    occ_roi: str
    protocols: list[dict[str, Any]]
    """`Protocol.statement`, with `truth`, a digest of the records' ids and true poses."""


class Number(TypedDict):
    """One number with its protocol."""

    protocol: str
    joints: int
    root: str
    every: int
    hypotheses: int
    """0: an estimate that is not drawn."""
    estimate: str
    oracle: bool
    metric: str
    meaning: str
    unit: str
    value: float
    deviation: float | None
    """Standard deviation over the sampling seeds; None where nothing is drawn, or with one seed."""
    ratio: float | None
    """To the peer's number on the same crops."""
    count: int
    """Records; joints, for the metrics of a group of joints."""
    seed: int
    steps: int | None
    paper: float | None
    paper_source: str | None


class ActionTable(TypedDict):
    """Means over the records of each action; None where an action has none."""

    names: list[str]
    counts: list[int]
    mean_mm: dict[str, list[float | None]]
    """By key."""


class StatesTable(TypedDict):
    """What is said of the joints against the truth: counts[true][said] in the order of STATES."""

    counts: list[list[int]]
    accuracy: float
    balanced_accuracy: float


class ProtocolRecords(TypedDict, total=False):
    """Every record's values, means over the seeds."""

    ids: list[str]
    sequences: list[str]
    values: dict[str, list[float | None]]
    worst_placement: list[dict[str, int]]


class EvaluationReport(TypedDict):
    """Everything that a run found, by protocol."""

    format_version: int
    program: str
    run: RunSettings
    numbers: list[Number]
    actions: dict[str, ActionTable]
    spread: dict[str, dict[str, dict[str, float | int | None]]]
    """Group of joints -> figures of spread against error; `hidden_over_seen` their ratios."""
    states: dict[str, StatesTable]
    skipped: dict[str, list[dict[str, str]]]
    records: dict[str, ProtocolRecords]


@dataclass(frozen=True)
class KeyValues:
    """One key of one protocol: n records, S seeds (1 where nothing is drawn); NaN where a record has none."""

    mm: Float[np.ndarray, "n S"]
    weights: Float[np.ndarray, " n"]
    """Joints of a group in each record; ones for the metrics of all joints."""

    @property
    def known(self) -> np.ndarray:
        return np.isfinite(self.mm).all(1)

    def means(self, rows: np.ndarray | None = None) -> np.ndarray | None:
        """For each seed the mean of some records; None where none of them has a value."""
        chosen = self.known if rows is None else self.known & rows
        return np.average(self.mm[chosen], axis=0, weights=self.weights[chosen]) if chosen.any() else None


def build_report(
    run: RunSettings, protocols: Sequence[Protocol], dataset: Records, lines: dict[str, list[RecordLine]]
) -> EvaluationReport:
    """Everything that a run found. `lines`: protocol -> one line per record that it counts, in dataset order."""
    report = EvaluationReport(
        format_version=2, program=f"di2pose {__version__}", run=run,
        numbers=[], actions={}, spread={}, states={}, skipped={}, records={},
    )  # fmt: skip
    for protocol in protocols:
        name = protocol.id
        good, results = _good(report, name, lines[name])
        rows = [line["row"] for line in good]
        keys = sorted(dict.fromkeys(key for result in results for key in result["values"]), key=_order)
        values = {key: _collect(key, results) for key in keys}
        means = {key: [None if np.isnan(v) else float(v) for v in table.mm.mean(1)] for key, table in values.items()}
        sequences = [str(dataset.column("sequence")[row]) for row in rows]
        report["records"][name] = {"ids": [line["id"] for line in good], "sequences": sequences, "values": means}
        if "worst_placement" in results[0]:
            report["records"][name]["worst_placement"] = [result["worst_placement"] for result in results]
        actions = np.array([_action(protocol, str(dataset.column("action")[row])) for row in rows])
        _add_numbers(report, protocol, values, actions)
        _add_joints(report, name, results)
    return report


def _good(
    report: EvaluationReport, protocol: str, lines: list[RecordLine]
) -> tuple[list[RecordLine], list[RecordResult]]:
    """The records that were measured; the others are listed in the report."""
    good, results, skipped = [], [], []
    for line in lines:
        reason = line.get("skipped") or line["results"][protocol].get("skipped")
        if reason is None:
            good.append(line)
            results.append(line["results"][protocol])
        else:
            skipped.append({"id": line["id"], "reason": reason})
    if not good:
        raise InputError(f"protocol {protocol}: all {len(skipped)} records were left out: {skipped[0]['reason']}")
    report["skipped"][protocol] = skipped
    return good, results


def _order(key: str) -> tuple[int, int]:
    """By the number of hypotheses, then oracles last; what is not drawn stays as it comes."""
    hypotheses, estimate, _ = key.split("/")
    return int(hypotheses), DRAWN.index(estimate) if estimate in DRAWN else 0


def _collect(key: str, results: Sequence[RecordResult]) -> KeyValues:
    seeds = max(len(result["values"].get(key, ())) for result in results)
    mm = np.array([result["values"].get(key, [None] * seeds) for result in results], float)
    group = group_of(key.split("/")[2])
    weights = [1 if group is None else result.get("groups", {}).get(group, 0) for result in results]
    return KeyValues(mm, np.array(weights, float))


def group_of(metric: str) -> str | None:
    """The group of joints that a metric is about."""
    return next((group for group in GROUPS if metric in (f"mpjpe_{group}", f"pa_mpjpe_{group}")), None)


def _action(protocol: Protocol, action: str) -> str:
    if protocol.by_action and action_of(action) not in ACTIONS:
        raise InputError(f"'{action}' is not one of the 15 actions of Human3.6M: {', '.join(ACTIONS)}")
    return action_of(action) if protocol.by_action else action


def _add_numbers(
    report: EvaluationReport, protocol: Protocol, values: dict[str, KeyValues], actions: np.ndarray
) -> None:
    """A number for each key, and where there are actions a table of their means."""
    found, counts = np.unique(actions, return_counts=True)
    names = list(ACTIONS) if protocol.by_action else found[np.argsort(-counts, kind="stable")].tolist()
    table: ActionTable = {"names": names, "counts": [int((actions == name).sum()) for name in names], "mean_mm": {}}
    if protocol.by_action or len(names) in KINDS:
        report["actions"][protocol.id] = table
    numbers: dict[str, Number] = {}
    for key, one in values.items():
        by_seed = one.means()
        if by_seed is None:
            continue  # e.g. no record has a hidden joint
        by_action = [one.means(actions == name) for name in names]
        if group_of(key.split("/")[2]) is None:
            table["mean_mm"][key] = [None if mean is None else float(mean.mean()) for mean in by_action]
        if protocol.by_action:
            by_seed = np.mean([mean for mean in by_action if mean is not None], axis=0)
        numbers[key] = _number(report["run"], protocol, key, by_seed, int(one.weights[one.known].sum()))
    for number in numbers.values():
        peer = numbers.get(f"0/{PEER}/{number['metric']}")
        if peer is not None and peer["value"] and number["unit"] == "mm":
            number["ratio"] = number["value"] / peer["value"]
    report["numbers"] += numbers.values()


def _number(run: RunSettings, protocol: Protocol, key: str, by_seed: np.ndarray, count: int) -> Number:
    hypotheses, estimate, metric = key.split("/")
    drawn = int(hypotheses) > 0 and estimate not in ORACLES
    value, source = (drawn and paper_number(protocol.id, metric, run["source"])) or (None, None)
    return {
        "protocol": protocol.id,
        "joints": len(protocol.joints),
        "root": " + ".join(protocol.root),
        "every": protocol.sampling.every,
        "hypotheses": int(hypotheses),
        "estimate": estimate,
        "oracle": estimate in ORACLES,
        "metric": metric,
        "meaning": METRICS[metric][1],
        "unit": "%" if metric in SHARES else "mm",
        "value": float(by_seed.mean()),
        "deviation": float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None,
        "ratio": None,
        "count": count,
        "seed": run["seed"],
        "steps": run["steps"],
        "paper": value,
        "paper_source": source,
    }


def _add_joints(report: EvaluationReport, name: str, results: Sequence[RecordResult]) -> None:
    """Spread against error, and the confusion of states, over the joints of all records."""
    visibility = np.array([result.get("visibility", [UNKNOWN] * len(result["pose"])) for result in results])
    told, joints = bool((visibility == SEEN).any()), visibility.shape[1]
    if "error_mm" in results[0]:
        error, spread = (np.array([r[part] for r in results], float) for part in ("error_mm", "spread_mm"))  # n S K
        states = np.repeat(visibility[:, None], error.shape[1], axis=1).reshape(-1, joints)
        error, spread = error.reshape(-1, joints), spread.reshape(-1, joints)
        known = np.isfinite(error)
        groups = joint_groups(states, rest_seen=not told and bool((visibility > SEEN).any()))
        found = spread_figures(spread, error, {"all": known} | {key: mask & known for key, mask in groups.items()})
        report["spread"][name] = {group: asdict(figures) for group, figures in found.items()}
        if ratios := hidden_over_seen(found):
            report["spread"][name]["hidden_over_seen"] = dict(ratios)
    heard = [row for row, result in enumerate(results) if "said" in result]
    if told and heard:
        said = np.array(STATES)[np.array([results[row]["said"] for row in heard])]
        table = confusion(true_states(visibility[heard]), said)
        counts = [list(row) for row in table.counts]
        report["states"][name] = {
            "counts": counts, "accuracy": table.accuracy, "balanced_accuracy": table.balanced_accuracy,
        }  # fmt: skip
