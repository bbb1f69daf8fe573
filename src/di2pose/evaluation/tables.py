"""Reports as tables for people and papers: Markdown, which is also what the terminal shows, and LaTeX."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from di2pose.data.human36m import ACTIONS
from di2pose.errors import require
from di2pose.evaluation.paper import ACTION_HEADINGS, PAPER_ACTIONS
from di2pose.evaluation.predictors import PEER, PEER_FLIPPED
from di2pose.evaluation.report import METRICS, MOST_ALONE, WITH_INTERVAL, Frame, keyed_table
from di2pose.evaluation.scoring import GROUP_OF, ORACLES, STATES, headline
from di2pose.files import Json, write_json, write_text
from di2pose.text_table import latex as latex_text
from di2pose.text_table import markdown as markdown_text

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

Reports = Mapping[str, Json]
"""Name of a model -> its report; a single model goes without a name."""


def write_report(reports: Reports, out: Path) -> None:
    """report.json, report.md and report.tex in the folder `out`; of several models one joint table."""
    whole = next(iter(reports.values())) if len(reports) == 1 else {"models": reports}
    json.dumps(whole, allow_nan=False)  # NaN is no JSON: fail here, not in the reader's program
    write_json(out / "report.json", whole)
    write_text(out / "report.md", markdown(reports))
    write_text(out / "report.tex", latex(reports))


def markdown(reports: Reports) -> str:
    """Everything, in Markdown."""
    parts = ["# Evaluation"]
    for heading, table in joint_tables(reports).items():
        parts += [heading] * bool(heading) + [_text(table, markdown_text)]
    for name, report in reports.items():
        of_model = f", {name}" if name else ""
        for protocol, actions in report["actions"].items():
            if actions["names"] != list(ACTIONS):
                parts.append(f"## {protocol}{of_model}: by action (MPJPE / PA-MPJPE, mm)")
                parts.append(_text(action_table(actions, max(report["run"]["hypotheses"])), markdown_text))
        for protocol, figures in report["spread"].items():
            parts += [f"## {protocol}{of_model}: spread against error", spread_text(figures)]
        for protocol, states in report["states"].items():
            parts += [f"## {protocol}{of_model}: states of the joints", confusion_text(states)]
    used = {number["metric"] for report in reports.values() for number in report["numbers"]}
    meanings = [f"- {heading}: {text}." for metric, (heading, text) in METRICS.items() if metric in used]
    parts += ["## What the numbers are", "\n".join([*meanings, *(f"- {line}" for line in notes(reports))])]
    return "\n\n".join(parts) + "\n"


def latex(reports: Reports) -> str:
    """Tabulars for booktabs; the notes are comments."""
    tables = joint_tables(reports)
    shown = [tables[heading] for heading in ("", HUMAN36M, CALIBRATION) if heading in tables]
    parts = ["\n".join(f"% {line}" for line in notes(reports)), *(_text(table, latex_text) for table in shown)]
    return "\n\n".join(parts) + "\n"


HUMAN36M, CALIBRATION = "## Human3.6M by action (mm)", "## Calibration: the hypotheses as a whole"


def joint_tables(reports: Reports) -> dict[str, Frame]:
    """Heading -> table of all models; those that have a row."""
    numbers = number_frame(reports)
    tables = {
        "": number_table(numbers),
        "## Seen and hidden joints (MPJPE / PA-MPJPE, mm)": group_table(numbers),
        HUMAN36M: human36m_table(reports),
        "## 95 % intervals (mm)": interval_table(numbers),
        CALIBRATION: calibration_table(reports),
    }
    return {heading: table for heading, table in tables.items() if len(table)}


def number_frame(reports: Reports) -> Frame:
    """The numbers of all models, indexed by the names of their row: model, where there are several; protocol; estimate.
    `group` is that of the metric's joints, '' for all joints; `text` the value as it is printed."""
    rows = [{"model": model, **number} for model, report in reports.items() for number in report["numbers"]]
    numbers = require("pandas", "pandas").DataFrame(rows)
    numbers["group"] = [GROUP_OF.get(metric, "") for metric in numbers["metric"]]
    numbers["text"] = [
        f"{number['value']:.1f}" + ("" if number["deviation"] is None else f" ± {number['deviation']:.1f}")
        for number in rows
    ]
    numbers["range"] = [with_interval(number["value"], number.get("interval"), "{:.1f}") for number in rows]
    numbers["name"] = numbers["estimate"]
    numbers["estimate"] = [LABELS.get(n["estimate"], n["estimate"]).format(n["hypotheses"]) for n in rows]
    return numbers.set_index([*["model"] * (len(reports) > 1), "protocol", "estimate"])


def number_table(numbers: Frame) -> Frame:
    """A row for each estimate under each protocol: all metrics over all joints, their ratios to the peer's, and the
    paper's numbers."""
    main = numbers[numbers["group"] == ""]
    by = main.groupby(level=main.index.names, sort=False)
    shown = [metric for metric in METRICS if metric in set(main["metric"])]
    table = _by_metric(main, shown, "text").loc[by.size().index]
    if main["ratio"].notna().any():
        table["over the peer"] = by["ratio"].agg(lambda ratios: _joined(ratios, 3))
    table["records"] = by["count"].max().astype(str)
    if main["paper"].notna().any():
        table["paper"] = by["paper"].agg(lambda values: _joined(values, 1))
    return table.reset_index()


def group_table(numbers: Frame) -> Frame:
    """The same over seen and over hidden joints, where the visibility is known."""
    names = numbers.index.names
    parts = []
    for group in ("seen", "hidden"):
        by = numbers[numbers["group"] == group].groupby(level=names, sort=False)
        part = by.agg(text=("text", " / ".join), joints=("count", "max"))
        part["joints"] = part["joints"].astype(str)
        part["over the peer"] = by["ratio"].agg(lambda ratios: _joined(ratios, 3))
        parts.append(part.rename(columns={"text": group}))
    table = require("pandas", "pandas").concat(parts, axis=1)
    order = numbers[numbers["group"] != ""].groupby(level=names, sort=False).size().index
    return table.reindex(order).dropna(how="all").astype(object).fillna("-").reset_index()


def interval_table(numbers: Frame) -> Frame:
    """The main numbers of what a user could have, with the interval that other records might have given."""
    main = numbers[numbers["metric"].isin(WITH_INTERVAL) & ~numbers["oracle"] & (numbers["name"] != "sample")]
    by = main.groupby(level=main.index.names, sort=False)
    table = _by_metric(main, WITH_INTERVAL, "range").loc[by.size().index]
    table["drawn by"] = by["interval_by"].first() if "interval_by" in main else "-"
    return table.reset_index()


def _by_metric(numbers: Frame, metrics: Sequence[str], part: str) -> Frame:
    """A column for each metric; '-' where an estimate has none."""
    table = numbers.set_index("metric", append=True)[part].unstack()
    return table.reindex(columns=list(metrics)).astype(object).fillna("-").rename(columns=lambda m: METRICS[m][0])


def human36m_table(reports: Reports) -> Frame:
    """The 15-action table: a label, 15 means in the paper's order, and their average; then the paper's."""
    rows: dict[str, list[str]] = {}
    for name, report in reports.items():
        for number in report["numbers"]:
            protocol, metric = number["protocol"], number["metric"]
            actions = report["actions"].get(protocol)
            if actions is None or actions["names"] != list(ACTIONS) or metric in GROUP_OF:
                continue
            means = actions["mean_mm"][f"{number['hypotheses']}/{number['estimate']}/{metric}"]
            estimate = str(number["estimate"])
            label = LABELS.get(estimate, estimate).format(number["hypotheses"])
            label = f"{name + ', ' if name else ''}{protocol}, {METRICS[metric][0]}, {label}"
            rows[label] = [_rounded(mean) for mean in (*means, number["value"])]
            if number["paper"] is not None:
                printed = (*PAPER_ACTIONS[protocol], number["paper"])
                rows[f"{protocol}, paper ({number['paper_source']})"] = [_rounded(value) for value in printed]
    columns = [*ACTION_HEADINGS, "Avg"]
    table = require("pandas", "pandas").DataFrame.from_dict(rows, orient="index", columns=columns)
    return table.rename_axis("").reset_index()


def action_table(actions: Json, most: int) -> Frame:
    """A row for each action: every estimate but oracles, and the ratio of the headline to the peer."""
    means = keyed_table(actions["mean_mm"], actions["names"])
    table = require("pandas", "pandas").DataFrame({"action": actions["names"], "records": actions["counts"]}, dtype=str)
    shown = {}
    for (hypotheses, estimate), part in means.T.groupby(level=["hypotheses", "estimate"], sort=False):
        if estimate not in (*ORACLES, PEER_FLIPPED) and hypotheses in (0, most):
            shown[estimate] = part.to_numpy().T  # actions x metrics
            table[LABELS.get(estimate, estimate).format(hypotheses)] = [_joined(row, 1) for row in shown[estimate]]
    if PEER in shown:
        ratios = shown[headline(most)] / np.where(shown[PEER] == 0, np.nan, shown[PEER])
        table[f"{LABELS[headline(most)].format(most)} over the peer"] = [_joined(row, 3) for row in ratios]
    return table


def calibration_table(reports: Reports) -> Frame:
    """A row for all, seen and hidden joints under each protocol and number of hypotheses: energy score and coverage."""
    forms = {"energy_mm": ("energy, mm", "{:.1f}"), "coverage_90": ("coverage of 90 % balls", "{:.1%}")}
    forms["calibrated_90"] = ("calibrated", "{:.1%}")
    rows = [
        {"model": name, "protocol": protocol, "hypotheses": count, "over": group, "joints": str(f["joints"])}
        | {head: with_interval(f[part], f[f"{part}_interval"], form) for part, (head, form) in forms.items()}
        for name, report in reports.items()
        for protocol, counts in report["calibration"].items()
        for count, groups in counts.items()
        for group, f in groups.items()
        if group in ("all", "seen", "hidden")
    ]
    return require("pandas", "pandas").DataFrame(rows).drop(columns=[] if len(reports) > 1 or not rows else "model")


def spread_text(figures: dict[str, Json]) -> str:
    """Raw spread of the hypotheses against the error of their mean, by group of joints."""
    rows = []
    for group, f in figures.items():
        if group != "hidden_over_seen":
            mm = [_rounded(f["spread_mm"]), _rounded(f["error_mm"]), _rounded(f["rank_correlation"], 3)]
            rows.append([group.replace("_", " "), str(f["joints"]), *mm])
    table = markdown_text(["raw spread", "joints", "spread, mm", "error of the mean, mm", "rank correlation"], rows)
    if (gap := figures.get("hidden_over_seen")) is None:
        return table
    return (
        f"{table}\n\nHidden over seen: spread {gap['spread']:.2f}, error {gap['error']:.2f}; "
        f"the one over the other {gap['spread_over_error']:.2f}."
    )


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
    numbers = [number for report in reports.values() for number in report["numbers"]]
    if any(number["oracle"] for number in numbers):
        lines.append("Oracle rows choose by the truth (j-agg by the annotated 2D joints): not available in use.")
    if any(number.get("interval") for number in numbers):
        lines.append(
            "Intervals: 95 % percentile bootstrap of the mean, seeded; whole sequences are drawn where there are more "
            f"than {MOST_ALONE}, else records one by one, which is too narrow where frames are alike."
        )
    if any(report["calibration"] for report in reports.values()):
        lines.append(
            "Energy: mean |x_h - truth| - 1/2 mean |x_h - x_h'| over distinct pairs of hypotheses, mean over joints; "
            "lower is better, and of a single pose, repeated, it is its error."
        )
        lines.append(
            "Coverage: joints inside the 90 % ball of the raw spread about the mean of the hypotheses; calibrated: "
            "inside the ball that a user gets (r90_mm) about the estimate, of pelvis-aligned protocols. 90 % is right."
        )
    if any(number["paper"] is not None for number in numbers):
        lines += ["The paper states neither its joint set on 3DPW, nor its frame sampling, nor its hypothesis count."]
    return list(dict.fromkeys(lines))


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
