"""The figures of a table: read from the runs' reports, stored as TABLE.json, shown as Markdown.

A figure's values have keys as in report.json, 'H/estimate/metric'; of a tokenizer '0/upright/mpjpe', '0/turned/mpjpe'.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev

import pandas as pd

from di2pose import checkpoint
from di2pose.errors import InputError
from di2pose.evaluation.compare import read_report
from di2pose.evaluation.predictors import PEER, PEER_FLIPPED
from di2pose.files import Json, read_json, reading
from di2pose.text_table import markdown
from di2pose.training.log import read_rows
from di2pose_experiments.plan import Measure

FORMAT_VERSION = 2
"""1 had no `run`, no `doubled`, and judged every method by an estimate of its own."""
TOKENIZER = "tokenizer"
"""In the place of a protocol: what poses lose through the tokens, all 17 joints."""
KEPT = {"single", "sample", "p-agg", "fitted", "p-best", "regression", "soft decode", PEER, PEER_FLIPPED}
"""Estimates of a report that are stored."""
HYPOTHESES = {"energy_mm": ("energy", 1.0), "coverage_90": ("coverage_90", 100.0)}
"""Figure of a report's `calibration` -> metric here, and its factor: 90 % balls hold so many per cent of the joints."""
LEFT_OUT = re.compile(r".*_(self_occluded|occluded|out_of_frame)")
DIGITS = 3
HELD_OUT = "held_out_"
"""Of a run's notes: its last validation."""
ABOUT = ["cell", "seed", "data", "protocol", "doubled"]
Seeds = dict[int, float]
"""Training seed -> value."""


@dataclass(frozen=True)
class Estimator:
    """One way to make an answer of hypotheses, or to score them all."""

    name: str
    """`{}` stands for the number of hypotheses."""
    estimates: tuple[str, ...]
    """In the keys of a figure; the first that a cell has."""
    metric: str = "mpjpe"
    judged: bool = False


SAMPLE = Estimator("one sample", ("sample", "single"), judged=True)
MEAN = Estimator("mean of {}", ("p-agg",), judged=True)
RECONSTRUCTION = Estimator("reconstruction", ("upright",), judged=True)
ESTIMATORS = (
    SAMPLE,
    MEAN,
    Estimator("soft decode", ("soft decode",), judged=True),
    Estimator("its regression", ("regression",)),
    Estimator("fitted to landmarks", ("fitted",)),
    Estimator("encoder's own 3D", (PEER_FLIPPED, PEER)),
    Estimator("best of {} (oracle)", ("p-best",)),
    Estimator("energy score", ("hypotheses",), "energy", judged=True),
    Estimator("in 90 % balls, %", ("hypotheses",), "coverage_90"),
    replace(MEAN, name="mean of {}, hidden joints", metric="mpjpe_hidden"),
    Estimator("mean of {}, PA-MPJPE", ("p-agg",), "pa_mpjpe"),
    RECONSTRUCTION,
    Estimator("turned", ("turned",)),
    Estimator("PA-MPJPE", ("upright",), "pa_mpjpe"),
    Estimator("95th percentile", ("upright",), "p95"),
    Estimator("a tenth of the tokens wrong", ("upright",), "wrong_tokens"),
    Estimator("perplexity", ("upright",), "perplexity"),
)
"""All of a table's columns, in their order."""
JUDGED = tuple(each for each in ESTIMATORS if each.judged)


@dataclass(frozen=True)
class Results:
    """A stored TABLE.json."""

    path: Path
    content: Json

    @property
    def table(self) -> str:
        return str(self.content["table"])

    @property
    def cells(self) -> list[str]:
        return [cell["name"] for cell in self.content["cells"]]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each value."""
        rows = [(*(figure[name] for name in ABOUT), int(count), estimate, metric, value)
                for figure in self.content["figures"] for key, value in figure["values"].items()
                for count, estimate, metric in (key.split("/"),)]  # fmt: skip
        columns = [*ABOUT, "hypotheses", "estimate", "metric", "value"]
        return pd.DataFrame(rows, columns=columns).astype({"value": float})

    def sets(self) -> list[tuple[str, str]]:
        """(data, protocol) of all figures, in order."""
        return list(dict.fromkeys((figure["data"], figure["protocol"]) for figure in self.content["figures"]))

    def of(self, cell: str, data: str, protocol: str) -> list[Json]:
        """The figures of all seeds, without those of twice the length."""
        wanted = (cell, data, protocol, False)
        return [f for f in self.content["figures"] if (f["cell"], f["data"], f["protocol"], f["doubled"]) == wanted]

    def _rows(self, data: str, protocol: str, estimator: Estimator) -> pd.DataFrame:
        found = self.frame.query("data == @data and protocol == @protocol and metric == @estimator.metric")
        return found[found["estimate"].isin(estimator.estimates)]

    def counts(self, data: str, protocol: str, estimator: Estimator) -> list[int]:
        """Numbers of hypotheses for which there are such figures, ascending."""
        return sorted(self._rows(data, protocol, estimator)["hypotheses"].unique().tolist())

    def values(
        self, data: str, protocol: str, estimator: Estimator, count: int | None = None, doubled: bool = False
    ) -> dict[str, Seeds]:
        """Cell -> seed -> value; of `count` hypotheses, or of most. `doubled`: of the runs of twice the length."""
        rows = self._rows(data, protocol, estimator).query("doubled == @doubled")
        rows = rows if count is None else rows.query("hypotheses == @count")
        rows = rows.assign(place=[estimator.estimates.index(each) for each in rows["estimate"]])
        rows = rows.sort_values(["place", "hypotheses"], ascending=[True, False]).drop_duplicates(["cell", "seed"])
        by_cell = {cell: part.set_index("seed")["value"].sort_index() for cell, part in rows.groupby("cell")}
        return {cell: by_cell[cell].to_dict() for cell in self.cells if cell in by_cell}

    def length(self, protocol: str) -> str:
        """'8000 iterations'."""
        count = self.content["tokenizer_iterations" if protocol == TOKENIZER else "iterations"]
        return "the recipe's epochs" if count is None else f"{count} iterations"


def read_results(path: Path) -> Results:
    advice = "expected a TABLE.json of `di2pose ablate`"
    with reading(path, advice):
        results = Results(path, read_json(path, advice))
        if results.content["format_version"] != FORMAT_VERSION:
            raise InputError(f"{path} has format {results.content['format_version']}, expected {FORMAT_VERSION}")
        if results.frame["value"].isna().any() or not {"title", "command", "cells"} <= results.content.keys():
            raise InputError(f"{path} lacks a value, title, command or cells: {advice}")
    return results


def figures_of(measure: Measure) -> list[Json]:
    """What a finished run measured: an entry for each protocol. Of BlazePose's cell only its own estimates."""
    about = {"cell": measure.cell.name, "seed": measure.seed, "data": measure.data}
    about |= {"run": measure.run.name, "doubled": measure.doubled}
    if measure.run.out.suffix == ".json":
        found = json.loads(measure.run.out.read_text(encoding="utf-8"))
        values = {f"0/{way}/{name.removesuffix('_mm')}": round(value, DIGITS) for way in ("upright", "turned")
                  for name, value in found[way].items() if isinstance(value, float)}  # fmt: skip
        return [{**about, "protocol": TOKENIZER, "source": Path(found["data"]).name, "values": values}]
    report: Json = read_report(measure.run.out)
    peer = measure.cell.stage is None
    entries: dict[str, Json] = {}
    for number in report["numbers"]:
        estimate, protocol = number["estimate"], number["protocol"]
        if estimate not in ((PEER, PEER_FLIPPED) if peer else KEPT) or LEFT_OUT.fullmatch(number["metric"]):
            continue
        new = {**about, "protocol": protocol, "source": report["run"]["source"], "values": {}}
        entry, key = entries.setdefault(protocol, new), f"{number['hypotheses']}/{estimate}/{number['metric']}"
        entry["values"][key] = round(number["value"], DIGITS)
        if number.get("interval"):
            entry.setdefault("intervals", {})[key] = [round(bound, DIGITS) for bound in number["interval"]]
    calibration: Json = {} if peer else report.get("calibration", {})
    for protocol, counts in calibration.items():
        for count, groups in counts.items():
            for group in ("all", "seen", "hidden"):
                for part, (metric, scale) in HYPOTHESES.items():
                    value: float | None = groups.get(group, {}).get(part)
                    if value is not None:
                        name = metric if group == "all" else f"{metric}_{group}"
                        entries[protocol]["values"][f"{count}/hypotheses/{name}"] = round(scale * value, DIGITS)
    return list(entries.values())


def cost_of(measure: Measure) -> Json:
    """Length, time and last validation of the runs of a cell: a line for each of its stages."""
    assert measure.trained is not None
    found = {}
    for run in (*measure.trained.needs, measure.trained):
        notes, rows = checkpoint.read_notes(run.out / "model"), read_rows(run.out / "metrics.jsonl")
        held = {key.removeprefix(HELD_OUT): round(float(value), 5) for key, value in notes.items()
                if key.startswith(HELD_OUT)}  # fmt: skip
        seconds = rows[-1]["seconds"] if rows else 0.0
        found[run.name] = {"iterations": notes["iteration"], "seconds": seconds, "held_out": held}
    return found


def to_text(content: Json) -> str:
    """JSON with a line for each figure."""
    lines = ",\n".join(f"  {json.dumps(figure)}" for figure in content["figures"])
    head = json.dumps({key: value for key, value in content.items() if key != "figures"}, indent=1)
    return f'{head.removesuffix("}").rstrip()},\n "figures": [\n{lines}\n ]\n}}\n'


def spread(values: Iterable[float], digits: int = 1) -> str:
    """Mean ± deviation over the seeds."""
    several = list(values)
    if not several:
        return "-"
    mean = f"{fmean(several):.{digits}f}"
    return f"{mean} ± {stdev(several):.{digits}f}" if len(several) > 1 else mean


def made_by(content: Json) -> str:
    """Recipe, length, seeds and commit of the runs."""
    steps, others = content["iterations"], content["tokenizer_iterations"]
    length = "the recipe's epochs" if steps is None else f"{steps} iterations of every stage"
    length += f" (tokenizers {others})" if others != steps else ""
    twice = f", seeds {', '.join(map(str, content['double']))} also twice as long" if content.get("double") else ""
    return f"Recipe {content['recipe']}, {length}, {len(content['seeds'])} seeds{twice}, commit {content['commit']}"


def to_markdown(results: Results) -> str:
    """A table for each set of test data and protocol, mean ± deviation over the seeds."""
    content = results.content
    lines = [f"# {content['title']}", f"{made_by(content)}. mm; mean ± deviation over the training seeds."]
    lines += [content["note"]] if content["note"] else []
    for data, protocol in results.sets():
        lines += [f"## {data}: {protocol}", table_of(results, data, protocol)]
    if content["failed"]:
        lines.append("Failed, and not in the tables: " + ", ".join(content["failed"]) + ".")
    return "\n\n".join([*lines, f"```\n{content['command']}\n```\n"])


def table_of(results: Results, data: str, protocol: str) -> str:
    """A row for each cell, a column for each estimator (the mean for each number of hypotheses), and the 95 % bootstrap
    interval of the mean over the records."""
    columns: dict[str, dict[str, str]] = {}
    for estimator in ESTIMATORS:
        counts = results.counts(data, protocol, estimator)
        for count in counts if estimator is MEAN else counts[-1:]:
            values = results.values(data, protocol, estimator, count)
            columns[estimator.name.format(count)] = {cell: spread(each.values()) for cell, each in values.items()}
    intervals = {cell: _interval(results.of(cell, data, protocol)) for cell in results.cells}
    columns["95 % over records"] = {cell: text for cell, text in intervals.items() if text}
    frame = pd.DataFrame(columns, results.cells).dropna(how="all").dropna(axis=1, how="all").fillna("-")
    return markdown(["", *frame.columns], frame.reset_index().to_numpy().tolist())


def _interval(figures: Iterable[Json]) -> str:
    """'98 to 104': of the mean of most hypotheses, its ends' means over the seeds."""
    bounds = []
    for figure in figures:
        keys = [key for key in figure.get("intervals", {}) if key.endswith("/p-agg/mpjpe")]
        if keys:
            bounds.append(figure["intervals"][max(keys, key=lambda key: int(key.split("/")[0]))])
    return "{:.0f} to {:.0f}".format(*map(fmean, zip(*bounds, strict=True))) if bounds else ""
