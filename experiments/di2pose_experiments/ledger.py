"""`di2pose ledger`: every table and figure of the paper beside ours, and whether its claim holds here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from di2pose.data.human36m import ACTIONS
from di2pose.errors import InputError
from di2pose.evaluation import paper
from di2pose.evaluation.paper import METHODS, PAPER_METHODS, paper_number
from di2pose.evaluation.report import METRICS
from di2pose.files import replacing, write_text
from di2pose.text_table import markdown
from di2pose_experiments.claims import CLAIMS, FAILS, HOLDS, NOT_HERE, NOT_RUN, OPEN, RULE, Claim, Verdict, judge
from di2pose_experiments.figure import draw
from di2pose_experiments.results import (
    ESTIMATORS,
    MEAN,
    SAMPLE,
    TOKENIZER,
    Estimator,
    Results,
    Seeds,
    made_by,
    read_results,
    spread,
    table_of,
)
from di2pose_experiments.tables import SHARED, SHARES, TABLES

ON_PAPERS_DATA = (
    "di2pose ablate {table} --recipe paper --features features/h36m --data prepared/h36m --seeds 5 --device cuda"
    ' --jobs 1 --launch "torchrun --nproc-per-node 8 -m di2pose" --test h36m=features/h36m@h36m-p1,h36m-p2'
    '{more} --evaluate="--true-boxes --no-second-look --no-flip-test" --hypotheses 1,8 --out out/paper'
)
THREEDPW = " 3dpw=prepared/3dpw@3dpw-14,3dpw-occ,advocc-40,advocc-80"
ON_OPEN_DATA = (
    "di2pose ablate {table} --features lift-train lift-test --test lift=lift-test --iterations 8000 --seeds 5 "
    "--double 0 --hypotheses 8,32 --out out/ablate"
)
TOKENIZERS_ON_OPEN_DATA = (
    "di2pose ablate {table} --data cmu --test cmu=cmu --iterations 6000 --seeds 5 --double 0 --out out/ablate"
)
FILLED_BY = (
    "Human3.6M and 3DPW come with a licence that each user signs; none of them is here. The command that fills it: "
    f"`{ON_PAPERS_DATA.format(table='methods', more=THREEDPW)}`"
)
PICTURES = (
    ("fig:training samples ratio (b)", "Predictions under occlusion"),
    ("fig:qualitative results", "Qualitative results"),
    ("fig:app qualitative results", "More qualitative results"),
    ("Failure cases", "Failure cases"),
)
PLOTS = "images"
LISTS = {HOLDS: "What holds", FAILS: "What does not hold", OPEN: "What is not decided"}
AS_WRITTEN = "di2pose, no carry-over"


@dataclass
class Block:
    """One table or figure of the paper: paragraphs, and a verdict for each set of data and each estimator."""

    label: str
    title: str
    text: list[str] = field(default_factory=list)
    verdicts: list[tuple[str, str, Verdict, str]] = field(default_factory=list)
    """Data, estimator, verdict, length."""
    missing: tuple[str, str] = (NOT_RUN, "")
    """What stands in the place of verdicts where there are none, and why."""

    def judge(
        self, results: Results, cells: Sequence[str], pair: tuple[str, str], estimators: Iterable[Estimator] = ()
    ) -> None:
        """Is the first of the cells the best? By each estimator that it has; rivals without the estimator are left out,
        those without any figure are not: they are yet to be run."""
        for estimator in estimators or (each for each in ESTIMATORS if each.judged):
            short, doubled = (
                {cell: results.values(cell, *pair, estimator, doubled=twice) for cell in cells}
                for twice in (False, True)
            )
            rivals = [cell for cell in cells if short[cell] or not results.of(cell, *pair)]
            if short[cells[0]] and len(rivals) > 1:
                self.add(results, pair, estimator, {cell: short[cell] for cell in rivals}, doubled)

    def add(
        self,
        results: Results,
        pair: tuple[str, str],
        estimator: Estimator,
        cells: Mapping[str, Seeds],
        doubled: Mapping[str, Seeds],
    ) -> None:
        counts = results.counts(*pair, estimator)
        name = estimator.name.format(counts[-1])
        if estimator.metric not in ("mpjpe", "mpjpe_hidden", "energy"):
            name += f", {METRICS[estimator.metric][0]}"
        self.verdicts.append((pair[0], name, judge(cells, doubled), results.length(pair[1])))

    def figures(self, results: Results, *pairs: tuple[str, str]) -> None:
        """All estimators of all cells, the plot, and how they were made."""
        content = results.content
        for pair in pairs:
            self.text += [f"**{pair[0]}**, {pair[1]}, mm, mean ± deviation over the training seeds:"]
            self.text += [table_of(results, *pair)]
        self.text += [f"![{content['title']}]({plot_name(results)})", content["note"]]
        for cell, search in content["said"].get("learning_rates", {}).items():
            self.text += [f"Learning rate of {cell}: {search['chosen']}, of {', '.join(search['tried'])}."]
        self.text += [f"{made_by(content)}: `{content['command']}`"]

    def paragraphs(self) -> list[str]:
        lines = [f"**{self.missing[0]}**: {self.missing[1]}"]
        if self.verdicts:
            head = ["data", "by", "verdict", "effect of each rival, % (corrected p)", "seeds", "length"]
            lines = [markdown(head, [[data, name, _word(found), _rivals(found), str(found.seeds), length]
                                     for data, name, found, length in self.verdicts])]  # fmt: skip
        return [f"## {self.title}", f"In the paper: `{self.label}`", *lines, *filter(None, self.text)]


def ledger(results: Path = Path("experiments/results"), out: Path = Path("docs/ledger.md")) -> int:
    """Write the ledger: every table and figure of the paper, our figures from the stored results, and the verdicts.

    Args:
        results: folder of TABLE.json files of `di2pose ablate`; they may lie in folders of their own
        out: the page to write; plots are written to a folder `images` beside it
    """
    if not results.is_dir():
        raise InputError(f"{results} is no folder: expected one with TABLE.json files of `di2pose ablate`")
    stored = [read_results(path) for path in sorted(results.rglob("*.json"))]
    write_text(out, build(stored))
    for each in stored:
        with replacing(out.parent / plot_name(each)) as temporary:
            draw(each).save(temporary, optimize=True)
    print(f"{len(stored)} files of results; written: {out} and {len(stored)} plots below {out.parent / PLOTS}")
    return 0


def plot_name(results: Results) -> str:
    """Where the plot of a table lies, seen from the page."""
    return f"{PLOTS}/ledger-{results.path.parent.name}-{results.table}.png"


def build(stored: Sequence[Results]) -> str:
    """The page."""
    blocks = [
        *_open_methods(stored),
        _shares(stored),
        *(_ablation(claim, stored) for claim in CLAIMS),
        _by_action("tab:h36m", "h36m-p1", "mpjpe", stored),
        _by_action("tab:app_h36m", "h36m-p2", "pa_mpjpe", stored),
        _threedpw(stored),
    ]
    parts = [
        "# Ledger: what the paper claims, and what holds here",
        "Written by `di2pose ledger` from the figures in `experiments/results`: nothing is changed by hand. "
        "[reproduction.md](reproduction.md) says how they are made.",
        *_glance(blocks),
        f"**The rule.** {RULE}",
        "**The estimators.** *One sample*: one pose drawn by Algorithm 2 as it is written (the mean error of each). "
        "*Mean of H*: the mean pose of H samples. *Soft decode*: the token probabilities of one pass, decoded without "
        "drawing; only methods with tokens have it. *Energy score*: all samples together as a statement of what is not "
        "known, smaller is better. Errors are MPJPE in mm.",
        *(text for head, title in LISTS.items() for text in _listed(title, head, blocks)),
        *_unsaid(blocks),
    ]
    for block in blocks:
        parts += block.paragraphs()
    parts.append("## Figures without a claim of the paper")
    used = {"methods", "share", *(claim.table for claim in CLAIMS)}
    for name in dict.fromkeys([*TABLES, *(each.table for each in stored)]):
        if name not in used:
            block = Block("", "")
            for results in _of(name, stored):
                block.figures(results, *results.sets())
            title = TABLES[name].title if name in TABLES else _of(name, stored)[0].content["title"]
            missing = f"**{NOT_RUN}**: `{_command(name)}`"
            parts += [f"### {title} (`{name}`)", *(filter(None, block.text) if block.text else [missing])]
    return "\n\n".join(parts) + "\n"


def _glance(blocks: Sequence[Block]) -> list[str]:
    """A row for each claim and set of data, a column for each estimator."""
    names = list(dict.fromkeys(name for block in blocks for _, name, *_ in block.verdicts))
    rows = []
    for block in blocks:
        for data in dict.fromkeys(data for data, *_ in block.verdicts):
            found = {name: verdict for each, name, verdict, _ in block.verdicts if each == data}
            words = {name: f"{each.word}{_effect(each)}" for name, each in found.items()}
            rows.append([block.title, data, *(words.get(name, "") for name in names)])
    return [markdown(["claim", "data", *names], rows)] if rows else []


def _listed(title: str, word: str, blocks: Sequence[Block]) -> list[str]:
    """One line a verdict."""
    rows = [
        [block.title, data, name, _word(found), _effect(found).strip(", "), f"{found.p:.2g}",
         str(found.seeds), length]
        for block in blocks for data, name, found, length in block.verdicts if found.word.startswith(word)
    ]  # fmt: skip
    head = ["claim", "data", "by", "verdict", "rival that decides, effect", "p", "seeds", "length"]
    return [f"## {title}", markdown(head, rows) if rows else "Nothing."]


def _unsaid(blocks: Sequence[Block]) -> list[str]:
    rows = [[f"`{block.label}`", block.title, block.missing[0]] for block in blocks if not block.verdicts]
    rows += [[f"`{label}`", title, f"{NOT_HERE}: pictures, no number to compare"] for label, title in PICTURES]
    return ["## What cannot be said here, or yet", markdown(["the paper's", "what it is", "why"], rows)]


def _word(verdict: Verdict) -> str:
    return verdict.word + (" (length not checked)" if verdict.decided and not verdict.length_checked else "")


def _effect(verdict: Verdict) -> str:
    return f", {verdict.rival} {verdict.effect:+.1f} %" if verdict.rival else ""


def _rivals(verdict: Verdict) -> str:
    return "; ".join(f"{name} {effect:+.1f} ({p:.2g})" for name, (effect, p) in verdict.rivals.items())


def _command(table: str) -> str:
    alone = table in TABLES and TABLES[table].of_tokenizers
    return (TOKENIZERS_ON_OPEN_DATA if alone else ON_OPEN_DATA).format(table=table)


def _of(table: str, stored: Sequence[Results]) -> list[Results]:
    return [results for results in stored if results.table == table]


def _papers_own(results: Results, protocol: str, metric: str) -> list[str]:
    """The sets of test data that are the paper's own."""
    found = [f["data"] for f in results.content["figures"]
             if f["protocol"] == protocol and paper_number(protocol, metric, f["source"])]  # fmt: skip
    return list(dict.fromkeys(found))


def _by_action(label: str, protocol: str, metric: str, stored: Sequence[Results]) -> Block:
    block = Block(label, f"Human3.6M by action, {METRICS[metric][0]}", missing=(NOT_HERE, FILLED_BY))
    average = PAPER_METHODS[protocol, metric]
    printed = {"di2pose": paper.PAPER_ACTIONS[protocol], "gaussian": paper.DIFFPOSE_ACTIONS[protocol]}
    blank = ("",) * len(ACTIONS)
    rows = [[f"paper: {name}", *map(str, printed.get(kind, blank)), str(average.get(kind, ""))]
            for kind, name in METHODS.items()]  # fmt: skip
    for results in _of("methods", stored):
        for data in _papers_own(results, protocol, metric):
            for kind in METHODS:
                every = [figure["actions"] for figure in results.of(kind, data, protocol)]
                means = [[each[action] for each in every if each[action] is not None] for action in ACTIONS]
                whole = _plain(results, kind, data, protocol, metric)
                rows.append([f"ours: {kind}", *(f"{fmean(mean):.1f}" if mean else "" for mean in means), whole])
            block.judge(results, tuple(average), (data, protocol), _with(metric))
            block.figures(results)
    block.text.insert(0, markdown(["", *paper.ACTION_HEADINGS, "Avg"], rows))
    if protocol == "h36m-p2":
        block.text.append("The paper prints 39.0 for Di2Pose; its 15 values have the mean 39.16.")
    return block


def _threedpw(stored: Sequence[Results]) -> Block:
    block = Block("tab:3dpw", "3DPW, 3DPW-Occ, AdvOcc@40 and @80", missing=(NOT_HERE, FILLED_BY))
    keys = [key for key in PAPER_METHODS if not key[0].startswith("h36m")]
    rows = [[f"paper: {name}", *(str(PAPER_METHODS[key][kind]) for key in keys)] for kind, name in METHODS.items()]
    for results in _of("methods", stored):
        sets = {key: _papers_own(results, *key) for key in keys}
        if any(sets.values()):
            for kind in METHODS:
                ours = [_plain(results, kind, sets[key][0], *key) if sets[key] else "" for key in keys]
                rows.append([f"ours: {kind}", *ours])
            for protocol, metric in keys:
                for data in sets[protocol, metric]:
                    block.judge(results, tuple(METHODS), (data, protocol), _with(metric))
            block.figures(results)
    head = ["", *(f"{protocol} {METRICS[metric][0]}" for protocol, metric in keys)]
    block.text.insert(0, markdown(head, rows))
    block.text.append(
        "3DPW-Occ is a choice of sequences, hardly more occluded than 3DPW: what is said of occlusion rests on AdvOcc. "
        "The paper's \"up to 129 %\" is DiffPose's loss at 80 px; other rows of its table lose more."
    )
    return block


def _with(metric: str) -> list[Estimator]:
    """Answers of the paper's tables: it does not say whether they are one sample or a mean."""
    return [replace(each, metric=metric) for each in (SAMPLE, MEAN)]


def _plain(results: Results, cell: str, data: str, protocol: str, metric: str) -> str:
    """The mean of the hypotheses, or the one."""
    either = Estimator("", ("p-agg", "single"), metric)
    return spread(results.values(cell, data, protocol, either).values()) or "-"


def _open_methods(stored: Sequence[Results]) -> list[Block]:
    """The claim of all three tables, discrete diffusion before continuous and before PCT, on data that is here: ours,
    and as the paper writes it."""
    title = "Discrete diffusion beats continuous diffusion (gaussian) and PCT"
    missing = (NOT_RUN, f"`{_command('methods')}`")
    ours = Block("tab:h36m, tab:3dpw", title, missing=missing)
    written = Block("tab:h36m, tab:3dpw", f"{title}, without carry-over", missing=missing)
    written.text.append("The same table as above: carry-over is this project's, the paper as it is written has none.")
    for results in _of("methods", stored):
        licensed = {(data, key[0]) for key in PAPER_METHODS for data in _papers_own(results, *key)}
        shown = [pair for pair in results.sets() if pair[1] != TOKENIZER and pair not in licensed]
        for pair in shown:
            ours.judge(results, tuple(METHODS), pair)
            written.judge(results, (AS_WRITTEN, *(kind for kind in METHODS if kind != "di2pose")), pair)
        if shown:
            ours.figures(results, *shown)
    return [ours, written]


def _shares(stored: Sequence[Results]) -> Block:
    least, most = SHARES[0], SHARES[-1]
    block = Block("fig:training samples ratio (a)", "With less data discrete diffusion loses less than continuous")
    block.missing = NOT_RUN, f"`{_command('share')}`"
    block.text.append(
        "A figure, no numbers printed. The claim: as the share falls, continuous diffusion declines more rapidly than "
        f"Di2Pose. Its measure here: the error at {least} % over that at {most} %, of the same seed."
    )
    for results in _of("share", stored):
        for pair in (pair for pair in results.sets() if "p2" not in pair[1]):
            rows = []
            for estimator in (each for each in ESTIMATORS if each.judged and results.counts(*pair, each)):
                ratios: list[dict[str, Seeds]] = []
                for doubled in (False, True):
                    found = {}
                    for name in SHARED:
                        few, all_of = (results.values(f"{name}, {share} %", *pair, estimator, doubled=doubled)
                                       for share in (least, most))  # fmt: skip
                        found[name] = {seed: few[seed] / all_of[seed] for seed in few.keys() & all_of.keys()}
                    ratios.append(found)
                cells = {name: ratios[0][name] for name in ("di2pose", "gaussian")}
                block.add(results, pair, estimator, cells, ratios[1])
                name = estimator.name.format(results.counts(*pair, estimator)[-1])
                rows.append([name, *(spread(ratios[0][name].values(), 3) or "-" for name in SHARED)])
            block.text.append(markdown([f"{pair[0]}: error at {least} % / at {most} %", *SHARED], rows))
        block.figures(results, *results.sets())
    block.text.append(f"On the paper's data: `{ON_PAPERS_DATA.format(table='share', more='')}`")
    return block


def _ablation(claim: Claim, stored: Sequence[Results]) -> Block:
    block = Block(claim.label, claim.title, [claim.note], missing=(NOT_RUN, f"`{_command(claim.table)}`"))
    if any(any(pair) for pair in claim.paper.values()):
        rows = [[name, *(str(value or "-") for value in printed)] for name, printed in claim.paper.items()]
        block.text.append(markdown(["the paper prints", "MPJPE", "PA-MPJPE"], rows))
    again = next(each for each in CLAIMS if each.table == claim.table) != claim
    for results in _of(claim.table, stored):
        for pair in results.sets():
            block.judge(results, claim.rows(results), pair)
        if not again:
            block.figures(results, *results.sets())
    block.text.append(
        "The figures stand above, with the other claim of this table." if again
        else f"On the paper's data: `{ON_PAPERS_DATA.format(table=claim.table, more='')}`"
    )  # fmt: skip
    return block
