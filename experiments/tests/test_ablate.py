"""`di2pose ablate`: tables at tiny size, stopped in the middle, grown later; and what it refuses."""

import fcntl
import json
import re
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from statistics import fmean

import pytest
from di2pose_experiments import ablate, runner
from di2pose_experiments.results import MEAN, read_results
from di2pose_experiments.tables import TABLES, Cell, Table
from PIL import Image

from di2pose.cli import main

SHORT = {"denoiser_training.batch": 4}
CELLS = (Cell("batch 8", SHORT | {"denoiser_training.batch": 8}), Cell("batch 4", SHORT, steps=3),
         Cell("broken", SHORT, share=2))  # fmt: skip


class InProcess(subprocess.Popen):
    """What the runner uses of Popen; the command has run when it is made."""

    def __init__(self, run, options, lock):
        log = runner._log(run, options)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file, redirect_stdout(file), redirect_stderr(file):
            self.code = main(list(run.words))

    def poll(self):
        return self.code

    def __del__(self):
        """Popen's would look for a process."""


class Stopped(subprocess.Popen):
    """A run during which the user presses Ctrl-C."""

    signals: tuple = ()

    def __init__(self, run, options, lock):
        signal.raise_signal(signal.SIGINT)

    def poll(self):
        return None

    def send_signal(self, number):
        Stopped.signals += (number,)

    def wait(self, timeout):
        return 0

    def __del__(self):
        """As above."""


def command(cache, out, *more):
    flags = ["--recipe", "tiny", "--features", cache, "--test", f"figures={cache}", "--hypotheses", "2", "--out", out]
    return [*map(str, flags), *more]


@pytest.fixture(scope="module")
def ablated(cache, tmp_path_factory):
    """Stopped by Ctrl-C when the tokenizer is trained, and gone on with: folder, words, both exit codes and outputs."""
    out = tmp_path_factory.mktemp("ablated")
    words = ["ablate", "batch", *command(cache, out, "--seeds", "1", "--double", "0", "--iterations", "2")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TABLES, "batch", Table("Batches", CELLS))
        patch.setattr(runner, "_start", lambda *what: (Stopped if any(out.glob("runs/*")) else InProcess)(*what))
        said = []
        for _ in range(2):
            with (out / "said").open("w") as file, redirect_stdout(file):
                code = main([*words, "--jobs", "1"])
            said.append((code, (out / "said").read_text()))
            patch.setattr(runner, "_start", InProcess)
        yield out, words, said


def test_a_stop_is_clean_and_the_same_command_goes_on(ablated):
    _, _, ((code, text), (_, second)) = ablated
    assert code == 128 + signal.SIGINT, text
    assert Stopped.signals == (signal.SIGINT,)
    assert "stopped by signal 2: the same command goes on" in text
    assert "1 of 16 runs are finished already" in second


def test_cells_end_in_a_table(ablated):
    out, words, _ = ablated
    results = read_results(out / "batch.json")
    content = results.content
    assert (content["table"], content["recipe"], content["seeds"], content["double"]) == ("batch", "tiny", [0], [0])
    assert content["command"].startswith(f"di2pose ablate batch --test {words[words.index('--test') + 1]}")
    short, twice = (results.values("figures", "limb-12", MEAN, doubled=doubled) for doubled in (False, True))
    assert short.keys() == twice.keys() == {"batch 8", "batch 4"}
    assert short["batch 8"] != short["batch 4"]
    assert all(short[cell].keys() == {0} == twice[cell].keys() and short[cell] != twice[cell] for cell in short)
    head, _, line, *_ = [text for text in (out / "batch.md").read_text().splitlines() if text.startswith("|")]
    columns, texts = ([text.strip() for text in row.split("|")] for row in (head, line))
    assert texts[1] == "batch 8"
    assert texts[columns.index("mean of 2")] == f"{fmean(short['batch 8'].values()):.1f}"
    assert {"one sample", "best of 2 (oracle)", "soft decode", "energy score"} <= set(columns)
    compared = (out / "batch.md").read_text().splitlines()[-1].split("|")
    gap = short["batch 4"][0] - short["batch 8"][0]
    assert [text.strip() for text in compared[1:3]] == ["figures: limb-12", "batch 4 - batch 8"]
    assert float(compared[3]) == pytest.approx(gap, abs=0.02)
    low, high = map(float, compared[4].split(" to "))
    assert low < gap < high
    with Image.open(out / "batch.png") as picture:
        assert picture.size[0] > 500
    runs = {name.rpartition("-")[0]: run for name, run in content["runs"].items() if run["iterations"] == 2}
    assert sorted(runs) == ["denoiser-batch=4-s0", "denoiser-batch=8-s0", "tokenizer-s0"]
    assert sorted(run["iterations"] for run in content["runs"].values()) == [2] * 3 + [4] * 3  # all stages
    small = runs["denoiser-batch=4-s0"]
    assert (small["records_seen"], small["parameters"].keys()) == (8, {"tokenizer", "denoiser"})
    assert {"mm", "vlb", "aux"} <= small["held_out"].keys()


def test_a_cell_that_fails_is_told_and_takes_no_other_with_it(ablated):
    out, _, (_, (code, text)) = ablated
    assert code == 1
    assert "FAILED, exit code 2" in text
    assert "--share must lie above 0" in text  # the end of its log
    assert "not run, since they need these: denoiser-batch=4-share_2-s0-" in text
    failed = {name.rpartition("-")[0] for name in read_results(out / "batch.json").content["failed"]}
    broken = {"tokenizer-share_2-s0", "denoiser-batch=4-share_2-s0", "denoiser-batch=4-share_2-s0-figures"}
    assert failed == broken


def test_a_stored_table_grows_where_its_runs_are_gone(ablated, tmp_path, capsys):
    out, words, _ = ablated
    shutil.copy(out / "batch.json", tmp_path / "batch.json")
    assert main([*words, "--seeds", "0-1", "--out", str(tmp_path), "--list"]) == 0
    evaluated = [line for line in capsys.readouterr().out.splitlines() if " evaluate " in line]
    assert sum("-s1-" in line for line in evaluated) == 3
    assert all("-s1-" in line or "share_2-s0-" in line for line in evaluated)  # and the cell that failed
    assert main([*words, "--iterations", "9", "--out", str(tmp_path)]) == 2
    assert "holds figures of other settings" in capsys.readouterr().err


def test_the_list_has_every_command_after_those_it_needs(cache, tmp_path, capsys):
    words = ["ablate", "matrices", *command(cache, tmp_path, "--seeds", "2", "--iterations", "7", "--list")]
    words += ["--tokenizer-iterations", "20", "--steps", "4,20", "--hypotheses", "2,6"]
    assert main([*words, "--launch", "torchrun --nproc-per-node 8 -m di2pose", "--device", "cuda"]) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    commands = [line for line in lines if not line.startswith("#")]
    assert len(commands) == 2 + 2 * 3 * 3  # tokenizers; denoisers, each evaluated with 4 and with 20 steps
    assert len(set(commands)) == len(commands)
    made = set()
    for line in commands:
        words = line.split()
        for need in (word for word in words[:-1] if f"{tmp_path}/runs/" in word):
            assert need in made
        assert words[0] == ("torchrun" if "train" in words else sys.executable)
        assert words[words.index("--device") + 1] == "cuda"
        made.add(words[-1])
    assert [line for line in lines if line.startswith("# group")][1] == "# group 2 of 3: when all above are done"
    assert all(f"--iterations {20 if ' tokenizer ' in line else 7} " in line for line in commands if " train " in line)
    assert sum("--hypotheses 2,6" in line and "--steps 4" in line for line in commands) == 2 * 3
    assert sum("--hypotheses 2 " in line and "--steps 20" in line for line in commands) == 2 * 3
    assert not list(tmp_path.iterdir())


def test_a_budget_is_turned_into_iterations_by_the_speed_of_our_model(cache, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "_start", InProcess)
    monkeypatch.setattr(ablate, "TIMED", 2)
    monkeypatch.setattr(ablate, "WARM", 1)
    words = ["ablate", "levels", *command(cache, tmp_path, "--seeds", "1", "--budget", "1e-6")]
    assert main(words) == 0
    assert "measuring the training speed" in capsys.readouterr().out
    assert read_results(tmp_path / "levels.json").content["iterations"] == 1
    speeds = json.loads((tmp_path / "budget.json").read_text())["tiny cpu"]["seconds_per_iteration"]
    assert speeds.keys() == {"tokenizer", "denoiser"}
    (tmp_path / "levels.json").unlink()
    assert main([*words, "--budget", "10", "--list"]) == 0  # the speed is kept
    assert f"--iterations {round(600 / sum(speeds.values()))} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "1", "--list"], "Give --iterations N, or start the table once"),
        (["--budget", "1", "--iterations", "3"], "not both"),
        (["--seeds", "0"], "--seeds takes how many, above 0"),
        (["--budget", "0", "--tokenizer-iterations", "0"], "must be above 0: --budget, --tokenizer-iterations"),
        (["--seeds", "4-2"], "got 4-2"),
        (["--learning-rates", "fast", "--iterations", "3"], "--learning-rates takes numbers above 0"),
        (["--double", "0"], "need --iterations N"),
        (["--train=--set diffusion.nonsense=1"], "diffusion.nonsense=1: expected KEY=VALUE"),
        (["--cells", "/nowhere"], "'matrices' is one of the tables"),
        (["--test", "nowhere=/nowhere"], "is no folder"),
        (["--protocol", "nonsense"], "no protocol is called nonsense"),
        (["--recipe", "nonsense"], "no recipe is called 'nonsense'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(words, message, cache, tmp_path, capsys):
    assert main(["ablate", "matrices", *command(cache, tmp_path, *words)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_table_is_one_that_there_is_and_one_at_a_time_works_in_a_folder(cache, tmp_path, capsys):
    assert main(["ablate", "nonsense", *command(cache, tmp_path)]) == 2
    assert "choose from methods, matrices" in capsys.readouterr().err
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["ablate", "matrices", *command(cache, tmp_path, "--iterations", "1")]) == 2
    assert "still works in" in capsys.readouterr().err


def test_a_table_of_tokenizers_needs_poses_alone(cache, tmp_path, capsys):
    words = ["--data", cache, "--test", f"figures={cache}", "--recipe", "tiny", "--seeds", "1", "--iterations", "1"]
    assert main(["ablate", "levels", *map(str, words), "--out", str(tmp_path), "--list"]) == 0
    text = capsys.readouterr().out
    assert text.count(" train tokenizer ") == text.count(" evaluate tokenizer ") == 3
    assert main(["ablate", "matrices", *map(str, words), "--out", str(tmp_path), "--list"]) == 2
    assert "needs --features" in capsys.readouterr().err


EXAMPLE = re.search(r"```toml\n(.*?)```", (Path(__file__).parents[2] / "docs/research.md").read_text(), re.S)


def test_the_docs_example_is_a_table(cache, tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(EXAMPLE[1])
    words = ["ablate", "mine", "--cells", str(tmp_path / "mine.toml"), *command(cache, tmp_path, "--seeds", "1")]
    assert main([*words, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(" train " in line for line in lines) == 5  # tokenizers of all and of a quarter of the records, 3 models
    assert sum(" evaluate " in line for line in lines) == 3


def test_learning_rates_are_searched_once(cache, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "_start", InProcess)
    cells = (f'[[cells]]\nname = "{steps}"\nmethod = "gaussian"\nsteps = {steps}\n' for steps in (4, 2))
    (tmp_path / "mine.toml").write_text('title = "Steps"\n' + "".join(cells))
    words = ["ablate", "mine", "--cells", str(tmp_path / "mine.toml"), *command(cache, tmp_path / "out")]
    words += ["--seeds", "1", "--iterations", "4", "--learning-rates", "0.001,0.002", "--validate", f"held={cache}"]
    assert main(words) == 0
    capsys.readouterr()
    results = read_results(tmp_path / "out" / "mine.json")
    assert results.values("figures", "limb-12", MEAN).keys() == {"4", "2"}
    ((names, search),) = results.content["said"]["learning_rates"].items()
    assert names == "4 and 2"  # they share a training
    mm = {rate: each["mm"] for rate, each in search["tried"].items()}
    assert f"{search['chosen']:g}" == min(mm, key=lambda rate: mm[rate])
    assert main([*words, "--seeds", "2", "--list"]) == 0  # the search is known, and is not run again
    (line,) = (line for line in capsys.readouterr().out.splitlines() if " train " in line)
    assert "--seed 1" in line
    assert f"--learning-rate {search['chosen']:g} --iterations 4" in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 1 2", "mine.toml"),
        ('title = "a"', "KeyError"),
        ('title = "a"\n[[cells]]\nname = "a"\nmethod = "magic"', "the method 'magic' of a is none of di2pose"),
        ('title = "a"\n[[cells]]\nname = "a"\nstep = 4', "a cell has no step; expected name"),
        ('title = "a"\n[[cells]]\nname = "a"\n[[cells]]\nname = "a"', "every cell needs a name of its own"),
    ],
)
def test_a_table_of_ones_own_that_cannot_be_read_is_refused(text, message, cache, tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(text)
    assert main(["ablate", "mine", "--cells", str(tmp_path / "mine.toml"), *command(cache, tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
