"""The paper's claims as data, and the rule that decides them from figures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

from scipy.special import stdtr

from di2pose.evaluation.paper import PAPER_ABLATIONS, Ablation
from di2pose_experiments.results import Results, Seeds
from di2pose_experiments.tables import SHARED, SHARES

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"
UNDER_TRAINED, SMALL = f"{OPEN} (under-trained)", f"{OPEN} (effect below 2 %)"
NOT_RUN, NOT_HERE = "not run yet", "not testable here"
ALPHA, LEAST_SEEDS, LEAST_EFFECT, MOST_CHANGE = 0.05, 5, 0.02, 0.02
RULE = (
    "A claim says which row of a table is best. It is judged for each set of test data and each estimator on its own, "
    "never one estimator against another. Every other row (rival) is compared with the paper's best row by a paired t "
    "test over training seeds, two-sided, with Holm's correction over all rivals of the claim. A difference is clear "
    f"where the corrected p is at most {ALPHA:g} and the effect, the mean difference in per cent of the rival's value, "
    f"is at least {100 * LEAST_EFFECT:g} %. The claim **{HOLDS}** where all rivals are clearly worse, **{FAILS}** "
    f"where one is clearly better, else it is **{OPEN}**; with fewer than {LEAST_SEEDS} seeds it is never decided. "
    f"Where runs of twice the length exist, every compared row must change by less than {100 * MOST_CHANGE:g} % and no "
    f"clear difference may change its sign, else the claim is **{UNDER_TRAINED}**; where they do not exist the length "
    "is not checked, and the verdict says so."
)


@dataclass(frozen=True)
class Verdict:
    """What the rule says of one claim, on one set of data, by one estimator."""

    word: str
    rival: str = ""
    """The row that decides, its effect in per cent (above 0: the paper's best is better), and corrected p."""
    effect: float = math.nan
    p: float = math.nan
    seeds: int = 0
    """Fewest seeds that a rival shares with the best."""
    rivals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Each rival's effect and corrected p."""
    length_checked: bool = False


@dataclass(frozen=True)
class Claim:
    """One of the paper's tables that an ablation fills."""

    label: str
    title: str
    table: str
    """Of `tables.TABLES`."""
    best: str
    """The cell that the paper has as the best; its rivals are the other rows of `paper` that the table has."""
    paper: Ablation
    """Printed figures of each row."""
    note: str = ""

    def rows(self, results: Results) -> tuple[str, ...]:
        """The cells to compare, the paper's best first; of the table `share` its methods."""
        known = SHARED if self.table == "share" else results.cells
        return (self.best, *(cell for cell in known if cell in self.paper and cell != self.best))


COPY_ERROR = (
    "The paper's PCT row and its [8,5,5,5] row print the same two numbers, and a PA-MPJPE above the MPJPE, which "
    "alignment rules out but for noise: one is a copy of the other. They are no targets."
)
BEATS = "Discrete diffusion beats continuous diffusion (gaussian) and PCT"
CLAIMS = (
    Claim(
        "tab:h36m, tab:3dpw", BEATS, "methods", "di2pose", dict.fromkeys(("di2pose", "gaussian", "pct"), (None, None)),
    ),
    Claim(
        "tab:h36m, tab:3dpw", f"{BEATS}, without carry-over", "methods", "di2pose, no carry-over",
        dict.fromkeys(("di2pose, no carry-over", "gaussian", "pct"), (None, None)),
        note="Carry-over is this project's; the paper as it is written has none.",
    ),
    Claim(
        "fig:training samples ratio (a)", "With less data discrete diffusion loses less than continuous", "share",
        "di2pose", dict.fromkeys(("di2pose", "gaussian"), (None, None)),
        note="A figure, no numbers printed. The claim: as the share falls, continuous diffusion declines more rapidly "
        f"than Di2Pose. Its measure here: the error at {SHARES[0]} % over that at {SHARES[-1]} %, of the same seed.",
    ),
    Claim(
        "ablation:matrices, ablation:occ_rate", "Replacing and occluding together (final occlude rate 0.9) beat either "
        "alone", "matrices", "0.9", PAPER_ABLATIONS["ablation:occ_rate"],
        note="Rate 0 only replaces tokens, 1 only occludes them. Both tables of the paper hold these rows.",
    ),
    Claim(
        "ablation:steps", "More steps are better: 100 in training, 100 in use", "steps", "100 / 100",
        PAPER_ABLATIONS["ablation:steps"], note="Training steps / inference steps. The paper prints MPJPE only.",
    ),
    Claim(
        "ablation:quantization", "The tokenizer (FSQ, Local-MLP) loses less of a pose than PCT's (VQ, Mixer)", "block",
        "local", PAPER_ABLATIONS["ablation:quantization"], note=COPY_ERROR,
    ),
    Claim(
        "text: Local-MLP", "Local-MLP blocks lose less of a pose than Mixer blocks", "block", "local",
        {"local": (None, None), "mixer": (None, None)},
        note="The paper compares with PCT, whose quantiser differs, too; it prints no number for the block alone.",
    ),
    Claim(
        "ablation:local_num.", "Three joints that see each other (X) are best", "joint-shift", "3",
        PAPER_ABLATIONS["ablation:local_num."],
    ),
    Claim(
        "ablation:levels", "FSQ levels [7,5,5,5,5] are best", "levels", "[7,5,5,5,5]",
        PAPER_ABLATIONS["ablation:levels"], note=COPY_ERROR,
    ),
)  # fmt: skip


def judge(cells: Mapping[str, Seeds], doubled: Mapping[str, Seeds] | None = None) -> Verdict:
    """By the RULE: is the first of the cells the best? `doubled`: results of runs of twice the length."""
    (_, best), *others = cells.items()
    seeds = min((len(best.keys() & other.keys()) for _, other in others), default=0)
    too_few = f"{OPEN} ({seeds} seeds, {LEAST_SEEDS} needed)"
    if seeds < 2:
        return Verdict(too_few, seeds=seeds)
    tests = {name: _compared(best, other) for name, other in others}
    corrected = holm({name: p for name, (_, p) in tests.items()})
    rivals = {name: (effect, corrected[name]) for name, (effect, _) in tests.items()}
    clear = [name for name, (effect, p) in rivals.items() if p <= ALPHA and abs(effect) >= 100 * LEAST_EFFECT]
    better = {name: rivals[name] for name in clear if rivals[name][0] < 0}
    decides = min(better or rivals, key=lambda name: rivals[name][::-1] if better else rivals[name])
    found = Verdict("", decides, *rivals[decides], seeds, rivals)
    if seeds < LEAST_SEEDS:
        return replace(found, word=too_few)
    if not better and len(clear) < len(rivals):
        return replace(found, word=SMALL if found.p <= ALPHA else OPEN)
    stable = _stable(cells, doubled or {}, clear)
    word = UNDER_TRAINED if stable is False else FAILS if better else HOLDS
    return replace(found, word=word, length_checked=stable is not None)


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """p values with Holm's correction for several tests."""
    found, largest = {}, 0.0
    for place, name in enumerate(sorted(p, key=lambda each: p[each])):
        largest = found[name] = max(largest, min(1.0, (len(p) - place) * p[name]))
    return found


def _compared(best: Seeds, other: Seeds) -> tuple[float, float]:
    """Effect of a rival in per cent of its value, and p of the paired t test."""
    seeds = sorted(best.keys() & other.keys())
    gaps = [other[seed] - best[seed] for seed in seeds]
    mean, error = fmean(gaps), stdev(gaps) / math.sqrt(len(gaps))
    t = mean / error if error else math.copysign(math.inf, mean) if mean else 0.0
    value = abs(fmean(other[seed] for seed in seeds))
    return 100 * mean / value if value else 0.0, 2 * float(stdtr(len(gaps) - 1, -abs(t)))


def _stable(cells: Mapping[str, Seeds], doubled: Mapping[str, Seeds], clear: Sequence[str]) -> bool | None:
    """Whether twice the length changes little, and no clear difference's sign; None: not run for every cell."""
    best, checked = next(iter(cells)), 0
    for name, short in cells.items():
        seeds = short.keys() & doubled.get(name, {}).keys()
        checked += bool(seeds)
        if seeds and abs(_mean(doubled[name], seeds) / _mean(short, seeds) - 1) >= MOST_CHANGE:
            return False
        if name in clear and (both := seeds & doubled.get(best, {}).keys()):
            gaps = [_mean(values[name], both) - _mean(values[best], both) for values in (cells, doubled)]
            if gaps[0] * gaps[1] <= 0:
                return False
    return True if checked == len(cells) else None


def _mean(values: Seeds, seeds: Iterable[int]) -> float:
    return fmean(values[seed] for seed in seeds)
