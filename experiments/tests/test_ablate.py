"""`di2pose ablate`: real processes at tiny size, stopped in the middle; and what it refuses."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_tables
from di2pose_experiments.results import MEAN, read_results
from PIL import Image

from di2pose.cli import main
from di2pose.training.log import read_rows

PROGRAM = Path(tiny_tables.__file__)


def command(cache, out, *more):
    flags = ["--recipe", "tiny", "--features", cache, "--test", f"figures={cache}", "--hypotheses", "2", "--out", out]
    return [*map(str, flags), *more]


LENGTH = ("--budget", "0.01", "--train=--learning-rate 0.001")


@pytest.fixture(scope="module")
def ablated(cache, tmp_path_factory):
    """Stopped by Ctrl-C when the first run of a cell is finished, and gone on with: folder, both outputs."""
    out = tmp_path_factory.mktemp("ablated") / "out"
    words = [sys.executable, str(PROGRAM), "ablate", "batch"]
    words += command(cache, out, *LENGTH, "--seeds", "1", "--double", "0")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    lines = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as first:
        for line in first.stdout:
            lines.append(line)
            if line.startswith("[1/14] tokenizer-learning_rate=0.001-s0"):
                first.send_signal(signal.SIGINT)  # once
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("tokenizer-*/last.safetensors")}
    second = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    return out, first.returncode, "".join(lines), second, before


def test_a_stop_is_clean_and_the_same_command_goes_on(ablated):
    _, code, text, second, before = ablated
    assert code == 128 + signal.SIGINT, text
    assert "stopped by signal 2: the same command goes on" in text
    assert "runs are finished already" in second.stdout
    assert any(path.stat().st_mtime_ns == when for path, when in before.items())  # not trained again
    assert "measuring" not in second.stdout  # the speed is kept


def test_two_cells_end_in_a_table(ablated):
    out, *_ = ablated
    results = read_results(out / "batch.json")
    content = results.content
    assert (content["table"], content["recipe"], content["seeds"], content["double"]) == ("batch", "tiny", [0], [0])
    short, twice = (results.values("figures", "limb-12", MEAN, doubled=doubled) for doubled in (False, True))
    assert len({*(seeds[0] for seeds in (*short.values(), *twice.values()))}) == 4  # two cells, both lengths
    (entry,) = results.of("batch 8", "figures", "limb-12")
    assert entry["values"]["2/p-agg/mpjpe"] == short["batch 8"][0]
    head, _, line, *_ = [text for text in (out / "batch.md").read_text().splitlines() if text.startswith("|")]
    columns, texts = ([text.strip() for text in row.split("|")] for row in (head, line))
    assert (texts[1], texts[columns.index("mean of 2")]) == ("batch 8", f"{short['batch 8'][0]:.1f}")
    assert {"one sample", "best of 2 (oracle)", "soft decode", "energy score"} <= set(columns)
    with Image.open(out / "batch.png") as picture:
        assert picture.size[0] > 500


def test_equal_stages_are_one_run_and_all_have_the_same_iterations(ablated):
    out, *_ = ablated
    content = read_results(out / "batch.json").content
    runs, length = content["runs"], content["iterations"]
    names = [f"{stage}-learning_rate=0.001{rest}" for stage, rest in
             (("denoiser", "-batch=4"), ("denoiser", "-batch=8"), ("tokenizer", ""))]  # fmt: skip
    for iterations in (length, 2 * length):
        some = [name.rpartition("-s0-")[0] for name, run in runs.items() if run["iterations"] == iterations]
        assert sorted(some) == names
    speeds = json.loads((out / "budget.json").read_text())["tiny cpu --learning-rate 0.001"]["seconds_per_iteration"]
    assert length == max(1, round(0.6 / sum(speeds.values())))
    name = next(name for name in runs if name.startswith("denoiser"))
    assert {"mm", "vlb", "aux"} <= runs[name]["held_out"].keys()
    assert {"loss", "vlb", "aux"} <= read_rows(out / "runs" / name / "metrics.jsonl")[-1].keys()


def test_stored_figures_are_kept_and_other_seeds_are_added(ablated, cache, tmp_path, capsys):
    """Also where their runs are gone."""
    for name in ("batch.json", "budget.json"):
        (tmp_path / name).write_bytes((ablated[0] / name).read_bytes())
    assert main(["ablate", "batch", *command(cache, tmp_path, *LENGTH, "--seeds", "2", "--list")]) == 0
    evaluated = [line for line in capsys.readouterr().out.splitlines() if " evaluate " in line]
    assert len(evaluated) == 3 + 1  # seed 1 of three cells; seed 0 of the cell that failed
    assert all("-s1-" in line or "share_2-s0-" in line for line in evaluated)
    assert main(["ablate", "batch", *command(cache, tmp_path, "--iterations", "9")]) == 2
    assert "holds figures of other settings" in capsys.readouterr().err


def test_a_cell_that_fails_is_reported_and_takes_no_other_with_it(ablated):
    out, _, _, second, _ = ablated
    assert second.returncode == 1
    assert "FAILED, exit code 2" in second.stdout
    assert "--share must lie above 0" in second.stdout  # the end of its log
    broken = "denoiser-learning_rate=0.001-share_2-s0"
    assert f"not run, since they need these: {broken}-figures" in second.stdout
    content = read_results(out / "batch.json").content
    assert {name.rpartition("-")[0] for name in content["failed"]} == {broken, f"{broken}-figures"}
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "1", "--list"], "Give --iterations N, or start the table once"),
        (["--budget", "1", "--iterations", "3"], "not both"),
        (["--seeds", "0"], "--seeds takes how many, above 0"),
        (["--iterations", "3", "--tokenizer-iterations", "0"], "must be above 0: --tokenizer-iterations 0"),
        (["--seeds", "4-2"], "got 4-2"),
        (["--steps", "fast"], "--steps takes numbers with commas"),
        (["--double", "0"], "needs --iterations N or --budget"),
        (["--train=--set diffusion.nonsense=1"], "has no 'nonsense'"),
        (["--budget", "0"], "must be above 0: --budget 0"),
        (["--test", "nowhere=/nowhere"], "is no folder"),
        (["--protocol", "nonsense"], "no protocol is called nonsense"),
        (["--recipe", "nonsense"], "no recipe is called 'nonsense'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(words, message, cache, tmp_path, capsys):
    assert main(["ablate", "matrices", *command(cache, tmp_path, *words)]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_table_is_refused(cache, tmp_path, capsys):
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
