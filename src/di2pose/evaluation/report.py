"""The numbers of a run with all that they depend on: views of one long table of records x estimates x metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from di2pose import __version__
from di2pose.data.human36m import ACTIONS, action_of
from di2pose.data.sample import SEEN, UNKNOWN
from di2pose.errors import InputError, require
from di2pose.evaluation import scoring
from di2pose.evaluation.paper import paper_number
from di2pose.evaluation.predictors import PEER
from di2pose.evaluation.protocol import Protocol
from di2pose.evaluation.records import Records
from di2pose.files import Json

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
for _metric, _group in scoring.GROUP_OF.items():
    _heading, _meaning = METRICS[_metric.removesuffix(f"_{_group}")]
    _words = _group.replace("_", " ")
    METRICS[_metric] = (f"{_heading} {_words}", f"{_meaning}; mean over the {_words} joints of all records")
WITH_INTERVAL = ("mpjpe", "pa_mpjpe", "mpjpe_hidden")
"""Metrics whose numbers have a bootstrap interval."""
FORMAT_VERSION = 3
"""Of report.json. 2 had neither `calibration` nor intervals."""
KINDS = range(2, 31)
"""A dataset with so many different actions has a table by action, too."""
KEY = ["hypotheses", "estimate", "metric"]
HYPOTHESES = "hypotheses"
"""The estimate, in a key, that is all hypotheses together: '8/hypotheses/energy'."""
LEVEL = 0.9
"""Of the balls whose coverage is reported."""
FIGURES = ("energy_mm", "coverage_90", "calibrated_90")
"""Of each group of joints, each with its interval; coverages are shares of 1."""
RESAMPLES = 1000
"""Of the intervals in reports, of which there are many."""
MOST_ALONE = 5
"""Sequences up to which records are drawn one by one: so few wholes say little."""

Frame = Any
"""A pandas.DataFrame; pandas is an extra."""


def build_report(run: Json, protocols: Sequence[Protocol], dataset: Records, lines: dict[str, list[Json]]) -> Json:
    """Everything that a run found; all but `run` and `numbers` by protocol. `lines`: protocol -> one line of the log
    per record that it counts, in dataset order.

        run          the settings: see `evaluate_dataset`
        numbers      each with its protocol: see `_number`
        actions      names, counts, and mean_mm: key -> means over the records of each action
        spread       group of joints -> figures of spread against error; `hidden_over_seen` their ratios
        calibration  number of hypotheses, above 1 -> group of joints -> FIGURES and their intervals
        states       predicted states of the joints against the true ones: see `scoring.confusion`
        skipped      id and reason of the records that were left out
        records      ids, sequences, worst placements of a search; `interval_by`, what is drawn for the intervals;
                     `values`: key -> every record's mean over the seeds; `coverage_90`: number of hypotheses -> share
                     of every record's joints
    """
    report: Json = {"format_version": FORMAT_VERSION, "program": f"di2pose {__version__}", "run": run, "numbers": []}
    report |= {part: {} for part in ("actions", "spread", "calibration", "states", "skipped", "records")}
    for protocol in protocols:
        name = protocol.id
        reasons = [line.get("skipped") or line["results"][name].get("skipped") for line in lines[name]]
        pairs = list(zip(lines[name], reasons, strict=True))
        report["skipped"][name] = [{"id": line["id"], "reason": reason} for line, reason in pairs if reason]
        good = [line for line, reason in pairs if not reason]
        if not good:
            raise InputError(f"protocol {name}: all {len(pairs)} records were left out: {reasons[0]}")
        rows, results = [line["row"] for line in good], [line["results"][name] for line in good]
        sequences = dataset.column("sequence")[rows]
        interval_by, drawn = drawn_groups(sequences)
        records = report["records"][name] = {"ids": [line["id"] for line in good], "sequences": sequences.tolist()}
        records |= {"interval_by": interval_by, "values": {}}
        if protocol.searches:
            records["worst_placements"] = [result["worst_placements"] for result in results]
            records["worst_placement"] = [{n: k[0] for n, k in each.items()} for each in records["worst_placements"]]
        _add_numbers(report, protocol, values_table(results), dataset.column("action")[rows], drawn)
        _add_joints(report, protocol, results, drawn)
    return report


def values_table(results: Sequence[Json]) -> Frame:
    """The long table of one protocol: a row for each record, estimate, metric and seed; `weight` is the number of
    joints that a value is the mean of, for metrics over a group of joints."""
    rows = [
        (record, hypotheses, estimate, metric, weight, seed, value)
        for record, result in enumerate(results)
        for hypotheses, estimate, metric, weight, numbers in result["values"]
        for seed, value in enumerate(numbers)
    ]
    columns = ["record", *KEY, "weight", "seed", "value"]
    return require("pandas", "pandas").DataFrame(rows, columns=columns).astype({"value": float})


def keyed_table(values: Mapping[str, Sequence[float | None]], index: Sequence[Any]) -> Frame:
    """'H/estimate/metric' -> numbers, as it stands in report.json: a column each, by (hypotheses, estimate, metric)."""
    pandas = require("pandas", "pandas")
    keys = [(int(hypotheses), estimate, metric) for hypotheses, estimate, metric in (key.split("/") for key in values)]
    columns = {key: np.array(numbers, float) for key, numbers in zip(keys, values.values(), strict=True)}
    return pandas.DataFrame(columns, index=list(index), columns=pandas.MultiIndex.from_tuples(keys, names=KEY))


def _add_numbers(report: Json, protocol: Protocol, table: Frame, actions: np.ndarray, drawn: np.ndarray) -> None:
    """Every record's value of each key, a number for each key, and where there are actions a table of their means."""
    if protocol.by_action:
        if unknown := [action for action in actions if action_of(action) not in ACTIONS]:
            raise InputError(f"'{unknown[0]}' is not one of the 15 actions of Human3.6M: {', '.join(ACTIONS)}")
        actions = np.array([action_of(action) for action in actions])
    found, counts = np.unique(actions, return_counts=True)
    names = list(ACTIONS) if protocol.by_action else found[np.argsort(-counts, kind="stable")].tolist()
    by_action: Json = {"names": names, "counts": [int((actions == name).sum()) for name in names], "mean_mm": {}}
    if protocol.by_action or len(names) in KINDS:
        report["actions"][protocol.id] = by_action
    records, numbers = report["records"][protocol.id], {}
    for key, part in sorted(table.groupby(KEY, sort=False), key=lambda group: _order(group[0])):
        text, metric = "/".join(map(str, key)), key[2]
        wide = part.pivot(index="record", columns="seed", values="value")
        records["values"][text] = _listed(wide.mean(axis=1, skipna=False).reindex(range(len(actions))))
        wide = wide.dropna()
        if wide.empty:
            continue  # e.g. no record has a hidden joint
        weights = part.groupby("record")["weight"].first().loc[wide.index].astype(float)
        kinds = actions[wide.index]
        totals = wide.mul(weights, axis=0).groupby(kinds).sum()
        means = totals.div(weights.groupby(kinds).sum(), axis=0).reindex(names)
        if metric not in scoring.GROUP_OF:
            by_action["mean_mm"][text] = _listed(means.mean(axis=1))
        by_seed = means.mean() if protocol.by_action else totals.sum() / weights.sum()
        numbers[key] = number = _number(report["run"], protocol, key, by_seed.to_numpy(), int(weights.sum()))
        if metric in WITH_INTERVAL:
            if protocol.by_action:  # every action counts alike
                weights = 1 / weights.groupby(kinds).transform("size")
            mm = wide.mean(axis=1).to_numpy()
            number["interval"] = mean_interval(mm, drawn[wide.index], report["run"]["seed"], weights.to_numpy())
            number["interval_by"] = records["interval_by"]
    for number in numbers.values():
        peer = numbers.get((0, PEER, number["metric"]))
        if peer is not None and peer["value"] and number["unit"] == "mm":
            number["ratio"] = number["value"] / peer["value"]
    report["numbers"] += numbers.values()


def _order(key: scoring.Key) -> tuple[int, int]:
    """By the number of hypotheses, then oracles last; estimates that are not drawn keep their order."""
    return key[0], scoring.DRAWN.index(key[1]) if key[1] in scoring.DRAWN else 0


def _listed(series: Frame) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in series]


def _number(run: Json, protocol: Protocol, key: scoring.Key, by_seed: np.ndarray, count: int) -> Json:
    hypotheses, estimate, metric = key
    drawn = hypotheses > 0 and estimate not in scoring.ORACLES
    value, source = (drawn and paper_number(protocol.id, metric, run["source"])) or (None, None)
    return {
        "protocol": protocol.id,
        "joints": len(protocol.joints),
        "root": " + ".join(protocol.root),
        "every": protocol.sampling.every,
        "hypotheses": hypotheses,  # 0: an estimate that is not drawn
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


def joints_table(results: Sequence[Json], count: str) -> Frame:
    """A row for each record, seed and joint of `count` hypotheses: visibility, error and spread in mm, and FIGURES.
    Without coverage where all hypotheses of all records agree, or where the run had no calibrated radii."""
    parts = [result["joints"][count] for result in results]
    columns = {name: np.array([part[name] for part in parts], float) for name in parts[0]}  # n S K each
    shape = columns["level"].shape
    level = columns.pop("level")
    agree = not (columns["spread_mm"] > 0).any()
    columns["coverage_90"] = np.where(np.isfinite(level) & (not agree), level <= LEVEL, np.nan)
    columns["record"] = np.broadcast_to(np.arange(shape[0])[:, None, None], shape)
    columns["visibility"] = np.broadcast_to(_visibility(results)[:, None], shape)
    table = require("pandas", "pandas").DataFrame({name: values.ravel() for name, values in columns.items()})
    return table.reindex(columns=["record", "visibility", "error_mm", "spread_mm", *FIGURES])


def _visibility(results: Sequence[Json]) -> np.ndarray:
    return np.array([result.get("visibility", [UNKNOWN] * len(result["pose"])) for result in results])  # n K


def _add_joints(report: Json, protocol: Protocol, results: Sequence[Json], drawn: np.ndarray) -> None:
    """Spread against error, energy score and coverage, and the confusion of states, over the joints of all records."""
    name, records, visibility = protocol.id, report["records"][protocol.id], _visibility(results)
    labelled = bool((visibility == SEEN).any())
    rest_seen = not labelled and bool((visibility > SEEN).any())
    for count in results[0].get("joints", {}):
        table = joints_table(results, count)
        groups = {"all": np.ones(len(table), bool)}
        groups |= scoring.joint_groups(table["visibility"].to_numpy(), rest_seen)
        if not protocol.searches:
            report["spread"][name] = spread_figures(table, groups)  # of most hypotheses, which come last
        figures = report["calibration"].setdefault(name, {})[count] = {}
        for group, mask in groups.items():
            if found := _ensemble_figures(table[mask], group == "all", drawn, report["run"]["seed"]):
                figures[group] = found
        means = table.groupby("record")[["energy_mm", "coverage_90"]].mean()
        records["values"][f"{count}/{HYPOTHESES}/energy"] = _listed(means["energy_mm"])
        if means["coverage_90"].notna().any():
            records.setdefault("coverage_90", {})[count] = _listed(means["coverage_90"])
    heard = [row for row, result in enumerate(results) if "said" in result]
    if labelled and heard:
        said = np.array(scoring.STATES)[np.array([results[row]["said"] for row in heard])]
        report["states"][name] = scoring.confusion(scoring.true_states(visibility[heard]), said)


def _ensemble_figures(table: Frame, by_record: bool, drawn: np.ndarray, seed: int) -> Json:
    """FIGURES of some joints, None where there is none, and their intervals: means over records, else over the joints
    of all records, as MPJPE is. `drawn`: see `drawn_groups`. Empty where no joint counts."""
    joints = int(table["energy_mm"].count())
    found: Json = {"joints": joints} if joints else {}
    for part in FIGURES if joints else ():
        each = table.groupby("record")[part].agg(["mean", "count"])
        each = each[each["count"] > 0]
        found |= {part: None, f"{part}_interval": None}
        if not each.empty:
            means, weights = each["mean"].to_numpy(), each["count"].to_numpy(float)
            weights = np.ones(len(means)) if by_record else weights
            found[part] = float(np.average(means, weights=weights))
            found[f"{part}_interval"] = mean_interval(means, drawn[each.index], seed, weights)
    return found


def spread_figures(table: Frame, groups: Mapping[str, np.ndarray]) -> dict[str, Json]:
    """Means and Spearman's rank correlation (None where spread or error does not vary) of every group of two joints or
    more. `hidden_over_seen`, where both are known: ratios of spread and error, and of the one to the other, which is 1
    where the spread is right."""
    found: dict[str, Json] = {}
    for name, mask in groups.items():
        some = table.loc[mask, ["spread_mm", "error_mm"]].dropna()
        if len(some) >= 2:
            rank = float(some.corr("spearman").iloc[0, 1]) if (some.nunique() > 1).all() else None
            found[name] = {"joints": len(some), **some.mean().to_dict(), "rank_correlation": rank}
    seen, hidden = found.get("seen"), found.get("hidden")
    if seen and hidden and seen["spread_mm"] and seen["error_mm"]:
        ratio, expected = (hidden[part] / seen[part] for part in ("spread_mm", "error_mm"))
        found["hidden_over_seen"] = {"spread": ratio, "error": expected, "spread_over_error": ratio / expected}
    return found


def bootstrap_interval(
    values: Float[np.ndarray, " n"],
    groups: np.ndarray,
    generator: np.random.Generator,
    resamples: int = 5000,
    weights: Float[np.ndarray, " n"] | None = None,
) -> tuple[float, float]:
    """95 % percentile interval of the mean, drawing whole groups with replacement; `weights`, above 0: of a weighted
    mean, e.g. over the joints of all records."""
    _, member = np.unique(groups, return_inverse=True)
    weights = np.ones(len(values)) if weights is None else weights
    sums, sizes = np.bincount(member, weights * values), np.bincount(member, weights)
    means = np.empty(resamples)
    for start in range(0, resamples, 100):  # in pieces: 100 x groups indices at once
        drawn = generator.integers(len(sums), size=(min(100, resamples - start), len(sums)))
        means[start : start + len(drawn)] = sums[drawn].sum(1) / sizes[drawn].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def drawn_groups(sequences: np.ndarray) -> tuple[str, np.ndarray]:
    """What is drawn for the intervals of a report, and the number of each record's group: 'sequence', since frames of
    a video are alike; 'record' where there are few of them."""
    found, member = np.unique(sequences, return_inverse=True)
    return ("sequence", member) if len(found) > MOST_ALONE else ("record", np.arange(len(sequences)))


def mean_interval(
    values: Float[np.ndarray, " n"], groups: np.ndarray, seed: int, weights: Float[np.ndarray, " n"] | None = None
) -> list[float] | None:
    """95 % interval of the (weighted) mean over records, [low, high]; None of a single group."""
    if len(np.unique(groups)) < 2:
        return None
    return list(bootstrap_interval(values, groups, np.random.default_rng(seed), RESAMPLES, weights=weights))
