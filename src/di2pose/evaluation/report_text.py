"""Reports as tables for people and papers: Markdown, which is also what the terminal shows, and LaTeX."""

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from di2pose.data.human36m import ACTIONS
from di2pose.evaluation.bootstrap import MOST_ALONE
from di2pose.evaluation.paper import ACTION_HEADINGS, PAPER_ACTIONS
from di2pose.evaluation.predictor import PEER, PEER_FLIPPED
from di2pose.evaluation.report import METRICS, WITH_INTERVAL, ActionTable, EvaluationReport, Json, group_of
from di2pose.evaluation.report_hypotheses import Reports, Table, calibration_table, rounded, spread_text, with_interval
from di2pose.evaluation.scoring import ORACLES, Confusion, headline
from di2pose.files import write_json, write_text
from di2pose.text_table import latex as latex_table
from di2pose.text_table import markdown as markdown_table

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


def write_report(reports: Reports, out: Path) -> None:
    """report.json, report.md and report.tex in the folder `out`; of several models one joint table."""
    whole = next(iter(reports.values())) if len(reports) == 1 else {"models": reports}
    json.dumps(whole, allow_nan=False)  # NaN is no JSON: better here than in the reader's program
    write_json(out / "report.json", whole)
    write_text(out / "report.md", markdown(reports))
    write_text(out / "report.tex", latex(reports))


def markdown(reports: Reports) -> str:
    """Everything, in Markdown."""
    parts = ["# Evaluation", markdown_table(*number_table(reports))]
    if (table := group_table(reports))[1]:
        parts += ["## Seen and hidden joints (MPJPE / PA-MPJPE, mm)", markdown_table(*table)]
    if (table := human36m_table(reports))[1]:
        parts += ["## Human3.6M by action (mm)", markdown_table(*table)]
    if (table := interval_table(reports))[1]:
        parts += ["## 95 % intervals (mm)", markdown_table(*table)]
    if (table := calibration_table(reports))[1]:
        parts += ["## Calibration: the hypotheses as a whole", markdown_table(*table)]
    for name, report in reports.items():
        of_model = f", {name}" if name else ""
        for protocol, actions in report["actions"].items():
            if not _of_human36m(actions):
                head = f"## {protocol}{of_model}: by action (MPJPE / PA-MPJPE, mm)"
                parts += [head, markdown_table(*action_table(actions, max(report["run"]["hypotheses"])))]
        for protocol, figures in report["spread"].items():
            parts += [f"## {protocol}{of_model}: spread against error", spread_text(figures)]
        for protocol, states in report["states"].items():
            counts = Confusion(tuple(map(tuple, states["counts"])))
            parts += [f"## {protocol}{of_model}: states of the joints", counts.text()]
    used = {number["metric"] for report in reports.values() for number in report["numbers"]}
    meanings = [f"- {heading}: {text}." for metric, (heading, text) in METRICS.items() if metric in used]
    parts += ["## What the numbers are", "\n".join([*meanings, *(f"- {line}" for line in notes(reports))])]
    return "\n\n".join(parts) + "\n"


def latex(reports: Reports) -> str:
    """Tabulars for booktabs; the notes are comments."""
    parts = ["\n".join(f"% {line}" for line in notes(reports)), latex_table(*number_table(reports))]
    if (table := human36m_table(reports))[1]:
        parts.append(latex_table(*table))
    if (table := calibration_table(reports))[1]:
        parts.append(latex_table(*table))
    return "\n\n".join(parts) + "\n"


def number_table(reports: Reports) -> Table:
    """A row for each estimate under each protocol: all metrics over all joints, their ratios to the peer's, and the
    paper's numbers."""
    rows = list(_estimates(reports, None))
    shown = [metric for metric in METRICS if any(metric in numbers for _, (numbers,) in rows)]
    every = [number for _, (numbers,) in rows for number in numbers.values()]
    ratios, papers = (any(number[part] is not None for number in every) for part in ("ratio", "paper"))
    head = [*_names(reports), *(METRICS[metric][0] for metric in shown)]
    head += ["over the peer"] * ratios + ["records"] + ["paper"] * papers
    table = []
    for names, (numbers,) in rows:
        cells = [_mm(numbers[metric]) if metric in numbers else "-" for metric in shown]
        cells += [_joined(numbers, "ratio", 3)] * ratios + [_count(numbers)] + [_joined(numbers, "paper", 1)] * papers
        table.append([*names, *cells])
    return head, table


def group_table(reports: Reports) -> Table:
    """The same over seen and over hidden joints, where somebody knows which are which."""
    groups = ("seen", "hidden")
    head = [*_names(reports), *(cell for group in groups for cell in (group, "joints", "over the peer"))]
    table = []
    for names, chosen in _estimates(reports, *groups):
        if any(chosen):
            cells = [(" / ".join(map(_mm, n.values())) or "-", _count(n), _joined(n, "ratio", 3)) for n in chosen]
            table.append([*names, *chain(*cells)])
    return head, table


def interval_table(reports: Reports) -> Table:
    """The main numbers of what a user could have, as far as they might be other on other records."""
    head, table = [*_names(reports), *(METRICS[metric][0] for metric in WITH_INTERVAL), "drawn by"], []
    for names, (numbers, hidden) in _estimates(reports, None, "hidden"):
        shown = [(numbers | hidden).get(metric) for metric in WITH_INTERVAL]
        first = next((number for number in shown if number is not None), None)
        if first is None or first["oracle"] or first["estimate"] == "sample":
            continue
        cells = ["-" if n is None else with_interval(n["value"], n.get("interval"), "{:.1f}") for n in shown]
        table.append([*names, *cells, first["interval_by"]])
    return head, table


def human36m_table(reports: Reports) -> Table:
    """The 15-action table: a label, 15 means in the paper's order, and their average; then the paper's."""
    rows: dict[str, list[str]] = {}
    for name, report in reports.items():
        for number in report["numbers"]:
            protocol, metric = number["protocol"], number["metric"]
            actions = report["actions"].get(protocol)
            if actions is None or not _of_human36m(actions):
                continue
            means = actions["mean_mm"][f"{number['hypotheses']}/{number['estimate']}/{metric}"]
            label = f"{name + ', ' if name else ''}{protocol}, {METRICS[metric][0]}, {_label(number)}"
            rows[label] = [rounded(mean) for mean in (*means, number["value"])]
            if number["paper"] is not None:
                printed = (*PAPER_ACTIONS[protocol], number["paper"])
                rows[f"{protocol}, paper ({number['paper_source']})"] = [rounded(value) for value in printed]
    return ["", *ACTION_HEADINGS, "Avg"], [[label, *cells] for label, cells in rows.items()]


def action_table(actions: ActionTable, most: int) -> Table:
    """A row for each action: every estimate but oracles, and the ratio of the headline to the peer."""
    shown: dict[str, list[list[float | None]]] = {}
    for key, means in actions["mean_mm"].items():
        hypotheses, estimate, _ = key.split("/")
        if estimate not in (*ORACLES, PEER_FLIPPED) and int(hypotheses) in (0, most):
            shown.setdefault(LABELS.get(estimate, estimate).format(hypotheses), []).append(means)
    best, peer = LABELS[headline(most)].format(most), LABELS[PEER]
    rows = []
    for place, (name, count) in enumerate(zip(actions["names"], actions["counts"], strict=True)):
        cells = {label: [means[place] for means in metrics] for label, metrics in shown.items()}
        rows.append([name, str(count), *(" / ".join(map(rounded, values)) for values in cells.values())])
        if peer in cells:
            pairs = zip(cells[best], cells[peer], strict=True)
            rows[-1].append(" / ".join("-" if not (a and b) else f"{a / b:.3f}" for a, b in pairs))
    return ["action", "records", *shown, *([f"{best} over the peer"] * (peer in shown))], rows


def notes(reports: Reports) -> list[str]:
    """What the numbers stand on, in sentences; each sentence once."""
    lines = [line for name, report in reports.items() for line in _notes(name, report)]
    numbers = [number for report in reports.values() for number in report["numbers"]]
    if any(number["oracle"] for number in numbers):
        lines.append("Oracle rows choose by the truth (j-agg by the annotated 2D joints): nobody can have them in use.")
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


def _notes(name: str, report: EvaluationReport) -> Iterable[str]:
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
        if actions is not None and _of_human36m(actions) and 0 in actions["counts"]:
            absent = actions["counts"].count(0)
            yield f"{key}: {absent} of the 15 actions have no record; the average is over the others."


def _estimates(reports: Reports, *groups: str | None) -> Iterable[tuple[list[str], list[dict[str, Json]]]]:
    """The names of a row (model, where there are several; protocol; estimate), and its numbers by metric over each
    group of joints; None: over all joints."""
    for model, report in reports.items():
        found: dict[tuple[str, str], list[Json]] = {}
        for number in report["numbers"]:
            found.setdefault((number["protocol"], _label(number)), []).append(number)
        for (protocol, label), numbers in found.items():
            chosen = [{n["metric"]: n for n in numbers if group_of(n["metric"]) == group} for group in groups]
            yield [*([model] * (len(reports) > 1)), protocol, label], chosen


def _names(reports: Reports) -> list[str]:
    return [*(["model"] * (len(reports) > 1)), "protocol", "estimate"]


def _label(number: Json) -> str:
    estimate = str(number["estimate"])
    return LABELS.get(estimate, estimate).format(number["hypotheses"])


def _of_human36m(actions: ActionTable) -> bool:
    return actions["names"] == list(ACTIONS)


def _joined(numbers: dict[str, Json], part: str, places: int) -> str:
    cells = [rounded(number[part], places) for number in numbers.values()]
    return "-" if all(cell == "-" for cell in cells) else " / ".join(cells)


def _count(numbers: dict[str, Json]) -> str:
    return str(max((number["count"] for number in numbers.values()), default=0))


def _mm(number: Json) -> str:
    return f"{number['value']:.1f}" + ("" if number["deviation"] is None else f" ± {number['deviation']:.1f}")
