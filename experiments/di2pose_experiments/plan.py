"""From a table to commands: every run of `di2pose train` and `di2pose evaluate`, each once, in an order that works."""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import tyro

from di2pose import checkpoint, recipes
from di2pose.config import Config, to_json, without_later
from di2pose.data.feature_cache import FeatureCache
from di2pose.errors import InputError
from di2pose.model import Recipe, TokenRecipe, kind_of
from di2pose.training.options import StageOptions, overridden
from di2pose_experiments.tables import Cell, Stage, Table

BLAZEPOSE = "blazepose-heavy"
BASELINES_RECIPE = "compare"
"""The baselines' own recipes have its size."""
TRUNK = ("width", "layers", "heads", "mlp_ratio", "adapter_layers", "adapter_width", "adapter_channels",
         "adapter_tokens", "adapter_dropout")  # fmt: skip
TRAINING = ("learning_rate", "betas", "weight_decay", "batch", "epochs", "warmup", "clip", "ema")
"""What a baseline with our trunk takes over from the denoiser of any other recipe."""
REGRESSION: dict[str, object] = {"adapter_width": 512, "adapter_channels": 16}
"""Gives the regression, an adapter alone, as many parameters as the denoiser of `compare`: 2.2 million."""
TestSet = tuple[str, Path, str]
"""Name, folder and protocols."""


@dataclass(frozen=True)
class Setting:
    """What all cells have in common; the fields are flags of `di2pose ablate`."""

    features: tuple[Path, ...]
    data: tuple[Path, ...]
    tests: tuple[TestSet, ...]
    out: Path
    recipe: str
    iterations: int | None = None
    tokenizer_iterations: int | None = None
    hypotheses: str = "8"
    steps: tuple[int, ...] = ()
    train: tuple[str, ...] = ()
    evaluate: tuple[str, ...] = ()
    device: str = "cpu"

    def iterations_of(self, what: str) -> int | None:
        """Of a stage."""
        return self.tokenizer_iterations or self.iterations if what == "tokenizer" else self.iterations

    def times(self, factor: float, last: str = "") -> "Setting":
        """With all stages so many times as long; with `last`, that stage alone."""
        if self.iterations is None:
            raise InputError("--double and --learning-rates need --iterations N or --budget MINUTES")
        tokenizers = self.iterations_of("tokenizer") or 0
        new, coders = (max(1, round(factor * count)) for count in (self.iterations, tokenizers))
        if last == "tokenizer":
            return replace(self, tokenizer_iterations=coders)
        return replace(self, iterations=new, tokenizer_iterations=tokenizers if last else coders)

    @property
    def config(self) -> Config:
        """The recipe's."""
        if self.recipe not in recipes.RECIPES:
            raise InputError(f"no recipe is called '{self.recipe}': choose from {', '.join(recipes.RECIPES)}")
        config: Config = getattr(recipes, self.recipe)()
        return config


@dataclass(frozen=True)
class Run:
    """One command: its words after `di2pose`, and the runs that must be finished before."""

    name: str
    """With a digest of all that the result depends on: runs of the same name are the same run."""
    words: tuple[str, ...] = field(compare=False)
    needs: tuple["Run", ...] = field(default=(), compare=False)

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
    """The run that measures a cell on one set of data; `trained` is the run of the cell's last stage."""

    cell: Cell
    seed: int
    data: str
    run: Run
    trained: Run | None
    doubled: bool = False

    @property
    def key(self) -> str:
        return f"{self.cell.name}: {self.run.name}"


def train_run(stage: Stage, seed: int, setting: Setting) -> Run:
    """The command of a stage, with those that it reads."""
    reads = [(flag, train_run(each, seed, setting)) for flag, each in stage.reads]
    source = ("--data", *setting.data) if stage.what == "tokenizer" else ("--features", *setting.features)
    baseline = stage.what.startswith("model ")
    size = _as_large(stage.what, setting) if baseline else ()
    count = setting.iterations_of(stage.what)
    length = () if count is None else ("--iterations", str(count))
    flags = (*setting.train, *stage.flags, *length, "--seed", str(seed))
    base, config, others = _effective(stage, (*size, *flags), size, setting)
    about = [stage.what.removeprefix("model "), *_changes(base, config)]
    about += ["_".join(others).strip("-")] if others else []
    depends = [stage.what, without_later(config), seed, *map(str, source), *others, *(run.name for _, run in reads)]
    name = _name([*about, f"s{seed}"], depends)
    words = ["train", *stage.what.split(), *(size if baseline else ("--recipe", setting.recipe)), *map(str, source)]
    words += [*flags, *(word for flag, run in reads for word in (flag, str(run.out)))]
    words += ["--device", setting.device, "--threads", "1"]
    words += [] if count is None else ["--validate-every", str(count)]  # once, at the end
    return Run(name, (*words, "--out", str(setting.out / "runs" / name)), tuple(run for _, run in reads))


def _effective(
    stage: Stage, flags: tuple[str, ...], size: tuple[str, ...], setting: Setting
) -> tuple[Any, Any, list[str]]:
    """The configuration that a stage starts from and the one that it is trained with, as JSON; and other flags."""
    options, others = _options(flags)
    recipe: Any = setting.config
    part = f"{stage.what}_training"
    if stage.what.startswith("model "):
        part, kind = "training", kind_of(stage.what.split()[1])
        if isinstance(kind, TokenRecipe):
            coder = dict(stage.reads)["--tokenizer"]
            tokenizer = overridden(setting.config, _options((*setting.train, *coder.flags))[0].settings).tokenizer
            recipe = kind.token_recipe("", 1, 1, tokenizer)
        else:
            assert isinstance(kind, Recipe)
            recipe = kind.recipe("", 1, 1)
    config = overridden(recipe, options.settings)
    config = replace(config, **{part: options.over(getattr(config, part))})
    return to_json(overridden(recipe, _options(size)[0].settings)), to_json(config), others


@cache
def _options(flags: tuple[str, ...]) -> tuple[StageOptions, list[str]]:
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


def _as_large(what: str, setting: Setting) -> tuple[str, ...]:
    """Flags that make a baseline as large as the recipe's denoiser, where its own recipe does not, with its batches.
    Of recipes but `compare` the regression keeps its own size: it has no trunk."""
    denoiser, training = setting.config.denoiser, setting.config.denoiser_training
    sizes: dict[str, object] = {}
    if what == "model regression":
        sizes = {"training.batch": training.batch}
        sizes |= REGRESSION if setting.recipe == BASELINES_RECIPE else {}
    elif setting.recipe != BASELINES_RECIPE:
        sizes = {f"trunk.{name}": getattr(denoiser, name) for name in TRUNK}
        sizes |= {} if denoiser.adapter_layers else {"trunk.hint_channels": 0}
        sizes |= {f"training.{name}": getattr(training, name) for name in TRAINING}
    return tuple(word for name, value in sizes.items() for word in ("--set", f"{name}={json.dumps(value)}"))


def measures(table: Table, seeds: Sequence[int], setting: Setting, double: Collection[int] = ()) -> Iterator[Measure]:
    """All that is measured for a table; of the seeds in `double` runs of twice the length, too."""
    first = next(cell.stage for cell in table.cells if cell.stage is not None)
    for cell in table.cells:
        if cell.stage is None:
            yield from _blazepose(cell, first, seeds[0], setting)
            continue
        for seed in seeds:
            yield from measured(cell, cell.stage, seed, setting)
            if seed in double:
                for measure in measured(cell, cell.stage, seed, setting.times(2)):
                    yield replace(measure, doubled=True)


def measured(cell: Cell, stage: Stage, seed: int, setting: Setting) -> Iterator[Measure]:
    """A stage trained with one seed, on every set of test data."""
    trained = train_run(stage, seed, setting)
    for test in setting.tests:
        data, folder, _ = test
        if stage.what == "tokenizer":
            words = ("evaluate", "tokenizer", str(trained.out), "--data", str(folder))
            name = _name(["tokenizer", data, f"s{seed}"], [*words[:2], trained.name, str(folder)])
            out = str(setting.out / "evaluations" / f"{name}.json")
            yield Measure(cell, seed, data, Run(name, (*words, "--out", out), (trained,)), trained)
            continue
        for place, steps in enumerate((cell.steps,) if cell.steps else setting.steps or (None,)):
            label = f"{data}, {steps} steps" if place else data
            yield Measure(cell, seed, label, _evaluation(trained, steps, test, setting, fewest=place > 0), trained)


def _blazepose(cell: Cell, first: Stage, seed: int, setting: Setting) -> Iterator[Measure]:
    """BlazePose's 3D: of pictures by a run of its own; of cached crops it is a row in the report of any model."""
    steps = setting.steps[0] if setting.steps else None
    for test in setting.tests:
        if not (test[1] / "features.json").is_file():
            yield Measure(cell, seed, test[0], _evaluation(BLAZEPOSE, steps, test, setting), None)
        elif "world_mm" in FeatureCache(test[1]).fields:
            run = _evaluation(train_run(first, seed, setting), steps, test, setting)
            yield Measure(cell, seed, test[0], run, None)


def _evaluation(model: Run | str, steps: int | None, test: TestSet, setting: Setting, fewest: bool = False) -> Run:
    data, folder, protocol = test
    drawn = setting.hypotheses if isinstance(model, Run) else "1"
    drawn = min(drawn.split(","), key=int) if fewest else drawn
    words = ["--data", str(folder), "--protocol", protocol, "--hypotheses", drawn, "--worst", "0", *setting.evaluate]
    words += [] if steps is None else ["--steps", str(steps)]
    label, place = (model.name, str(model.out)) if isinstance(model, Run) else (model, model)
    about = [label.rpartition("-")[0] if isinstance(model, Run) else label, *([f"{steps}"] if steps else [])]
    name = _name([*about, data], [label, *words])
    words = ["evaluate", place, *words, "--device", setting.device, "--out", str(setting.out / "evaluations" / name)]
    return Run(name, tuple(words), (model,) if isinstance(model, Run) else ())


def _name(about: list[str], depends: list[Any]) -> str:
    slug = re.sub(r"[^\w.=,-]+", "_", f"{'-'.join(about[:-1])[:60]}-{about[-1]}")
    return f"{slug}-{hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:8]}"


def ordered(runs: Iterable[Run]) -> TopologicalSorter[Run]:
    """The runs and all that they need, prepared."""
    sorter: TopologicalSorter[Run] = TopologicalSorter()
    waiting = list(runs)
    while waiting:
        run = waiting.pop(0)
        sorter.add(run, *run.needs)
        waiting += run.needs
    sorter.prepare()
    return sorter


def in_order(runs: Iterable[Run]) -> list[list[Run]]:
    """Every run once, in groups: a group needs only what the groups before it made."""
    sorter, groups = ordered(runs), []
    while sorter.is_active():
        groups.append(list(sorter.get_ready()))
        sorter.done(*groups[-1])
    return groups
