"""`di2pose predict --workers`: the same files as one process, whatever becomes of a worker."""

import os
import signal
import time
from pathlib import Path

import pytest
from commands.running import part_of, started, written

from di2pose.commands.predict_options import PredictOptions
from di2pose.errors import InputError

BOX = "15,5,110,125"


@pytest.fixture
def folder(portrait, tmp_path):
    """Six photos, which are three batches, and a file that is none."""
    (tmp_path / "photos").mkdir()
    for k in range(6):
        portrait.crop((k, k, 512, 512)).resize((128, 128)).save(tmp_path / "photos" / f"{k}.png")
    (tmp_path / "photos" / "broken.jpg").write_text("this is no picture")
    return tmp_path / "photos"


def state_of(pid):
    """Parent, command line; None for a process that has ended."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
        return None if state == "Z" else (int(parent), Path(f"/proc/{pid}/cmdline").read_text())
    except OSError:
        return None


def children(process):
    """The workers of a running command: those of its children that run our code."""
    states = {int(folder.name): state_of(folder.name) for folder in Path("/proc").glob("[0-9]*")}
    return [pid for pid, state in states.items() if state and state[0] == process.pid and "spawn_main" in state[1]]


def wait_for(condition, seconds=600.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_two_workers_write_what_one_process_writes_and_say_the_same(run, folder, clip, tmp_path):
    part_of(clip, folder / "walk.mp4", (162, 132), 3)
    boxes = [f"{k}.png,{BOX}" for k in range(6)] + [f"nobody.png,{BOX}"]
    (tmp_path / "boxes.csv").write_text("\n".join(["file,x0,y0,x1,y1", *boxes]))
    options = {"boxes": tmp_path / "boxes.csv", "format": "json,csv"}
    one = run(folder, out=tmp_path / "one", **options)
    two = run(folder, out=tmp_path / "two", workers=2, **options)
    assert (one[0], two[0]) == (1, 1)
    assert written(tmp_path / "one") == written(tmp_path / "two")
    for name in written(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    said = [text.replace("/two", "/one") for text in (one[1], two[1])]
    assert sorted(said[0].splitlines()) == sorted(said[1].splitlines())
    assert "names what is not among the photos: nobody.png" in said[1]
    assert said[0].splitlines()[-4:] == said[1].splitlines()[-4:]  # the summary
    assert one[2] == two[2]
    assert "broken.jpg  failed: " in two[2]


def test_what_no_worker_can_do_is_said_once(run, folder):
    with pytest.raises(InputError, match="no model 'gone'"):
        run(folder, model="gone", workers=2)
    with pytest.raises(InputError, match="a camera is recorded by one process"):
        run(folder, 0, workers=2)
    with pytest.raises(InputError, match="--workers is a number of processes"):
        run(folder, workers=-1)
    assert PredictOptions(workers=0).processes >= 1


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="workers are found by /proc")


@needs_proc
def test_a_killed_worker_costs_nothing_but_time(folder, model_folder, tmp_path):
    """Both are killed when the first files are there: the next batches are in work then, and take a while."""
    out = tmp_path / "out"
    words = [folder, "-o", out, "--model", model_folder, "--boxes", BOX, "--format", "json"]
    process = started(*words, "--hypotheses", 100, "--steps", 20, "--workers", 2)
    wait_for(lambda: process.poll() is not None or (out.is_dir() and len(written(out)) >= 2))
    for pid in children(process):
        os.kill(pid, signal.SIGKILL)
    said, problems = process.communicate(timeout=600)
    assert process.returncode == 1, problems
    assert written(out) == [f"{k}.json" for k in range(6)]
    assert "tried again, each alone" in problems
    assert "6 photos done, 6 people" in said
    assert "failed, wholly or in part: broken.jpg" in said


@needs_proc
def test_ctrl_c_keeps_what_is_done_and_no_process_stays_behind(clip, folder, model_folder, tmp_path):
    part_of(clip, folder / "walk.mp4", (324, 264), 60)
    out = tmp_path / "out"
    words = [folder, "-o", out, "--model", model_folder, "--boxes", BOX, "--format", "json,overlay"]
    process = started(*words, "--workers", 2, "--hypotheses", 2, "--steps", 2)
    wait_for(lambda: process.poll() is not None or (out.is_dir() and any("walk" in name for name in written(out))))
    workers = children(process)
    for pid in (*workers, process.pid):  # a terminal sends it to all
        os.kill(pid, signal.SIGINT)
    said, problems = process.communicate(timeout=600)
    wait_for(lambda: not any(map(state_of, workers)))
    assert (process.returncode, len(workers)) == (130, 2)
    assert "Traceback" not in problems
    assert {"walk.partial.overlay.mp4", "walk.partial.json"} <= {*written(out)}
    assert "walk.json" not in written(out)
    assert "stopped: what is done is kept" in said
    assert "walk.mp4 (" in said


@needs_proc
def test_workers_end_with_a_parent_that_is_killed(folder, model_folder, tmp_path):
    process = started(folder, "-o", tmp_path / "out", "--model", model_folder, "--workers", 2)
    wait_for(lambda: len(children(process)) == 2)
    workers = children(process)
    process.kill()
    process.communicate(timeout=600)
    wait_for(lambda: not any(map(state_of, workers)))
