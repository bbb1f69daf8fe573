"""`di2pose ablate TABLE`: methods and settings compared, each cell and seed a run of the ordinary commands."""

import json
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from di2pose import __version__, checkpoint
from di2pose.errors import InputError
from di2pose.evaluation.protocol import parse_protocols
from di2pose.files import Json, write_json, write_text
from di2pose.training.log import read_rows
from di2pose_experiments.plan import Measure, Run, Setting, TestSet, in_order, measured, measures, train_run
from di2pose_experiments.plot import save_plot
from di2pose_experiments.results import (
    FORMAT_VERSION,
    HELD_OUT,
    Estimator,
    Results,
    commit,
    cost_of,
    figures_of,
    read_results,
    to_markdown,
    to_text,
)  # fmt: skip
from di2pose_experiments.runner import command_line, failure_text, run_all
from di2pose_experiments.tables import REFERENCE, TABLES, Cell, Stage, Table, read_cells

TIMED, WARM = 60, 20
"""Iterations by which a stage's speed is measured, the first of which do not count."""
SEARCHED = 0.25
"""Share of the iterations for which a learning rate is tried."""


def ablate(
    table: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TABLE", help=f"one of {', '.join(TABLES)}")],
    test: tuple[str, ...],
    out: Path,
    features: tuple[Path, ...] = (),
    data: tuple[Path, ...] = (),
    cells: Path | None = None,
    budget: float | None = None,
    iterations: int | None = None,
    tokenizer_iterations: int | None = None,
    seeds: str = "5",
    double: tuple[int, ...] = (),
    learning_rates: str = "",
    validate: str = "",
    recipe: str = "compare",
    protocol: str = "limb-12",
    hypotheses: str = "8",
    steps: str = "",
    train: str = "",
    evaluate: str = "",
    jobs: int = 2,
    launch: str | None = None,
    device: str = "cpu",
    list_only: Annotated[bool, tyro.conf.arg(name="list")] = False,
) -> int:
    """Compare methods or settings: train and evaluate every cell of a table with several seeds, by `di2pose train` and
    `di2pose evaluate`.

    Writes OUT/TABLE.json (all figures; anew whenever a cell is measured), TABLE.md (mean and deviation over the seeds)
    and TABLE.png. Runs lie below OUT/runs and OUT/evaluations, and tables in the same OUT share those that are equal.
    The same command goes on after a stop, and figures that OUT/TABLE.json holds already are not made again.

    Args:
        features: caches of `di2pose features`, as for `train denoiser`; a table of tokenizers alone needs none
        test: NAME=DIR, one or several: feature caches or prepared datasets to measure on; NAME=DIR@PROTOCOL,PROTOCOL
            where one has protocols of its own
        out: folder of all runs and results
        data: poses for the tokenizers, as for `train tokenizer`; left out: those of --features
        cells: TOML file with the cells of a table of your own, which is then called TABLE
        budget: minutes for all stages of one run of the reference, our model: what it can do in them is the number of
            iterations of every stage of every cell. Its speed is measured first, and kept in OUT/budget.json
        iterations: of every stage of every cell, instead of a budget; with neither, the recipe's epochs
        tokenizer_iterations: of every tokenizer, which sees poses alone and learns them cheaply; left out: as many as
            the other stages
        seeds: how many, 0, 1, ...; or which, 2-4. A table keeps the seeds that it has
        double: seeds that are also trained for twice the length, to see whether the length decides
        learning_rates: with commas; each is tried for the last stage of every cell with seed 0 and a quarter of the
            iterations, and all seeds take the one with the least error on --validate. Left out: the recipe's
        validate: NAME=DIR or NAME=DIR@PROTOCOL, one: what learning rates are chosen by. Left out: the last validation
            of each training, on those records of the training data that are not of split 'train'
        recipe: the configuration to start from
        protocol: of `di2pose evaluate`, one or several with commas, for test data without its own
        hypotheses: of `di2pose evaluate`, one or several with commas
        steps: reverse steps to measure with, one or several with commas; with all but the first only the fewest
            hypotheses are drawn. Left out: the recipe's own
        train: further flags of every training command, --train="--precision bfloat16"
        evaluate: further flags of every evaluation, --evaluate="--limit 1000 --plain"
        jobs: runs at a time, each with one thread
        launch: starts the training commands, e.g. "torchrun --nproc-per-node 8 -m di2pose"
        device: cpu, cuda, mps
        list_only: print the commands, one a line, in an order that works, and run nothing: for a cluster's scheduler
    """
    if cells is not None and table in TABLES:
        raise InputError(f"'{table}' is one of the tables that there are: call that of --cells {cells} otherwise")
    if cells is None and table not in TABLES:
        raise InputError(f"no table is called '{table}': choose from {', '.join(TABLES)}")
    compared = TABLES[table] if cells is None else read_cells(cells)
    wanted = _seeds(seeds)
    counts = {"jobs": jobs, "iterations": iterations, "tokenizer-iterations": tokenizer_iterations}
    if wrong := {name: count for name, count in counts.items() if count is not None and count < 1}:
        raise InputError(f"these must be above 0: {', '.join(f'--{name} {count}' for name, count in wrong.items())}")
    if budget is not None and budget <= 0:
        raise InputError(f"--budget must be above 0 minutes, got {budget:g}")
    if budget is not None and iterations is not None:
        raise InputError("give --budget MINUTES or --iterations N, not both")
    if not features and not (compared.of_tokenizers and data):
        needed = "--data, poses to learn from" if compared.of_tokenizers else "--features, caches of `di2pose features`"
        raise InputError(f"the table {table} needs {needed}")
    setting = Setting(
        features, data or features, _tests("--test", test, protocol), out, recipe, iterations, tokenizer_iterations,
        hypotheses, tuple(_numbers(steps, "--steps", int)), tuple(shlex.split(train)), tuple(shlex.split(evaluate)),
        device,
    )  # fmt: skip
    validation = _tests("--validate", (validate,), protocol) if validate else ()
    rates = _numbers(learning_rates, "--learning-rates", float)
    words = ["ablate", table, *(["--features", *features] if features else []), "--test", *test]
    words += [*(["--data", *data] if data else []), *(["--double", *double] if double else [])]
    words += ["--recipe", recipe, "--seeds", seeds, "--protocol", protocol, "--hypotheses", hypotheses]
    given: dict[str, object] = {"cells": cells, "budget": budget, "iterations": iterations}
    given |= {"tokenizer-iterations": tokenizer_iterations, "learning-rates": learning_rates, "validate": validate}
    given |= {"steps": steps, "train": train, "evaluate": evaluate}
    words += [f"--{name}={value}" for name, value in given.items() if value]
    command = shlex.join(["di2pose", *map(str, words), "--out", str(out)])
    try:
        if budget is not None:
            setting = _budget(setting, budget, launch, list_only)
        file = TableFile(table, compared, setting, command)
        if rates:
            _search(file, rates, validation, jobs, launch, list_only)
    except _Ended as ended:
        return ended.code
    runs = file.plan(wanted, double)
    if list_only:
        print(_listed(runs, launch))
        return 0
    failures, stopped = run_all(runs, out, jobs, launch, file.finished)
    file.failed = sorted({failure.run.name for failure in failures})
    text = file.write_all()
    if stopped:
        print(f"stopped by signal {stopped}: the same command goes on")
        return 128 + stopped
    print(f"\n{text}\nwritten: {out / table}.json, {table}.md, {table}.png")
    if failures:
        print(failure_text(failures))
    return 1 if failures else 0


class _Ended(Exception):
    """The command ends here with this exit code; what was to be said is printed."""

    def __init__(self, code: int) -> None:
        self.code = code


@dataclass
class TableFile:
    """OUT/TABLE.json as it grows: what it holds is kept, and not measured again."""

    name: str
    table: Table
    setting: Setting
    command: str
    planned: list[Measure] = field(default_factory=list)
    figures: dict[str, list[Json]] = field(default_factory=dict)
    """Cell and run of the evaluation -> its entries, one for each protocol."""
    failed: list[str] = field(default_factory=list)
    said: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path = self.setting.out / f"{self.name}.json"
        self.old: Json = read_results(self.path).content if self.path.is_file() else {}
        for entry in self.old.get("figures", []):
            self.figures.setdefault(f"{entry['cell']}: {entry['run']}", []).append(entry)
        self.said, self.costs = self.old.get("said", {}), self.old.get("runs", {})

    def plan(self, seeds: Sequence[int], double: Sequence[int]) -> list[Run]:
        """The runs of these seeds that are yet to be measured; the file keeps the seeds that it has."""
        every = sorted({*seeds, *self.old.get("seeds", ())})
        twice = sorted({*double, *self.old.get("double", ())})
        self.planned = list(measures(self.table, every, self.setting, twice))
        if self.figures and not any(measure.key in self.figures for measure in self.planned):
            raise InputError(
                f"{self.path} holds figures of other settings: move it away, or choose another --out. It was made by "
                f"{self.old['command']}"
            )
        now = {(seed, False) for seed in seeds} | {(seed, True) for seed in double}
        return [measure.run for measure in self.planned
                if (measure.seed, measure.doubled) in now and measure.key not in self.figures]  # fmt: skip

    def finished(self, run: Run) -> None:
        if not run.trains:
            self.write()

    def write(self) -> Results:
        """With all that is finished."""
        figures: list[Json] = []
        trained: list[Run] = []
        for measure in self.planned:
            key = measure.key
            if key not in self.figures and measure.run.finished():
                self.figures[key] = figures_of(measure)
                if measure.trained is not None and measure.trained.name not in self.costs:
                    self.costs |= cost_of(measure)
            if key in self.figures:
                figures += self.figures[key]
                trained += [] if measure.trained is None else [*measure.trained.needs, measure.trained]
        commits = [*(self.old["commit"].split(", ") if self.old else []), commit()]
        content: Json = {
            "format_version": FORMAT_VERSION,
            "program": f"di2pose {__version__}",
            "commit": ", ".join(dict.fromkeys(commits)),
            "table": self.name,
            "title": self.table.title,
            "note": self.table.note,
            "recipe": self.setting.recipe,
            "iterations": self.setting.iterations,
            "tokenizer_iterations": self.setting.iterations_of("tokenizer"),
            "seeds": sorted({figure["seed"] for figure in figures}),
            "double": sorted({figure["seed"] for figure in figures if figure["doubled"]}),
            "command": self.command,
            "said": self.said,
            "cells": [{"name": cell.name, "line": cell.line, "x": cell.x or cell.name} for cell in self.table.cells],
            "runs": {name: self.costs[name] for name in sorted({run.name for run in trained})},
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
        text = to_markdown(results)
        write_text(self.path.with_suffix(".md"), text)
        save_plot(results, self.path.with_suffix(".png"))
        return text


def _search(
    file: TableFile,
    rates: Sequence[float],
    validation: Sequence[TestSet],
    jobs: int,
    launch: str | None,
    list_only: bool,
) -> None:
    """Try the learning rates for the last stage of every cell, and give each cell the best."""
    tried: dict[Stage, dict[float, Run]] = {}
    for cell in file.table.cells:
        if cell.stage is None:
            continue
        short = replace(file.setting.times(SEARCHED, last=cell.stage.what), tests=tuple(validation))
        tried[cell.stage] = {rate: _tried(cell, _at(cell.stage, rate), short) for rate in rates}
    known = {each["run"]: each["mm"] for search in file.said.get("learning_rates", {}).values()
             for each in search["tried"].values()}  # fmt: skip
    runs = [run for each in tried.values() for run in each.values() if run.name not in known]
    if list_only and not all(run.finished() for run in runs):
        print(f"{_listed(runs, launch)}\n# learning rates: the same command then lists the rest")
        raise _Ended(0)
    failures, stopped = run_all(runs, file.setting.out, jobs, launch) if runs else ([], 0)
    if stopped:
        print(f"stopped by signal {stopped}: the same command goes on")
        raise _Ended(128 + stopped)
    best: dict[Stage, float] = {}
    file.said = {"learning_rates": {}}
    failed = {failure.run for failure in failures}
    for stage, each in tried.items():
        mm = {rate: known.get(run.name) or _error(run) for rate, run in each.items() if run not in failed}
        if not mm:
            print(failure_text(failures))
            raise _Ended(1)
        best[stage] = min(mm, key=lambda rate: mm[rate])
        names = " and ".join(cell.name for cell in file.table.cells if cell.stage == stage)
        figures = {f"{rate:g}": {"run": run.name, "mm": mm.get(rate)} for rate, run in each.items()}
        file.said["learning_rates"][names] = {"chosen": best[stage], "tried": figures}
    cells = (cell if cell.stage is None else replace(cell, stage=_at(cell.stage, best[cell.stage]))
             for cell in file.table.cells)  # fmt: skip
    file.table = replace(file.table, cells=tuple(cells))


def _at(stage: Stage, rate: float) -> Stage:
    return replace(stage, flags=(*stage.flags, "--learning-rate", f"{rate:g}"))


def _tried(cell: Cell, stage: Stage, setting: Setting) -> Run:
    """The run by whose error a learning rate is chosen: an evaluation on --validate, else the training."""
    return next((measure.run for measure in measured(cell, stage, 0, setting)), None) or train_run(stage, 0, setting)


def _error(run: Run) -> float:
    """Of a training, MPJPE of its last validation; of an evaluation, MPJPE of the mean of most hypotheses."""
    if run.trains:
        return round(float(checkpoint.read_notes(run.out / "model")[f"{HELD_OUT}mm"]), 3)
    content = {"cells": [{"name": ""}], "figures": figures_of(Measure(Cell("", REFERENCE), 0, "", run, None))}
    results = Results(run.out, content)
    return results.values(*results.sets()[0], Estimator("", ("p-agg", "single", "upright")))[""][0]


def _seeds(text: str) -> range:
    """'5': 0 to 4; '2-4': those."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)", text)
    first, last = (int(match[1] or 0), int(match[2]) - (match[1] is None)) if match else (0, -1)
    if last < first:
        raise InputError(f"--seeds takes how many, above 0, or which, as in 2-4; got {text}")
    return range(first, last + 1)


def _numbers(text: str, flag: str, kind: type) -> list:
    try:
        found = [kind(word) for word in text.split(",") if word]
    except ValueError:
        found = [0]
    if not all(0 < number < math.inf for number in found):
        raise InputError(f"{flag} takes numbers above 0 with commas, got {text}")
    return found


def _tests(flag: str, words: Sequence[str], protocol: str) -> tuple[TestSet, ...]:
    found = {}
    for word in words:
        name, _, rest = word.partition("=")
        folder, _, own = rest.partition("@")
        if not name or not folder or name in found:
            raise InputError(f"{flag} takes NAME=DIR, each name once, e.g. clean=features/test; got {' '.join(words)}")
        if not Path(folder).is_dir():
            raise InputError(f"{flag} {folder} is no folder: expected a feature cache or a prepared dataset")
        parse_protocols(own or protocol)
        found[name] = name, Path(folder), own or protocol
    return tuple(found.values())


def _budget(setting: Setting, minutes: float, launch: str | None, list_only: bool) -> Setting:
    """The setting with the iterations that the budget allows."""
    path = setting.out / "budget.json"
    key = shlex.join([setting.recipe, setting.device, *setting.train])
    known: dict[str, Json] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if key not in known:
        if list_only:
            raise InputError(
                f"--list cannot tell how many iterations {minutes:g} minutes are: {path} has no measured speed of "
                f"'{key}'. Give --iterations N, or start the table once without --list"
            )
        timing = replace(setting, out=setting.out / "timing", iterations=TIMED, tokenizer_iterations=None)
        timing = replace(timing, train=(*timing.train, "--log-every", str(WARM)))
        last = train_run(REFERENCE, 0, timing)
        runs = [*last.needs, last]
        print(f"measuring the training speed of recipe {setting.recipe}", flush=True)
        failures, stopped = run_all(runs, timing.out, 1, launch)
        if failures or stopped:
            print(failure_text(failures))
            raise _Ended(128 + stopped if stopped else 1)
        known[key] = {"seconds_per_iteration": {run.words[1]: _speed(run) for run in runs}}
        write_json(path, known)
    seconds = sum(known[key]["seconds_per_iteration"].values())
    count = max(1, round(60 * minutes / seconds))
    print(f"# {minutes:g} minutes are {count} iterations of every stage ({path})", flush=True)
    return replace(setting, iterations=count)


def _speed(run: Run) -> float:
    rows = {int(row["iteration"]): row["seconds"] for row in read_rows(run.out / "metrics.jsonl")}
    return max(1e-4, (rows[TIMED] - rows[WARM]) / (TIMED - WARM))


def _listed(runs: Sequence[Run], launch: str | None) -> str:
    groups = in_order(runs)
    lines = []
    for number, group in enumerate(groups, start=1):
        lines.append(f"# group {number} of {len(groups)}" + (": when all above are done" if number > 1 else ""))
        lines += [shlex.join(command_line(run, launch)) for run in group]
    return "\n".join([*lines, "# then the same command without --list: it finds them finished, and writes the table"])
