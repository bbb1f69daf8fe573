"""`di2pose ablate TABLE`: methods and settings compared, each cell and seed a run of the ordinary commands."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated

import tyro

from di2pose import __version__, checkpoint
from di2pose.errors import InputError
from di2pose.files import Json, write_json, write_text
from di2pose.training.log import read_rows
from di2pose_experiments.plan import Measure, Options, Run, in_order, measured, measures, numbers, training
from di2pose_experiments.plot import save_plot
from di2pose_experiments.results import (
    FORMAT_VERSION,
    HELD_OUT,
    Estimator,
    Results,
    commit,
    cost_of,
    differences,
    figures_of,
    read_results,
    to_markdown,
    to_text,
)  # fmt: skip
from di2pose_experiments.runner import command_line, failure_text, run_all
from di2pose_experiments.tables import BLAZEPOSE, TABLES, Cell, Table, read_cells

TIMED, WARM = 60, 20
"""Iterations by which a stage's speed is measured, the first of which do not count."""
SEARCHED = 0.25
"""Share of the iterations for which a learning rate is tried."""


def ablate(
    table: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TABLE", help=f"one of {', '.join(TABLES)}")],
    options: Annotated[Options, tyro.conf.arg(name="")],
) -> int:
    """Compare methods or settings: train and evaluate every cell of a table with several seeds, by `di2pose train` and
    `di2pose evaluate`.

    Writes OUT/TABLE.json (all figures; anew whenever a cell is measured), TABLE.md (mean and deviation over the seeds)
    and TABLE.png. Runs lie below OUT/runs and OUT/evaluations, and tables in the same OUT share those that are equal.
    The same command goes on after a stop, and figures that OUT/TABLE.json holds already are not made again.
    """
    if options.cells is not None and table in TABLES:
        raise InputError(f"'{table}' is one of the tables that there are: give that of --cells another name")
    if options.cells is None and table not in TABLES:
        raise InputError(f"no table is called '{table}': choose from {', '.join(TABLES)}")
    compared = TABLES[table] if options.cells is None else read_cells(options.cells)
    if not options.features and not (compared.of_tokenizers and options.data):
        needed = "--data, poses to learn from" if compared.of_tokenizers else "--features, caches of `di2pose features`"
        raise InputError(f"the table {table} needs {needed}")
    if not options.tests:
        raise InputError("nothing to measure on: give --test NAME=DIR")
    seeds, rates = _seeds(options.seeds), numbers(options.learning_rates, "--learning-rates", float)
    if options.budget is not None:
        if options.iterations is not None:
            raise InputError("give --budget MINUTES or --iterations N, not both")
        options = replace(options, iterations=_iterations_in(options.budget, options))
    file = TableFile(table, compared, options)
    if rates and (code := _search(file, rates)) is not None:
        return code
    runs = file.plan(seeds)
    if options.list_only:
        print(_listed(runs, options.launch))
        return 0
    failures, stopped = run_all(runs, options, file.finished)
    file.failed = sorted(run.name for run in failures)
    text = file.write_all()
    if stopped:
        return _say_stopped(stopped)
    print(f"\n{text}\nwritten: {file.path}, {table}.md, {table}.png")
    if failures:
        print(failure_text(failures))
    return 1 if failures else 0


@dataclass
class TableFile:
    """OUT/TABLE.json as it grows: what it holds is kept, and not measured again."""

    name: str
    table: Table
    options: Options
    planned: list[Measure] = field(default_factory=list)
    figures: dict[str, list[Json]] = field(default_factory=dict)
    """Measure.key -> its entries, one for each protocol."""
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path = self.options.out / f"{self.name}.json"
        self.old: Json = read_results(self.path).content if self.path.is_file() else {}
        for entry in self.old.get("figures", []):
            self.figures.setdefault(f"{entry['cell']}: {entry['run']}", []).append(entry)
        self.said, self.costs = self.old.get("said", {}), self.old.get("runs", {})

    def plan(self, seeds: Sequence[int]) -> list[Run]:
        """The runs of these seeds that are yet to be measured; the file keeps the seeds that it has."""
        double = self.options.double
        every = sorted({*seeds, *self.old.get("seeds", ())})
        twice = sorted({*double, *self.old.get("double", ())})
        self.planned = list(measures(self.table, every, self.options, twice))
        if self.figures and not any(measure.key in self.figures for measure in self.planned):
            raise InputError(
                f"{self.path} holds figures of other settings: move it away, or choose another --out. It was made by "
                f"{self.old['command']}"
            )
        unmeasured = (measure for measure in self.planned if measure.key not in self.figures)
        return [measure.run for measure in unmeasured if measure.seed in (double if measure.doubled else seeds)]

    def finished(self, run: Run) -> None:
        if not run.trains:
            self.write()

    def write(self) -> Results:
        """With all that is finished."""
        figures: list[Json] = []
        trained: set[str] = set()
        for measure in self.planned:
            if measure.key not in self.figures and measure.run.finished():
                self.figures[measure.key] = figures_of(measure)
                self.costs |= {run.name: cost_of(run) for run in measure.trainings if run.name not in self.costs}
            if measure.key in self.figures:
                figures += self.figures[measure.key]
                trained |= {run.name for run in measure.trainings}
        commits = [*(self.old["commit"].split(", ") if self.old else []), commit()]
        content: Json = {
            "format_version": FORMAT_VERSION,
            "program": f"di2pose {__version__}",
            "commit": ", ".join(dict.fromkeys(commits)),
            "table": self.name,
            "title": self.table.title,
            "note": self.table.note,
            "recipe": self.options.recipe,
            "iterations": self.options.iterations,
            "tokenizer_iterations": self.options.iterations_of("tokenizer"),
            "adapter_iterations": self.options.adapter_iterations,
            "seeds": sorted({figure["seed"] for figure in figures}),
            "double": sorted({figure["seed"] for figure in figures if figure["doubled"]}),
            "command": _command(self.name, self.options),
            "said": self.said,
            "cells": [{"name": cell.name, "line": cell.line, "x": cell.x or cell.name} for cell in self.table.cells],
            "runs": {name: self.costs[name] for name in sorted(trained & self.costs.keys())},
            "commands": [shlex.join(["di2pose", *run.words]) for group in in_order(m.run for m in self.planned)
                         for run in group],
            "failed": self.failed,
            "figures": figures,
        }  # fmt: skip
        write_text(self.path, to_text(content))
        return Results(self.path, content)

    def write_all(self) -> str:
        """The file, its Markdown, which is returned, and its plot."""
        results = self.write()
        text = "\n\n".join(filter(None, (to_markdown(results), differences(self.planned))))
        write_text(self.path.with_suffix(".md"), text)
        save_plot(results, self.path.with_suffix(".png"))
        return text


def _search(file: TableFile, rates: Sequence[float]) -> int | None:
    """Try the learning rates for every training of the table, and give each cell the best. Returns the exit code where
    the command ends here."""
    options = file.options
    cells = [cell for cell in file.table.cells if cell.method != BLAZEPOSE]
    sharing: dict[str, list[Cell]] = {}
    for cell in cells:
        sharing.setdefault(training(cell, 0, options).name, []).append(cell)
    tried = {" and ".join(cell.name for cell in same): {rate: _trial(same[-1], rate, options) for rate in rates}
             for same in sharing.values()}  # fmt: skip
    known = {each["run"]: each["mm"] for search in file.said.get("learning_rates", {}).values()
             for each in search["tried"].values()}  # fmt: skip
    runs = [run for each in tried.values() for run in each.values() if run.name not in known]
    if options.list_only and not all(run.finished() for run in runs):
        print(f"{_listed(runs, options.launch)}\n# learning rates: the same command then lists the rest")
        return 0
    failures, stopped = run_all(runs, options) if runs else ({}, 0)
    if stopped:
        return _say_stopped(stopped)
    file.said = {"learning_rates": {}}
    for names, each in tried.items():
        mm = {rate: known.get(run.name) or _error(run) for rate, run in each.items() if run not in failures}
        if not mm:
            print(failure_text(failures))
            return 1
        figures = {f"{rate:g}": {"run": run.name, "mm": mm.get(rate)} for rate, run in each.items()}
        file.said["learning_rates"][names] = {"chosen": min(mm, key=lambda rate: mm[rate]), "tried": figures}
    best = {cell.name: search["chosen"] for same, search in
            zip(sharing.values(), file.said["learning_rates"].values(), strict=True) for cell in same}  # fmt: skip
    new = (replace(cell, learning_rate=best.get(cell.name, cell.learning_rate)) for cell in file.table.cells)
    file.table = replace(file.table, cells=tuple(new))
    return None


def _trial(cell: Cell, rate: float, options: Options) -> Run:
    """The run by whose error a learning rate is chosen: an evaluation on --validate, else the training."""
    cell, short = replace(cell, learning_rate=rate), options.times(SEARCHED, only=cell.method)
    if not options.validate:
        return training(cell, 0, short)
    return next(measured(cell, 0, replace(short, test=(options.validate,)))).run


def _error(run: Run) -> float:
    """Of a training, MPJPE of its last validation; of an evaluation, MPJPE of the mean of most hypotheses."""
    if run.trains:
        return round(float(checkpoint.read_notes(run.out / "model")[f"{HELD_OUT}mm"]), 3)
    content = {"cells": [{"name": ""}], "figures": figures_of(Measure(Cell(""), 0, "", run))}
    results = Results(run.out, content)
    return results.values(*results.sets()[0], Estimator("", ("p-agg", "single", "upright")))[""][0]


def _iterations_in(minutes: float, options: Options) -> int:
    """What our model does of every stage in so many minutes."""
    path, key = options.out / "budget.json", shlex.join([options.recipe, options.device, *shlex.split(options.train)])
    known: dict[str, Json] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if key not in known:
        if options.list_only:
            raise InputError(
                f"--list cannot tell how many iterations {minutes:g} minutes are: {path} has no measured speed of "
                f"'{key}'. Give --iterations N, or start the table once without --list"
            )
        print(f"measuring the training speed of recipe {options.recipe}", flush=True)
        timing = replace(options, out=options.out / "timing", iterations=TIMED, tokenizer_iterations=None, jobs=1,
                         adapter_iterations=None,
                         train=f"{options.train} --log-every {WARM}")  # fmt: skip
        last = training(Cell("reference"), 0, timing)
        failures, stopped = run_all([last], timing)
        if stopped:
            raise KeyboardInterrupt
        if failures:
            raise InputError(f"the training speed cannot be measured{failure_text(failures)}")
        known[key] = {"seconds_per_iteration": {run.words[1]: _speed(run) for run in (*last.needs, last)}}
        write_json(path, known)
    count = max(1, round(60 * minutes / sum(known[key]["seconds_per_iteration"].values())))
    print(f"# {minutes:g} minutes are {count} iterations of every stage ({path})", flush=True)
    return count


def _speed(run: Run) -> float:
    rows = {int(row["iteration"]): row["seconds"] for row in read_rows(run.out / "metrics.jsonl")}
    return max(1e-4, (rows[TIMED] - rows[WARM]) / (TIMED - WARM))


def _seeds(text: str) -> range:
    """'5': 0 to 4; '2-4': those."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)", text)
    first, last = (int(match[1] or 0), int(match[2]) - (match[1] is None)) if match else (0, -1)
    if last < first:
        raise InputError(f"--seeds takes how many, above 0, or which, as in 2-4; got {text}")
    return range(first, last + 1)


def _command(table: str, options: Options) -> str:
    """The command that makes the table, without what does not change its figures."""
    words = ["di2pose", "ablate", table]
    for each in fields(options):
        value = getattr(options, each.name)
        if value and each.name not in ("out", "jobs", "launch", "device", "list_only", "budget"):
            flag = f"--{each.name.replace('_', '-')}"
            words += [flag, *map(str, value)] if isinstance(value, tuple) else [f"{flag}={value}"]
    return shlex.join([*words, "--out", str(options.out)])


def _listed(runs: Sequence[Run], launch: str | None) -> str:
    groups = in_order(runs)
    lines = []
    for number, group in enumerate(groups, start=1):
        lines.append(f"# group {number} of {len(groups)}" + (": when all above are done" if number > 1 else ""))
        lines += [shlex.join(command_line(run, launch)) for run in group]
    return "\n".join([*lines, "# then the same command without --list: it finds them finished, and writes the table"])


def _say_stopped(number: int) -> int:
    print(f"stopped by signal {number}: the same command goes on")
    return 128 + number
