"""`di2pose ablate`: real processes at tiny size, stopped in the middle; and what it refuses."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
from di2pose_experiments import runner
from di2pose_experiments.results import MEAN, read_results
from PIL import Image
from tiny_tables import Forked

from di2pose.cli import main
from di2pose.training.log import read_rows

PROGRAM = Path(__file__).with_name("tiny_tables.py")


def command(cache, out, *more):
    flags = ["--recipe", "tiny", "--features", cache, "--test", f"figures={cache}", "--hypotheses", "2", "--out", out]
    return [*map(str, flags), *more]


@pytest.fixture(scope="module")
def ablated(cache, tmp_path_factory):
    """Stopped by Ctrl-C when the first run of a cell is finished, and gone on with: folder, both outputs."""
    out = tmp_path_factory.mktemp("ablated") / "out"
    words = [sys.executable, str(PROGRAM), "ablate", "batch"]
    words += command(cache, out, "--seeds", "2", "--budget", "0.01", "--train=--learning-rate 0.001", "--double", "1")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    lines = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as first:
        for line in first.stdout:
            lines.append(line)
            if "tokenizer-learning_rate=0.001-s0" in line and "iterations of every stage" in "".join(lines):
                first.send_signal(signal.SIGINT)
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("tokenizer-*-s0-*/last.safetensors")}
    second = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    return out, first.returncode, "".join(lines), second, before


def test_a_stop_is_clean_and_the_same_command_goes_on(ablated):
    _, code, text, second, before = ablated
    assert code == 128 + signal.SIGINT, text
    assert "stopped by signal 2: the same command goes on" in text
    assert "runs are finished already" in second.stdout
    assert len(before) == 1
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())  # not trained again
    assert "measuring" not in second.stdout  # the speed is kept


def test_two_cells_with_two_seeds_end_in_a_table(ablated):
    out, *_ = ablated
    results = read_results(out / "batch.json")
    content = results.content
    assert (content["table"], content["recipe"], content["seeds"], content["double"]) == ("batch", "tiny", [0, 1], [1])
    for cell in ("batch 8", "batch 4"):
        seeds = results.values("figures", "limb-12", MEAN)[cell]
        assert seeds.keys() == {0, 1}
        entries = results.of(cell, "figures", "limb-12")
        assert [entry["values"]["2/p-agg/mpjpe"] for entry in entries] == list(seeds.values())
        twice = results.values("figures", "limb-12", MEAN, doubled=True)[cell]
        assert twice.keys() == {1}
        assert twice[1] != seeds[1]
    assert results.of("batch 8", "figures", "limb-12") != results.of("batch 4", "figures", "limb-12")
    mean = fmean(results.values("figures", "limb-12", MEAN)["batch 8"].values())
    head, _, line, *_ = [text for text in (out / "batch.md").read_text().splitlines() if text.startswith("|")]
    columns, texts = ([text.strip() for text in row.split("|")] for row in (head, line))
    assert texts[1] == "batch 8"
    assert texts[columns.index("mean of 2")].startswith(f"{mean:.1f} ± ")
    assert {"one sample", "best of 2 (oracle)", "soft decode", "energy score"} <= set(columns)
    with Image.open(out / "batch.png") as picture:
        assert picture.size[0] > 500


def test_equal_stages_are_one_run_and_all_have_the_same_iterations(ablated):
    out, *_ = ablated
    content = read_results(out / "batch.json").content
    runs = content["runs"]
    length = content["iterations"]
    count = {name.rpartition("-")[0]: run["iterations"] for name, run in runs.items() if run["iterations"] == length}
    assert sorted(count) == [
        *(f"denoiser-learning_rate=0.001-batch={batch}-s{seed}" for batch in (4, 8) for seed in (0, 1)),
        *(f"tokenizer-learning_rate=0.001-s{seed}" for seed in (0, 1)),
    ]
    twice = [name for name, run in runs.items() if run["iterations"] == 2 * length]
    assert sorted(name.rpartition("-")[0] for name in twice) == [name for name in sorted(count) if name.endswith("s1")]
    speeds = json.loads((out / "budget.json").read_text())["tiny cpu --learning-rate 0.001"]["seconds_per_iteration"]
    assert length == max(1, round(0.6 / sum(speeds.values())))
    name = next(name for name in runs if name.startswith("denoiser-learning_rate=0.001-batch=4-s0"))
    assert runs[name]["records_seen"] == 4 * length
    assert runs[name]["parameters"].keys() == {"tokenizer", "denoiser"}
    assert {"mm", "vlb", "aux"} <= runs[name]["held_out"].keys()
    assert {"loss", "vlb", "aux"} <= read_rows(out / "runs" / name / "metrics.jsonl")[-1].keys()


def test_the_figures_of_a_stopped_table_are_stored_as_they_come(ablated, cache, tmp_path):
    """What the file holds is kept, and not made again where its runs are gone; other seeds are added to it."""
    out, *_ = ablated
    (tmp_path / "out").mkdir()
    shutil.copy(out / "batch.json", tmp_path / "out" / "batch.json")
    shutil.copy(out / "budget.json", tmp_path / "out" / "budget.json")
    words = command(cache, tmp_path / "out", "--seeds", "1-2", "--budget", "0.01", "--train=--learning-rate 0.001")
    text = subprocess.run(
        [sys.executable, str(PROGRAM), "ablate", "batch", *words, "--list"], capture_output=True, text=True, check=True
    ).stdout
    evaluated = [line for line in text.splitlines() if " evaluate " in line]
    assert len(evaluated) == 3 + 1  # seed 2 of three cells; seed 1 of the cell that failed
    assert all("-s2-" in line or "share_2-s1-" in line for line in evaluated)


def test_a_cell_that_fails_is_told_and_takes_no_other_with_it(ablated):
    out, _, _, second, _ = ablated
    assert second.returncode == 1
    assert "FAILED, exit code 2" in second.stdout
    assert "--share must lie above 0" in second.stdout  # the end of its log
    assert "not run, since they need these: denoiser-learning_rate=0.001-share_2-s0-figures" in second.stdout
    content = read_results(out / "batch.json").content
    broken = "denoiser-learning_rate=0.001-share_2"
    assert {name.rpartition("-")[0] for name in content["failed"]} == {
        f"{broken}-s0", f"{broken}-s0-figures", f"{broken}-s1", f"{broken}-s1-figures"
    }  # fmt: skip
    assert {figure["cell"] for figure in content["figures"]} == {"batch 8", "batch 4"}


def test_the_list_has_every_command_after_those_it_needs(cache, tmp_path, capsys):
    words = ["ablate", "matrices", *command(cache, tmp_path, "--seeds", "2", "--iterations", "7", "--list")]
    assert main([*words, "--launch", "torchrun --nproc-per-node 8 -m di2pose", "--device", "cuda"]) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    commands = [line for line in lines if not line.startswith("#")]
    assert len(commands) == 2 + 2 * 3 * 2  # tokenizers; denoisers and their evaluations
    assert len(set(commands)) == len(commands)
    made = set()
    for line in commands:
        words = line.split()
        for need in (word for word in words[:-1] if "/runs/" in word):
            assert need in made
        assert words[0] == ("torchrun" if "train" in words else sys.executable)
        assert words[words.index("--device") + 1] == "cuda"
        made.add(words[-1])
    assert [line for line in lines if line.startswith("# group")][1] == "# group 2 of 3: when all above are done"
    assert not list(tmp_path.iterdir())


def test_tokenizers_may_learn_for_longer(cache, tmp_path, capsys):
    words = ["--seeds", "1", "--iterations", "7", "--tokenizer-iterations", "20", "--list"]
    assert main(["ablate", "matrices", *command(cache, tmp_path, *words)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if " train " in line]
    lengths = {(words[words.index("train") + 1], words[words.index("--iterations") + 1]) for words in lines}
    assert lengths == {("tokenizer", "20"), ("denoiser", "7")}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "1", "--list"], "Give --iterations N, or start the table once"),
        (["--budget", "1", "--iterations", "3"], "not both"),
        (["--seeds", "0"], "--seeds takes how many, above 0"),
        (["--iterations", "3", "--tokenizer-iterations", "0"], "must be above 0: --tokenizer-iterations 0"),
        (["--seeds", "4-2"], "got 4-2"),
        (["--learning-rates", "fast", "--iterations", "3"], "--learning-rates takes numbers above 0"),
        (["--double", "0"], "need --iterations N or --budget"),
        (["--train=--set diffusion.nonsense=1"], "diffusion.nonsense=1: expected KEY=VALUE"),
        (["--cells", "/nowhere"], "'matrices' is one of the tables"),
        (["--budget", "0"], "--budget must be above 0 minutes"),
        (["--test", "nowhere=/nowhere"], "is no folder"),
        (["--protocol", "nonsense"], "no protocol is called nonsense"),
        (["--recipe", "nonsense"], "no recipe is called 'nonsense'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(words, message, cache, tmp_path, capsys):
    assert main(["ablate", "matrices", *command(cache, tmp_path, *words)]) == 2
    assert message in capsys.readouterr().err
    assert main(["ablate", "nonsense", *command(cache, tmp_path)]) == 2
    assert "choose from methods, matrices" in capsys.readouterr().err


def test_two_never_work_in_one_folder(cache, tmp_path, capsys):
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["ablate", "matrices", *command(cache, tmp_path, "--iterations", "1")]) == 2
    assert "still works in" in capsys.readouterr().err


def test_a_table_of_tokenizers_needs_poses_alone(cache, tmp_path, capsys):
    words = ["--data", cache, "--test", f"figures={cache}", "--recipe", "tiny", "--seeds", "1", "--iterations", "1"]
    assert main(["ablate", "levels", *map(str, words), "--out", str(tmp_path), "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        sum(" train tokenizer " in line for line in lines) == sum(" evaluate tokenizer " in line for line in lines) == 3
    )
    assert main(["ablate", "matrices", *map(str, words), "--out", str(tmp_path), "--list"]) == 2
    assert "needs --features" in capsys.readouterr().err


def test_cells_may_be_measured_with_several_numbers_of_steps(cache, tmp_path, capsys):
    words = ["--seeds", "1", "--iterations", "1", "--steps", "4,20", "--list"]
    assert main(["ablate", "matrices", *command(cache, tmp_path, *words), "--hypotheses", "2,6"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if " evaluate " in line]
    assert sum("--hypotheses 2,6" in line and "--steps 4" in line for line in lines) == 3
    assert sum("--hypotheses 2 " in line and "--steps 20" in line for line in lines) == 3


EXAMPLE = re.search(r"```toml\n(.*?)```", (Path(__file__).parents[2] / "docs/research.md").read_text(), re.S)


def test_the_docs_example_is_a_table_with_searched_learning_rates(cache, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "_start", Forked)
    (tmp_path / "mine.toml").write_text(EXAMPLE[1])
    words = ["ablate", "mine", "--cells", str(tmp_path / "mine.toml"), *command(cache, tmp_path / "out")]
    words += ["--seeds", "1", "--iterations", "8", "--learning-rates", "0.001,0.002", "--validate", f"held={cache}"]
    assert main(words) == 0
    capsys.readouterr()
    results = read_results(tmp_path / "out" / "mine.json")
    assert results.cells == ["0.5", "0.5, a quarter of the records", "gaussian"]
    assert all(results.values("figures", "limb-12", MEAN)[cell] for cell in results.cells)
    searches = results.content["said"]["learning_rates"]
    assert list(searches) == results.cells
    for search in searches.values():
        mm = {rate: each["mm"] for rate, each in search["tried"].items()}
        assert f"{search['chosen']:g}" == min(mm, key=lambda rate: mm[rate])
    assert main([*words, "--seeds", "2", "--list"]) == 0  # the searches are known, and are not run again
    lines = [line for line in capsys.readouterr().out.splitlines() if " train " in line]
    assert all("--seed 1" in line and "--iterations 8" in line for line in lines)
    assert len(lines) == 5  # tokenizers of all and of a quarter of the records, three models
    assert main([*words, "--iterations", "9"]) == 2
    assert "holds figures of other settings" in capsys.readouterr().err


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
