"""The tables are well formed: every command that they make is one that the parsers take."""

from pathlib import Path

import pytest
from di2pose_experiments.claims import CLAIMS
from di2pose_experiments.plan import Options, in_order, measures, needs_first
from di2pose_experiments.tables import SHARED, SHARES, TABLES, Cell, Table
from parsing import parsed

from di2pose import recipes


def commands(table, recipe="compare", double=(), seeds=2, **more):
    options = Options(("t=.",), Path("o"), (Path("f"),), (Path("d"),), recipe=recipe, **more)
    table = TABLES[table] if isinstance(table, str) else table
    return [run for group in in_order(m.run for m in measures(table, range(seeds), options, double)) for run in group]


def trained(table, **more):
    return [run for run in commands(table, **more) if run.trains]


@pytest.mark.parametrize("recipe", ["compare", "paper"])
def test_every_command_parses(recipe, capsys):
    every = {}
    for table in TABLES:
        runs = commands(table, recipe, seeds=1, iterations=3)
        assert len({run.name for run in runs}) == len({run.out for run in runs}) == len(runs)
        every |= {(*run.words[:3], *(word for word in run.words if word.startswith("--"))): run for run in runs}
    for run in every.values():
        parsed(run.words)  # one of those with the same flags
    with pytest.raises(SystemExit):
        parsed(("train", "tokenizer", "--data", "d", "--out", "o", "--nonsense", "1"))
    assert "--nonsense" in capsys.readouterr().err


def test_cells_have_names_of_their_own_and_claims_are_about_them():
    for table in TABLES.values():
        assert len({cell.name for cell in table.cells}) == len(table.cells)
        assert len({(cell.line, cell.x or cell.name) for cell in table.cells}) == len(table.cells)
    for claim in CLAIMS:
        cells = {*SHARED} if claim.table == "share" else {cell.name for cell in TABLES[claim.table].cells}
        assert len(claim.paper.keys() & cells) > 1
        assert claim.best in claim.paper.keys() & cells


def test_tables_share_tokenizers_and_trainings():
    stages = [run.words[1] for run in trained("matrices")]
    assert [stages.count(stage) for stage in ("tokenizer", "denoiser")] == [2, 6]  # two seeds
    assert [run.words[1] for run in trained("steps")].count("denoiser") == 2 * 2  # 25 and 100 steps
    assert sum(run.words[0] == "evaluate" for run in commands("steps")) == 2 * (5 + 3)
    whole, shares = ({run.name for run in trained(table)} for table in ("methods", "share"))
    assert len(whole & shares) == 2 * 4  # tokenizer, di2pose, gaussian, regression
    assert len(shares) == 2 * (1 + 3) * len(SHARES)  # tokenizers, too, see a share only


def test_a_cell_is_measured_before_the_next_is_trained():
    options = Options(("t=.",), Path("o"), (Path("f"),), recipe="compare", iterations=3)
    measured = [measure.run for measure in measures(TABLES["methods"], [0, 1], options)]
    order = needs_first(measured)
    assert len(order) == len(set(order)) == len({run for group in in_order(measured) for run in group})
    assert all(order.index(need) < order.index(run) for run in order for need in run.needs)
    assert [order.index(run) for run in measured] == sorted(order.index(run) for run in measured)
    assert all(set(order[: order.index(run)]) >= set(measured[:place]) for place, run in enumerate(measured))
    assert order.index(measured[0]) == 2  # behind its tokenizer and its denoiser


def test_the_papers_own_setting_is_trained_once_whatever_says_it():
    base = recipes.compare()
    settings = [{}, {"diffusion.final_occlude": base.diffusion.final_occlude}]
    settings += [{"diffusion.steps": base.diffusion.steps}, {"tokenizer.tokens": base.tokenizer.tokens}]
    rate = base.denoiser_training.learning_rate
    cells = (*(Cell(str(k), each) for k, each in enumerate(settings)), Cell("rate", learning_rate=rate))
    assert len(trained(Table("same", cells))) == 2 * 2
    assert len(trained(Table("other", (*cells, Cell("o", {"diffusion.final_occlude": 0.5}))))) == 2 * 3
    assert {run.name for run in trained("carry-over")} & {run.name for run in trained("methods")}
    pct = Cell("a", method="pct"), Cell("b", {"trunk.layers": base.denoiser.layers}, "pct")
    assert len(trained(Table("pct", pct))) == 2 * 2


def test_a_stored_table_finds_its_runs_again():
    """The names of runs are part of the stored format: a table is continued by them."""
    options = Options(("cmu=.",), Path("o"), data=(Path("cmu"),), recipe="compare", iterations=6000)
    runs = {run.name for measure in measures(TABLES["identity"], [0], options) for run in measure.trainings}
    assert {name.rpartition("-")[2] for name in runs} == {
        "0f008c8b", "31407a7e", "359668f6", "5873064d", "8af6181a", "9277f604", "9339d57d", "b2815cbd", "da782ad3",
        "dc9215ad", "e2b4cda5", "fd6dc419",
    }  # fmt: skip


def test_methods_share_an_adapter_that_is_trained_first():
    runs = trained("methods", seeds=1, double=(0,), iterations=8, adapter_iterations=20)
    lengths: dict[str, list[str]] = {}
    for run in runs:
        name = run.words[2] if run.words[1] == "model" else run.words[1]
        lengths.setdefault(name, []).append(run.words[run.words.index("--iterations") + 1])
        adapters = [str(need.out) for need in run.needs if need.words[1] == "adapter"]
        assert len(adapters) == (name in ("denoiser", "gaussian", "pct"))
        assert all(word in run.words for word in adapters)
    assert lengths["adapter"] == ["20"]  # the backbone stays when the methods learn for longer
    assert lengths["gaussian"] == ["8", "16"]
    assert lengths["regression"] == ["22", "24"]  # in batches of 128 as many records as both stages of the others


def test_twice_the_length_is_twice_of_every_stage():
    runs = trained("matrices", double=(1,), iterations=8, tokenizer_iterations=20)
    lengths = {run.name: run.words[run.words.index("--iterations") + 1] for run in runs}
    assert sorted(lengths.values()) == ["16"] * 3 + ["20"] * 2 + ["40"] + ["8"] * 6


def test_the_names_of_runs_depend_on_what_their_results_depend_on():
    def names(**more):
        return {run.name for run in commands("matrices", "small", **more)}

    assert names() == names(device="cuda")
    for other in ({"iterations": 5}, {"train": "--batch 8"}):
        assert not names() & names(**other)
    assert {run.name for run in trained("matrices", recipe="small")} == names() & names(hypotheses="1")
