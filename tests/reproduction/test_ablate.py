"""`di2pose ablate`: real processes at tiny size, stopped in the middle; and what it refuses."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
from PIL import Image

from di2pose.cli import main
from di2pose.reproduction.results import read_results

PROGRAM = Path(__file__).with_name("tiny_tables.py")


def command(cache, out, *more):
    flags = ["--recipe", "tiny", "--features", cache, "--test", f"figures={cache}", "--hypotheses", "2", "--out", out]
    return [*map(str, flags), *more]


@pytest.fixture(scope="module")
def ablated(cache, tmp_path_factory):
    """Stopped by Ctrl-C when the first run of a cell is finished, and gone on with: folder, both outputs."""
    out = tmp_path_factory.mktemp("ablated") / "out"
    words = [sys.executable, str(PROGRAM), "ablate", "batch"]
    words += command(cache, out, "--seeds", "2", "--budget", "0.01", "--train=--learning-rate 0.001")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    lines = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as first:
        for line in first.stdout:
            lines.append(line)
            if "tokenizer-s0" in line and "iterations of every stage" in "".join(lines):
                first.send_signal(signal.SIGINT)
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("tokenizer-s0-*/last.safetensors")}
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
    assert (content["table"], content["recipe"], content["seeds"]) == ("batch", "tiny", [0, 1])
    for cell in ("batch 8", "batch 4"):
        for protocol, estimate in (("limb-12", "2/p-agg"), ("tokenizer", "0/upright")):
            seeds = results.headline(cell, "figures", protocol, "mpjpe")
            assert seeds.keys() == {0, 1}
            entries = results.of(cell, "figures", protocol)
            assert [entry["values"][f"{estimate}/mpjpe"] for entry in entries] == list(seeds.values())
    assert results.of("batch 8", "figures", "limb-12") != results.of("batch 4", "figures", "limb-12")
    mean = fmean(results.headline("batch 8", "figures", "limb-12", "mpjpe").values())
    assert f"| batch 8 | {mean:.1f} ± " in (out / "batch.md").read_text().replace("  ", " ").replace("  ", " ")
    with Image.open(out / "batch.png") as picture:
        assert picture.size[0] > 500


def test_equal_stages_are_one_run_and_all_have_the_same_iterations(ablated):
    out, *_ = ablated
    content = read_results(out / "batch.json").content
    runs = content["runs"]
    assert sorted(name.rpartition("-")[0] for name in runs) == [
        "denoiser-4-s0", "denoiser-4-s1", "denoiser-8-s0", "denoiser-8-s1", "tokenizer-s0", "tokenizer-s1"
    ]  # fmt: skip
    assert {run["iterations"] for run in runs.values()} == {content["iterations"]}
    speeds = json.loads((out / "budget.json").read_text())["tiny cpu --learning-rate 0.001"]["seconds_per_iteration"]
    assert content["iterations"] == max(1, round(0.6 / sum(speeds.values())))
    one = next(run for name, run in runs.items() if name.startswith("denoiser-4-s0"))
    assert one["records_seen"] == 4 * content["iterations"]
    assert one["parameters"].keys() == {"tokenizer", "denoiser"}


def test_a_cell_that_fails_is_told_and_takes_no_other_with_it(ablated):
    out, _, _, second, _ = ablated
    assert second.returncode == 1
    assert "FAILED, exit code 2" in second.stdout
    assert "invalid" in second.stdout.lower() or "none" in second.stdout  # the end of its log
    assert "not run, since they need these: denoiser-none-s0-figures" in second.stdout
    content = read_results(out / "batch.json").content
    assert [name.rpartition("-")[0] for name in content["failed"]] == [
        "denoiser-none-s0", "denoiser-none-s0-figures", "denoiser-none-s1", "denoiser-none-s1-figures"
    ]  # fmt: skip
    assert {figure["cell"] for figure in content["figures"] if figure["protocol"] == "limb-12"} == {
        "batch 8",
        "batch 4",
    }


def test_the_list_has_every_command_after_those_it_needs(cache, tmp_path, capsys):
    words = ["ablate", "occlude", *command(cache, tmp_path, "--seeds", "2", "--iterations", "7", "--list")]
    assert main([*words, "--launch", "torchrun --nproc-per-node 8 -m di2pose", "--device", "cuda"]) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    commands = [line for line in lines if not line.startswith("#")]
    assert len(commands) == 2 + 2 * 5 * 2  # tokenizers; denoisers and their evaluations
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
    assert main(["ablate", "occlude", *command(cache, tmp_path, *words)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if " train " in line]
    lengths = {(words[words.index("train") + 1], words[words.index("--iterations") + 1]) for words in lines}
    assert lengths == {("tokenizer", "20"), ("denoiser", "7")}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "1", "--list"], "Give --iterations N, or start the table once"),
        (["--budget", "1", "--iterations", "3"], "not both"),
        (["--seeds", "0"], "must be above 0: --seeds 0"),
        (["--iterations", "3", "--tokenizer-iterations", "0"], "must be above 0: --tokenizer-iterations 0"),
        (["--budget", "0"], "--budget must be above 0 minutes"),
        (["--test", "nowhere=/nowhere"], "is no folder"),
        (["--protocol", "nonsense"], "no protocol is called nonsense"),
        (["--recipe", "nonsense"], "no recipe is called 'nonsense'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(words, message, cache, tmp_path, capsys):
    assert main(["ablate", "occlude", *command(cache, tmp_path, *words)]) == 2
    assert message in capsys.readouterr().err
    assert main(["ablate", "nonsense", *command(cache, tmp_path)]) == 2
    assert "choose from methods, joint-shift" in capsys.readouterr().err
    assert main(["ablate", "adapter", *command(cache, tmp_path)]) == 2
    assert "has no adapter" in capsys.readouterr().err


def test_two_never_work_in_one_folder(cache, tmp_path, capsys):
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["ablate", "occlude", *command(cache, tmp_path, "--iterations", "1")]) == 2
    assert "still works in" in capsys.readouterr().err


def test_tokenizers_are_measured_once_on_sets_with_the_same_poses(cache, tmp_path, capsys):
    words = ["ablate", "levels", *command(cache, tmp_path / "out", "--seeds", "1", "--iterations", "1", "--list")]
    at = words.index("--hypotheses")
    assert main([*words[:at], f"again={shutil.copytree(cache, tmp_path / 'again')}", *words[at:]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(" evaluate tokenizer " in line for line in lines) == 3  # one of each cell
    assert sum(" evaluate " in line and "/again " in line for line in lines) == 3  # poses from pictures, on both sets
