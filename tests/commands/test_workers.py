"""`di2pose predict --workers`: the same files as one process, whatever becomes of a worker."""

import os
import signal
import time
from pathlib import Path

import pytest
from commands.running import started
from commands.test_predict import written
from commands.test_predict_videos import part_of

from di2pose.commands.inputs import Input, work_batches
from di2pose.commands.predict_options import PredictOptions
from di2pose.errors import InputError

BOX = "15,5,110,125"


@pytest.fixture
def folder(portrait, tmp_path):
    """Ten photos, which are five pieces of work, and one that is none."""
    (tmp_path / "photos").mkdir()
    for k in range(10):
        portrait.crop((k, k, 512, 512)).resize((128, 128)).save(tmp_path / "photos" / f"{k}.png")
    (tmp_path / "photos" / "broken.jpg").write_text("this is no picture")
    return tmp_path / "photos"


def children(process):
    """The workers of a running command: those of its children that run our code."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            line = (folder / "cmdline").read_text()
        except OSError:
            continue
        if int(words[1]) == process.pid and "spawn_main" in line and words[0] != "Z":
            found.append(int(folder.name))
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds=600.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def test_pieces_are_two_photos_or_one_video():
    kinds = ["photo"] * 3 + ["video", "video", "photo"]
    items = [Input(kind, Path(f"{k}.x"), str(k)) for k, kind in enumerate(kinds)]
    assert [[item.name for item in piece] for piece in work_batches(items)] == [
        ["0", "1"], ["2"], ["3"], ["4"], ["5"],
    ]  # fmt: skip


def test_two_workers_write_what_one_process_writes_and_say_the_same(run, folder, clip, tmp_path):
    part_of(clip, folder / "walk.mp4", (162, 132), 3)
    options = {"boxes": Path(BOX), "format": "json,csv"}
    one = run(folder, out=tmp_path / "one", **options)
    two = run(folder, out=tmp_path / "two", workers=2, **options)
    assert (one[0], two[0]) == (1, 1)
    assert written(tmp_path / "one") == written(tmp_path / "two")
    for name in written(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    said = [text.replace("/two", "/one") for text in (one[1], two[1])]
    assert sorted(said[0].splitlines()) == sorted(said[1].splitlines())
    assert said[0].splitlines()[-3:] == said[1].splitlines()[-3:]  # the summary
    assert one[2] == two[2]
    assert "broken.jpg  failed: " in two[2]


def test_the_workers_boxes_are_known_to_the_parent(run, folder, tmp_path):
    (tmp_path / "boxes.csv").write_text("file,x0,y0,x1,y1\n0.png,15,5,110,125\nnobody.png,15,5,110,125\n")
    _, said, _, _ = run(folder / "0.png", folder / "1.png", boxes=tmp_path / "boxes.csv", workers=2)
    assert "names what is not among the photos: nobody.png" in said


def test_what_no_worker_can_do_is_said_once(run, folder, tmp_path):
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
    """Killed when the broken file is reported: the photo of the same piece is in work then, and takes a while."""
    (folder / "broken.jpg").rename(folder / "0broken.jpg")  # the second of all
    words = [folder, "-o", tmp_path / "out", "--model", model_folder, "--boxes", BOX, "--format", "json"]
    process = started(*words, "--hypotheses", 100, "--steps", 20, "--workers", 2)
    assert any(problem.startswith("0broken.jpg  failed: ") for problem in process.stderr)
    for pid in children(process):
        os.kill(pid, signal.SIGKILL)
    said, more = process.communicate(timeout=600)
    assert process.returncode == 1, more
    assert written(tmp_path / "out") == [f"{k}.json" for k in range(10)]
    assert "a process ended (killed by SIGKILL) at 0.png: tried again, each alone" in more
    assert "10 photos done, 10 people" in said
    assert "failed, wholly or in part: 0broken.jpg" in said


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_keeps_what_is_done_and_nobody_stays_behind(clip, folder, model_folder, tmp_path, number):
    """Of the parent alone, as `kill` sends it; its workers end too, also where the parent could not tell them."""
    part_of(clip, folder / "walk.mp4", (324, 264), 200)
    out = tmp_path / "out"
    words = [folder, "-o", out, "--model", model_folder, "--boxes", BOX, "--format", "json,overlay"]
    process = started(*words, "--workers", 2, "--hypotheses", 2, "--steps", 2)
    wait_for(lambda: process.poll() is not None or (out.is_dir() and {"7.json", "9.json"} <= {*written(out)}))
    wait_for(lambda: process.poll() is not None or any("walk" in name for name in written(out)))
    workers = children(process)
    process.send_signal(number)
    said, problems = process.communicate(timeout=600)
    wait_for(lambda: not any(map(alive, workers)))
    assert written(out)[-1] == "walk.partial.overlay.mp4"  # the workers wrote what they had
    assert "walk.json" not in written(out)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "Traceback" not in problems
        assert "stopped: what is done is kept" in said
        assert "walk.mp4 (" in said
        assert "10 photos done" in said
