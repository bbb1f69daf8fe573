"""The compared models as plain data: a table has cells, a cell is a trained model, its training a tree of stages.

Stages with the same effective configuration are one run: the cells of a table about the diffusion share a tokenizer.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from di2pose.errors import InputError
from di2pose.files import reading


@dataclass(frozen=True)
class Stage:
    """One command `di2pose train WHAT FLAGS`, and the stages whose runs it reads."""

    what: str
    """tokenizer, denoiser, or `model KIND`."""
    flags: tuple[str, ...] = ()
    reads: tuple[tuple[str, "Stage"], ...] = ()
    """Flag -> stage: ("--tokenizer", ...)."""


@dataclass(frozen=True)
class Cell:
    """A row of a table: a model, trained and measured."""

    name: str
    stage: Stage | None
    """The last stage; None: BlazePose's own 3D, which is not trained."""
    steps: int | None = None
    """Reverse steps of the evaluation; None: the recipe's."""
    line: str = ""
    """Line of the plot, and the place on it; left out: the cell's name."""
    x: str = ""


@dataclass(frozen=True)
class Table:
    """Cells that differ in one thing."""

    title: str
    cells: tuple[Cell, ...]
    note: str = ""

    @property
    def of_tokenizers(self) -> bool:
        """Tokenizers alone, measured by their reconstruction error."""
        return all(cell.stage is not None and cell.stage.what == "tokenizer" for cell in self.cells)


def settings(**values: object) -> tuple[str, ...]:
    """Flags that change the recipe; `__` stands for the dot: tokenizer__tokens=24."""
    return _flags({name.replace("__", "."): value for name, value in values.items()})


def _flags(values: Mapping[str, object]) -> tuple[str, ...]:
    pairs = (f"{key}={v if isinstance(v, str) else json.dumps(v)}" for key, v in values.items())
    return tuple(word for pair in pairs for word in ("--set", pair))


def di2pose(*flags: str, tokenizer: tuple[str, ...] = ()) -> Stage:
    """Tokenizer, then denoiser; `flags` are the denoiser's."""
    return Stage("denoiser", flags, (("--tokenizer", Stage("tokenizer", tokenizer)),))


REFERENCE = di2pose()
"""Its training speed turns a budget of minutes into a number of iterations."""
PCT_TOKENIZER = settings(tokenizer__quantiser="vq", tokenizer__block="mixer", tokenizer__joint_embed=False)
SHARES = (5, 10, 25, 100)
SHARED = ("di2pose", "gaussian", "regression")
METHODS = ("di2pose", "gaussian", "pct", "regression")
CELL_KEYS = ("name", "settings", "method", "steps", "share")


def method(name: str, *flags: str, tokenizer: tuple[str, ...] = (), share: float = 1.0) -> Stage:
    """A method that is trained on this share of the records; its tokenizer, where it has one, on the same share."""
    part = () if share == 1 else ("--share", str(share))
    if name == "di2pose":
        return di2pose(*flags, *part, tokenizer=(*tokenizer, *part))
    read = (("--tokenizer", Stage("tokenizer", (*PCT_TOKENIZER, *tokenizer, *part))),) if name == "pct" else ()
    return Stage(f"model {name}", (*flags, *part), read)


def read_cells(path: Path) -> Table:
    """A user's table from a TOML file: title, note, and [[cells]] with name, settings, method, steps, share."""
    with reading(path, "expected TOML with a title and [[cells]], as docs/research.md has it"):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        cells = tuple(_cell(path, each) for each in content["cells"])
        names = [cell.name for cell in cells]
        if len(set(names)) < len(names):
            raise InputError(f"{path}: every cell needs a name of its own, got {', '.join(names)}")
        return Table(str(content["title"]), cells, str(content.get("note", "")))


def _cell(path: Path, entry: Mapping[str, Any]) -> Cell:
    if unknown := entry.keys() - set(CELL_KEYS):
        raise InputError(f"{path}: a cell has no {', '.join(sorted(unknown))}; expected {', '.join(CELL_KEYS)}")
    kind, share, values = entry.get("method", "di2pose"), float(entry.get("share", 1)), entry.get("settings", {})
    if kind not in (*METHODS, "tokenizer"):
        raise InputError(f"{path}: the method '{kind}' of {entry['name']} is none of {', '.join(METHODS)}, tokenizer")
    if kind == "tokenizer":
        stage = Stage("tokenizer", (*_flags(values), *(("--share", str(share)) if share < 1 else ())))
    else:
        coder = {key: value for key, value in values.items() if key.startswith("tokenizer")}
        others = {key: value for key, value in values.items() if key not in coder}
        stage = method(kind, *_flags(others), tokenizer=_flags(coder), share=share)
    return Cell(str(entry["name"]), stage, entry.get("steps"))


def _tokenizers(title: str, cells: Mapping[str, tuple[str, ...]], note: str = "") -> Table:
    made = tuple(Cell(name, Stage("tokenizer", flags)) for name, flags in cells.items())
    return Table(title, made, f"Tokenizers alone: what poses lose through tokens. {note}".strip())


def _identity_cells() -> dict[str, tuple[str, ...]]:
    """Block, joint vectors, token mix, and the order along which a Local-MLP block shifts."""
    found = {}
    for block, order in (("local", "index"), ("local", "chain"), ("mixer", "index")):
        for embed, mix in ((False, False), (True, False), (False, True), (True, True)):
            words = [block, *["chain"] * (order == "chain"), *["joints"] * embed, *["mix"] * mix]
            kind = settings(tokenizer__block=block, tokenizer__joint_order=order)
            found[" + ".join(words)] = (*kind, *settings(tokenizer__joint_embed=embed, tokenizer__token_mix=mix))
    return found


TABLES: dict[str, Table] = {
    "methods": Table(
        "Methods on the same features",
        (
            Cell("di2pose", method("di2pose")),
            Cell("di2pose, no carry-over", method("di2pose", *settings(denoiser__carry_over=False))),
            *(Cell(name, method(name)) for name in METHODS[1:]),
            Cell("blazepose", None),
        ),
        "Every method sees the same records, in one stage and as often; tokenizers see their poses besides. The "
        "peer is BlazePose's own 3D, where the test data has it: nothing is trained.",
    ),
    "matrices": Table(
        "Final occlude rate (0: replace only, 1: occlude only)",
        tuple(Cell(str(rate), di2pose(*settings(diffusion__final_occlude=rate))) for rate in (0.0, 0.9, 1.0)),
    ),
    "share": Table(
        "Share of the training records",
        tuple(
            Cell(f"{name}, {share} %", method(name, share=share / 100), line=name, x=f"{share} %")
            for name in SHARED
            for share in SHARES
        ),
        "The iterations are the same whatever the share; the tokenizer learns from the same share.",
    ),
    "steps": Table(
        "Steps in training and in use",
        tuple(
            Cell(f"{train} / {used}", di2pose(*settings(diffusion__steps=train)), used, f"trained {train}", str(used))
            for train, uses in ((100, (4, 10, 25, 50, 100)), (25, (4, 10, 25)))
            for used in uses
        ),
        "Training steps / inference steps: one training for each number of training steps.",
    ),
    "joint-shift": _tokenizers(
        "Joints X that see each other in a Local-MLP block",
        {str(x): settings(tokenizer__block="local", tokenizer__local_joints=x) for x in (1, 3, 5)},
    ),
    "levels": _tokenizers(
        "FSQ levels",
        {text: settings(tokenizer__levels=text) for text in ("[8,5,5,5]", "[7,5,5,5,5]", "[8,8,8,6,5]")},
    ),
    "block": _tokenizers(
        "Blocks of the tokenizer",
        {
            "local": settings(tokenizer__block="local"),
            "local, no joint vectors": settings(tokenizer__block="local", tokenizer__joint_embed=False),
            "mixer": settings(tokenizer__block="mixer"),
            "pct": PCT_TOKENIZER,
        },
        "pct: PCT's own, Mixer blocks and a learned codebook (VQ) of as many codes.",
    ),
    "identity": _tokenizers(
        "Joint vectors, token mix and joint order of the tokenizer",
        _identity_cells(),
        "joints: a learned vector a joint (joint_embed); mix: a norm and GELU between joints and channels "
        "(token_mix); chain: joints in the order of the limbs.",
    ),
    "carry-over": Table(
        "Carry-over: what a visible token says of its own clean value, in closed form",
        tuple(
            Cell(f"{rate}{' + carry-over' * on}",
                 di2pose(*settings(diffusion__final_occlude=rate, denoiser__carry_over=on)))
            for rate, on in ((0.9, False), (0.9, True), (1.0, True))
        ),
        "Final occlude rate, and whether visible tokens are carried over; at 1.0 they are certain by rule.",
    ),
    "tokens": _tokenizers("Tokens of a pose", {str(n): settings(tokenizer__tokens=n) for n in (24, 48, 100)}),
    "aux": Table(
        "Weight of the auxiliary loss",
        tuple(Cell(text, di2pose(*settings(diffusion__aux_weight=text))) for text in ("5e-4", "1e-2", "0.1", "1.0")),
    ),
}  # fmt: skip
