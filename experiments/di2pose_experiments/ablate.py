"""`di2pose ablate TABLE`: methods and settings compared, each cell and seed a run of the ordinary commands."""

import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from di2pose import __version__
from di2pose.errors import InputError
from di2pose.evaluation.protocol import parse_protocols
from di2pose.files import Json, write_json, write_text
from di2pose.training.log import read_rows
from di2pose_experiments.plan import Measure, Run, Setting, TestSet, in_order, measures, train_run
from di2pose_experiments.plot import save_plot
from di2pose_experiments.results import FORMAT_VERSION, Results, cost_of, figures_of, read_results, to_markdown, to_text
from di2pose_experiments.runner import Outcome, command_line, run_all
from di2pose_experiments.tables import REFERENCE, TABLES, Table

TIMED, WARM = 60, 20
"""Iterations by which a stage's speed is measured, the first of which do not count."""


def ablate(
    table: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TABLE", help=f"one of {', '.join(TABLES)}")],
    test: tuple[str, ...],
    out: Path,
    features: tuple[Path, ...] = (),
    data: tuple[Path, ...] = (),
    budget: float | None = None,
    iterations: int | None = None,
    tokenizer_iterations: int | None = None,
    seeds: str = "5",
    double: tuple[int, ...] = (),
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
        budget: minutes for all stages of one run of the reference, our model: what it can do in them is the number of
            iterations of every stage of every cell. Its speed is measured first, and kept in OUT/budget.json
        iterations: of every stage of every cell, instead of a budget; with neither, the recipe's epochs
        tokenizer_iterations: of every tokenizer, which sees poses alone and learns them cheaply; left out: as many as
            the other stages
        seeds: how many, 0, 1, ...; or which, 2-4. A table keeps the seeds that it has
        double: seeds that are also trained for twice the length, to see whether the length decides
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
    if table not in TABLES:
        raise InputError(f"no table is called '{table}': choose from {', '.join(TABLES)}, or add one to tables.py")
    compared, wanted = TABLES[table], _seeds(seeds)
    counts = {"jobs": jobs, "iterations": iterations, "tokenizer-iterations": tokenizer_iterations, "budget": budget}
    if wrong := {name: count for name, count in counts.items() if count is not None and count <= 0}:
        raise InputError(f"these must be above 0: {', '.join(f'--{name} {count}' for name, count in wrong.items())}")
    if budget is not None and iterations is not None:
        raise InputError("give --budget MINUTES or --iterations N, not both")
    if not features and not (compared.of_tokenizers and data):
        needed = "--data, poses to learn from" if compared.of_tokenizers else "--features, caches of `di2pose features`"
        raise InputError(f"the table {table} needs {needed}")
    if not re.fullmatch(r"(\d+(,\d+)*)?", steps):
        raise InputError(f"--steps takes numbers with commas, e.g. 4,100; got {steps}")
    setting = Setting(
        features, data or features, _tests(test, protocol), out, recipe, iterations, tokenizer_iterations,
        hypotheses, tuple(int(word) for word in steps.split(",") if word), tuple(shlex.split(train)),
        tuple(shlex.split(evaluate)), device,
    )  # fmt: skip
    words = ["ablate", table, *(["--features", *features] if features else []), "--test", *test]
    words += [*(["--data", *data] if data else []), *(["--double", *double] if double else [])]
    words += ["--recipe", recipe, "--seeds", seeds, "--protocol", protocol, "--hypotheses", hypotheses]
    given: dict[str, object] = {"budget": budget, "iterations": iterations}
    given |= {"tokenizer-iterations": tokenizer_iterations, "steps": steps, "train": train, "evaluate": evaluate}
    words += [f"--{name}={value}" for name, value in given.items() if value]
    command = shlex.join(["di2pose", *map(str, words), "--out", str(out)])
    if budget is not None:
        count, failed = _iterations(setting, budget, launch, list_only)
        if failed is not None:
            print(failed.text)
            return failed.code
        setting = replace(setting, iterations=count)
    file = TableFile(table, compared, setting, command)
    runs = file.plan(wanted, double)
    if list_only:
        print(_listed(runs, launch))
        return 0
    outcome = run_all(runs, out, jobs, launch, file.finished)
    file.failed = sorted({run.name for run in outcome.failures})
    text = file.write_all()
    if not outcome.stopped:
        print(f"\n{text}\nwritten: {out / table}.json, {table}.md, {table}.png")
    print(outcome.text)
    return outcome.code


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

    def __post_init__(self) -> None:
        self.path = self.setting.out / f"{self.name}.json"
        self.old: Json = read_results(self.path).content if self.path.is_file() else {}
        for entry in self.old.get("figures", []):
            self.figures.setdefault(f"{entry['cell']}: {entry['run']}", []).append(entry)
        self.costs: Json = self.old.get("runs", {})

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
        commits = [*(self.old["commit"].split(", ") if self.old else []), _commit()]
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
            "said": self.old.get("said", {}),
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


def _seeds(text: str) -> range:
    """'5': 0 to 4; '2-4': those."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)", text)
    first, last = (int(match[1] or 0), int(match[2]) - (match[1] is None)) if match else (0, -1)
    if last < first:
        raise InputError(f"--seeds takes how many, above 0, or which, as in 2-4; got {text}")
    return range(first, last + 1)


def _tests(words: Sequence[str], protocol: str) -> tuple[TestSet, ...]:
    found = {}
    for word in words:
        name, _, rest = word.partition("=")
        folder, _, own = rest.partition("@")
        if not name or not folder or name in found:
            raise InputError(f"--test takes NAME=DIR, each name once, e.g. clean=features/test; got {' '.join(words)}")
        if not Path(folder).is_dir():
            raise InputError(f"--test {folder} is no folder: expected a feature cache or a prepared dataset")
        parse_protocols(own or protocol)
        found[name] = name, Path(folder), own or protocol
    return tuple(found.values())


def _iterations(
    setting: Setting, minutes: float, launch: str | None, list_only: bool
) -> tuple[int, Outcome | None]:
    """How many of every stage the budget allows; the outcome of the runs that measure the speed, where they failed."""
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
        outcome = run_all(runs, timing.out, 1, launch)
        if outcome.code:
            return 0, outcome
        known[key] = {"seconds_per_iteration": {run.words[1]: _speed(run) for run in runs}}
        write_json(path, known)
    count = max(1, round(60 * minutes / sum(known[key]["seconds_per_iteration"].values())))
    print(f"# {minutes:g} minutes are {count} iterations of every stage ({path})", flush=True)
    return count, None


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


def _commit() -> str:
    """Of the code that runs: git's where it is in a repository, else the package's version."""
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"di2pose {__version__}"
