"""`di2pose ledger`: every table and figure of the paper beside ours, and whether its claim holds here."""

from collections import defaultdict
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
    "di2pose ablate {table} --features lift/hard lift/clear lift/test-hard --data cmu --test hard=lift/test-hard "
    "real=lift/real --iterations 8000 --adapter-iterations 10000 --seeds 5 --double 0 --hypotheses 8,32 "
    "--evaluate=--no-fit --out out/ablate"
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
            short, doubled = (_values(results, pair, estimator, twice) for twice in (False, True))
            rivals = [cell for cell in cells if cell in short or not results.of(cell, *pair)]
            if cells[0] not in short or len(rivals) < 2:
                continue
            found = judge({cell: short.get(cell, {}) for cell in rivals}, doubled)
            unchecked = found.word in (HOLDS, FAILS) and not found.length_checked
            effect = f"{found.rival} {found.effect:+.1f} %" if found.rival else ""
            self.verdicts.append({
                "claim": self.title, "data": pair[0], "by": _name(results, pair, estimator),
                "verdict": found.word + " (length not checked)" * unchecked,
                "rival that decides, effect": effect, "p": f"{found.p:.2g}", "effect of each rival, % (corrected p)":
                "; ".join(f"{rival} {effect:+.1f} ({p:.2g})" for rival, (effect, p) in found.rivals.items()),
                "seeds": str(found.seeds), "length": results.length(pair[1]),
                "same seeds, twice as long": _doubled_values({cell: short.get(cell, {}) for cell in rivals}, doubled),
                "short": ", ".join(filter(None, (found.word, effect))),
            })  # fmt: skip

    def figures(self, results: Results, pairs: Iterable[Pair]) -> None:
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
            left_out = ["claim", "rival that decides, effect", "p", "short"]
            line = _table(pd.DataFrame(self.verdicts).drop(columns=left_out))
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
    others = [key for key in PAPER_METHODS if not key[0].startswith("h36m")]
    blocks = [
        *(_claimed(claim, stored) for claim in CLAIMS),
        _licensed("tab:h36m", "Human3.6M by action, MPJPE", [("h36m-p1", "mpjpe")], stored),
        _licensed("tab:app_h36m", "Human3.6M by action, PA-MPJPE", [("h36m-p2", "pa_mpjpe")], stored),
        _licensed("tab:3dpw", "3DPW, 3DPW-Occ, AdvOcc@40 and @80", others, stored),
    ]
    blocks[-2].text.append("The paper prints 39.0 for Di2Pose; its 15 values have the mean 39.16.")
    blocks[-1].text.append(
        "3DPW-Occ is a choice of sequences, hardly more occluded than 3DPW: what is said of occlusion rests on AdvOcc. "
        "The paper's \"up to 129 %\" is DiffPose's loss at 80 px; other rows of its table lose more."
    )
    rows = [[f"`{block.label}`", block.title, block.missing[0]] for block in blocks if not block.verdicts]
    rows += [[f"`{label}`", title, f"{NOT_HERE}: pictures, no number to compare"] for label, title in PICTURES.items()]
    parts = [
        "# Ledger: what the paper claims, and what holds here",
        "Written by `di2pose ledger` from the figures in `experiments/results`: nothing is changed by hand. "
        "docs/research.md says how they are made.",
        *_summary(pd.DataFrame([row for block in blocks for row in block.verdicts])),
        "## What cannot be said here, or yet",
        markdown(["the paper's", "what it is", "why"], rows),
        *(paragraph for block in blocks for paragraph in block.paragraphs()),
        "## Figures without a claim of the paper",
    ]
    titles = {name: table.title for name, table in TABLES.items()}
    titles |= {each.table: each.content["title"] for each in stored if each.table not in titles}
    claimed = {claim.table for claim in CLAIMS}
    for name, title in ((name, title) for name, title in titles.items() if name not in claimed):
        block = Block("", "")
        for results in _of(name, stored):
            block.figures(results, results.sets())
        parts += [f"### {title} (`{name}`)", *(filter(None, block.text or [f"**{NOT_RUN}**: `{_command(name)}`"]))]
    return "\n\n".join(parts) + "\n"


def _summary(verdicts: pd.DataFrame) -> list[str]:
    """A row for each claim and set of data, a column for each estimator; then the verdicts by what they say."""
    parts = [f"**The rule.** {RULE}", ESTIMATORS_TEXT]
    if verdicts.empty:
        return [*parts, *(text for title in LISTS.values() for text in (f"## {title}", "Nothing."))]
    wide = verdicts.groupby(["claim", "data", "by"], sort=False)["short"].first().unstack(fill_value="", sort=False)
    parts.insert(0, _table(wide.reindex(columns=verdicts["by"].unique()).reset_index()))
    listed = verdicts.drop(columns=["effect of each rival, % (corrected p)", "short", "same seeds, twice as long"])
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


def _name(results: Results, pair: Pair, estimator: Estimator) -> str:
    """'mean of 8', ', PA-MPJPE'."""
    name = estimator.name.format(results.counts(*pair, estimator)[-1])
    return f"{name}, {METRICS[estimator.metric]}" if estimator.metric == "pa_mpjpe" else name


def _values(results: Results, pair: Pair, estimator: Estimator, doubled: bool = False) -> dict[str, Seeds]:
    """Cell -> seed -> value; of the table `share` method -> seed -> error with the least share over that with all."""
    values = results.values(*pair, estimator, doubled=doubled)
    if results.table != "share":
        return values
    found = {}
    for name in SHARED:
        few, many = (values.get(f"{name}, {share} %", {}) for share in (SHARES[0], SHARES[-1]))
        found[name] = {seed: few[seed] / many[seed] for seed in few.keys() & many.keys()}
    return {name: seeds for name, seeds in found.items() if seeds}


def _doubled_values(short: Mapping[str, Seeds], doubled: Mapping[str, Seeds]) -> str:
    """Each cell's mean over the seeds that were also trained for twice the length, and what it became."""
    both = {cell: seeds.keys() & doubled.get(cell, {}).keys() for cell, seeds in short.items()}
    return "; ".join(
        f"{cell} {fmean(short[cell][seed] for seed in seeds):.1f} to {fmean(doubled[cell][seed] for seed in seeds):.1f}"
        for cell, seeds in both.items()
        if seeds
    )


def _claimed(claim: Claim, stored: Sequence[Results]) -> Block:
    """A claim that a table of ours decides."""
    block = Block(claim.label, claim.title, [claim.note], missing=(NOT_RUN, f"`{_command(claim.table)}`"))
    if any(any(pair) for pair in claim.paper.values()):
        rows = [[name, *(str(value or "-") for value in printed)] for name, printed in claim.paper.items()]
        block.text.append(markdown(["the paper prints", "MPJPE", "PA-MPJPE"], rows))
    again = next(each for each in CLAIMS if each.table == claim.table) != claim
    for results in _of(claim.table, stored):
        pairs = results.sets()
        if claim.table == "methods":  # the paper's own data has tables of its own
            licensed = {(data, key[0]) for key in PAPER_METHODS for data in _papers_own(results, *key)}
            pairs = [pair for pair in pairs if pair[1] != TOKENIZER and pair not in licensed]
        for pair in pairs:
            block.judge(results, claim.rows(results), pair)
            if claim.table == "share":
                block.text += _ratios(results, pair)
        if pairs and not again:
            block.figures(results, pairs)
    if again:
        block.text.append("The figures stand above, with the other claim of this table.")
    elif claim.table != "methods":
        block.text.append(f"On the paper's data: `{ON_PAPERS_DATA.format(table=claim.table, more='')}`")
    return block


def _ratios(results: Results, pair: Pair) -> list[str]:
    rows = []
    for estimator in (each for each in ESTIMATORS if each.judged and results.counts(*pair, each)):
        values = _values(results, pair, estimator)
        ratios = [spread(values.get(name, {}).values(), 3) for name in SHARED]
        rows.append([_name(results, pair, estimator), *ratios])
    return [markdown([f"{pair[0]}: error at {SHARES[0]} % / at {SHARES[-1]} %", *SHARED], rows)] if rows else []


def _licensed(label: str, title: str, keys: Sequence[tuple[str, str]], stored: Sequence[Results]) -> Block:
    """A table of the paper on its own data: a column for each protocol and metric; of one with actions, for each."""
    block = Block(label, title, missing=(NOT_HERE, FILLED_BY))
    table: dict[str, dict[str, str]] = defaultdict(dict)
    for protocol, metric in keys:
        actions = protocol in paper.PAPER_ACTIONS
        column, average = "Avg" if actions else f"{protocol} {METRICS[metric]}", PAPER_METHODS[protocol, metric]
        printed = {"di2pose": paper.PAPER_ACTIONS, "gaussian": paper.DIFFPOSE_ACTIONS} if actions else {}
        for kind, name in METHODS.items():
            values = printed[kind][protocol] if kind in printed else ("",) * len(ACTIONS) * actions
            table[f"paper: {name}"] |= dict(zip(paper.ACTION_HEADINGS, map(str, values), strict=False))
            table[f"paper: {name}"][column] = str(average.get(kind, ""))
        # The paper does not say whether its numbers are of one sample or of a mean.
        answers = [replace(each, metric=metric) for each in (SAMPLE, MEAN)]
        for results in _of("methods", stored):
            for data in _papers_own(results, protocol, metric):
                block.judge(results, tuple(average), (data, protocol), answers)
                ours = results.values(data, protocol, Estimator("", ("p-agg", "single"), metric))
                for kind in METHODS:
                    row = table[f"ours ({results.path.parent.name}): {kind}"]
                    row[column] = spread(ours.get(kind, {}).values())
                    every = [figure["actions"] for figure in results.of(kind, data, protocol)] if actions else []
                    for heading, action in zip(paper.ACTION_HEADINGS, ACTIONS, strict=True):
                        means = [each[action] for each in every if each[action] is not None]
                        row |= {heading: f"{fmean(means):.1f}"} if means else {}
    frame = pd.DataFrame.from_dict(table, orient="index").fillna("")
    block.text.append(markdown(["", *frame.columns], frame.reset_index().to_numpy().tolist()))
    for results in _of("methods", stored):
        if any(_papers_own(results, *key) for key in keys):
            block.figures(results, ())
    return block
