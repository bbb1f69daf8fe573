"""`di2pose ablate TABLE`: methods and settings compared, each cell and seed a run of the ordinary commands."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from di2pose import __version__
from di2pose.errors import InputError
from di2pose.evaluation.protocol import parse_protocols
from di2pose.files import Json, replacing, write_json, write_text
from di2pose.reproduction import figure
from di2pose.reproduction.plan import Measure, Run, Setting, in_order, measures, train_run
from di2pose.reproduction.results import FORMAT_VERSION, Results, commit, cost_of, figures_of, to_markdown, to_text
from di2pose.reproduction.runner import Failure, command_line, run_all, told
from di2pose.reproduction.tables import REFERENCE, TABLES, Table
from di2pose.training.log import read_rows
from di2pose.training.sources import read_poses

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
    seeds: int = 3,
    recipe: str = "compare",
    protocol: str = "limb-12",
    hypotheses: str = "8",
    train: str = "",
    evaluate: str = "",
    jobs: int = 2,
    launch: str | None = None,
    device: str = "cpu",
    list_only: Annotated[bool, tyro.conf.arg(name="list")] = False,
) -> int:
    """Compare methods or settings: train and evaluate every cell of a table with several seeds, by `di2pose train` and
    `di2pose evaluate`.

    Writes OUT/TABLE.json (all figures), TABLE.md (mean and deviation over the seeds) and TABLE.png. Runs lie below
    OUT/runs and OUT/evaluations, and tables in the same OUT share those that are equal. The same command goes on after
    a stop.

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
        seeds: how many; 0, 1, ...
        recipe: the configuration to start from
        protocol: of `di2pose evaluate`, one or several with commas, for test data without its own
        hypotheses: of `di2pose evaluate`
        train: further flags of every training command, --train="--precision bfloat16"
        evaluate: further flags of every evaluation, --evaluate="--limit 1000 --plain"
        jobs: runs at a time, each with one thread
        launch: starts the training commands, e.g. "torchrun --nproc-per-node 8 -m di2pose"
        device: cpu, cuda, mps
        list_only: print the commands, one a line, in an order that works, and run nothing: for a cluster's scheduler
    """
    if table not in TABLES:
        raise InputError(f"no table is called '{table}': choose from {', '.join(TABLES)}")
    counts = {"seeds": seeds, "jobs": jobs, "iterations": iterations, "tokenizer-iterations": tokenizer_iterations}
    if wrong := {name: count for name, count in counts.items() if count is not None and count < 1}:
        raise InputError(f"these must be above 0: {', '.join(f'--{name} {count}' for name, count in wrong.items())}")
    if budget is not None and budget <= 0:
        raise InputError(f"--budget must be above 0 minutes, got {budget:g}")
    if budget is not None and iterations is not None:
        raise InputError("give --budget MINUTES or --iterations N, not both")
    alone = all(cell.stage is not None and cell.stage.what == "tokenizer" for cell in TABLES[table].cells)
    if not features and not (alone and data):
        wanted = "--data, poses to learn from" if alone else "--features, caches of `di2pose features`"
        raise InputError(f"the table {table} needs {wanted}")
    tests = _tests(test, protocol)
    setting = Setting(
        features,
        data or features,
        tests,
        _whole(tests) if TABLES[table].tokenizers else (),
        out,
        recipe,
        iterations,
        tokenizer_iterations,
        hypotheses,
        tuple(shlex.split(train)),
        tuple(shlex.split(evaluate)),
        device,
    )
    if budget is not None:
        found = _budget(setting, budget, launch, list_only)
        if isinstance(found, int):
            return found
        setting = found
    planned = list(measures(TABLES[table], range(seeds), setting))
    runs = [measure.run for measure in planned]
    if list_only:
        print(_listed(runs, launch))
        return 0
    failures, stopped = run_all(runs, out, jobs, launch)
    if stopped:
        print(f"stopped by signal {stopped}: the same command goes on")
        return 128 + stopped
    words = ["ablate", table, *(["--features", *features] if features else []), "--test", *test]
    words += ["--data", *data] if data else []
    words += ["--recipe", recipe, "--seeds", seeds, "--protocol", protocol, "--hypotheses", hypotheses]
    said = {"budget": budget, "iterations": iterations, "tokenizer-iterations": tokenizer_iterations}
    for name, value in (said | {"train": train, "evaluate": evaluate}).items():
        words += [f"--{name}={value}"] if value else []
    command = shlex.join(["di2pose", *map(str, words), "--out", str(out)])
    text = _write(table, TABLES[table], planned, failures, seeds, setting, command)
    print(f"\n{text}\nwritten: {out / table}.json, {table}.md, {table}.png")
    if failures:
        print(told(failures))
    return 1 if failures else 0


def _tests(words: Sequence[str], protocol: str) -> tuple[tuple[str, Path, str], ...]:
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


def _whole(tests: Sequence[tuple[str, Path, str]]) -> tuple[str, ...]:
    """The sets with poses of all joints to hold out; footage may know limbs only. Of several with the same poses, as
    under patches, the first: what a pose loses through tokens does not depend on the picture."""
    found: dict[bytes, str] = {}
    for name, folder, _ in tests:
        poses, splits = read_poses(folder)
        if (held_out := poses[splits == "test"]).size:
            found.setdefault(np.ascontiguousarray(held_out).tobytes(), name)
    return tuple(found.values())


def _budget(setting: Setting, minutes: float, launch: str | None, list_only: bool) -> Setting | int:
    """The setting with the iterations that the budget allows; or the exit code where they could not be measured."""
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
            print(told(failures))
            return 128 + stopped if stopped else 1
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


def _write(
    name: str,
    table: Table,
    planned: Sequence[Measure],
    failures: Sequence[Failure],
    seeds: int,
    setting: Setting,
    command: str,
) -> str:
    failed = {failure.run for failure in failures}
    good = [measure for measure in planned if measure.run not in failed]
    costs: Json = {}
    for measure in good:
        if measure.trained is not None:
            costs |= cost_of(measure)
    content: Json = {
        "format_version": FORMAT_VERSION,
        "program": f"di2pose {__version__}",
        "commit": commit(),
        "table": name,
        "title": table.title,
        "note": table.note,
        "recipe": setting.recipe,
        "iterations": setting.iterations,
        "tokenizer_iterations": setting.iterations_of("tokenizer"),
        "seeds": list(range(seeds)),
        "command": command,
        "cells": [
            {
                "name": cell.name,
                "line": cell.line,
                "x": cell.x or cell.name,
                "estimate": cell.estimate,
                "runs": sorted({m.trained.name for m in good if m.cell == cell and m.trained is not None}),
            }
            for cell in table.cells
        ],
        "runs": dict(sorted(costs.items())),
        "commands": [
            shlex.join(["di2pose", *run.words]) for group in in_order(m.run for m in planned) for run in group
        ],
        "failed": sorted(run.name for run in failed),
        "figures": [entry for measure in good for entry in figures_of(measure, peer=measure.cell.stage is None)],
    }
    results = Results(setting.out / f"{name}.json", content)
    write_text(results.path, to_text(content))
    text = to_markdown(results)
    write_text(setting.out / f"{name}.md", text)
    with replacing(setting.out / f"{name}.png") as temporary:
        figure.draw(results).save(temporary)
    return text
