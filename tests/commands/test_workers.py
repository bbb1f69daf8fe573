"""`di2pose predict --workers`: the same files as one process, whatever becomes of a worker."""

import os
import signal
import threading
import time
from multiprocessing import active_children
from pathlib import Path

import pytest
from commands.running import part_of, started, work_or_die, written

from di2pose.commands import workers
from di2pose.commands.predict import PredictOptions
from di2pose.errors import InputError

BOX = "15,5,110,125"


@pytest.fixture
def folder(portrait, tmp_path):
    """Four photos, which are two batches, and a file that is none."""
    (tmp_path / "photos").mkdir()
    for k in range(4):
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


def test_two_workers_write_what_one_process_writes_and_a_killed_one_is_replaced(
    run, folder, clip, tmp_path, monkeypatch
):
    """The batch that ends a process is tried again, each photo alone; one photo ends another process."""
    part_of(clip, folder / "walk.mp4", (162, 132), 3)
    boxes = [f"{k}.png,{BOX}" for k in range(4)] + [f"nobody.png,{BOX}"]
    (tmp_path / "boxes.csv").write_text("\n".join(["file,x0,y0,x1,y1", *boxes]))
    options = {"boxes": tmp_path / "boxes.csv", "format": "json,csv"}
    one = run(folder, out=tmp_path / "one", **options)
    (folder / "deadly.png").write_bytes((folder / "0.png").read_bytes())
    monkeypatch.setattr(workers, "_work", work_or_die)
    two = run(folder, out=tmp_path / "two", workers=2, **options)
    assert (one[0], two[0]) == (1, 1)
    assert written(tmp_path / "one") == written(tmp_path / "two")
    for name in written(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    said = [text.replace("/two", "/one").splitlines() for text in (one[1], two[1])]
    assert sorted(said[0][:-1]) == sorted(said[1][:-1])
    assert said[0][-4:-1] == said[1][-4:-1]  # the summary, but for what failed
    assert "deadly.png" in said[1][-1]
    assert "names what is not among the photos: nobody.png" in two[1]
    assert "a process ended at broken.jpg or deadly.png: tried again, each alone" in two[2]
    assert "deadly.png  failed: the process that was at it ended" in two[2]
    assert "broken.jpg  failed: " in two[2]


def test_what_no_worker_can_do_is_said_once(run, folder):
    with pytest.raises(InputError, match="no model 'gone'"):
        run(folder / "0.png", model="gone", workers=2)
    assert PredictOptions(workers=0).processes >= 1


def test_ctrl_c_keeps_what_is_done_and_no_process_stays_behind(run, clip, tmp_path, capsys):
    film, out = part_of(clip, tmp_path / "walk.mp4", (324, 264), 60), tmp_path / "out"

    def interrupt():
        wait_for(lambda: out.is_dir() and any("walk" in name for name in written(out)))
        for pid in (*(child.pid for child in active_children()), os.getpid()):  # a terminal sends it to all
            os.kill(pid, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(film, out=out, workers=2, format="json,overlay")
    thread.join()
    assert active_children() == []
    assert written(out) == ["walk.partial.json", "walk.partial.overlay.mp4"]
    said = capsys.readouterr()
    assert "stopped: what is done is kept" in said.out
    assert "walk.mp4 (" in said.out
    assert "Traceback" not in said.err


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="workers are found by /proc")
def test_workers_end_with_a_parent_that_is_killed(folder, model_folder, tmp_path):
    process = started(folder, "-o", tmp_path / "out", "--model", model_folder, "--workers", 2)
    wait_for(lambda: len(children(process)) == 2)
    workers = children(process)
    process.kill()
    process.communicate(timeout=600)
    wait_for(lambda: not any(map(state_of, workers)))
