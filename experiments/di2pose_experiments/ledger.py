"""`di2pose ledger`: every table and figure of the paper beside ours, and whether its claim holds here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import pandas as pd

from di2pose.data.human36m import ACTIONS
from di2pose.errors import InputError
from di2pose.evaluation import paper
from di2pose.evaluation.paper import METHODS, PAPER_METHODS, paper_number
from di2pose.files import write_text
from di2pose.text_table import markdown
from di2pose_experiments.claims import CLAIMS, FAILS, HOLDS, NOT_HERE, NOT_RUN, OPEN, RULE, Claim, judge
from di2pose_experiments.plot import save_plot
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
)  # fmt: skip
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
ESTIMATORS_TEXT = (
    "**The estimators.** *One sample*: one pose drawn by Algorithm 2 as it is written (the mean error of each). *Mean "
    "of H*: the mean pose of H samples. *Soft decode*: the token probabilities of one pass, decoded without drawing; "
    "only methods with tokens have it. *Energy score*: all samples together as a statement of what is not known, "
    "smaller is better. Errors are MPJPE in mm."
)
PICTURES = {
    "fig:training samples ratio (b)": "Predictions under occlusion",
    "fig:qualitative results": "Qualitative results",
    "fig:app qualitative results": "More qualitative results",
    "Failure cases": "Failure cases",
}
LISTS = {HOLDS: "What holds", FAILS: "What does not hold", OPEN: "What is not decided"}
AS_WRITTEN = "di2pose, no carry-over"
METRICS = {"mpjpe": "MPJPE", "pa_mpjpe": "PA-MPJPE"}
Pair = tuple[str, str]
"""Data and protocol."""


@dataclass
class Block:
    """One table or figure of the paper: paragraphs, and a verdict for each set of data and each estimator."""

    label: str
    title: str
    text: list[str] = field(default_factory=list)
    verdicts: list[dict[str, str]] = field(default_factory=list)
    """Rows of the tables of verdicts."""
    missing: tuple[str, str] = (NOT_RUN, "")
    """In the place of verdicts where there are none, and why."""

    def judge(self, results: Results, cells: Sequence[str], pair: Pair, estimators: Iterable[Estimator] = ()) -> None:
        """Is the first of the cells the best? By each estimator that it has; rivals without the estimator are left out,
        those without any figure are not: they are yet to be run."""
        for estimator in estimators or (each for each in ESTIMATORS if each.judged):
            short, doubled = (results.values(*pair, estimator, doubled=twice) for twice in (False, True))
            rivals = [cell for cell in cells if cell in short or not results.of(cell, *pair)]
            if cells[0] in short and len(rivals) > 1:
                self.add(results, pair, estimator, {cell: short.get(cell, {}) for cell in rivals}, doubled)

    def add(
        self, results: Results, pair: Pair, estimator: Estimator, cells: Mapping[str, Seeds],
        doubled: Mapping[str, Seeds],
    ) -> None:  # fmt: skip
        found = judge(cells, doubled)
        name = estimator.name.format(results.counts(*pair, estimator)[-1])
        name += f", {METRICS[estimator.metric]}" if estimator.metric == "pa_mpjpe" else ""
        unchecked = found.word in (HOLDS, FAILS) and not found.length_checked
        effect = f"{found.rival} {found.effect:+.1f} %" if found.rival else ""
        self.verdicts.append({
            "claim": self.title, "data": pair[0], "by": name,
            "verdict": found.word + " (length not checked)" * unchecked,
            "rival that decides, effect": effect, "p": f"{found.p:.2g}", "effect of each rival, % (corrected p)":
            "; ".join(f"{rival} {effect:+.1f} ({p:.2g})" for rival, (effect, p) in found.rivals.items()),
            "seeds": str(found.seeds), "length": results.length(pair[1]),
            "short": ", ".join(filter(None, (found.word, effect))),
        })  # fmt: skip

    def figures(self, results: Results, *pairs: Pair) -> None:
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
        line = f"**{self.missing[0]}**: {self.missing[1]}"
        if self.verdicts:
            line = _table(
                pd.DataFrame(self.verdicts).drop(columns=["claim", "rival that decides, effect", "p", "short"])
            )
        return [f"## {self.title}", f"In the paper: `{self.label}`", line, *filter(None, self.text)]


def ledger(results: Path = Path("experiments/results"), out: Path = Path("experiments/results/ledger.md")) -> int:
    """Write the ledger: every table and figure of the paper, our figures from the stored results, and the verdicts.

    Args:
        results: folder of TABLE.json files of `di2pose ablate`; they may lie in folders of their own
        out: the page to write; plots are written beside it
    """
    if not results.is_dir():
        raise InputError(f"{results} is no folder: expected one with TABLE.json files of `di2pose ablate`")
    stored = [read_results(path) for path in sorted(results.rglob("*.json"))]
    write_text(out, build(stored))
    for each in stored:
        save_plot(each, out.parent / plot_name(each))
    print(f"{len(stored)} files of results; written: {out} and {len(stored)} plots beside it")
    return 0


def plot_name(results: Results) -> str:
    """Path of the plot of a table, relative to the page."""
    return f"ledger-{results.path.parent.name}-{results.table}.png"


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
        "docs/research.md says how they are made.",
        *_summary(pd.DataFrame([row for block in blocks for row in block.verdicts])),
    ]
    rows = [[f"`{block.label}`", block.title, block.missing[0]] for block in blocks if not block.verdicts]
    rows += [[f"`{label}`", title, f"{NOT_HERE}: pictures, no number to compare"] for label, title in PICTURES.items()]
    parts += ["## What cannot be said here, or yet", markdown(["the paper's", "what it is", "why"], rows)]
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
            parts += [f"### {title} (`{name}`)", *(filter(None, block.text or [f"**{NOT_RUN}**: `{_command(name)}`"]))]
    return "\n\n".join(parts) + "\n"


def _summary(verdicts: pd.DataFrame) -> list[str]:
    """A row for each claim and set of data, a column for each estimator; then the verdicts by what they say."""
    parts = [f"**The rule.** {RULE}", ESTIMATORS_TEXT]
    if verdicts.empty:
        return [*parts, *(text for title in LISTS.values() for text in (f"## {title}", "Nothing."))]
    wide = verdicts.groupby(["claim", "data", "by"], sort=False)["short"].first().unstack(fill_value="", sort=False)
    parts.insert(0, _table(wide.reindex(columns=verdicts["by"].unique()).reset_index()))
    listed = verdicts.drop(columns=["effect of each rival, % (corrected p)", "short"])
    for word, title in LISTS.items():
        some = listed[listed["verdict"].str.startswith(word)]
        parts += [f"## {title}", _table(some) if len(some) else "Nothing."]
    return parts


def _table(frame: pd.DataFrame) -> str:
    return markdown(list(frame.columns), frame.to_numpy().tolist())


def _command(table: str) -> str:
    alone = table in TABLES and TABLES[table].of_tokenizers
    return (TOKENIZERS_ON_OPEN_DATA if alone else ON_OPEN_DATA).format(table=table)


def _of(table: str, stored: Sequence[Results]) -> list[Results]:
    return [results for results in stored if results.table == table]


def _papers_own(results: Results, protocol: str, metric: str) -> list[str]:
    """The sets of test data that are the paper's own."""
    return list(dict.fromkeys(f["data"] for f in results.content["figures"] if f["protocol"] == protocol
                              and paper_number(protocol, metric, f["source"])))  # fmt: skip


def _paper_answers(metric: str) -> list[Estimator]:
    """The paper does not say whether its numbers are of one sample or a mean."""
    return [replace(each, metric=metric) for each in (SAMPLE, MEAN)]


def _answers(results: Results, data: str, protocol: str, metric: str) -> dict[str, str]:
    """Of each method: the mean of the hypotheses, or the one."""
    values = results.values(data, protocol, Estimator("", ("p-agg", "single"), metric))
    return {kind: spread(values.get(kind, {}).values()) for kind in METHODS}


def _by_action(label: str, protocol: str, metric: str, stored: Sequence[Results]) -> Block:
    block = Block(label, f"Human3.6M by action, {METRICS[metric]}", missing=(NOT_HERE, FILLED_BY))
    average = PAPER_METHODS[protocol, metric]
    printed = {"di2pose": paper.PAPER_ACTIONS[protocol], "gaussian": paper.DIFFPOSE_ACTIONS[protocol]}
    rows = [[f"paper: {name}", *map(str, printed.get(kind, ("",) * len(ACTIONS))), str(average.get(kind, ""))]
            for kind, name in METHODS.items()]  # fmt: skip
    for results in _of("methods", stored):
        for data in _papers_own(results, protocol, metric):
            for kind, whole in _answers(results, data, protocol, metric).items():
                every = [figure["actions"] for figure in results.of(kind, data, protocol)]
                means = [[each[action] for each in every if each[action] is not None] for action in ACTIONS]
                rows.append([f"ours: {kind}", *(f"{fmean(mean):.1f}" if mean else "" for mean in means), whole])
            block.judge(results, tuple(average), (data, protocol), _paper_answers(metric))
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
            ours = [_answers(results, sets[key][0], *key) if sets[key] else dict.fromkeys(METHODS, "") for key in keys]
            rows += [[f"ours: {kind}", *(answers[kind] for answers in ours)] for kind in METHODS]
            for (protocol, metric), several in sets.items():
                for data in several:
                    block.judge(results, tuple(METHODS), (data, protocol), _paper_answers(metric))
            block.figures(results)
    block.text.insert(0, markdown(["", *(f"{protocol} {METRICS[metric]}" for protocol, metric in keys)], rows))
    block.text.append(
        "3DPW-Occ is a choice of sequences, hardly more occluded than 3DPW: what is said of occlusion rests on AdvOcc. "
        "The paper's \"up to 129 %\" is DiffPose's loss at 80 px; other rows of its table lose more."
    )
    return block


def _open_methods(stored: Sequence[Results]) -> list[Block]:
    """Discrete diffusion before continuous and before PCT, on open data: ours, and as the paper writes it."""
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
                ratios = [_ratios(results.values(*pair, estimator, doubled=doubled)) for doubled in (False, True)]
                cells = {name: ratios[0][name] for name in ("di2pose", "gaussian")}
                block.add(results, pair, estimator, cells, ratios[1])
                rows.append([block.verdicts[-1]["by"], *(spread(ratios[0][name].values(), 3) for name in SHARED)])
            block.text.append(markdown([f"{pair[0]}: error at {least} % / at {most} %", *SHARED], rows))
        block.figures(results, *results.sets())
    block.text.append(f"On the paper's data: `{ON_PAPERS_DATA.format(table='share', more='')}`")
    return block


def _ratios(values: Mapping[str, Seeds]) -> dict[str, Seeds]:
    """Method -> seed -> its error with the smallest share of the records over that with all."""
    pairs = {name: [values.get(f"{name}, {share} %", {}) for share in (SHARES[0], SHARES[-1])] for name in SHARED}
    return {name: {seed: few[seed] / many[seed] for seed in few.keys() & many.keys()}
            for name, (few, many) in pairs.items()}  # fmt: skip


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
    elsewhere = "The figures stand above, with the other claim of this table."
    block.text.append(
        elsewhere if again else f"On the paper's data: `{ON_PAPERS_DATA.format(table=claim.table, more='')}`"
    )
    return block
