"""Reports as tables for people and papers: Markdown, which is also what the terminal shows, and LaTeX."""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path

from di2pose.evaluation.joint_groups import Confusion
from di2pose.evaluation.paper import ACTION_HEADINGS, PAPER_ACTIONS, paper_number
from di2pose.evaluation.predictor import PEER, PEER_FLIPPED
from di2pose.evaluation.report import METRICS, EvaluationReport, Number
from di2pose.evaluation.scoring import ORACLES, headline
from di2pose.files import write_json, write_text
from di2pose.text_table import latex as latex_table
from di2pose.text_table import markdown as markdown_table

Reports = Mapping[str, EvaluationReport]
"""Name of a model -> its report; a single model may go without a name."""
Table = tuple[list[str], list[list[str]]]
"""Head and rows."""

LABELS = {
    "single": "1 sample",
    "sample": "one sample of {}",
    "p-agg": "mean of {} (p-agg)",
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
    if (table := action_table(reports))[1]:
        parts += ["## Human3.6M by action (mm)", markdown_table(*table)]
    for name, report in reports.items():
        of_model = f", {name}" if name else ""
        for protocol in report["kinds"]:
            head = f"## {protocol}{of_model}: by action (MPJPE / PA-MPJPE, mm)"
            parts += [head, markdown_table(*kind_table(report, protocol))]
        for protocol in report["spread"]:
            parts += [f"## {protocol}{of_model}: spread against error", spread_text(report, protocol)]
        for protocol, states in report["states"].items():
            counts = Confusion(tuple(map(tuple, states["counts"])))
            parts += [f"## {protocol}{of_model}: states of the joints", counts.text()]
    used = {number["metric"] for report in reports.values() for number in report["numbers"]}
    meanings = [f"- {heading}: {text}." for metric, (heading, text) in METRICS.items() if metric in used]
    parts += ["## What the numbers are", "\n".join([*meanings, *(f"- {line}" for line in notes(reports))])]
    return "\n\n".join(parts) + "\n"


def latex(reports: Reports) -> str:
    """Two tabulars for booktabs; the notes are comments."""
    parts = ["\n".join(f"% {line}" for line in notes(reports)), latex_table(*number_table(reports))]
    if (table := action_table(reports))[1]:
        parts.append(latex_table(*table))
    return "\n\n".join(parts) + "\n"


def number_table(reports: Reports) -> Table:
    """A row for each estimate under each protocol: all metrics over all joints, their ratios to the peer's, and the
    paper's numbers."""
    shown = [metric for metric in METRICS if not _of_group(metric)]
    rows = list(_estimates(reports))
    shown = [metric for metric in shown if any(metric in numbers for *_, numbers in rows)]
    ratios, papers = (
        any(number[part] is not None for *_, numbers in rows for number in numbers.values())
        for part in ("ratio", "paper")
    )
    head = ["model"] * (len(reports) > 1) + ["protocol", "estimate", *(METRICS[metric][0] for metric in shown)]
    head += ["over the peer"] * ratios + ["records"] + ["paper"] * papers
    table = []
    for model, protocol, label, numbers in rows:
        main = [number for metric, number in numbers.items() if not _of_group(metric)]
        cells = [model] * (len(reports) > 1) + [protocol, label]
        cells += [_mm(numbers[metric]) if metric in numbers else "-" for metric in shown]
        cells += [_joined(main, lambda number: _rounded(number["ratio"], 3))] * ratios
        cells += [str(max(number["count"] for number in main))]
        cells += [_joined(main, lambda number: _rounded(number["paper"], 1))] * papers
        table.append(cells)
    return head, table


def group_table(reports: Reports) -> Table:
    """The same over seen and over hidden joints, where somebody knows which are which."""
    head = ["model"] * (len(reports) > 1) + ["protocol", "estimate"]
    head += [cell for group in ("seen", "hidden") for cell in (group, "joints", "over the peer")]
    table = []
    for model, protocol, label, numbers in _estimates(reports):
        cells = [model] * (len(reports) > 1) + [protocol, label]
        for group in ("seen", "hidden"):
            mine = [number for metric, number in numbers.items() if metric.endswith(f"mpjpe_{group}")]
            cells += [_joined(mine, _mm), str(max((number["count"] for number in mine), default=0))]
            cells += [_joined(mine, lambda number: _rounded(number["ratio"], 3))]
        if any(_of_group(metric) for metric in numbers):
            table.append(cells)
    return head, table


def action_table(reports: Reports) -> Table:
    """The 15-action table: a label, 15 means in the paper's order, and their average."""
    rows: list[list[str]] = []
    for name, report in reports.items():
        for protocol, table in report["actions"].items():
            for line in table:
                hypotheses, estimate, metric = line["key"].split("/")
                label = f"{name + ', ' if name else ''}{protocol}, {METRICS[metric][0]}, "
                label += estimate_label(estimate, int(hypotheses))
                rows.append([label, *(_rounded(mean, 1) for mean in (*line["mean_mm"], line["average_mm"]))])
            paper = paper_number(protocol, table[0]["key"].split("/")[2], report["run"]["source"])
            if paper is not None:
                printed = (*PAPER_ACTIONS[protocol], paper[0])
                rows.append([f"{protocol}, paper ({paper[1]})", *(_rounded(value, 1) for value in printed)])
    return ["", *ACTION_HEADINGS, "Avg"], rows


def kind_table(report: EvaluationReport, protocol: str) -> Table:
    """A row for each action: every estimate but oracles, and the ratio of the headline to the peer."""
    table, most = report["kinds"][protocol], max(report["run"]["hypotheses"])
    shown: dict[str, list[list[float | None]]] = {}
    for key, means in table["mean_mm"].items():
        hypotheses, estimate, _ = key.split("/")
        if estimate not in (*ORACLES, PEER_FLIPPED) and int(hypotheses) in (0, most):
            shown.setdefault(f"{hypotheses}/{estimate}", []).append(means)
    peer, best = shown.get(f"0/{PEER}"), shown[f"{most}/{headline(most)}"]
    head = ["action", "records", *(estimate_label(key.split("/")[1], int(key.split("/")[0])) for key in shown)]
    rows = []
    for place, (name, count) in enumerate(zip(table["names"], table["counts"], strict=True)):
        cells = [" / ".join(_rounded(means[place], 1) for means in metrics) for metrics in shown.values()]
        rows.append([name, str(count), *cells])
        if peer is not None:
            ratios = [_ratio(a[place], b[place]) for a, b in zip(best, peer, strict=True)]
            rows[-1].append(" / ".join(_rounded(ratio, 3) for ratio in ratios))
    return (head if peer is None else [*head, f"{estimate_label(headline(most), most)} over the peer"]), rows


def spread_text(report: EvaluationReport, protocol: str) -> str:
    """Raw spread of the hypotheses against the error of their mean, by group of joints."""
    found = dict(report["spread"][protocol])
    gap = found.pop("hidden_over_seen", None)
    rows = [
        [
            group.replace("_", " "),
            str(f["joints"]),
            _rounded(f["spread_mm"], 1),
            _rounded(f["error_mm"], 1),
            _rounded(f["rank_correlation"], 3),
        ]
        for group, f in found.items()
    ]
    table = markdown_table(["raw spread", "joints", "spread, mm", "error of the mean, mm", "rank correlation"], rows)
    if gap is None:
        return table
    return (
        f"{table}\n\nHidden over seen: spread {gap['spread']:.2f}, error {gap['error']:.2f}; "
        f"the one over the other {gap['spread_over_error']:.2f}."
    )


def notes(reports: Reports) -> list[str]:
    """What the numbers stand on, in sentences; each sentence once."""
    lines: dict[str, None] = {}
    for name, report in reports.items():
        lines |= dict.fromkeys(_notes(name, report))
    numbers = [number for report in reports.values() for number in report["numbers"]]
    if any(number["oracle"] for number in numbers):
        lines["Oracle rows choose by the truth (j-agg by the annotated 2D joints): nobody can have them in use."] = None
    if any(number["paper"] is not None for number in numbers):
        lines["The paper states neither its joint set on 3DPW, nor its frame sampling, nor its hypothesis count."] = (
            None
        )
    return list(lines)


def _notes(name: str, report: EvaluationReport) -> Iterable[str]:
    run = report["run"]
    seeds = ", ".join(map(str, (run["seed"], *run["more_seeds"])))
    steps = "" if run["steps"] is None else f", {run['steps']} sampling steps"
    yield (
        f"{name + ': ' if name else ''}{run['predictor']} on {run['dataset']}{steps}, "
        f"seed{'s' * bool(run['more_seeds'])} {seeds}."
    )
    for protocol in run["protocols"]:
        sampling = protocol["sampling"]
        where = [f"every {sampling['every']} frames of each sequence" if sampling["every"] > 1 else "every record"]
        where += [f"split {sampling['split']}"] if sampling["split"] else []
        where += [f"subjects {' and '.join(sampling['subjects'])}"] if sampling["subjects"] else []
        where += ["plain people only"] * run["plain"]
        where += [f"the first {run['limit']}"] if run["limit"] else []
        yield (
            f"{protocol['id']}: {protocol['title']}; {protocol['joint_count']} joints ({protocol['joint_meaning']}), "
            f"root {' + '.join(protocol['root'])}; {', '.join(where)}; {protocol['average']}."
        )
        skipped = report["skipped"][protocol["id"]]
        if skipped:
            yield f"{protocol['id']}: {len(skipped)} records left out, first {skipped[0]['id']}: {skipped[0]['reason']}"
        actions = report["actions"].get(protocol["id"])
        absent = 0 if actions is None else actions[0]["counts"].count(0)
        if absent:
            yield f"{protocol['id']}: {absent} of the 15 actions have no record; the average is over the others."


def estimate_label(estimate: str, hypotheses: int) -> str:
    """An estimate as the tables call it."""
    return LABELS.get(estimate, estimate).format(hypotheses)


def _estimates(reports: Reports) -> Iterable[tuple[str, str, str, dict[str, Number]]]:
    """(model, protocol, estimate, its numbers by metric)."""
    for model, report in reports.items():
        key = lambda number: (number["protocol"], number["hypotheses"], number["estimate"])  # noqa: E731
        for (protocol, hypotheses, estimate), numbers in groupby(report["numbers"], key):
            label = estimate_label(estimate, hypotheses)
            yield model, protocol, label, {number["metric"]: number for number in numbers}


def _of_group(metric: str) -> bool:
    return metric.startswith(("mpjpe_", "pa_mpjpe_")) and metric != "pa_mpjpe_worst"


def _joined(numbers: Iterable[Number], text: Callable[[Number], str]) -> str:
    cells = [text(number) for number in numbers]
    return "-" if all(cell == "-" for cell in cells) else " / ".join(cells)


def _mm(number: Number) -> str:
    return f"{number['value']:.1f}" + ("" if number["deviation"] is None else f" ± {number['deviation']:.1f}")


def _rounded(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b
