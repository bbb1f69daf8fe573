"""`di2pose ledger`: rows and verdicts come from the stored figures, and change with them."""

import json
import re
from pathlib import Path

import pytest
from di2pose_experiments.claims import CLAIMS, FAILS, HOLDS, OPEN, SMALL, UNDER_TRAINED
from di2pose_experiments.ledger import build
from di2pose_experiments.plot import _series
from di2pose_experiments.results import FORMAT_VERSION, Results, read_results, to_text
from di2pose_experiments.tables import TABLES
from PIL import Image

from di2pose.cli import main
from di2pose.data.human36m import ACTIONS
from di2pose.evaluation.paper import PAPER_ABLATIONS, PAPER_ACTIONS, PAPER_METHODS

RESULTS = Path(__file__).parents[1] / "results"
FIVE = (0.0, 0.1, -0.1, 0.05, -0.05)
SURE = f"{HOLDS} (length not checked)"


def five(mm):
    """A value for each of five seeds, which differ alike for all cells."""
    return [mm + each for each in FIVE]


def stored(table, errors, data="people", protocol="limb-12", source="people", doubled=False, **more):
    """A TABLE.json: cell -> MPJPE of each seed of the mean of 8; PA-MPJPE is half of it."""
    key = "0/upright" if protocol == "tokenizer" else "8/p-agg"
    figures = [
        {"cell": cell, "seed": seed, "data": data, "protocol": protocol, "source": source, "run": f"{cell}-{seed}",
         "doubled": doubled, "values": {f"{key}/mpjpe": mm, f"{key}/pa_mpjpe": mm / 2}, **more}
        for cell, values in errors.items() for seed, mm in enumerate(values)
    ]  # fmt: skip
    cells = [{"name": cell.name, "line": cell.line, "x": cell.x or cell.name} for cell in TABLES[table].cells]
    about = {"format_version": FORMAT_VERSION, "commit": "abc", "table": table, "title": TABLES[table].title}
    about |= {"note": "", "recipe": "compare", "iterations": 70, "tokenizer_iterations": 70, "double": []}
    about |= {"seeds": [0, 1, 2, 3, 4], "command": f"di2pose ablate {table} --out o", "said": {}, "runs": {}}
    return about | {"cells": cells, "failed": [], "figures": figures}


MATRICES = {"0.0": five(60), "0.9": five(50), "1.0": [55.1, 55, 55, 55, 55]}
MATRICES_TITLE = next(claim.title for claim in CLAIMS if claim.table == "matrices")
METHODS_TITLE = "Discrete diffusion beats continuous diffusion (gaussian) and PCT"


def page(*contents):
    """The ledger of these files."""
    return build([Results(Path("results/table.json"), content) for content in contents])


def section(text, title):
    """Lines of tables under a heading."""
    part = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines() if line.startswith("| ")]


def verdicts(text, title):
    """(estimator, verdict) of a claim."""
    rows = section(text, title)
    return [(row[1], row[2]) for row in rows if len(row) > 2 and row[2].startswith((HOLDS, FAILS, OPEN))]


def with_values(content, cell, **values):
    """The same file with further figures of a cell: soft_decode=[...] is '0/soft decode/mpjpe' of each seed."""
    names = {"soft": "0/soft decode/mpjpe", "sample": "8/sample/mpjpe", "energy": "8/hypotheses/energy"}
    for figure in (each for each in content["figures"] if each["cell"] == cell):
        figure["values"] |= {names[name]: several[figure["seed"]] for name, several in values.items()}
    return content


def test_one_changed_value_changes_its_row_and_the_verdict():
    content = stored("matrices", MATRICES)
    before = page(content)
    assert verdicts(before, MATRICES_TITLE) == [("mean of 8", SURE)]
    assert re.search(r"\| 1.0 \| +55.0 ± 0.0 \| +27.5 ± 0.0 \|", before)
    assert "commit abc: `di2pose ablate matrices --out o`" in before
    (line,) = section(before, "What holds")[1:]
    assert line[1:5] == ["people", "mean of 8", SURE, "1.0 +9.1 %"]
    assert float(line[5]) < 0.001
    assert line[6:] == ["5", "70 iterations"]
    changed = json.loads(to_text(content))
    entry = next(f for f in changed["figures"] if (f["cell"], f["seed"]) == ("1.0", 2))
    entry["values"]["8/p-agg/mpjpe"] = 35.0
    after = page(changed)
    assert re.search(r"\| 1.0 \| +51.0 ± 9.0 \|", after)
    assert verdicts(after, MATRICES_TITLE) == [("mean of 8", OPEN)]
    assert [row[3] for row in section(after, "What is not decided")[1:]] == [OPEN]
    few = page(stored("matrices", {"0.0": five(60)[:3], "0.9": five(50)[:3]}))  # 1.0 is yet to be run
    assert verdicts(few, MATRICES_TITLE) == [("mean of 8", "not decided (0 seeds, 5 needed)")]


def test_runs_of_twice_the_length_decide_with():
    content = stored("matrices", MATRICES)
    for settled, word in ((0.99, HOLDS), (0.9, UNDER_TRAINED)):
        twice = stored("matrices", {cell: [settled * values[0]] for cell, values in MATRICES.items()}, doubled=True)
        text = page(content | {"figures": content["figures"] + twice["figures"], "double": [0]})
        assert verdicts(text, MATRICES_TITLE) == [("mean of 8", word)]
        assert "5 seeds, seeds 0 also twice as long" in text
        assert re.search(r"\| 1.0 \| +55.0 ± 0.0 \|", text)  # they are not mixed with the others
        first = MATRICES["0.9"][0]
        assert f"0.9 {first:.1f} to {settled * first:.1f}" in text


def test_a_verdict_never_mixes_estimators():
    """PCT decodes softly, di2pose too; gaussian cannot, and is no rival there."""
    content = stored("methods", {"di2pose": five(50), "gaussian": five(60), "pct": five(70)})
    with_values(content, "pct", soft=five(40), sample=five(80), energy=five(50))
    with_values(content, "gaussian", sample=five(70), energy=five(39))
    text = page(content)
    assert verdicts(text, METHODS_TITLE) == [("mean of 8", SURE)]
    with_values(content, "di2pose", soft=five(45), sample=five(70.2), energy=five(40))
    text = page(content)
    words = dict(verdicts(text, METHODS_TITLE))
    assert words == {
        "one sample": SMALL,  # gaussian is ahead by less than 2 %
        "mean of 8": SURE,
        "soft decode": f"{FAILS} (length not checked)",
        "energy score": f"{FAILS} (length not checked)",
    }
    assert re.search(r"\| pct +\| +80.0 ± 0.1 \| +70.0 ± 0.1 \| +40.0 ± 0.1 \|", text)
    (row,) = (row for row in section(text, "What does not hold") if row[2] == "soft decode")
    assert row[4] == "pct -12.5 %"


def test_what_was_not_run_or_cannot_be_is_said_with_its_command():
    text = page()
    unsaid = {row[0].strip("`"): row[2] for row in section(text, "What cannot be said here, or yet")}
    assert unsaid["tab:h36m"] == unsaid["tab:3dpw"] == "not testable here"
    assert unsaid["ablation:steps"] == "not run yet"
    assert "di2pose ablate steps --features lift/hard" in text
    assert "di2pose ablate levels --data cmu" in text
    labels = ["tab:app_h36m", "fig:training samples ratio (a)", "fig:qualitative results", "Failure cases"]
    assert unsaid.keys() >= {*labels, "fig:app qualitative results", "fig:training samples ratio (b)"}
    assert all(label in " ".join(unsaid) for label in PAPER_ABLATIONS)
    for values in PAPER_METHODS.values():
        assert all(f" {value} |" in text for value in values.values())
    assert all(f" {value} |" in text for row in PAPER_ACTIONS.values() for value in row)


def test_licensed_results_fill_the_papers_own_tables():
    errors = {"di2pose": five(48), "gaussian": five(51), "pct": five(52)}
    actions = dict.fromkeys(ACTIONS, 48.1)
    text = page(stored("methods", errors, "h36m", "h36m-p1", "h36m", actions=actions))
    assert verdicts(text, "Human3.6M by action, MPJPE") == [("mean of 8", SURE)]
    assert re.search(r"\| ours \(results\): di2pose +\|( +48.1 \|){15} 48.0 ± 0.1 \|", text)
    assert not verdicts(text, "Human3.6M by action, PA-MPJPE")
    assert not verdicts(text, METHODS_TITLE)
    text = page(stored("methods", errors | {"regression": five(40)}))
    assert not verdicts(text, "Human3.6M by action, MPJPE")
    assert verdicts(text, METHODS_TITLE)[0][1].startswith(HOLDS)  # regression is no part of the claim
    assert "| regression " in text
    text = page(stored("methods", errors | {"di2pose, no carry-over": five(60)}))
    assert verdicts(text, f"{METHODS_TITLE}, without carry-over")[0][1].startswith(FAILS)


def test_shares_are_judged_by_what_is_lost():
    errors = {
        f"{method}, {share} %": five(start + more * (100 - share) / 95)
        for method, start, more in (("di2pose", 60, 30), ("gaussian", 50, 40), ("regression", 50, 10))
        for share in (5, 10, 25, 100)
    }
    text = page(stored("share", errors))
    title = "With less data discrete diffusion loses less than continuous"
    assert verdicts(text, title) == [("mean of 8", SURE)]
    assert re.search(r"\| mean of 8 +\| 1.500 ± 0.001 \| 1.800 ± 0.001 \| 1.200 ± 0.000 \|", text)


def test_tokenizers_have_claims_of_their_own_and_each_is_counted_once():
    shift = stored("joint-shift", {"1": five(15), "3": five(13), "5": five(14)}, protocol="tokenizer")
    block = stored("block", {"local": five(20), "mixer": five(18), "pct": five(22)}, protocol="tokenizer")
    text = page(shift, block)
    title = next(claim.title for claim in CLAIMS if claim.table == "joint-shift")
    assert [word for _, word in verdicts(text, title)] == [SURE]
    words = [word for claim in CLAIMS if claim.table == "block" for _, word in verdicts(text, claim.title)]
    assert words == [SURE, f"{FAILS} (length not checked)"]  # PCT's; the Mixer
    assert "copy of the other" in text
    assert all(sum(label in claim.label for claim in CLAIMS) == 1 for label in PAPER_ABLATIONS)


def test_the_stored_results_are_the_ledger_of_the_repository(tmp_path):
    assert main(["ledger", "--results", str(RESULTS), "--out", str(tmp_path / "ledger.md")]) == 0
    assert (tmp_path / "ledger.md").read_text() == (RESULTS / "ledger.md").read_text()
    assert {path.name for path in tmp_path.glob("*.png")} == {path.name for path in RESULTS.glob("*.png")}
    with Image.open(next(tmp_path.glob("*.png"))) as picture:
        assert picture.width > 500


UNREADABLE = stored("matrices", {"0.9": [50]})
UNREADABLE["figures"][0]["values"]["8/p-agg/mpjpe"] = "50"


@pytest.mark.parametrize("damage", ['{"table": "occl', "{}", "[]", '{"format_version": 1}', json.dumps(UNREADABLE)])
def test_damaged_results_are_refused_by_name(damage, tmp_path, capsys):
    (tmp_path / "methods.json").write_text(damage)
    assert main(["ledger", "--results", str(tmp_path), "--out", str(tmp_path / "l.md")]) == 2
    assert "methods.json" in capsys.readouterr().err
    assert main(["ledger", "--results", str(tmp_path / "nowhere"), "--out", str(tmp_path / "l.md")]) == 2
    assert not (tmp_path / "l.md").exists()


def test_the_json_reads_back_and_the_plot_has_every_line_or_estimator(tmp_path):
    content = stored("steps", {"25 / 25": [51, 52], "100 / 25": [49, 50], "100 / 100": [45, 46]})
    (tmp_path / "steps.json").write_text(to_text(content))
    results = read_results(tmp_path / "steps.json")
    assert results.content == content
    lines = _series(results, "people", "limb-12")
    assert lines == {"trained 100": {"25": [49, 50], "100": [45, 46]}, "trained 25": {"25": [51, 52]}}
    content = with_values(stored("matrices", MATRICES), "0.9", energy=five(40))
    points = _series(Results(tmp_path, content), "people", "limb-12")
    assert {name: list(cells) for name, cells in points.items()} == {"mean of 8": [*MATRICES], "energy score": ["0.9"]}
