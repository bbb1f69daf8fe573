"""From a table to commands: every run of `di2pose train` and `di2pose evaluate`, each once, in an order that works."""

import hashlib
import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import tyro

from di2pose import checkpoint, recipes
from di2pose.config import Config, to_json, without_later
from di2pose.data.feature_cache import FeatureCache
from di2pose.errors import InputError
from di2pose.evaluation.protocol import parse_protocols
from di2pose.model import Recipe, TokenRecipe, kind_of
from di2pose.training.options import StageOptions, overridden
from di2pose_experiments.tables import BLAZEPOSE, PCT_TOKENIZER, Cell, Settings, Table, of_tokenizer

BASELINES_RECIPE = "compare"
"""The baselines' own recipes have its size."""
TRUNK = ("width", "layers", "heads", "mlp_ratio", "adapter_layers", "adapter_width", "adapter_channels",
         "adapter_tokens", "adapter_dropout")  # fmt: skip
TRAINING = ("learning_rate", "betas", "weight_decay", "batch", "epochs", "warmup", "clip", "ema")
"""What a baseline with our trunk takes over from the denoiser of any other recipe."""
REGRESSION: Settings = {"adapter_width": 480, "adapter_channels": 16, "adapter_dropout": 0.0}
"""Gives the regression, an adapter alone, about as many parameters as the other models of `compare`."""
TestSet = tuple[str, Path, str]
"""Name, folder and protocols."""


@dataclass(frozen=True)
class Options:
    """Flags of `di2pose ablate`: what all cells of a table have in common."""

    test: tuple[str, ...]
    """NAME=DIR, one or several: feature caches or prepared datasets to measure on; NAME=DIR@PROTOCOL,PROTOCOL where one
    has protocols of its own"""
    out: Path
    """folder of all runs and results"""
    features: tuple[Path, ...] = ()
    """caches of `di2pose features`, as for `train denoiser`; a table of tokenizers alone needs none"""
    data: tuple[Path, ...] = ()
    """poses for the tokenizers, as for `train tokenizer`; left out: those of --features"""
    cells: Path | None = None
    """TOML file with the cells of a table of your own, which is then called TABLE"""
    budget: float | None = None
    """minutes for all stages of our model; what it does in them is the number of iterations of every stage of every
    cell. Its speed is measured first, and kept in OUT/budget.json"""
    iterations: int | None = None
    """of every stage of every cell, instead of a budget; with neither, the recipe's epochs"""
    tokenizer_iterations: int | None = None
    """of every tokenizer, which sees poses alone and learns them cheaply; left out: as many as the other stages"""
    adapter_iterations: int | None = None
    """of an adapter of each seed, trained first; methods that have one then share it and keep it as it is, as the paper
    keeps its backbone. The regression, an adapter itself, learns for as long as both stages. Left out: each method
    trains its own along"""
    seeds: str = "5"
    """how many, 0, 1, ...; or which, 2-4. A table keeps the seeds that it has"""
    double: tuple[int, ...] = ()
    """seeds that are also trained for twice the length, to see whether the length decides; a shared adapter is kept"""
    learning_rates: str = ""
    """with commas; each is tried for the last stage of every cell with seed 0 and a quarter of the iterations, and all
    seeds take the one with the least error on --validate. Left out: the recipe's"""
    validate: str = ""
    """NAME=DIR or NAME=DIR@PROTOCOL, one: what learning rates are chosen by. Left out: the last validation"""
    recipe: str = "compare"
    """model, sizes and training of every cell, where its settings say nothing else"""
    protocol: str = "limb-12"
    """protocols of the test data, with commas"""
    hypotheses: str = "8"
    """numbers of samples to measure with, with commas"""
    steps: str = ""
    """numbers of reverse steps, with commas; for all but the first only the fewest hypotheses are drawn. Left out: the
    recipe's own"""
    train: str = ""
    """further flags of every training command, --train="--precision bfloat16\""""
    evaluate: str = ""
    """further flags of every evaluation, --evaluate="--limit 1000 --plain\""""
    jobs: int = 2
    """runs at a time, each with one thread"""
    launch: str | None = None
    """starts the training commands, e.g. "torchrun --nproc-per-node 8 -m di2pose\""""
    device: str = "cpu"
    """cpu, cuda, mps"""
    list_only: Annotated[bool, tyro.conf.arg(name="list")] = False
    """print the commands, one a line, in an order that works, and run nothing: for a cluster's scheduler"""

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in ("jobs", "budget", "iterations", "tokenizer_iterations",
                                                           "adapter_iterations")}  # fmt: skip
        if wrong := [name for name, count in counts.items() if count is not None and count <= 0]:
            raise InputError(f"these must be above 0: --{', --'.join(wrong).replace('_', '-')}")
        if self.recipe not in recipes.RECIPES:
            raise InputError(f"no recipe is called '{self.recipe}': choose from {', '.join(recipes.RECIPES)}")
        if self.budget is None and self.iterations is None and (self.double or self.learning_rates):
            raise InputError("--double and --learning-rates need --iterations N or --budget MINUTES")

    @cached_property
    def config(self) -> Config:
        """The recipe's."""
        config: Config = getattr(recipes, self.recipe)()
        return config

    @cached_property
    def tests(self) -> list[TestSet]:
        """Those of --test."""
        names = [word.partition("=")[0] for word in self.test]
        found = []
        for name, word in zip(names, self.test, strict=True):
            folder, _, own = word.partition("=")[2].partition("@")
            if not name or not folder or names.count(name) > 1:
                given = " ".join(self.test)
                raise InputError(f"test data is NAME=DIR, each name once, e.g. clean=features/test; got {given}")
            if not Path(folder).is_dir():
                raise InputError(f"{folder} is no folder: expected a feature cache or a prepared dataset")
            parse_protocols(own or self.protocol)
            found.append((name, Path(folder), own or self.protocol))
        return found

    @cached_property
    def step_counts(self) -> list[int]:
        return numbers(self.steps, "--steps", int)

    def iterations_of(self, what: str) -> int | None:
        """Of a stage."""
        if what == "adapter":
            return self.adapter_iterations
        if what == "model regression" and self.iterations and self.adapter_iterations:  # as many records as both stages
            stages = self.config.denoiser_training, self.config.adapter_training
            return self.adapter_iterations + self.iterations * stages[0].batch // stages[1].batch
        return self.tokenizer_iterations or self.iterations if what == "tokenizer" else self.iterations

    def times(self, factor: float, only: str = "") -> "Options":
        """With all stages but a shared adapter so many times as long; with `only` (tokenizer or another method) its
        last stage."""
        tokenizer, others = (max(1, round(factor * (self.iterations_of(what) or 0))) for what in ("tokenizer", ""))
        if only == "tokenizer":
            return replace(self, tokenizer_iterations=tokenizer)
        if only:
            return replace(self, iterations=others, tokenizer_iterations=self.iterations_of("tokenizer"))
        return replace(self, iterations=others, tokenizer_iterations=tokenizer)


def numbers(text: str, flag: str, kind: Callable[[str], Any]) -> list[Any]:
    """Of a flag that takes them with commas."""
    try:
        found = [kind(word) for word in text.split(",") if word]
    except ValueError:
        found = [0]
    if not all(0 < number < math.inf for number in found):
        raise InputError(f"{flag} takes numbers above 0 with commas, got {text}")
    return found


@dataclass(frozen=True)
class Run:
    """One command: its words after `di2pose`, and the runs that must be finished before."""

    name: str
    """With a digest of all that the result depends on: runs of the same name are the same run."""
    words: tuple[str, ...] = field(compare=False)
    needs: tuple["Run", ...] = field(default=(), compare=False)
    config: Any = field(default=None, compare=False, repr=False)
    """Of a training."""

    @property
    def trains(self) -> bool:
        return self.words[0] == "train"

    @property
    def out(self) -> Path:
        return Path(self.words[-1])

    def finished(self) -> bool:
        if not self.trains:
            return (self.out if self.out.suffix == ".json" else self.out / "report.json").is_file()
        if not (self.out / "model" / "config.json").is_file():
            return False
        notes = checkpoint.read_notes(self.out / "model")
        return bool(notes["iteration"] == notes["iterations"])


@dataclass(frozen=True)
class Measure:
    """The run that measures a cell on one set of data."""

    cell: Cell
    seed: int
    data: str
    run: Run
    doubled: bool = False

    @property
    def key(self) -> str:
        return f"{self.cell.name}: {self.run.name}"

    @property
    def trainings(self) -> list[Run]:
        """Of the measured model, in their order."""
        return [each for run in self.run.needs for each in (*run.needs, run)]


def training(cell: Cell, seed: int, options: Options) -> Run:
    """The run that trains a cell's model; it needs those of its tokenizer and its adapter, where it has them."""
    share = () if cell.share == 1 else ("--share", str(cell.share))
    last = share if cell.learning_rate is None else (*share, "--learning-rate", f"{cell.learning_rate:g}")
    if cell.method == "tokenizer":
        return _train_run("tokenizer", (*_set(cell.settings), *last), seed, options)
    own = {key: value for key, value in cell.settings.items() if not key.startswith("tokenizer")}
    coder = {key: value for key, value in cell.settings.items() if key not in own}
    needs = {}
    if cell.method in ("di2pose", "pct"):
        coder = {**of_tokenizer(PCT_TOKENIZER), **coder} if cell.method == "pct" else coder
        needs["tokenizer"] = _train_run("tokenizer", (*_set(coder), *share), seed, options)
    if options.adapter_iterations and cell.method != "regression":
        needs["adapter"] = _train_run("adapter", share, seed, options)
    what = "denoiser" if cell.method == "di2pose" else f"model {cell.method}"
    return _train_run(what, (*_set(own), *last), seed, options, needs)


def _set(values: Settings) -> list[str]:
    pairs = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items())
    return [word for pair in pairs for word in ("--set", pair)]


def _train_run(
    what: str, flags: Sequence[str], seed: int, options: Options, needs: Mapping[str, Run] = MappingProxyType({})
) -> Run:
    """`di2pose train WHAT`. Its name holds the effective configuration: flags that change nothing do not count."""
    size: list[str] = []
    recipe: Any = options.config
    if baseline := what.startswith("model "):
        size = _set(_as_large(what, options))
        kind = kind_of(what.split()[1])
        if "tokenizer" in needs:
            assert isinstance(kind, TokenRecipe)
            recipe = kind.token_recipe("", 1, 1, needs["tokenizer"].config.tokenizer)
        else:
            assert isinstance(kind, Recipe)
            recipe = kind.recipe("", 1, 1)
    count = options.iterations_of(what)
    flags = [*shlex.split(options.train), *flags, *(() if count is None else ("--iterations", str(count)))]
    flags += ["--seed", str(seed)]
    parsed, others = _parsed((*size, *flags))
    part = "training" if baseline else f"{what}_training"
    config = overridden(recipe, parsed.settings)
    config = replace(config, **{part: parsed.over(getattr(config, part))})
    changes = _changes(to_json(overridden(recipe, _parsed(tuple(size))[0].settings)), to_json(config))
    about = [what.removeprefix("model "), *changes, *(["_".join(others).strip("-")] if others else [])]
    features = options.features
    source = ["--data", *(options.data or features)] if what == "tokenizer" else ["--features", *features]
    depends = [what, without_later(to_json(config)), seed, *map(str, source), *others]
    depends += [run.name for run in needs.values()]
    name = _name([*about, f"s{seed}"], depends)
    words = ["train", *what.split(), *(size if baseline else ("--recipe", options.recipe)), *map(str, source), *flags]
    words += [word for part, run in needs.items() for word in (f"--{part}", str(run.out))]
    words += ["--device", options.device, "--threads", "1"]
    words += [] if count is None else ["--validate-every", str(count)]  # once, at the end
    return Run(name, (*words, "--out", str(options.out / "runs" / name)), tuple(needs.values()), config)


@cache
def _parsed(flags: tuple[str, ...]) -> tuple[StageOptions, list[str]]:
    return tyro.cli(StageOptions, args=list(flags), return_unknown_args=True)


def _changes(base: Any, config: Any) -> list[str]:
    """What was changed, for a name: ['final_occlude=0.5']."""
    found = []
    for key, value in config.items():
        if isinstance(value, dict):
            found += _changes(base[key], value)
        elif value != base[key] and key != "iterations":
            found.append(f"{key}={value}")
    return found


def _as_large(what: str, options: Options) -> Settings:
    """Settings that make a baseline as large as the recipe's denoiser, where its own recipe does not, with its batches.
    Of recipes but `compare` the regression keeps its own size: it has no trunk."""
    denoiser, learning = options.config.denoiser, options.config.denoiser_training
    if what == "model regression":
        batch = (options.config.adapter_training if options.adapter_iterations else learning).batch
        return {"training.batch": batch, **(REGRESSION if options.recipe == BASELINES_RECIPE else {})}
    if options.recipe == BASELINES_RECIPE:
        return {}
    sizes: Settings = {f"trunk.{name}": getattr(denoiser, name) for name in TRUNK}
    hints: Settings = {} if denoiser.adapter_layers else {"trunk.hint_channels": 0}
    return {**sizes, **hints, **{f"training.{name}": getattr(learning, name) for name in TRAINING}}


def measures(table: Table, seeds: Sequence[int], options: Options, double: Collection[int] = ()) -> Iterator[Measure]:
    """All that is measured for a table; of the seeds in `double` runs of twice the length, too."""
    for cell in table.cells:
        if cell.method == BLAZEPOSE:
            yield from _blazepose(cell, table.cells[0], seeds[0], options)
            continue
        for seed in seeds:
            yield from measured(cell, seed, options)
            if seed in double:
                yield from (replace(each, doubled=True) for each in measured(cell, seed, options.times(2)))


def measured(cell: Cell, seed: int, options: Options) -> Iterator[Measure]:
    """A cell trained with one seed, on every set of test data."""
    trained = training(cell, seed, options)
    for test in options.tests:
        data, folder, _ = test
        if cell.method == "tokenizer":
            words = ("evaluate", "tokenizer", str(trained.out), "--data", str(folder))
            name = _name(["tokenizer", data, f"s{seed}"], [*words[:2], trained.name, str(folder)])
            out = str(options.out / "evaluations" / f"{name}.json")
            yield Measure(cell, seed, data, Run(name, (*words, "--out", out), (trained,)))
            continue
        for place, steps in enumerate((cell.steps,) if cell.steps else options.step_counts or (None,)):
            label = f"{data}, {steps} steps" if place else data
            yield Measure(cell, seed, label, _evaluation(trained, steps, test, options, fewest=place > 0))


def _blazepose(cell: Cell, first: Cell, seed: int, options: Options) -> Iterator[Measure]:
    """BlazePose's 3D: of pictures by a run of its own; of cached crops it is a row in the report of any model."""
    steps = next(iter(options.step_counts), None)
    for test in options.tests:
        if not (test[1] / "features.json").is_file():
            yield Measure(cell, seed, test[0], _evaluation(None, steps, test, options))
        elif "world_mm" in FeatureCache(test[1]).fields:
            yield Measure(cell, seed, test[0], _evaluation(training(first, seed, options), steps, test, options))


def _evaluation(trained: Run | None, steps: int | None, test: TestSet, options: Options, fewest: bool = False) -> Run:
    """`di2pose evaluate` of a training; None: of BlazePose's own 3D."""
    data, folder, protocol = test
    drawn = "1" if trained is None else options.hypotheses
    drawn = min(drawn.split(","), key=int) if fewest else drawn
    words = ["--data", str(folder), "--protocol", protocol, "--hypotheses", drawn, "--worst", "0"]
    words += [*shlex.split(options.evaluate), *([] if steps is None else ["--steps", str(steps)])]
    model = "blazepose-heavy" if trained is None else trained.name
    about = [model if trained is None else model.rpartition("-")[0], *([f"{steps}"] if steps else []), data]
    name = _name(about, [model, *words])
    words = ["evaluate", model if trained is None else str(trained.out), *words]
    words += ["--device", options.device, "--out", str(options.out / "evaluations" / name)]
    return Run(name, tuple(words), () if trained is None else (trained,))


def _name(about: list[str], depends: list[Any]) -> str:
    slug = re.sub(r"[^\w.=,-]+", "_", f"{'-'.join(about[:-1])[:60]}-{about[-1]}")
    return f"{slug}-{hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:8]}"


def needs_first(runs: Iterable[Run]) -> list[Run]:
    """Every run once, each behind all that it needs, otherwise in their order."""
    return list(dict.fromkeys(each for run in runs for each in (*needs_first(run.needs), run)))


def in_order(runs: Iterable[Run]) -> list[list[Run]]:
    """Every run once, and all that they need, in groups: a group needs only what the groups before it made."""
    depths: dict[Run, int] = {}

    def depth(run: Run) -> int:
        if run not in depths:
            depths[run] = 1 + max(map(depth, run.needs), default=-1)
        return depths[run]

    for run in runs:
        depth(run)
    return [[run for run, at in depths.items() if at == level] for level in sorted({*depths.values()})]
