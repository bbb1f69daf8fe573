"""The compared models as plain data: a table has cells, a cell is a trained model."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from di2pose.errors import InputError
from di2pose.files import reading

Settings = Mapping[str, object]
"""Field of the recipe -> value."""
METHODS = ("di2pose", "gaussian", "pct", "regression")
BLAZEPOSE = "blazepose"
"""The method that is not trained: BlazePose's own 3D."""
SHARES = (5, 10, 25, 100)
SHARED = ("di2pose", "gaussian", "regression")
PCT_TOKENIZER: Settings = {"quantiser": "vq", "block": "mixer", "joint_embed": False}
"""Fields of the tokenizer's configuration."""


@dataclass(frozen=True)
class Cell:
    """A row of a table: a model, trained and measured. The fields are the keys of a cell in a user's TOML file."""

    name: str
    settings: Settings = field(default_factory=dict)
    """Those that begin with "tokenizer" are the tokenizer's, the others the model's."""
    method: str = "di2pose"
    """One of METHODS, tokenizer (alone), or BLAZEPOSE."""
    steps: int | None = None
    """Reverse steps of the evaluation; None: the recipe's."""
    share: float = 1.0
    """Of the training records, for the tokenizer, too."""
    line: str = ""
    """Line of the plot, and the place on it; left out: the cell's name."""
    x: str = ""
    learning_rate: float | None = None
    """Of the last stage; None: the recipe's."""


@dataclass(frozen=True)
class Table:
    """Cells that differ in one thing."""

    title: str
    cells: tuple[Cell, ...]
    note: str = ""

    @property
    def of_tokenizers(self) -> bool:
        """Tokenizers alone, measured by their reconstruction error."""
        return all(cell.method == "tokenizer" for cell in self.cells)


def read_cells(path: Path) -> Table:
    """A user's table from a TOML file: title, note, and [[cells]]."""
    with reading(path, "expected TOML with a title and [[cells]], as docs/research.md has it"):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        cells = tuple(_cell(path, each) for each in content["cells"])
        names = [cell.name for cell in cells]
        if len(set(names)) < len(names):
            raise InputError(f"{path}: every cell needs a name of its own, got {', '.join(names)}")
        return Table(str(content["title"]), cells, str(content.get("note", "")))


def _cell(path: Path, entry: Mapping[str, Any]) -> Cell:
    keys = [each.name for each in fields(Cell)]
    if unknown := entry.keys() - set(keys):
        raise InputError(f"{path}: a cell has no {', '.join(sorted(unknown))}; expected {', '.join(keys)}")
    cell = Cell(**entry)
    if cell.method not in (*METHODS, "tokenizer"):
        known = ", ".join((*METHODS, "tokenizer"))
        raise InputError(f"{path}: the method '{cell.method}' of {cell.name} is none of {known}")
    return cell


def of_tokenizer(values: Settings) -> Settings:
    """Fields of the tokenizer's configuration as fields of the recipe."""
    return {f"tokenizer.{key}": value for key, value in values.items()}


def _tokenizers(title: str, cells: Mapping[str, Settings], note: str = "") -> Table:
    made = (Cell(name, of_tokenizer(values), "tokenizer") for name, values in cells.items())
    return Table(title, tuple(made), f"Tokenizers alone: what poses lose through tokens. {note}".strip())


TABLES: dict[str, Table] = {
    "methods": Table(
        "Methods on the same features",
        (
            Cell("di2pose"),
            Cell("di2pose, no carry-over", {"denoiser.carry_over": False}),
            *(Cell(name, method=name) for name in (*METHODS[1:], BLAZEPOSE)),
        ),
        "Every method sees the same records, in one stage and as often; tokenizers see their poses besides. The "
        "peer is BlazePose's own 3D, where the test data has it: nothing is trained.",
    ),
    "matrices": Table(
        "Final occlude rate (0: replace only, 1: occlude only)",
        tuple(Cell(str(rate), {"diffusion.final_occlude": rate}) for rate in (0.0, 0.9, 1.0)),
    ),
    "share": Table(
        "Share of the training records",
        tuple(
            Cell(f"{name}, {share} %", method=name, share=share / 100, line=name, x=f"{share} %")
            for name in SHARED
            for share in SHARES
        ),
        "The iterations are the same whatever the share; the tokenizer learns from the same share.",
    ),
    "steps": Table(
        "Steps in training and in use",
        tuple(
            Cell(f"{train} / {used}", {"diffusion.steps": train}, steps=used, line=f"trained {train}", x=str(used))
            for train, uses in ((100, (4, 10, 25, 50, 100)), (25, (4, 10, 25)))
            for used in uses
        ),
        "Training steps / inference steps: one training for each number of training steps.",
    ),
    "joint-shift": _tokenizers(
        "Joints X that see each other in a Local-MLP block",
        {str(x): {"block": "local", "local_joints": x} for x in (1, 3, 5)},
    ),
    "levels": _tokenizers(
        "FSQ levels", {text: {"levels": text} for text in ("[8,5,5,5]", "[7,5,5,5,5]", "[8,8,8,6,5]")}
    ),
    "block": _tokenizers(
        "Blocks of the tokenizer",
        {
            "local": {"block": "local"},
            "local, no joint vectors": {"block": "local", "joint_embed": False},
            "mixer": {"block": "mixer"},
            "pct": PCT_TOKENIZER,
        },
        "pct: PCT's own, Mixer blocks and a learned codebook (VQ) of as many codes.",
    ),
    "identity": _tokenizers(
        "Joint vectors, token mix and joint order of the tokenizer",
        {
            name + " + joints" * embed + " + mix" * mix: {**kind, "joint_embed": embed, "token_mix": mix}
            for name, kind in {
                "local": {"block": "local", "joint_order": "index"},
                "local + chain": {"block": "local", "joint_order": "chain"},
                "mixer": {"block": "mixer", "joint_order": "index"},
            }.items()
            for embed, mix in ((False, False), (True, False), (False, True), (True, True))
        },
        "joints: a learned vector a joint (joint_embed); mix: a norm and GELU between joints and channels "
        "(token_mix); chain: joints in the order of the limbs.",
    ),
    "carry-over": Table(
        "Carry-over: what a visible token says of its own clean value, in closed form",
        tuple(
            Cell(f"{rate}{' + carry-over' * on}", {"diffusion.final_occlude": rate, "denoiser.carry_over": on})
            for rate, on in ((0.9, False), (0.9, True), (1.0, True))
        ),
        "Final occlude rate, and whether visible tokens are carried over; at 1.0 they are certain by rule.",
    ),
    "tokens": _tokenizers("Tokens of a pose", {str(n): {"tokens": n} for n in (24, 48, 100)}),
    "aux": Table(
        "Weight of the auxiliary loss",
        tuple(Cell(text, {"diffusion.aux_weight": text}) for text in ("5e-4", "1e-2", "0.1", "1.0")),
    ),
}
