"""report.json and its tables: views of one long frame of records x estimates x metrics x seeds.

`build_report` summarises the frame of each protocol; the tables, in Markdown and LaTeX, are pivots of its numbers.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from di2pose import __version__
from di2pose.data.human36m import ACTIONS, action_of
from di2pose.data.sample import SEEN, UNKNOWN
from di2pose.errors import InputError, require
from di2pose.evaluation import scoring
from di2pose.evaluation.paper import ACTION_HEADINGS, PAPER_ACTIONS, paper_number
from di2pose.evaluation.predictors import PEER, PEER_FLIPPED
from di2pose.evaluation.protocol import Protocol
from di2pose.evaluation.records import Records
from di2pose.evaluation.scoring import DRAWN, GROUPS, HYPOTHESES, ORACLES, STATES
from di2pose.files import Json, write_json, write_text
from di2pose.text_table import latex as latex_text
from di2pose.text_table import markdown as markdown_text

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
    "mpjpe_seen": ("MPJPE seen", "mean joint distance after root alignment, over the seen joints of all records"),
    "mpjpe_hidden": ("MPJPE hidden", "the same over the hidden joints of all records"),
    "pa_mpjpe_seen": ("PA-MPJPE seen", "aligned on all counted joints, mean over the seen joints of all records"),
    "pa_mpjpe_hidden": ("PA-MPJPE hidden", "the same over the hidden joints of all records"),
}
"""Metric -> heading, and what it is and how it is aligned."""
WITH_INTERVAL = ("mpjpe", "pa_mpjpe", "mpjpe_hidden")
"""Metrics whose numbers have a bootstrap interval."""
FIGURES = {
    "energy": ("energy_mm", "energy, mm", "{:.1f}"),
    "coverage_90": ("coverage_90", "coverage of 90 % balls", "{:.1%}"),
    "calibrated_90": ("calibrated_90", "calibrated", "{:.1%}"),
}
"""Metric of the hypotheses as a whole -> its name in report.json, heading and format; coverages are shares of 1."""
SPREAD = {"spread_mm": "spread, mm", "error_mm": "error, mm", "rank_correlation": "rank correlation"}
LABELS = {
    "single": "1 sample",
    "sample": "one sample of {}",
    "p-agg": "mean of {} (p-agg)",
    "fitted": "estimate of {}: bones kept, fitted",
    "p-best": "best of {} (p-best, oracle)",
    "j-best": "best joints of {} (j-best, oracle)",
    "j-agg": "joints of {} nearest in 2D (j-agg, oracle)",
    PEER: "encoder's own 3D (peer)",
    PEER_FLIPPED: "encoder's own 3D, flip test",
}
FORMAT_VERSION = 3
"""Of report.json. 2 had neither `calibration` nor intervals."""
KINDS = range(2, 31)
"""A dataset with so many different actions has a table by action, too."""
KEY = ["hypotheses", "estimate", "metric"]
RESAMPLES = 1000
"""Of the intervals in reports, of which there are many."""
MOST_ALONE = 5
"""Sequences up to which records are drawn one by one: so few wholes say little."""

FOOTNOTES = (
    "Oracle rows choose by the truth (j-agg by the annotated 2D joints): not available in use.",
    "Intervals: 95 % percentile bootstrap of the mean, seeded; whole sequences are drawn where there are more than "
    f"{MOST_ALONE}, else records one by one, which is too narrow where frames are alike.",
    "Energy: mean |x_h - truth| - 1/2 mean |x_h - x_h'| over distinct pairs of hypotheses, mean over joints; lower is "
    "better, and of a single pose, repeated, it is its error.",
    "Coverage: joints inside the 90 % ball of the raw spread about the mean of the hypotheses; calibrated: inside the "
    "ball that a user gets (r90_mm) about the estimate, of pelvis-aligned protocols. 90 % is right.",
    "The paper states neither its joint set on 3DPW, nor its frame sampling, nor its hypothesis count.",
)

Frame = Any
"""A pandas.DataFrame; pandas is an extra."""
Reports = Mapping[str, Json]
"""Name of a model -> its report; a single model goes without a name."""


def group_of(metric: str) -> str:
    """'mpjpe_hidden' -> 'hidden', 'mpjpe' -> ''."""
    end = metric.rpartition("_")[2]
    return end if end in GROUPS else ""


def build_report(
    run: Json, protocols: Sequence[Protocol], dataset: Records, lines: Mapping[str, Sequence[Json]]
) -> Json:
    """Everything that a run found; all but `run` and `numbers` by protocol. `lines`: protocol -> one line of the log
    per record that it counts, in dataset order.

        run          the settings: see `run.Run.stamp`
        numbers      each with its protocol: see `_number`
        actions      names, counts, and mean_mm: key -> means over the records of each action
        spread       group of joints -> means of spread and error, and their rank correlation (Spearman)
        calibration  number of hypotheses, above 1 -> group of joints -> FIGURES and their intervals
        states       predicted states of the joints against the true ones: see `scoring.confusion`
        skipped      id and reason of the records that were left out
        records      ids, sequences, worst placements of a search; `interval_by`, what is drawn for the intervals;
                     `values`: key -> every record's mean over the seeds
    """
    report: Json = {"format_version": FORMAT_VERSION, "program": f"di2pose {__version__}", "run": run, "numbers": []}
    report |= {part: {} for part in ("actions", "spread", "calibration", "states", "skipped", "records")}
    for protocol in protocols:
        name = protocol.id
        reasons = {line["id"]: line.get("skipped") or line["results"][name].get("skipped") for line in lines[name]}
        report["skipped"][name] = [{"id": each, "reason": reason} for each, reason in reasons.items() if reason]
        good = [line for line in lines[name] if not reasons[line["id"]]]
        if not good:
            raise InputError(
                f"protocol {name}: all {len(reasons)} records were left out: {next(iter(reasons.values()))}"
            )
        rows, results = [line["row"] for line in good], [line["results"][name] for line in good]
        sequences = dataset.column("sequence")[rows]
        interval_by, drawn = drawn_groups(sequences)
        records = report["records"][name] = {"ids": [line["id"] for line in good], "sequences": sequences.tolist()}
        records |= {"interval_by": interval_by, "values": {}}
        if protocol.searches:
            records["worst_placements"] = [result["worst_placements"] for result in results]
        _add_numbers(report, protocol, results, dataset.column("action")[rows], drawn)
        _add_joints(report, protocol, results)
    return report


def _add_numbers(
    report: Json, protocol: Protocol, results: Sequence[Json], actions: np.ndarray, drawn: np.ndarray
) -> None:
    """Every record's value of each key, a number for each key, and where there are actions a table of their means: over
    records, of groups of joints over the joints of all records. `drawn`: see `drawn_groups`."""
    if protocol.by_action:
        if unknown := [action for action in actions if action_of(action) not in ACTIONS]:
            raise InputError(f"'{unknown[0]}' is not one of the 15 actions of Human3.6M: {', '.join(ACTIONS)}")
        actions = np.array([action_of(action) for action in actions])
    found, counts = np.unique(actions, return_counts=True)
    names = list(ACTIONS) if protocol.by_action else found[np.argsort(-counts, kind="stable")].tolist()
    by_action: Json = {"names": names, "counts": [int((actions == name).sum()) for name in names], "mean_mm": {}}
    if protocol.by_action or len(names) in KINDS:
        report["actions"][protocol.id] = by_action
    records, calibration = report["records"][protocol.id], report["calibration"]
    frame = long_frame(results)
    wide = frame.pivot(index="record", columns=[*KEY, "seed"], values=["value", "joints"])
    wide = wide.reindex(range(len(actions))).sort_index(axis=1)
    numbers: dict[scoring.Key, Json] = {}
    for key in sorted(frame[KEY].drop_duplicates().itertuples(index=False, name=None), key=_order):
        (hypotheses, estimate, metric), text, group = key, "/".join(map(str, key)), group_of(key[2])
        by_seed, joints = wide["value", *key].to_numpy(), wide["joints", *key, 0].to_numpy()  # n S, n
        if estimate != HYPOTHESES or metric == "energy":
            records["values"][text] = scoring.listed(by_seed.mean(1))
        good = np.isfinite(by_seed).all(1)
        if not good.any():
            continue  # e.g. no record has a hidden joint
        by_seed, joints, kinds, groups = by_seed[good], joints[good], actions[good], drawn[good]
        weights = joints if group else np.ones(len(joints))
        if protocol.by_action and estimate != HYPOTHESES:  # every action counts alike
            _, kind = np.unique(kinds, return_inverse=True)
            weights = weights / np.bincount(kind, weights)[kind]
        mean, of_records, interval = weights @ by_seed / weights.sum(), by_seed.mean(1), None
        if (metric in WITH_INTERVAL or estimate == HYPOTHESES) and len(set(groups)) > 1:
            interval = [*bootstrap_interval(of_records, groups, report["run"]["seed"], weights=weights)]
        if estimate == HYPOTHESES:
            name = FIGURES[metric.removesuffix(f"_{group}")][0]
            by_group = calibration.setdefault(protocol.id, {}).setdefault(str(hypotheses), {})
            blank = {f"{n}{end}": None for n, _, _ in FIGURES.values() for end in ("", "_interval")}
            figures = by_group.setdefault(group or "all", {"joints": int(joints.sum()) * by_seed.shape[1], **blank})
            figures |= {name: float(mean.mean()), f"{name}_interval": interval}
            continue
        if not group:
            of_actions = [of_records[kinds == name] for name in names]
            by_action["mean_mm"][text] = [float(each.mean()) if len(each) else None for each in of_actions]
        count = int(joints.sum()) if group else len(by_seed)
        numbers[key] = _number(report["run"], protocol, key, mean, count)
        if metric in WITH_INTERVAL:
            numbers[key] |= {"interval": interval, "interval_by": records["interval_by"]}
    for number in numbers.values():
        peer = numbers.get((0, PEER, number["metric"]))
        if peer is not None and peer["value"] and number["unit"] == "mm":
            number["ratio"] = number["value"] / peer["value"]
    report["numbers"] += numbers.values()


def long_frame(results: Sequence[Json]) -> Frame:
    """The long frame of one protocol: a row for each record, estimate, metric and seed; `joints`: how many of them the
    value is the mean of."""
    rows = [
        (record, *key, joints, seed, value)
        for record, result in enumerate(results)
        for *key, joints, numbers in result["values"]
        for seed, value in enumerate(numbers)
    ]
    columns = ["record", *KEY, "joints", "seed", "value"]
    return require("pandas", "pandas").DataFrame(rows, columns=columns).astype({"value": float})


def _order(key: scoring.Key) -> tuple[int, int]:
    """By the number of hypotheses, then oracles last; estimates that are not drawn keep their order."""
    ranks = {name: rank for rank, name in enumerate((*DRAWN, HYPOTHESES))}
    return key[0], ranks.get(key[1], 0)


def _number(run: Json, protocol: Protocol, key: scoring.Key, by_seed: np.ndarray, count: int) -> Json:
    hypotheses, estimate, metric = key
    drawn = hypotheses > 0 and estimate not in ORACLES
    value, source = (drawn and paper_number(protocol.id, metric, run["source"])) or (None, None)
    return {
        "protocol": protocol.id,
        "joints": len(protocol.joints),
        "root": " + ".join(protocol.root),
        "every": protocol.sampling.every,
        "hypotheses": hypotheses,  # 0: an estimate that is not drawn
        "estimate": estimate,
        "oracle": estimate in ORACLES,
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


def _add_joints(report: Json, protocol: Protocol, results: Sequence[Json]) -> None:
    """Spread against error, of every group of two joints or more (no correlation where one of them does not vary), and
    the confusion of states, over the joints of all records."""
    unknown = [UNKNOWN] * len(protocol.joints)
    visibility = np.array([result.get("visibility", unknown) for result in results])  # n K
    labelled = bool((visibility == SEEN).any())
    if "joints" in results[0]:
        parts = {name: np.array([result["joints"][name] for result in results], float) for name in results[0]["joints"]}
        shown = np.broadcast_to(visibility[:, None], parts["error_mm"].shape).ravel()  # n S K
        rest_seen = not labelled and bool((visibility > SEEN).any())
        table = require("pandas", "pandas").DataFrame({name: values.ravel() for name, values in parts.items()})
        spread = report["spread"][protocol.id] = {}
        for name, mask in {"all": np.ones(len(shown), bool), **scoring.joint_groups(shown, rest_seen)}.items():
            some = table.loc[mask, ["spread_mm", "error_mm"]].dropna()
            if len(some) >= 2:
                rank = float(some.corr("spearman").iloc[0, 1]) if (some.nunique() > 1).all() else None
                spread[name] = {"joints": len(some), **some.mean().to_dict(), "rank_correlation": rank}
    heard = [row for row, result in enumerate(results) if "said" in result]
    if labelled and heard:
        said = np.array(STATES)[np.array([results[row]["said"] for row in heard])]
        report["states"][protocol.id] = scoring.confusion(scoring.true_states(visibility[heard]), said)


def bootstrap_interval(
    values: Float[np.ndarray, " n"],
    groups: np.ndarray,
    seed: int,
    resamples: int = RESAMPLES,
    weights: Float[np.ndarray, " n"] | None = None,
) -> tuple[float, float]:
    """95 % percentile interval of the mean, drawing whole groups with replacement; `weights`, above 0: of a weighted
    mean, e.g. over the joints of all records."""
    _, member = np.unique(groups, return_inverse=True)
    weights, generator = np.ones(len(values)) if weights is None else weights, np.random.default_rng(seed)
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


def write_report(reports: Reports, out: Path) -> None:
    """report.json, report.md and report.tex in the folder `out`; of several models one joint table."""
    whole = next(iter(reports.values())) if len(reports) == 1 else {"models": reports}
    json.dumps(whole, allow_nan=False)  # NaN is no JSON: fail here, not in the reader's program
    write_json(out / "report.json", whole)
    shown, lines = tables(reports), notes(reports)
    tabulars = [f"% {heading}\n{_text(table, latex_text)}" for heading, table in shown.items()]
    write_text(out / "report.tex", "\n\n".join(["\n".join(f"% {line}" for line in lines), *tabulars]) + "\n")
    parts = ["# Evaluation"]
    for heading, table in shown.items():
        parts += [f"## {heading}"] * bool(heading) + [_text(table, markdown_text)]
    for name, report in reports.items():
        for protocol, states in report["states"].items():
            parts += [f"## {protocol}{', ' + name if name else ''}: states of the joints", confusion_text(states)]
    used = {number["metric"] for report in reports.values() for number in report["numbers"]}
    meanings = [f"- {heading}: {text}." for metric, (heading, text) in METRICS.items() if metric in used]
    parts += ["## What the numbers are", "\n".join([*meanings, *(f"- {line}" for line in lines)])]
    write_text(out / "report.md", "\n\n".join(parts) + "\n")


def tables(reports: Reports) -> dict[str, Frame]:
    """Heading -> table of all models; those that have a row."""
    rows = [{"model": model, **number} for model, report in reports.items() for number in report["numbers"]]
    for row in rows:
        deviation = "" if row["deviation"] is None else f" ± {row['deviation']:.1f}"
        row |= {"text": f"{row['value']:.1f}{deviation}", "group": group_of(row["metric"]), "label": _label(row)}
        row["range"] = with_interval(row["value"], row.get("interval"), "{:.1f}")
    names = [*["model"] * (len(reports) > 1), "protocol", "label"]
    numbers = require("pandas", "pandas").DataFrame(rows).set_index(names).rename_axis(index={"label": "estimate"})
    certain = numbers["metric"].isin(WITH_INTERVAL) & ~numbers["oracle"] & (numbers["estimate"] != "sample")
    found = {
        "": number_table(numbers[numbers["group"] == ""]),
        "Seen and hidden joints (mm)": by_metric(numbers[numbers["group"] != ""], "text").reset_index(),
        **action_tables(reports),
        "95 % intervals (mm)": by_metric(numbers[certain], "range").reset_index(),
        "Calibration: the hypotheses as a whole": calibration_table(reports),
    }
    return {heading: table for heading, table in found.items() if len(table)}


def _label(number: Json) -> str:
    """The estimate in words."""
    return LABELS.get(number["estimate"], str(number["estimate"])).format(number["hypotheses"])


def number_table(numbers: Frame) -> Frame:
    """All metrics over all joints, their ratios to the peer's, and the paper's numbers."""
    table, by = by_metric(numbers, "text"), numbers.groupby(level=numbers.index.names, sort=False)
    if numbers["ratio"].notna().any():
        table["over the peer"] = by["ratio"].agg(lambda ratios: _joined(ratios, 3))
    table["records"] = by["count"].max().astype(str)
    if numbers["paper"].notna().any():
        table["paper"] = by["paper"].agg(lambda values: _joined(values, 1))
    return table.reset_index()


def by_metric(numbers: Frame, part: str) -> Frame:
    """A row for each estimate under each protocol, a column for each metric; '-' where an estimate has none."""
    shown = [metric for metric in METRICS if metric in set(numbers["metric"])]
    table = numbers.set_index("metric", append=True)[part].unstack().reindex(columns=shown)
    table = table.loc[numbers.index.drop_duplicates()].astype(object).fillna("-")
    return table.rename(columns=lambda metric: METRICS[metric][0])


def action_tables(reports: Reports) -> dict[str, Frame]:
    """A table for each set of actions: a row for each estimate but oracles, the mean of each action and the average; of
    Human3.6M in the paper's order, with the paper's rows."""
    rows: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for model, report in reports.items():
        for number in report["numbers"]:
            protocol, metric, key = number["protocol"], number["metric"], "/".join(str(number[part]) for part in KEY)
            actions = report["actions"].get(protocol)
            if actions is None or number["oracle"] or key not in actions["mean_mm"]:
                continue
            table = rows.setdefault(tuple(actions["names"]), {})
            name = ", ".join(filter(None, (model, protocol, METRICS[metric][0], _label(number))))
            table[name] = [_rounded(mean) for mean in (*actions["mean_mm"][key], number["value"])]
            if number["paper"] is not None and protocol in PAPER_ACTIONS:
                printed = (*PAPER_ACTIONS[protocol], number["paper"])
                table[f"{protocol}, paper ({number['paper_source']})"] = [_rounded(value) for value in printed]
    found = {}
    for names, table in rows.items():
        of_h36m = names == ACTIONS
        columns = [*(ACTION_HEADINGS if of_h36m else names), "Avg"]
        frame = require("pandas", "pandas").DataFrame.from_dict(table, orient="index", columns=columns)
        heading = "Human3.6M by action (mm)" if of_h36m else f"By action: {', '.join(names[:3])} (mm)"
        found[heading] = frame.rename_axis("").reset_index()
    return found


def calibration_table(reports: Reports) -> Frame:
    """A row for all, seen and hidden joints under each protocol and number of hypotheses: energy score and coverage; of
    the most hypotheses their spread against the error of their mean."""
    rows = []
    for model, report in reports.items():
        most = str(max(report["run"]["hypotheses"]))
        for protocol, counts in report["calibration"].items():
            for count, group in ((count, group) for count in counts for group in ("all", *GROUPS)):
                if (f := counts[count].get(group)) is None:
                    continue
                row = {"model": model} if len(reports) > 1 else {}
                row |= {"protocol": protocol, "hypotheses": count, "over": group, "joints": str(f["joints"])}
                row |= {head: with_interval(f[n], f[f"{n}_interval"], form) for n, head, form in FIGURES.values()}
                spread = report["spread"].get(protocol, {}).get(group, {}) if count == most else {}
                rows.append(row | {head: _rounded(spread.get(part), 2) for part, head in SPREAD.items()})
    return require("pandas", "pandas").DataFrame(rows)


def confusion_text(states: Json) -> str:
    """Rows are the true states, columns the predicted ones; a row's shares in brackets."""
    rows = [
        [state, *(f"{count} ({count / max(sum(counts), 1):.0%})" for count in counts)]
        for state, counts in zip(STATES, states["counts"], strict=True)
    ]
    table = markdown_text(["true state", *(f"said {state}" for state in STATES)], rows)
    return f"{table}\n\nAccuracy {states['accuracy']:.3f}, mean over the states {states['balanced_accuracy']:.3f}."


def notes(reports: Reports) -> list[str]:
    """What the numbers depend on, in sentences; each sentence once."""
    lines = [line for name, report in reports.items() for line in _notes(name, report)]
    return [*dict.fromkeys(lines), *FOOTNOTES]


def _notes(name: str, report: Json) -> Iterable[str]:
    run = report["run"]
    seeds = ", ".join(map(str, (run["seed"], *run["more_seeds"])))
    steps = "" if run["steps"] is None else f", {run['steps']} sampling steps"
    title = f"{name + ': ' if name else ''}{run['predictor']} on {run['dataset']}"
    yield f"{title}{steps}, seed{'s' * bool(run['more_seeds'])} {seeds}."
    for protocol in run["protocols"]:
        sampling, key = protocol["sampling"], protocol["id"]
        where = [f"every {sampling['every']} frames of each sequence" if sampling["every"] > 1 else "every record"]
        where += [f"split {sampling['split']}"] if sampling["split"] else []
        where += [f"subjects {' and '.join(sampling['subjects'])}"] if sampling["subjects"] else []
        where += ["plain people only"] * run["plain"] + [f"the first {run['limit']}"] * bool(run["limit"])
        yield (
            f"{key}: {protocol['title']}; {protocol['joint_count']} joints ({protocol['joint_meaning']}), "
            f"root {' + '.join(protocol['root'])}; {', '.join(where)}; {protocol['average']}."
        )
        if skipped := report["skipped"][key]:
            yield f"{key}: {len(skipped)} records left out, first {skipped[0]['id']}: {skipped[0]['reason']}"
        actions = report["actions"].get(key)
        if actions is not None and actions["names"] == list(ACTIONS) and 0 in actions["counts"]:
            absent = actions["counts"].count(0)
            yield f"{key}: {absent} of the 15 actions have no record; the average is over the others."


def with_interval(value: float | None, interval: Sequence[float] | None, form: str) -> str:
    """'12.3 (11.0 to 13.9)'; the value alone where it has no interval."""
    if value is None or interval is None:
        return "-" if value is None else form.format(value)
    return f"{form.format(value)} ({form.format(interval[0])} to {form.format(interval[1])})"


def _text(table: Frame, render: Callable[[list[str], list[list[str]]], str]) -> str:
    return render(list(table.columns), table.to_numpy().tolist())


def _joined(values: Iterable[float | None], places: int) -> str:
    cells = [_rounded(value, places) for value in values]
    return "-" if all(cell == "-" for cell in cells) else " / ".join(cells)


def _rounded(value: float | None, places: int = 1) -> str:
    return "-" if value is None or value != value else f"{value:.{places}f}"
