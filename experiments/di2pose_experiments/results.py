"""The figures of a table: read from the runs' reports, stored as TABLE.json, shown as Markdown.

A figure's values have keys as in report.json, 'H/estimate/metric'; of a tokenizer '0/upright/mpjpe', '0/turned/mpjpe'.
"""

import json
import math
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pandas as pd
from safetensors import safe_open

from di2pose import __version__, checkpoint
from di2pose.errors import InputError
from di2pose.evaluation.compare import read_report
from di2pose.evaluation.predictors import PEER, PEER_FLIPPED
from di2pose.evaluation.protocol import PROTOCOLS
from di2pose.files import Json, reading
from di2pose.text_table import markdown
from di2pose.training.log import read_rows
from di2pose_experiments.plan import Measure, Run
from di2pose_experiments.tables import BLAZEPOSE

FORMAT_VERSION = 2
"""1 had no `run`, no `doubled`, and judged every method by an estimate of its own."""
TOKENIZER = "tokenizer"
"""In the place of a protocol: what poses lose through the tokens, all 17 joints."""
PLAIN = ("p-agg", "single", "upright", PEER_FLIPPED, PEER)
KEPT = {*PLAIN, "sample", "fitted", "p-best", "regression", "soft decode", "turned"}
HYPOTHESES = {"energy_mm": ("energy", 1.0), "coverage_90": ("coverage_90", 100.0)}
"""Figure of a report's `calibration` -> metric here, and its factor: 90 % balls hold so many per cent of the joints."""
LEFT_OUT = re.compile(r".*_(self_occluded|occluded|out_of_frame)")
DIGITS, RESAMPLES = 3, 2000
HELD_OUT = "held_out_"
"""Of a run's notes: its last validation."""
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
        about = ("cell", "seed", "data", "protocol", "doubled")
        rows = [(*(figure[name] for name in about), int(count), estimate, metric, value)
                for figure in self.content["figures"] for key, value in figure["values"].items()
                for count, estimate, metric in (key.split("/"),)]  # fmt: skip
        return pd.DataFrame(rows, columns=[*about, "hypotheses", "estimate", "metric", "value"])

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
        rows = rows.assign(place=rows["estimate"].map(estimator.estimates.index))
        rows = rows.sort_values(["place", "hypotheses"], ascending=[True, False]).drop_duplicates(["cell", "seed"])
        wide = rows.pivot(index="seed", columns="cell", values="value")
        return {cell: wide[cell].dropna().to_dict() for cell in self.cells if cell in wide}

    def length(self, protocol: str) -> str:
        """'8000 iterations'."""
        count = self.content["tokenizer_iterations" if protocol == TOKENIZER else "iterations"]
        return "the recipe's epochs" if count is None else f"{count} iterations"


def read_results(path: Path) -> Results:
    """A file of `di2pose ablate`, checked."""
    with reading(path, "expected a TABLE.json of `di2pose ablate`"):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format_version"] != FORMAT_VERSION:
            raise InputError(f"{path} has format {content['format_version']}, expected {FORMAT_VERSION}")
        kinds: dict[str, type] = dict.fromkeys(("table", "title", "note", "recipe", "command", "commit"), str)
        kinds |= dict.fromkeys(("cells", "figures", "seeds", "failed"), list) | dict.fromkeys(("said", "runs"), dict)
        for key, kind in kinds.items():
            if not isinstance(content[key], kind):
                raise TypeError(f"{key} is no {kind.__name__}")
        for figure in content["figures"]:
            if lacking := {"cell", "seed", "data", "protocol", "run", "doubled"} - figure.keys():
                raise TypeError(f"a figure lacks its {', '.join(sorted(lacking))}")
            if not all(isinstance(value, float | int) and math.isfinite(value) for value in figure["values"].values()):
                raise TypeError(f"a value of {figure['cell']} is no number")
    return Results(path, content)


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
    peer = measure.cell.method == BLAZEPOSE
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
        if PROTOCOLS[protocol].by_action and estimate in PLAIN:
            table = report["actions"][protocol]
            entry["actions"] = dict(zip(table["names"], table["mean_mm"][key], strict=True))
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


def cost_of(run: Run) -> Json:
    """What a training saw and took."""
    model = run.out / "model"
    notes, rows = checkpoint.read_notes(model), read_rows(run.out / "metrics.jsonl")
    last = rows[-1] if rows else {"epoch": 0.0, "seconds": 0.0}
    return {
        "iterations": notes["iteration"],
        "records_seen": round(last["epoch"] * notes["crops" if "crops" in notes else "poses"]),
        "parameters": {path.stem: _numbers_in(path) for path in sorted(model.glob("*.safetensors"))},
        "seconds": last["seconds"],
        "held_out": {key.removeprefix(HELD_OUT): round(value, 5) for key, value in notes.items()
                     if key.startswith(HELD_OUT)},
    }  # fmt: skip


def _numbers_in(weights: Path) -> int:
    with safe_open(weights, "pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def commit() -> str:
    """Of the code that runs: git's where it is in a repository, else the package's version."""
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"di2pose {__version__}"


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
    lines = [f"# {content['title']}", "", f"{made_by(content)}. mm; mean ± deviation over the training seeds."]
    lines += ["", content["note"]] if content["note"] else []
    for data, protocol in results.sets():
        lines += ["", f"## {data}: {protocol}", "", table_of(results, data, protocol)]
    for cell, search in content["said"].get("learning_rates", {}).items():
        tried = ", ".join(f"{rate}: {each['mm']} mm" for rate, each in search["tried"].items())
        lines += ["", f"Learning rate of {cell}: {search['chosen']} (held out, at a quarter of the length: {tried})."]
    if content["failed"]:
        lines += ["", "Failed, and not in the tables: " + ", ".join(content["failed"]) + "."]
    return "\n".join([*lines, "", "```", content["command"], "```", ""])


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


def differences(measures: Sequence[Measure]) -> str:
    """Markdown: the MPJPE of each cell's mean of most hypotheses minus that of the first cell, of the same records and
    seeds, with the 95 % interval of a bootstrap over records. Of those runs whose reports are still there."""
    errors: dict[tuple[str, str], dict[str, pd.DataFrame]] = defaultdict(lambda: defaultdict(pd.DataFrame))
    for measure in measures:
        if measure.doubled or not (measure.run.out / "report.json").is_file():
            continue
        for protocol, records in read_report(measure.run.out)["records"].items():
            keys = [key for key in records["values"] if key.endswith("/p-agg/mpjpe")]
            if keys:
                most = max(keys, key=lambda key: int(key.split("/")[0]))
                column = pd.Series(records["values"][most], records["ids"], float)
                errors[measure.data, protocol][measure.cell.name][measure.seed] = column
    rows = []
    for (data, protocol), (first, *others) in ((pair, list(cells.items())) for pair, cells in errors.items()):
        for cell, other in others:
            gaps = (other - first[1]).dropna(axis=1, how="all").mean(axis=1).dropna().to_numpy()
            if not len(gaps):
                continue
            drawn = np.random.default_rng(0).integers(len(gaps), size=(RESAMPLES, len(gaps)))
            low, high = np.quantile(gaps[drawn].mean(axis=1), (0.025, 0.975))
            rows.append([f"{data}: {protocol}", f"{cell} - {first[0]}", f"{gaps.mean():+.2f}",
                         f"{low:+.2f} to {high:+.2f}", str(len(gaps))])  # fmt: skip
    return markdown(["", "MPJPE, mean", "mm", "95 %, paired by record", "records"], rows) if rows else ""
