"""What the paper claims, as data, and the rule that decides: a verdict is computed from figures, never written down."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

from di2pose.evaluation.paper import PAPER_ABLATIONS, Ablation
from di2pose.reproduction.results import TOKENIZER, Results, Seeds

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided (within the deviation)"
NOT_RUN, NOT_HERE = "not run yet", "not testable here"
RULE = (
    "The claim of a table is which of its rows is best. Of each other row, the differences to that row with the same "
    "training seed have a mean m and a deviation d over n seeds. A difference is clear where |m| > 2 d / sqrt(n). The "
    f"claim `{HOLDS}` where all other rows are clearly worse, `{FAILS}` where one is clearly better, else it is "
    f"`{OPEN}`; also where there are fewer than two seeds. So few seeds say little: a verdict is as good as its n."
)


@dataclass(frozen=True)
class Claim:
    """One of the paper's tables that an ablation fills."""

    label: str
    title: str
    table: str
    """Of `reproduction.tables`."""
    best: str
    """The cell that the paper has as the best; the others are the cells of `paper`."""
    paper: Ablation
    tokenizer: bool = False
    """About what poses lose through tokens, not about poses estimated from pictures."""
    note: str = ""

    def sets(self, results: Results) -> list[tuple[str, str]]:
        return [pair for pair in results.sets() if (pair[1] == TOKENIZER) == self.tokenizer]


COPY_ERROR = (
    "The paper's PCT row and its [8,5,5,5] row print the same two numbers, and a PA-MPJPE above the MPJPE, which "
    "alignment rules out but for noise: one is a copy of the other. They are no targets."
)
CLAIMS = (
    Claim(
        "ablation:quantization",
        "Representation: our tokenizer against PCT's, reconstruction",
        "methods",
        "di2pose",
        PAPER_ABLATIONS["ablation:quantization"],
        tokenizer=True,
        note=COPY_ERROR,
    ),
    Claim(
        "ablation:local_num.",
        "Local joint number X, reconstruction",
        "joint-shift",
        "3",
        PAPER_ABLATIONS["ablation:local_num."],
        tokenizer=True,
    ),
    Claim(
        "ablation:levels",
        "FSQ levels, reconstruction",
        "levels",
        "[7,5,5,5,5]",
        PAPER_ABLATIONS["ablation:levels"],
        tokenizer=True,
        note=COPY_ERROR,
    ),
    Claim("ablation:occ_rate", "Final occlude rate", "occlude", "0.9", PAPER_ABLATIONS["ablation:occ_rate"]),
    Claim(
        "ablation:matrices",
        "Transition matrices: replace (0.0), both (0.9), occlude (1.0)",
        "occlude",
        "0.9",
        PAPER_ABLATIONS["ablation:matrices"],
        note="The paper's three rows are rows of its table of occlude rates, and so are ours.",
    ),
    Claim(
        "ablation:steps",
        "Training steps / inference steps",
        "steps",
        "100 / 100",
        PAPER_ABLATIONS["ablation:steps"],
        note="The paper prints MPJPE only.",
    ),
    Claim(
        "text: Local-MLP",
        "Local-MLP against MLP-Mixer, reconstruction",
        "block",
        "local",
        {"local": (None, None), "mixer": (None, None)},
        tokenizer=True,
        note="The paper compares with PCT, whose quantiser differs, too; it prints no number for the block alone.",
    ),
)


def verdict(best: Seeds, others: Mapping[str, Seeds]) -> tuple[str, str]:
    """By the RULE: the verdict, and the difference that it hangs on."""
    closest: tuple[float, str] | None = None
    for name, other in others.items():
        seeds = sorted(best.keys() & other.keys())
        if len(seeds) < 2:
            return OPEN, f"fewer than two seeds of {name}" if best and other else f"no figure of {name}"
        gaps = [other[seed] - best[seed] for seed in seeds]
        mean, noise = fmean(gaps), 2 * stdev(gaps) / len(gaps) ** 0.5
        # How far from the other verdict: above 1 clearly worse than the best, below -1 clearly better.
        clear = mean / noise if noise else float("inf") * mean if mean else 0.0
        if closest is None or clear < closest[0]:
            closest = clear, f"{name} {mean:+.1f}, noise {noise:.1f}, {len(seeds)} seeds"
    if closest is None:
        return OPEN, "nothing to compare with"
    return (HOLDS if closest[0] > 1 else FAILS if closest[0] < -1 else OPEN), closest[1]
