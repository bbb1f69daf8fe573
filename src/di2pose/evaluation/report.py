"""The numbers of a run with all that they depend on."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict

import numpy as np
from jaxtyping import Float

from di2pose import __version__
from di2pose.data.human36m_names import ACTIONS, action_of
from di2pose.data.sample import SEEN
from di2pose.errors import InputError
from di2pose.evaluation.cached_records import Records
from di2pose.evaluation.joint_groups import (
    GROUPS,
    STATES,
    Confusion,
    confusion,
    hidden_over_seen,
    joint_groups,
    spread_figures,
    true_states,
)
from di2pose.evaluation.paper import paper_number
from di2pose.evaluation.predictor import PEER
from di2pose.evaluation.protocol import Protocol, ProtocolStatement
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
    protocols: list[ProtocolStatement]


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


class ActionRow(TypedDict):
    """The means of one number by action, in the order of Human3.6M's tables; None where an action has no record."""

    key: str
    mean_mm: list[float | None]
    counts: list[int]
    average_mm: float


class ActionTable(TypedDict):
    """Means by action of any dataset: key -> one for each action."""

    names: list[str]
    counts: list[int]
    mean_mm: dict[str, list[float | None]]


class StatesTable(TypedDict):
    """The visibility head against the truth; counts[true][said]."""

    states: list[str]
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
    actions: dict[str, list[ActionRow]]
    kinds: dict[str, ActionTable]
    spread: dict[str, dict[str, dict[str, float | int | None]]]
    """Group of joints -> figures of spread against error; `hidden_over_seen` their ratios."""
    states: dict[str, StatesTable]
    skipped: dict[str, list[dict[str, str]]]
    records: dict[str, ProtocolRecords]


@dataclass(frozen=True)
class _Values:
    """One key of one protocol: n records, S seeds (1 where nothing is drawn); NaN where a record has none."""

    mm: Float[np.ndarray, "n S"]
    weights: np.ndarray
    """Joints of a group in each record; ones for the metrics of all joints."""

    def means(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray | None:
        """For each seed the mean of some records; None where none of them has a value."""
        mm, weights = self.mm[rows], self.weights[rows]
        known = np.isfinite(mm).all(1)
        return np.average(mm[known], axis=0, weights=weights[known]) if known.any() else None


def build_report(
    run: RunSettings, protocols: Sequence[Protocol], dataset: Records, lines: dict[str, list[RecordLine]]
) -> EvaluationReport:
    """Everything that a run found. `lines`: protocol -> one line per record that it counts, in dataset order."""
    report: EvaluationReport = {
        "format_version": 2, "program": f"di2pose {__version__}", "run": run, "numbers": [], "actions": {},
        "kinds": {}, "spread": {}, "states": {}, "skipped": {}, "records": {},
    }  # fmt: skip
    for protocol in protocols:
        _add_protocol(report, protocol, dataset, lines[protocol.id])
    return report


def _add_protocol(report: EvaluationReport, protocol: Protocol, dataset: Records, lines: list[RecordLine]) -> None:
    name = protocol.id
    good, results = _good(report, name, lines)
    rows = [line["row"] for line in good]
    actions = [str(dataset.column("action")[row]) for row in rows]
    keys = sorted(dict.fromkeys(key for result in results for key in result["values"]), key=_order)
    values = {key: _collect(key, results) for key in keys}
    report["records"][name] = {
        "ids": [line["id"] for line in good],
        "sequences": [str(dataset.column("sequence")[row]) for row in rows],
        "values": {key: [None if np.isnan(v) else float(v) for v in table.mm.mean(1)] for key, table in values.items()},
    }
    if "worst_placement" in results[0]:
        report["records"][name]["worst_placement"] = [result["worst_placement"] for result in results]
    columns = np.array([_action_column(action) for action in actions]) if protocol.by_action else None
    numbers = {}
    for key, table in values.items():
        by_seed = table.means()
        if by_seed is None:
            continue  # e.g. no record has a hidden joint
        if columns is not None:
            means, counts = _by_group(table, [columns == k for k in range(len(ACTIONS))])
            by_seed = np.mean([mean for mean in means if mean is not None], axis=0)
            report["actions"].setdefault(name, []).append(
                {"key": key, "mean_mm": _floats(means), "counts": counts, "average_mm": float(by_seed.mean())}
            )
        numbers[key] = _number(report["run"], protocol, key, by_seed, table)
    for number in numbers.values():
        peer = numbers.get(f"0/{PEER}/{number['metric']}")
        if peer is not None and peer["value"] and number["metric"] not in SHARES:
            number["ratio"] = number["value"] / peer["value"]
    report["numbers"] += numbers.values()
    names = sorted(set(actions), key=lambda action: (-actions.count(action), action))
    if not protocol.by_action and len(names) in KINDS:
        masks = [np.array(actions) == action for action in names]
        found = {key: _floats(_by_group(table, masks)[0]) for key, table in values.items() if _whole(key)}
        report["kinds"][name] = {"names": names, "counts": [int(m.sum()) for m in masks], "mean_mm": found}
    _add_joints(report, name, results)


def _add_joints(report: EvaluationReport, name: str, results: Sequence[RecordResult]) -> None:
    """Spread against error, and the confusion of states, over the joints of all records."""
    visibility = np.array([r.get("visibility", [-1] * len(r["pose"])) for r in results])
    told = bool((visibility == SEEN).any())
    if "error_mm" in results[0]:
        joints = visibility.shape[1]
        error, spread = (np.array([r[part] for r in results], float) for part in ("error_mm", "spread_mm"))  # n S K
        states = np.repeat(visibility[:, None], error.shape[1], axis=1).reshape(-1, joints)
        error, spread = error.reshape(-1, joints), spread.reshape(-1, joints)
        known = np.isfinite(error)
        groups = joint_groups(states, rest_seen=not told and bool((visibility > SEEN).any()))
        found = spread_figures(spread, error, {"all": known} | {key: mask & known for key, mask in groups.items()})
        report["spread"][name] = {group: asdict(figures) for group, figures in found.items()}
        if ratios := hidden_over_seen(found):
            report["spread"][name]["hidden_over_seen"] = dict(ratios)
    heard = [k for k, result in enumerate(results) if "said" in result]
    if told and heard:
        said = np.array(STATES)[np.array([results[k]["said"] for k in heard])]
        table: Confusion = confusion(true_states(visibility[heard]), said)
        report["states"][name] = {
            "states": list(STATES),
            "counts": [list(row) for row in table.counts],
            "accuracy": table.accuracy,
            "balanced_accuracy": table.balanced_accuracy,
        }


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


def _collect(key: str, results: Sequence[RecordResult]) -> _Values:
    seeds = max(len(result["values"].get(key, ())) for result in results)
    mm = np.array([result["values"].get(key, [None] * seeds) for result in results], float)
    group = _group(key)
    weights = np.ones(len(results)) if group is None else np.array([r.get("groups", {}).get(group, 0) for r in results])
    return _Values(mm, weights)


def _group(key: str) -> str | None:
    """The group of joints that a key's metric is about."""
    metric = key.split("/")[2]
    return next((group for group in GROUPS if metric in (f"mpjpe_{group}", f"pa_mpjpe_{group}")), None)


def _whole(key: str) -> bool:
    return _group(key) is None


def _order(key: str) -> tuple[int, int]:
    """By the number of hypotheses, then oracles last; what is not drawn stays as it comes."""
    hypotheses, estimate, _ = key.split("/")
    return int(hypotheses), DRAWN.index(estimate) if estimate in DRAWN else 0


def _action_column(action: str) -> int:
    if action_of(action) not in ACTIONS:
        raise InputError(f"'{action}' is not one of the 15 actions of Human3.6M: {', '.join(ACTIONS)}")
    return ACTIONS.index(action_of(action))


def _by_group(table: _Values, masks: Sequence[np.ndarray]) -> tuple[list[np.ndarray | None], list[int]]:
    """Means of each group of records, by seed, and how many records of it have a value."""
    known = np.isfinite(table.mm).all(1)
    return [table.means(mask) for mask in masks], [int((mask & known).sum()) for mask in masks]


def _floats(means: Sequence[np.ndarray | None]) -> list[float | None]:
    return [None if mean is None else float(mean.mean()) for mean in means]


def _number(run: RunSettings, protocol: Protocol, key: str, by_seed: np.ndarray, table: _Values) -> Number:
    hypotheses, estimate, metric = key.split("/")
    drawn = int(hypotheses) > 0 and estimate not in ORACLES
    paper = paper_number(protocol.id, metric, run["source"]) if drawn else None
    known = np.isfinite(table.mm).all(1)
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
        "count": int(table.weights[known].sum()),
        "seed": run["seed"],
        "steps": run["steps"],
        "paper": None if paper is None else paper[0],
        "paper_source": None if paper is None else paper[1],
    }
