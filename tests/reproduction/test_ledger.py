"""`di2pose ledger`: rows and verdicts come from the stored figures, and change with them."""

import json
import re

import pytest

from di2pose.cli import main
from di2pose.data.human36m import ACTIONS
from di2pose.evaluation.paper import PAPER_ABLATIONS, PAPER_ACTIONS, PAPER_METHODS
from di2pose.reproduction.claims import CLAIMS, FAILS, HOLDS, OPEN, verdict
from di2pose.reproduction.figure import draw
from di2pose.reproduction.results import Results, read_results, to_text
from di2pose.reproduction.tables import TABLES


def stored(table, errors, data="people", protocol="limb-12", source="people", **more):
    """A TABLE.json: cell -> MPJPE of each seed; PA-MPJPE is half of it."""
    key = "0/upright" if protocol == "tokenizer" else "8/p-agg"
    figures = [
        {"cell": cell, "seed": seed, "data": data, "protocol": protocol, "source": source,
         "values": {f"{key}/mpjpe": mm, f"{key}/pa_mpjpe": mm / 2}, **more}
        for cell, values in errors.items() for seed, mm in enumerate(values)
    ]  # fmt: skip
    cells = [
        {"name": cell.name, "line": cell.line, "x": cell.x or cell.name, "estimate": cell.estimate}
        for cell in TABLES[table].cells
    ]
    about = {"format_version": 1, "commit": "abc", "table": table, "title": TABLES[table].title, "note": ""}
    about |= {"recipe": "compare", "iterations": 70, "seeds": [0, 1, 2], "command": f"di2pose ablate {table} --out o"}
    return about | {"cells": cells, "failed": [], "figures": figures}


OCCLUDE = {"0.0": [60, 61, 59], "0.3": [58, 59, 58], "0.6": [57, 58, 57], "0.9": [50, 51, 50], "1.0": [55, 56, 54]}


def page(tmp_path, *contents):
    """The ledger of these files."""
    folder = tmp_path / "results"
    folder.mkdir(exist_ok=True)
    for number, content in enumerate(contents):
        (folder / f"{number}.json").write_text(to_text(content))
    assert main(["ledger", "--results", str(folder), "--out", str(tmp_path / "ledger.md")]) == 0
    return (tmp_path / "ledger.md").read_text()


def summary(text, label):
    """The verdicts of a row of the first table."""
    return re.search(rf"^\| `{re.escape(label)}` +\|.*\| (.*?) +\|$", text, flags=re.M)[1]


def test_one_changed_value_changes_its_row_and_the_verdict(tmp_path):
    content = stored("occlude", OCCLUDE)
    before = page(tmp_path, content)
    assert summary(before, "ablation:occ_rate") == f"{HOLDS}: 2"
    assert re.search(r"\| 1.0 \| +51.0 \| +39.5 \| +55.0 ± 1.0 \|", before)
    assert "commit abc: `di2pose ablate occlude --out o`" in before
    changed = json.loads(to_text(content))
    entry = next(f for f in changed["figures"] if (f["cell"], f["seed"]) == ("1.0", 2))
    entry["values"]["8/p-agg/mpjpe"] = 45.0
    after = page(tmp_path, changed)
    assert re.search(r"\| 1.0 \| +51.0 \| +39.5 \| +52.0 ± 6.1 \|", after)
    assert summary(after, "ablation:occ_rate") == f"{OPEN}: 1; {HOLDS}: 1"


def test_a_claim_fails_where_another_row_is_clearly_better(tmp_path):
    text = page(tmp_path, stored("occlude", OCCLUDE | {"0.3": [48, 49, 47]}))
    assert summary(text, "ablation:occ_rate") == f"{FAILS}: 2"
    assert summary(text, "ablation:matrices") == f"{HOLDS}: 2"  # it has no row of 0.3
    assert "people, limb-12, MPJPE: 0.3 -2.3, noise 0.7, 3 seeds" in text


@pytest.mark.parametrize(
    ("best", "other", "word"),
    [
        ([10, 10], [11, 11], HOLDS),
        ([10, 10], [10, 10], OPEN),
        ([10, 11, 12], [11, 12, 13.1], HOLDS),  # seeds are compared in pairs
        ([10, 11, 12], [13, 11, 11], OPEN),
        ([10, 10], [9, 9.1], FAILS),
        ([10], [20], OPEN),
        ([], [20, 20], OPEN),
    ],
)
def test_the_rule(best, other, word):
    assert verdict(dict(enumerate(best)), {"other": dict(enumerate(other))})[0] == word


def test_what_was_not_run_or_cannot_be_is_told_with_its_command(tmp_path):
    text = page(tmp_path)
    assert summary(text, "tab:h36m") == summary(text, "tab:3dpw") == "not testable here"
    assert summary(text, "ablation:steps") == "not run yet"
    assert "di2pose ablate steps --features features/train" in text
    labels = ["tab:h36m", "tab:app_h36m", "tab:3dpw", "fig:training samples ratio (a)", "fig:qualitative results"]
    labels += [*PAPER_ABLATIONS, "Failure cases", "fig:app qualitative results", "fig:training samples ratio (b)"]
    assert all(summary(text, label) for label in labels)
    for values in PAPER_METHODS.values():
        assert all(f" {value} |" in text for value in values.values())
    assert all(f" {value} |" in text for row in PAPER_ACTIONS.values() for value in row)
    assert "| ours: di2pose " in text


def test_licensed_results_fill_the_papers_own_tables(tmp_path):
    errors = {"di2pose": [48.0, 48.2], "gaussian": [49.0, 49.3], "pct": [51.0, 50.0]}
    actions = dict.fromkeys(ACTIONS, 48.1)
    text = page(tmp_path, stored("methods", errors, "h36m", "h36m-p1", "h36m", actions=actions))
    assert summary(text, "tab:h36m") == HOLDS
    assert re.search(r"\| ours: di2pose +\|( +48.1 \|){15} 48.1 ± 0.1 \|", text)
    assert summary(text, "tab:app_h36m") == "not testable here"
    assert summary(text, "tab:h36m, tab:3dpw") == "not run yet"
    text = page(tmp_path, stored("methods", errors | {"regression": [40, 41]}))
    assert summary(text, "tab:h36m") == "not testable here"
    assert summary(text, "tab:h36m, tab:3dpw") == f"{HOLDS}: 2"  # regression is no part of the claim
    assert "| regression " in text


def test_shares_are_judged_by_what_is_lost(tmp_path):
    errors = {
        f"{method}, {share} %": [start + more * (100 - share) / 95, start + 1 + more * (100 - share) / 95]
        for method, start, more in (("di2pose", 60, 30), ("gaussian", 50, 40), ("regression", 50, 10))
        for share in (5, 10, 25, 50, 100)
    }
    text = page(tmp_path, stored("share", errors))
    assert summary(text, "fig:training samples ratio (a)") == HOLDS
    assert re.search(r"\| gaussian +\| 90.5 ± 0.7 \|.*\| 79.2 ± 1.1 +\|", text)


def test_tokenizers_have_claims_of_their_own(tmp_path):
    errors = {"1": [15, 15], "3": [13, 13], "5": [14, 14]}
    text = page(tmp_path, stored("joint-shift", errors, protocol="tokenizer"), stored("joint-shift", errors))
    assert summary(text, "ablation:local_num.") == f"{HOLDS}: 2"  # estimated poses are not what it is about
    assert "copy of the other" in text
    assert {claim.label for claim in CLAIMS} >= PAPER_ABLATIONS.keys()


@pytest.mark.parametrize("damage", ['{"table": "occl', "{}", "[]", '{"format_version": 9}'])
def test_damaged_results_are_refused_by_name(damage, tmp_path, capsys):
    (tmp_path / "methods.json").write_text(damage)
    assert main(["ledger", "--results", str(tmp_path), "--out", str(tmp_path / "l.md")]) == 2
    assert "methods.json" in capsys.readouterr().err
    assert main(["ledger", "--results", str(tmp_path / "nowhere"), "--out", str(tmp_path / "l.md")]) == 2
    assert not (tmp_path / "l.md").exists()


def test_a_value_that_is_no_number_is_refused(tmp_path, capsys):
    content = stored("occlude", OCCLUDE)
    content["figures"][3]["values"]["8/p-agg/mpjpe"] = "50"
    (tmp_path / "o.json").write_text(to_text(content))
    assert main(["ledger", "--results", str(tmp_path), "--out", str(tmp_path / "l.md")]) == 2
    assert "is no number" in capsys.readouterr().err


def test_the_json_reads_back_and_the_plot_shows_every_line(tmp_path):
    errors = {"25 / 25": [51, 52], "50 / 25": [50, 51], "50 / 50": [49, 50], "100 / 100": [45, 46]}
    content = stored("steps", errors)
    (tmp_path / "steps.json").write_text(to_text(content))
    results = read_results(tmp_path / "steps.json")
    assert results.content == content
    picture = draw(results)
    colours = {colour for _, colour in picture.getcolors(picture.width * picture.height)}
    assert {(31, 119, 180), (214, 39, 40), (44, 160, 44)} <= colours  # three numbers of training steps
    fewer = draw(Results(results.path, stored("steps", {"25 / 25": [51, 52]})))
    assert (214, 39, 40) not in {colour for _, colour in fewer.getcolors(fewer.width * fewer.height)}


def test_a_method_is_judged_by_its_own_answer(tmp_path):
    """PCT decodes its probabilities softly; the mean of its draws is not what it gives."""
    content = stored("methods", {"di2pose": [50, 51], "gaussian": [60, 61], "pct": [70, 71]})
    assert summary(page(tmp_path, content), "tab:h36m, tab:3dpw") == f"{HOLDS}: 2"
    for figure in content["figures"]:
        if figure["cell"] == "pct":
            figure["values"]["0/soft decode/mpjpe"] = 40.0 + figure["seed"]
    text = page(tmp_path, content)
    assert summary(text, "tab:h36m, tab:3dpw") == f"{FAILS}: 1; {HOLDS}: 1"
    assert re.search(r"\| pct +\| 40.5 ± 0.7", text)
    for figure in content["figures"]:  # what is drawn is then fitted to landmarks, and a soft decode is not
        figure["values"]["8/fitted/mpjpe"] = 45.0
    assert summary(page(tmp_path, content), "tab:h36m, tab:3dpw") == f"{HOLDS}: 2"
