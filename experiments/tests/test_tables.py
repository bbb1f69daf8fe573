"""The tables are well formed: every command that they make is one that the parsers take."""

import functools
from importlib import import_module
from pathlib import Path

import pytest
import tyro
from di2pose_experiments.claims import CLAIMS
from di2pose_experiments.plan import Setting, in_order, measures
from di2pose_experiments.tables import SHARES, TABLES, Cell, Table, di2pose, method, settings

from di2pose import recipes
from di2pose.cli import COMMANDS

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


def commands(table, recipe, double=(), seeds=2, **more):
    setting = Setting((Path("f"),), (Path("d"),), (("t", Path("t"), "limb-12"),), Path("o"), recipe, **more)
    table = TABLES[table] if isinstance(table, str) else table
    return [run for group in in_order(m.run for m in measures(table, range(seeds), setting, double)) for run in group]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("table", TABLES)
def test_every_command_parses(table, recipe):
    runs = commands(table, recipe, seeds=1, iterations=3)
    for run in {(*run.words[:2], *(w for w in run.words if w.startswith("--"))): run for run in runs}.values():
        parsed(run.words)  # one of those with the same flags
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
        cells = {cell.name for cell in TABLES[claim.table].cells}
        assert len(claim.paper.keys() & cells) > 1
        assert claim.best in claim.paper.keys() & cells


def trained(table, recipe="compare", **more):
    return [run for run in commands(table, recipe, **more) if run.trains]


def test_tables_about_the_diffusion_share_a_tokenizer_and_steps_share_trainings():
    stages = [run.words[1] for run in trained("matrices")]
    assert [stages.count(stage) for stage in ("tokenizer", "denoiser")] == [2, 6]  # two seeds
    assert [run.words[1] for run in trained("steps")].count("denoiser") == 2 * 2  # 25 and 100 steps
    assert sum(run.words[0] == "evaluate" for run in commands("steps", "compare")) == 2 * (5 + 3)


def test_shares_of_all_crops_are_the_runs_of_the_methods():
    whole = {run.name for run in trained("methods")}
    shares = {run.name for run in trained("share")}
    assert len(whole & shares) == 2 * 4  # tokenizer, di2pose, gaussian, regression
    assert len(shares) == 2 * (1 + 3) * len(SHARES)  # tokenizers, too, see a share only


def test_the_papers_own_setting_is_trained_once_whatever_flag_says_it():
    base = recipes.compare()
    rate, steps = base.diffusion.final_occlude, base.diffusion.steps
    flags = [(), settings(diffusion__final_occlude=rate), settings(diffusion__steps=steps)]
    flags += [("--learning-rate", str(base.denoiser_training.learning_rate)), ("--batch", "64")]
    assert base.denoiser_training.batch == 64
    cells = tuple(Cell(str(k), di2pose(*each)) for k, each in enumerate(flags))
    cells += (Cell("tokenizer", di2pose(tokenizer=settings(tokenizer__tokens=base.tokenizer.tokens))),)
    assert len(trained(Table("same", cells))) == 2 * 2
    assert len(trained(Table("other", (*cells, Cell("o", di2pose(*settings(diffusion__final_occlude=0.5))))))) == 2 * 3
    assert {run.name for run in trained("carry-over")} & {run.name for run in trained("methods")}
    pct = settings(trunk__layers=base.denoiser.layers)
    assert len(trained(Table("pct", (Cell("a", method("pct")), Cell("b", method("pct", *pct)))))) == 2 * 2


def test_twice_the_length_is_twice_of_every_stage():
    lengths = {run.name: run.words[run.words.index("--iterations") + 1]
               for run in trained("matrices", double=(1,), iterations=8, tokenizer_iterations=20)}  # fmt: skip
    assert sorted(lengths.values()) == ["16"] * 3 + ["20"] * 2 + ["40"] + ["8"] * 6


def test_the_names_of_runs_depend_on_what_their_results_depend_on():
    def names(**more):
        return {run.name for run in commands("matrices", "small", **more)}

    assert names() == names(device="cuda")
    for other in ({"iterations": 5}, {"train": ("--batch", "8")}):
        assert not names() & names(**other)
    kept = {run.name for run in commands("matrices", "small") if run.trains}
    assert kept == names() & names(hypotheses="1")
