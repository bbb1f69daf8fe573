"""The numbers of a run with all that they depend on: as JSON for programs, and as tables for people and papers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from di2pose import __version__
from di2pose.data.human36m import ACTIONS, action_of
from di2pose.data.sample import Dataset
from di2pose.errors import InputError
from di2pose.evaluation.paper import ACTION_HEADINGS, PAPER_ACTIONS, paper_number
from di2pose.evaluation.passes import Line
from di2pose.evaluation.protocol import Protocol
from di2pose.evaluation.scoring import ORACLE
from di2pose.evaluation.shards import write_text

METRICS = {
    "mpjpe": ("MPJPE", "mean joint distance after root alignment"),
    "pa_mpjpe": ("PA-MPJPE", "mean joint distance after similarity (Procrustes) alignment on the counted joints"),
    "mpjpe_hidden": ("MPJPE hidden", "root-aligned, joints under the patch or annotated as not visible"),
    "mpjpe_seen": ("MPJPE seen", "root-aligned, the other joints"),
    "pa_mpjpe_worst": ("PA-MPJPE, own worst", "at the placement that is worst for PA-MPJPE, not for MPJPE"),
    "clean_mpjpe": ("MPJPE clean", "the clean picture, on the joints visible at the worst placement"),
    "clean_pa_mpjpe": ("PA-MPJPE clean", "the clean picture, on the joints visible at the worst placement"),
    "degradation_mpjpe": ("MPJPE added", "worst placement minus clean, on the same visible joints"),
}
"""Metric -> heading, and what it is and how it is aligned."""


def build_report(
    run: dict[str, Any], protocols: Sequence[Protocol], dataset: Dataset, lines: dict[str, list[Line]]
) -> dict[str, Any]:
    """Everything that a run found. `lines`: protocol -> one line per record that it counts, in dataset order."""
    report: dict[str, Any] = {"format_version": 1, "program": f"di2pose {__version__}", "run": run}
    report |= {"numbers": [], "actions": {}, "skipped": {}, "records": {}}
    for protocol in protocols:
        good, skipped = _split(lines[protocol.id], protocol.id)
        if not good:
            raise InputError(
                f"protocol {protocol.id}: all {len(skipped)} records were left out: {skipped[0]['reason']}"
            )
        report["skipped"][protocol.id] = skipped
        results = [line["results"][protocol.id] for line in good]
        keys = sorted(dict.fromkeys(key for result in results for key in result["values"]), key=_order)
        values = {key: [result["values"].get(key) for result in results] for key in keys}
        rows = [line["row"] for line in good]
        report["records"][protocol.id] = {
            "ids": [line["id"] for line in good],
            "sequences": [str(dataset.column("sequence")[row]) for row in rows],
            "values": values,
        }
        if "worst_placement" in results[0]:
            report["records"][protocol.id]["worst_placement"] = [result["worst_placement"] for result in results]
        columns = [_action_column(str(dataset.column("action")[row])) for row in rows] if protocol.by_action else None
        for key, errors in values.items():
            if all(error is None for error in errors):
                continue  # e.g. no record has a hidden joint
            report["numbers"].append(_number(run, protocol, key, errors, columns))
            if columns is not None:
                table = report["actions"].setdefault(protocol.id, [])
                means, counts = _by_action(errors, columns)
                table.append(
                    {"key": key, "mean_mm": means, "counts": counts, "average_mm": report["numbers"][-1]["value"]}
                )
    return report


def _order(key: str) -> tuple[int, bool]:
    """By the number of hypotheses, oracles last; else as they come."""
    hypotheses, estimate, _ = key.split("/")
    return int(hypotheses), ORACLE[estimate]


def _action_column(action: str) -> int:
    if action_of(action) not in ACTIONS:
        raise InputError(f"'{action}' is not one of the 15 actions of Human3.6M: {', '.join(ACTIONS)}")
    return ACTIONS.index(action_of(action))


def _split(lines: list[Line], protocol: str) -> tuple[list[Line], list[dict[str, str]]]:
    good, skipped = [], []
    for line in lines:
        reason = line.get("skipped") or line["results"][protocol].get("skipped")
        if reason is None:
            good.append(line)
        else:
            skipped.append({"id": line["id"], "reason": reason})
    return good, skipped


def _number(
    run: dict[str, Any], protocol: Protocol, key: str, errors: list[float | None], columns: list[int] | None
) -> dict[str, Any]:
    hypotheses, estimate, metric = key.split("/")
    known = [error for error in errors if error is not None]
    if columns is None:
        value = float(np.mean(known))
    else:
        value = float(np.mean([mean for mean in _by_action(errors, columns)[0] if mean is not None]))
    paper = None if ORACLE[estimate] else paper_number(protocol.id, metric, run["dataset"])
    return {
        "protocol": protocol.id,
        "joints": len(protocol.joints),
        "root": " + ".join(protocol.root),
        "every": protocol.sampling.every,
        "hypotheses": int(hypotheses),
        "estimate": estimate,
        "oracle": ORACLE[estimate],
        "metric": metric,
        "meaning": METRICS[metric][1],
        "unit": "mm",
        "value": value,
        "count": len(known),
        "seed": run["seed"],
        "steps": run["steps"],
        "paper": None if paper is None else paper[0],
        "paper_source": None if paper is None else paper[1],
    }


def _by_action(errors: list[float | None], columns: list[int]) -> tuple[list[float | None], list[int]]:
    groups: list[list[float]] = [[] for _ in ACTIONS]
    for error, column in zip(errors, columns, strict=True):
        if error is not None:
            groups[column].append(error)
    return [float(np.mean(group)) if group else None for group in groups], [len(group) for group in groups]


def write_report(report: dict[str, Any], out: Path) -> None:
    """report.json, report.md and report.tex in the folder `out`."""
    write_text(out / "report.json", json.dumps(report, indent=1, allow_nan=False) + "\n")
    write_text(out / "report.md", markdown(report))
    write_text(out / "report.tex", latex(report))


HEADINGS = ("protocol", "joints", "root", "every", "estimate", "metric", "mm", "n", "seed", "paper")


def table_rows(report: dict[str, Any]) -> list[tuple[str, ...]]:
    """The numbers as text cells under HEADINGS."""
    rows: list[tuple[str, ...]] = []
    for number in report["numbers"]:
        count = number["hypotheses"]
        estimate = "1 sample" if count == 1 else f"{number['estimate']} of {count}"
        rows.append(
            (
                number["protocol"],
                str(number["joints"]),
                "mid-hips" if "+" in number["root"] else number["root"],
                str(number["every"]),
                estimate + (" (oracle)" if number["oracle"] else ""),
                METRICS[number["metric"]][0],
                _mm(number["value"]),
                str(number["count"]),
                str(number["seed"]),
                _mm(number["paper"]),
            )
        )
    return rows


def action_rows(report: dict[str, Any]) -> list[tuple[str, ...]]:
    """The 15-action table: a label, 15 means in the paper's order, and their average."""
    rows: list[tuple[str, ...]] = []
    for protocol, table in report["actions"].items():
        for line in table:
            hypotheses, estimate, metric = line["key"].split("/")
            label = f"{protocol}, {METRICS[metric][0]}, {estimate} ({hypotheses})"
            label += ", oracle" if ORACLE[estimate] else ""
            rows.append((label, *(_mm(mean) for mean in line["mean_mm"]), _mm(line["average_mm"])))
        paper = paper_number(protocol, table[0]["key"].split("/")[2], report["run"]["dataset"])
        if paper is not None:
            printed = (*PAPER_ACTIONS[protocol], paper[0])
            rows.append((f"{protocol}, paper ({paper[1]})", *(_mm(value) for value in printed)))
    return rows


def text_table(report: dict[str, Any]) -> str:
    """For the terminal."""
    blocks = [_aligned(HEADINGS, table_rows(report))]
    if report["actions"]:
        blocks.append(_aligned(("action means, mm", *ACTION_HEADINGS, "Avg"), action_rows(report)))
    return "\n\n".join([*blocks, "\n".join(notes(report))])


def notes(report: dict[str, Any]) -> list[str]:
    """What the numbers stand on, in sentences."""
    run = report["run"]
    steps = "" if run["steps"] is None else f", {run['steps']} sampling steps"
    lines = [f"{run['predictor']} on {run['dataset']}{steps}, seed {run['seed']}."]
    for protocol in run["protocols"]:
        sampling = protocol["sampling"]
        where = [f"every {sampling['every']} frames of each sequence" if sampling["every"] > 1 else "every record"]
        where += [f"split {sampling['split']}"] if sampling["split"] else []
        where += [f"subjects {' and '.join(sampling['subjects'])}"] if sampling["subjects"] else []
        lines.append(
            f"{protocol['id']}: {protocol['title']}; {protocol['joint_count']} joints ({protocol['joint_meaning']}), "
            f"root {' + '.join(protocol['root'])}; {', '.join(where)}; {protocol['average']}."
        )
        skipped = report["skipped"][protocol["id"]]
        if skipped:
            lines.append(
                f"{protocol['id']}: {len(skipped)} records left out, first {skipped[0]['id']}: {skipped[0]['reason']}"
            )
        absent = report["actions"].get(protocol["id"], [{"counts": []}])[0]["counts"].count(0)
        if absent:
            lines.append(
                f"{protocol['id']}: {absent} of the 15 actions have no record; the average is over the others."
            )
    if any(number["oracle"] for number in report["numbers"]):
        lines.append("Oracle rows choose by the truth (j-agg by the annotated 2D joints): nobody can have them in use.")
    if any(number["paper"] is not None for number in report["numbers"]):
        lines.append(
            "The paper states neither its joint set on 3DPW, nor its frame sampling, nor its hypothesis count."
        )
    return lines


def markdown(report: dict[str, Any]) -> str:
    parts = ["# Evaluation", _piped(HEADINGS, table_rows(report))]
    if report["actions"]:
        parts += ["## Human3.6M by action (mm)", _piped(("", *ACTION_HEADINGS, "Avg"), action_rows(report))]
    used = {number["metric"] for number in report["numbers"]}
    meanings = [f"- {heading}: {text}." for metric, (heading, text) in METRICS.items() if metric in used]
    parts += ["## What the numbers are", "\n".join([*meanings, *(f"- {line}" for line in notes(report))])]
    return "\n\n".join(parts) + "\n"


def latex(report: dict[str, Any]) -> str:
    """Two tabulars for booktabs; the notes are comments."""
    parts = ["\n".join(f"% {line}" for line in notes(report)), _tabular(HEADINGS, table_rows(report), "lrlrllrrrr")]
    if report["actions"]:
        parts.append(_tabular(("Methods", *ACTION_HEADINGS, "Avg"), action_rows(report), "r|" + "c" * 15 + "|c"))
    return "\n\n".join(parts) + "\n"


def _mm(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[c]) for line in (headings, *rows)) for c in range(len(headings))]
    return "\n".join(
        "  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)) for line in (headings, *rows)
    )


def _piped(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (headings, ["---"] * len(headings), *rows))


def _tabular(headings: Sequence[str], rows: Sequence[Sequence[str]], columns: str) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(cell.replace("_", r"\_").replace("%", r"\%") for cell in cells) + r" \\"

    body = [line(headings), r"\midrule", *(line(row) for row in rows)]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}"])
