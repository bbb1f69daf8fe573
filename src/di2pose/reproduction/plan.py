"""From a table to commands: every run of the ordinary `train` and `evaluate`, each once, in an order that works."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from di2pose import checkpoint, recipes
from di2pose.config import Config
from di2pose.errors import InputError
from di2pose.reproduction.tables import Cell, Stage, Table

PEER_MODEL = "blazepose-heavy"
BASELINES_RECIPE = "compare"
"""The recipe of whose size the baselines' own recipes are."""
TRUNK = ("width", "layers", "heads", "mlp_ratio", "adapter_layers", "adapter_width", "adapter_channels",
         "adapter_tokens", "adapter_dropout")  # fmt: skip
TRAINING = ("learning_rate", "betas", "weight_decay", "batch", "epochs", "warmup", "clip", "ema")
"""What a baseline with our trunk takes over from the denoiser of any other recipe."""
REGRESSION: dict[str, object] = {"adapter_width": 512, "adapter_channels": 16}
"""The regression is an adapter alone: so wide it has as many parameters as the denoiser of `compare`, 2.2 million."""


@dataclass(frozen=True)
class Setting:
    """What all cells have in common."""

    features: tuple[Path, ...]
    data: tuple[Path, ...]
    tests: tuple[tuple[str, Path, str], ...]
    """Name, folder and protocols of each set of test data."""
    whole: tuple[str, ...]
    """Names of those whose poses have all joints: tokenizers can be measured on them."""
    out: Path
    recipe: str
    iterations: int | None = None
    """Of every training stage; None: the recipe's own epochs."""
    tokenizer_iterations: int | None = None
    """Of every tokenizer, where that is another number."""
    hypotheses: str = "8"
    train: tuple[str, ...] = ()
    """Further flags of every training command, and of every evaluation."""
    evaluate: tuple[str, ...] = ()
    device: str = "cpu"

    def iterations_of(self, what: str) -> int | None:
        """Of a stage."""
        return self.tokenizer_iterations or self.iterations if what == "tokenizer" else self.iterations

    @property
    def config(self) -> Config:
        """The recipe's."""
        if self.recipe not in recipes.RECIPES:
            raise InputError(f"no recipe is called '{self.recipe}': choose from {', '.join(recipes.RECIPES)}")
        config: Config = getattr(recipes, self.recipe)()
        return config

    @property
    def has_adapter(self) -> bool:
        return bool(self.config.denoiser.adapter_layers)


@dataclass(frozen=True)
class Run:
    """One command: its words after `di2pose`, and the runs that must be finished before."""

    name: str
    """Unique; says what is run, with a digest of all that its result depends on."""
    words: tuple[str, ...]
    needs: tuple["Run", ...] = ()

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
    """Which run measures which cell on which data."""

    cell: Cell
    seed: int
    data: str
    run: Run
    trained: Run | None
    """The run of the cell's last stage."""


def train_run(stage: Stage, seed: int, setting: Setting) -> Run:
    """The command of a stage, with those that it reads."""
    has_adapter = setting.has_adapter
    reads = [(flag, train_run(each, seed, setting)) for flag, each in stage.reads
             if has_adapter or each.what != "adapter"]  # fmt: skip
    source = ("--data", *setting.data) if stage.what == "tokenizer" else ("--features", *setting.features)
    whose = _as_large(stage.what, setting) if stage.what.startswith("model ") else ("--recipe", setting.recipe)
    words = ["train", *stage.what.split(), *whose, *map(str, source), *stage.flags]
    count = setting.iterations_of(stage.what)
    words += [] if count is None else ["--iterations", str(count)]
    words += ["--seed", str(seed), *setting.train]
    said = (re.sub(r"^[a-z_]+\.", "", flag) for flag in stage.flags if flag[0] != "-")
    about = [stage.what.removeprefix("model "), *said]
    name = _name([*about, f"s{seed}"], [*words, *(run.name for _, run in reads)])
    words += [word for flag, run in reads for word in (flag, str(run.out))]
    words += ["--device", setting.device, "--threads", "1"]
    if count is not None:  # once, at the end: validations are not what the budget is for
        words += ["--validate-every", str(count)]
    return Run(name, (*words, "--out", str(setting.out / "runs" / name)), tuple(run for _, run in reads))


def _as_large(what: str, setting: Setting) -> tuple[str, ...]:
    """Flags that make a kind of model as large as the recipe's denoiser, where its own recipe does not, and let it see
    as many crops. Of recipes but `compare` the regression keeps its own size: it has no trunk to be like."""
    denoiser, training = setting.config.denoiser, setting.config.denoiser_training
    sizes: dict[str, object] = {}
    if what == "model regression":
        sizes = {"training.batch": training.batch}
        sizes |= REGRESSION if setting.recipe == BASELINES_RECIPE else {}
    elif setting.recipe != BASELINES_RECIPE:
        sizes = {f"trunk.{name}": getattr(denoiser, name) for name in TRUNK}
        sizes |= {} if setting.has_adapter else {"trunk.hint_channels": 0}
        sizes |= {f"training.{name}": getattr(training, name) for name in TRAINING}
    return tuple(word for name, value in sizes.items() for word in ("--set", f"{name}={json.dumps(value)}"))


def measures(table: Table, seeds: Iterable[int], setting: Setting) -> Iterator[Measure]:
    """All that is measured for a table."""
    flags = [flag for cell in table.cells if cell.stage is not None for flag in cell.stage.flags]
    if any("hint" in flag for flag in flags) and not setting.has_adapter:
        raise InputError(
            f"the recipe {setting.recipe} has no adapter, which this table is about: take another --recipe"
        )
    first = next(cell for cell in table.cells if cell.stage is not None)
    for cell in table.cells:
        for seed in seeds if cell.stage is not None else (0,):
            stage = cell.stage or first.stage
            assert stage is not None
            trained = train_run(stage, seed, setting)
            for data, folder, protocol in setting.tests if stage.what != "tokenizer" else ():
                if cell.stage is None and not (folder / "features.json").is_file():
                    yield Measure(
                        cell, seed, data, _evaluation(PEER_MODEL, cell, data, folder, protocol, setting), None
                    )
                    continue
                # What the peer says of cached crops is a row in the report of any model on them.
                run = _evaluation(trained, cell if cell.stage else first, data, folder, protocol, setting)
                yield Measure(cell, seed, data, run, trained if cell.stage else None)
            tokenizer = cell.stage and cell.stage.reads_from("tokenizer")
            if table.tokenizers and tokenizer:
                coder = train_run(tokenizer, seed, setting)
                for data, folder in ((name, folder) for name, folder, _ in setting.tests if name in setting.whole):
                    words = ("evaluate", "tokenizer", str(coder.out), "--data", str(folder))
                    name = _name(["tokenizer", data, f"s{seed}"], [*words[:2], coder.name, str(folder)])
                    out = str(setting.out / "evaluations" / f"{name}.json")
                    yield Measure(cell, seed, data, Run(name, (*words, "--out", out), (coder,)), coder)


def _evaluation(model: Run | str, cell: Cell, data: str, folder: Path, protocol: str, setting: Setting) -> Run:
    drawn = setting.hypotheses if isinstance(model, Run) else "1"
    words = ["--data", str(folder), "--protocol", protocol, "--hypotheses", drawn, "--worst", "0", *setting.evaluate]
    words += [] if cell.steps is None else ["--steps", str(cell.steps)]
    label = model.name if isinstance(model, Run) else model
    about = [label.rpartition("-")[0] if isinstance(model, Run) else label, *([f"{cell.steps}"] if cell.steps else [])]
    name = _name([*about, data], [label, *words])
    place = str(model.out) if isinstance(model, Run) else model
    words = ["evaluate", place, *words, "--device", setting.device, "--out", str(setting.out / "evaluations" / name)]
    return Run(name, tuple(words), (model,) if isinstance(model, Run) else ())


def _name(about: list[str], depends: list[str]) -> str:
    slug = re.sub(r"[^\w.=,-]+", "_", "-".join(about))[:80]
    return f"{slug}-{hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:6]}"


def in_order(runs: Iterable[Run]) -> list[list[Run]]:
    """Every run once, in groups: a group needs only what the groups before it made."""
    depth: dict[Run, int] = {}

    def place(run: Run) -> int:
        if run not in depth:
            depth[run] = 1 + max((place(need) for need in run.needs), default=-1)
        return depth[run]

    last = max((place(run) for run in runs), default=-1)
    return [[run for run, at in depth.items() if at == level] for level in range(last + 1)]
