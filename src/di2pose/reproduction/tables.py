"""What is compared: tables of cells, as plain data. A cell is a trained model; how it is trained is a tree of stages.

Stages that are equal, trees and all, are one run: the cells of a table about the diffusion share a tokenizer and an
adapter, and so do tables that are run into the same folder.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One command `di2pose train WHAT FLAGS`, and the stages whose runs it reads."""

    what: str
    """tokenizer, adapter, denoiser, or `model KIND`."""
    flags: tuple[str, ...] = ()
    reads: tuple[tuple[str, "Stage"], ...] = ()
    """Flag -> stage: ("--tokenizer", ...). A recipe without an adapter has no stage `adapter`: it is left out."""

    def reads_from(self, what: str) -> "Stage | None":
        """The stage of that name which this one reads, or is."""
        return self if self.what == what else next((stage for _, stage in self.reads if stage.what == what), None)


@dataclass(frozen=True)
class Cell:
    """A row of a table: a model, trained and measured."""

    name: str
    stage: Stage | None
    """The last stage, whose run is measured; None: the peer, which is measured as it is."""
    steps: int | None = None
    """Reverse steps when it is measured; None: the recipe's own."""
    line: str = ""
    """Which line of the plot it lies on, and where on it; left out: its name."""
    x: str = ""
    estimate: str = ""
    """What the method itself gives as its answer, where that is not the mean of the hypotheses."""


@dataclass(frozen=True)
class Table:
    """Cells that differ in one thing."""

    title: str
    cells: tuple[Cell, ...]
    tokenizers: bool = False
    """Measure what poses lose through the cells' tokenizers, too."""
    note: str = ""
    """What must be known to read it."""


def settings(**values: object) -> tuple[str, ...]:
    """Flags that change the recipe; `__` stands for the dot: tokenizer__tokens=24."""
    words = {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items()}
    pairs = (f"{name.replace('__', '.')}={value}" for name, value in words.items())
    return tuple(word for pair in pairs for word in ("--set", pair))


def di2pose(*flags: str, tokenizer: tuple[str, ...] = (), adapter: bool = True) -> Stage:
    """Our model: tokenizer, adapter where the recipe has one, denoiser; `flags` are the denoiser's. Without `adapter`
    the adapter, where there is one, learns along with the denoiser."""
    read = (("--tokenizer", Stage("tokenizer", tokenizer)),)
    return Stage("denoiser", flags, read + (("--adapter", Stage("adapter")),) * adapter)


REFERENCE = di2pose()
"""Its training speed turns a budget of minutes into a number of iterations, the same for every stage of every cell."""

PEER = "blazepose"
PCT_TOKENIZER = settings(tokenizer__quantiser="vq", tokenizer__block="mixer", tokenizer__joint_embed=False)
LEVELS = ("[8,5,5,5]", "[7,5,5,5,5]", "[8,8,8,6,5]")
LOCAL = {x: settings(tokenizer__block="local", tokenizer__local_joints=x) for x in (1, 3, 5)}
"""Local-MLP tokenizers by the joints X that see each other; 3 is the paper's."""
STEPS = (25, 50, 100)
SHARES = (5, 10, 25, 50, 100)


def _tokenizer_table(title: str, cells: dict[str, tuple[str, ...]], note: str = "") -> Table:
    made = tuple(Cell(name, di2pose(tokenizer=flags)) for name, flags in cells.items())
    return Table(title, made, tokenizers=True, note=note)


def _identity_cells() -> dict[str, Stage]:
    """Tokenizers alone: block, joint vectors, token mix, and the order along which a Local-MLP block shifts."""
    found = {}
    for block, order in (("local", "index"), ("local", "chain"), ("mixer", "index")):
        for embed, mix in ((False, False), (True, False), (False, True), (True, True)):
            words = [block, *(["chain"] if order == "chain" else []), *(["joints"] if embed else [])]
            kind = settings(tokenizer__block=block, tokenizer__joint_order=order)
            flags = (*kind, *settings(tokenizer__joint_embed=embed, tokenizer__token_mix=mix))
            found[" + ".join(words + (["mix"] if mix else []))] = Stage("tokenizer", flags)
    return found


def _one_stage(method: str, *flags: str) -> Stage:
    """A method that sees crops in one stage only, as many as any other: what is compared must have seen the same."""
    if method == "di2pose":
        return di2pose(*flags, adapter=False)
    read = (("--tokenizer", Stage("tokenizer", PCT_TOKENIZER)),) if method == "pct" else ()
    return Stage(f"model {method}", flags, read)


TABLES: dict[str, Table] = {
    "methods": Table(
        "Methods on the same features",
        (
            Cell("di2pose", _one_stage("di2pose")),
            Cell("gaussian", _one_stage("gaussian")),
            Cell("pct", _one_stage("pct"), estimate="soft decode"),
            Cell("regression", _one_stage("regression")),
            Cell(PEER, None),
        ),
        tokenizers=True,
        note="Every method sees the same crops, in one stage and as often; tokenizers see poses besides. The peer is "
        "BlazePose's own 3D: nothing is trained. Figures are of the mean of the hypotheses; PCT's of its own answer, "
        "the probabilities decoded softly, but where hypotheses are fitted to landmarks.",
    ),
    "joint-shift": _tokenizer_table(
        "Joints X that see each other in a Local-MLP block",
        {str(x): flags for x, flags in LOCAL.items()},
    ),
    "levels": _tokenizer_table("FSQ levels", {text: settings(tokenizer__levels=text) for text in LEVELS}),
    "occlude": Table(
        "Final occlude rate (0: replace only, 1: occlude only)",
        tuple(Cell(str(r), di2pose(*settings(diffusion__final_occlude=r))) for r in (0.0, 0.3, 0.6, 0.9, 1.0)),
    ),
    "steps": Table(
        "Steps in training and in use",
        tuple(
            Cell(
                f"{train} / {used}",
                di2pose(*settings(diffusion__steps=train, denoiser__steps=train, sample_steps=STEPS[0])),
                steps=used,
                line=f"trained {train}",
                x=str(used),
            )
            for train in STEPS
            for used in STEPS
            if used <= train
        ),
        note="Training steps / inference steps.",
    ),
    "block": _tokenizer_table(
        "Blocks of the tokenizer", {"local": LOCAL[3], "mixer": settings(tokenizer__block="mixer")}
    ),
    "identity": Table(
        "Joint vectors, token mix and joint order of the tokenizer",
        tuple(Cell(name, stage) for name, stage in _identity_cells().items()),
        tokenizers=True,
        note="Tokenizers alone: what poses lose through tokens. joints: a learned vector a joint (joint_embed); mix: a "
        "norm and GELU between joints and channels (token_mix); chain: joints in the order of the limbs.",
    ),
    "carry-over": Table(
        "Carry-over: what a visible token says of its own clean value, in closed form",
        tuple(
            Cell(
                f"{rate}{' + carry-over' if on else ''}",
                di2pose(*settings(diffusion__final_occlude=rate, denoiser__carry_over=on)),
            )
            for rate, on in ((0.9, False), (0.9, True), (1.0, True))
        ),
        note="Final occlude rate, and whether visible tokens are carried over; at 1.0 they are certain by rule.",
    ),
    "tokens": _tokenizer_table("Tokens of a pose", {str(n): settings(tokenizer__tokens=n) for n in (24, 48, 100)}),
    "aux": Table(
        "Weight of the auxiliary loss",
        tuple(Cell(text, di2pose(*settings(diffusion__aux_weight=text))) for text in ("5e-4", "1e-2", "0.1", "1.0")),
    ),
    "adapter": Table(
        "Adapter and hint",
        (
            Cell("adapter and hint", di2pose()),
            Cell("adapter, no hint", di2pose(*settings(denoiser__hint_channels=0))),
            Cell(
                "neither",
                di2pose(*settings(denoiser__hint_channels=0, denoiser__adapter_layers=0), adapter=False),
            ),
        ),
        note="Recipes with an adapter only. With one, crops are seen by the adapter, then by the denoiser.",
    ),
    "share": Table(
        "Share of the training crops",
        tuple(
            Cell(
                f"{method}, {share} %",
                _one_stage(method, *(("--share", str(share / 100)) if share < 100 else ())),
                line=method,
                x=f"{share} %",
            )
            for method in ("di2pose", "gaussian", "regression")
            for share in SHARES
        ),
        note="The iterations are the same whatever the share. The tokenizer sees all poses: they need no pictures.",
    ),
}
