"""The tables are well formed: every command that they make is one that the parsers take."""

import functools
from importlib import import_module
from pathlib import Path

import pytest
import tyro

from di2pose import recipes
from di2pose.cli import COMMANDS
from di2pose.reproduction.claims import CLAIMS
from di2pose.reproduction.plan import Setting, in_order, measures
from di2pose.reproduction.tables import REFERENCE, SHARES, TABLES

RECIPES = [name for name in ("compare", "small", "paper") if name in recipes.RECIPES]


def parsed(words):
    """What the command's function would be called with."""
    name = next(" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS)
    module, function = COMMANDS[name][0].split(":")
    command = getattr(import_module(module), function)

    @functools.wraps(command)
    def record(*positional, **named):
        return positional, named

    return tyro.cli(record, args=list(words[len(name.split()) :]), return_unknown_args=False)


def commands(table, recipe, **more):
    setting = Setting((Path("f"),), (Path("d"),), (("t", Path("t"), "limb-12"),), ("t",), Path("o"), recipe, **more)
    return [run for group in in_order(m.run for m in measures(TABLES[table], range(2), setting)) for run in group]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("table", TABLES)
def test_every_command_parses(table, recipe):
    if table == "adapter" and recipe == "paper":
        pytest.skip("the paper has no adapter")
    runs = commands(table, recipe, iterations=3)
    for run in runs:
        parsed(run.words)
    assert len({run.name for run in runs}) == len({run.out for run in runs}) == len(runs)


def test_a_flag_that_nobody_knows_does_not_parse(capsys):
    """The test above can fail."""
    with pytest.raises(SystemExit):
        parsed(("train", "tokenizer", "--data", "d", "--out", "o", "--nonsense", "1"))
    assert "--nonsense" in capsys.readouterr().err


def test_cells_have_names_of_their_own_and_places_in_the_plot():
    for table in TABLES.values():
        assert len({cell.name for cell in table.cells}) == len(table.cells)
        assert len({(cell.line, cell.x or cell.name) for cell in table.cells}) == len(table.cells)


def test_every_claim_is_about_cells_that_there_are():
    for claim in CLAIMS:
        assert claim.paper.keys() <= {cell.name for cell in TABLES[claim.table].cells}
        assert claim.best in claim.paper
        assert not claim.tokenizer or TABLES[claim.table].tokenizers


def test_tables_about_the_diffusion_share_tokenizer_and_adapter():
    trained = [run.words[1] for run in commands("occlude", "small") if run.trains]
    assert [trained.count(stage) for stage in ("tokenizer", "adapter", "denoiser")] == [2, 2, 10]  # two seeds
    assert REFERENCE in {cell.stage for cell in TABLES["adapter"].cells}
    trained = [run.words[1] for run in commands("steps", "small") if run.trains]
    assert trained.count("denoiser") == 2 * 3
    assert "adapter" not in {run.words[1] for run in commands("occlude", "paper")}


def test_shares_of_all_crops_are_the_runs_of_the_methods():
    whole = {run.name for run in commands("methods", "small") if run.trains}
    shares = {run.name for run in commands("share", "small") if run.trains}
    assert len(whole & shares) == 2 * 4  # tokenizer, di2pose, gaussian, regression
    assert len(shares) == 2 * (1 + 3 * len(SHARES))


def test_the_names_of_runs_depend_on_what_their_results_depend_on():
    def names(**more):
        return {run.name for run in commands("occlude", "small", **more)}

    assert names() == names(device="cuda")
    for other in ({"iterations": 5}, {"train": ("--batch", "8")}):
        assert not names() & names(**other)
    trained = {run.name for run in commands("occlude", "small") if run.trains}
    assert trained == names() & names(hypotheses="1")
