"""The figures of a table: read from the runs' reports, kept as JSON, shown as Markdown.

A figure's values are keyed as in report.json, 'H/estimate/metric'; of a tokenizer '0/upright/mpjpe', '0/turned/mpjpe'.
"""

import json
import math
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import cast

from safetensors import safe_open

from di2pose import __version__, checkpoint
from di2pose.errors import InputError
from di2pose.evaluation.compare import read_report
from di2pose.evaluation.predictor import PEER, PEER_FLIPPED
from di2pose.evaluation.protocol import PROTOCOLS
from di2pose.evaluation.report import METRICS
from di2pose.files import Json
from di2pose.reproduction.plan import Measure
from di2pose.text_table import markdown
from di2pose.training.log import read_rows

FORMAT_VERSION = 1
TOKENIZER = "tokenizer"
"""In the place of a protocol: what poses lose through the tokens, all 17 joints."""
HEADLINES = ("p-agg", "single", "upright", PEER_FLIPPED, PEER)
"""The estimate that stands for a cell: the first of these that it has."""
KEPT = {*HEADLINES, "sample", "fitted", "p-best", "regression", "soft decode", "turned"}
HYPOTHESES = {"energy_mm": ("energy", 1.0), "coverage_90": ("coverage_90", 100.0)}
"""Figures of all the hypotheses together in a report's `calibration`, where it has them: the metric's name here, and
what it is multiplied by: 90 % balls hold so many per cent of the joints."""
LEFT_OUT = re.compile(r".*_(self_occluded|occluded|out_of_frame)")
DIGITS = 3
HELD_OUT = "held_out_"
"""Of a run's notes: its last validation."""

Seeds = dict[int, float]
"""Training seed -> value."""
Columns = dict[str, tuple[str, list[str]]]
"""Heading -> metric, and the estimates to take it of; none: the cell's own."""
BESIDE: Columns = {
    "soft decode": ("mpjpe", ["soft decode"]),
    "its regression": ("mpjpe", ["regression"]),
    "one sample": ("mpjpe", ["sample"]),
    "best (oracle)": ("mpjpe", ["p-best"]),
    "energy score": ("energy", ["hypotheses"]),
    "in 90 % balls, %": ("coverage_90", ["hypotheses"]),
}
"""What stands beside the headline: MPJPE of what a method can say without drawing, and of its hypotheses."""


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

    def sets(self) -> list[tuple[str, str]]:
        """(data, protocol) of all figures, in order."""
        return list(dict.fromkeys((figure["data"], figure["protocol"]) for figure in self.content["figures"]))

    def of(self, cell: str, data: str, protocol: str) -> list[Json]:
        """The entries of all seeds."""
        wanted = (cell, data, protocol)
        return [f for f in self.content["figures"] if (f["cell"], f["data"], f["protocol"]) == wanted]

    def told(self, cell: str, data: str, protocol: str, metric: str) -> str:
        """The headline, mean ± deviation over the seeds."""
        return spread(self.headline(cell, data, protocol, metric).values()) or "-"

    def told_of(self, cell: str, data: str, protocol: str, columns: Columns) -> list[str]:
        """A row: mean ± deviation over the seeds, and where there is one the interval over the records."""
        found = []
        for metric, estimates in columns.values():
            mean = spread(self.headline(cell, data, protocol, metric, estimates).values())
            found.append(f"{mean} {self._interval(cell, data, protocol, metric, estimates)}".strip())
        return found

    def headline(self, cell: str, data: str, protocol: str, metric: str, estimates: Sequence[str] = ()) -> Seeds:
        """The estimate that stands for the cell, or the first of those asked for; of most hypotheses. It is the
        method's own, but where hypotheses are fitted to landmarks: what is not drawn is not, so there it is their mean.
        """
        found: Seeds = {}
        for figure in self.of(cell, data, protocol):
            if key := self._key(cell, figure, metric, estimates):
                found[figure["seed"]] = figure["values"][key]
        return found

    def _key(self, cell: str, figure: Json, metric: str, estimates: Sequence[str]) -> str | None:
        own = [each["estimate"] for each in self.content["cells"] if each["name"] == cell and each["estimate"]]
        values = figure["values"]
        fitted = any("/fitted/" in key for key in values)
        order = [*(estimates or ([] if fitted else own)), *(() if estimates else HEADLINES)]
        keys = [key.split("/") for key in values if key.endswith(f"/{metric}")]
        ranked = [(order.index(e), -int(n), f"{n}/{e}/{m}") for n, e, m in keys if e in order]
        return min(ranked)[2] if ranked else None

    def _interval(self, cell: str, data: str, protocol: str, metric: str, estimates: Sequence[str]) -> str:
        """'(98 to 104)': the mean over the seeds of the 95 % bootstrap intervals over the records."""
        bounds = [
            figure["intervals"][key]
            for figure in self.of(cell, data, protocol)
            if (key := self._key(cell, figure, metric, estimates)) in figure.get("intervals", {})
        ]
        return "({:.0f} to {:.0f})".format(*map(fmean, zip(*bounds, strict=True))) if bounds else ""


def read_results(path: Path) -> Results:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format_version"] != FORMAT_VERSION:
            raise InputError(f"{path} has format {content['format_version']}, expected {FORMAT_VERSION}")
        for key, kind in (("table", str), ("cells", list), ("figures", list), ("recipe", str), ("command", str)):
            if not isinstance(content[key], kind):
                raise TypeError(f"{key} is no {kind.__name__}")
        for figure in content["figures"]:
            if not {"cell", "seed", "data", "protocol"} <= figure.keys():
                raise TypeError("a figure lacks its cell, seed, data or protocol")
            if not all(isinstance(value, float | int) and math.isfinite(value) for value in figure["values"].values()):
                raise TypeError(f"a value of {figure['cell']} is no number")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a TABLE.json of `di2pose ablate`, or damaged: {error!r}") from error
    return Results(path, content)


def figures_of(measure: Measure, peer: bool) -> list[Json]:
    """What a finished run measured: an entry for each protocol. Of the peer's cell only what the peer says."""
    about = {"cell": measure.cell.name, "seed": measure.seed, "data": measure.data}
    if measure.run.out.suffix == ".json":
        found = json.loads(measure.run.out.read_text(encoding="utf-8"))
        values = {
            f"0/{way}/{name.removesuffix('_mm')}": round(value, DIGITS)
            for way in ("upright", "turned")
            for name, value in found[way].items()
            if isinstance(value, float)
        }
        return [{**about, "protocol": TOKENIZER, "source": Path(found["data"]).name, "values": values}]
    report = read_report(measure.run.out)
    entries: dict[str, Json] = {}
    for number in report["numbers"]:
        hypotheses, estimate, metric = number["hypotheses"], number["estimate"], number["metric"]
        told = estimate in (PEER, PEER_FLIPPED) if peer else estimate in KEPT
        if not told or LEFT_OUT.fullmatch(metric):
            continue
        protocol = number["protocol"]
        new = {**about, "protocol": protocol, "source": report["run"]["source"], "values": {}}
        entry, key = entries.setdefault(protocol, new), f"{hypotheses}/{estimate}/{metric}"
        entry["values"][key] = round(number["value"], DIGITS)
        if number.get("interval"):
            entry.setdefault("intervals", {})[key] = [round(bound, DIGITS) for bound in number["interval"]]
        if PROTOCOLS[protocol].by_action and estimate in (
            [measure.cell.estimate] if measure.cell.estimate else HEADLINES
        ):
            table = report["actions"][protocol]
            entry["actions"] = dict(zip(table["names"], table["mean_mm"][key], strict=True))
    calibration: Json = {} if peer else cast(Json, report).get("calibration", {})
    for protocol, counts in calibration.items():
        for count, groups in counts.items():
            for group in ("all", "seen", "hidden"):
                for part, (metric, scale) in HYPOTHESES.items():
                    value: float | None = groups.get(group, {}).get(part)
                    if value is None:
                        continue
                    name = metric if group == "all" else f"{metric}_{group}"
                    entries[protocol]["values"][f"{count}/hypotheses/{name}"] = round(scale * value, DIGITS)
    return list(entries.values())


def cost_of(measure: Measure) -> Json:
    """What the runs of a cell saw and took: a line for each of its stages."""
    assert measure.trained is not None
    found = {}
    for run in (*measure.trained.needs, measure.trained):
        model = run.out / "model"
        notes, rows = checkpoint.read_notes(model), read_rows(run.out / "metrics.jsonl")
        last = rows[-1] if rows else {"epoch": 0.0, "seconds": 0.0}
        found[run.name] = {
            "iterations": notes["iteration"],
            "records_seen": round(last["epoch"] * notes["crops" if "crops" in notes else "poses"]),
            "parameters": {path.stem: _numbers_in(path) for path in sorted(model.glob("*.safetensors"))},
            "seconds": last["seconds"],
            "held_out": {key.removeprefix(HELD_OUT): round(value, 5) for key, value in notes.items()
                         if key.startswith(HELD_OUT)},
        }
    return found


def _numbers_in(weights: Path) -> int:
    with safe_open(weights, "pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def commit() -> str:
    """Of the code that runs: git's where it lies in a repository, else the package's version."""
    done = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() if done.returncode == 0 else f"di2pose {__version__}"


def to_text(content: Json) -> str:
    """JSON with a line for each figure: small, and a change is a line."""
    lines = ",\n".join(f"  {json.dumps(figure)}" for figure in content["figures"])
    head = json.dumps({key: value for key, value in content.items() if key != "figures"}, indent=1)
    return f'{head.removesuffix("}").rstrip()},\n "figures": [\n{lines}\n ]\n}}\n'


SPREAD = "mean ± deviation over the training seeds (and 95 % bootstrap interval over the records)"


def spread(values: Iterable[float], digits: int = 1) -> str:
    """Mean ± deviation over the seeds."""
    several = list(values)
    if not several:
        return ""
    mean = f"{fmean(several):.{digits}f}"
    return f"{mean} ± {stdev(several):.{digits}f}" if len(several) > 1 else mean


def made_by(content: Json) -> str:
    """Recipe, length, seeds and commit of the runs."""
    steps, others = content["iterations"], content.get("tokenizer_iterations")
    length = "the recipe's epochs" if steps is None else f"{steps} iterations of every stage"
    length += f" (tokenizers {others})" if others not in (None, steps) else ""
    return f"Recipe {content['recipe']}, {length}, {len(content['seeds'])} seeds, commit {content['commit']}"


def to_markdown(results: Results) -> str:
    """A table for each set of test data and protocol, mean ± deviation over the seeds."""
    content = results.content
    lines = [f"# {content['title']}", "", f"{made_by(content)}. mm; {SPREAD}."]
    lines += ["", content["note"]] if content["note"] else []
    for data, protocol in results.sets():
        columns: Columns = {}
        if protocol == TOKENIZER:
            columns = {"MPJPE turned": ("mpjpe", ["turned"])}
        columns |= {METRICS[m][0] if m in METRICS else m.replace("_", " "): (m, [])
                    for m in _metrics(results, data, protocol)}  # fmt: skip
        lines += ["", f"## {data}: {protocol}", "", table_of(results, data, protocol, columns | BESIDE)]
    if content["failed"]:
        lines += ["", "Failed, and not in the tables: " + ", ".join(content["failed"]) + "."]
    return "\n".join([*lines, "", "```", content["command"], "```", ""])


def table_of(results: Results, data: str, protocol: str, columns: Columns, corner: str = "") -> str:
    """A row for each cell; columns that no cell has are left out."""
    rows = [[cell, *results.told_of(cell, data, protocol, columns)] for cell in results.cells]
    head = [corner, *columns]
    kept = [k for k in range(len(head)) if k == 0 or any(row[k] for row in rows)]
    return markdown([head[k] for k in kept], [[row[k] or "-" for k in kept] for row in rows])


def _metrics(results: Results, data: str, protocol: str) -> list[str]:
    """Metrics that the headline estimates have; those of unknown kinds last."""
    known = ["mpjpe", "pa_mpjpe", "mpjpe_seen", "mpjpe_hidden", "p95", "wrong_tokens", "perplexity", "pck", "auc"]
    found = {
        key.split("/")[2]
        for cell in results.cells
        for figure in results.of(cell, data, protocol)
        for key in figure["values"]
        if key.split("/")[1] in HEADLINES
    }
    others = sorted(m for m in found - set(known) if "mpjpe" not in m and protocol != TOKENIZER)
    return [metric for metric in known if metric in found] + others
