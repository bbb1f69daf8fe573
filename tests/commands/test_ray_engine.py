"""`di2pose predict --engine ray` on a real cluster of two workers on this machine: the rows of a single process, and a
run that was killed goes on where it was."""

import json
import os
import signal
import time

import pytest
from commands import running

from di2pose.commands.predict_options import PredictOptions
from di2pose.commands.ray_engine import FOLDER, photos_in, settings
from di2pose.errors import InputError
from di2pose.output.parquet import write_rows

pytest.importorskip("ray", reason="needs the extra ray")
parquet = pytest.importorskip("pyarrow.parquet")
PHOTOS = 18
BOX = "15,5,110,125"


@pytest.fixture
def folder(portrait, tmp_path):
    """Ten pieces of work; the last photo has nobody, for its boxes say so."""
    (tmp_path / "photos").mkdir()
    for k in range(PHOTOS):
        portrait.crop((k, k, 512, 512)).resize((128, 128)).save(tmp_path / "photos" / f"{k:02}.png")
    (tmp_path / "photos" / "broken.jpg").write_text("this is no picture")
    boxes = {f"{k:02}.png": [[15, 5, 110, 125]] for k in range(PHOTOS - 1)} | {f"{PHOTOS - 1:02}.png": []}
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    return tmp_path / "photos"


def started(folder, out, model, *words):
    quick = ["--hypotheses", 2, "--steps", 2, "--boxes", "boxes.json", *words]
    return running.started("photos", "-o", out, "--model", model, *quick, cwd=folder.parent, start_new_session=True)


def rows(files):
    """All rows, in the order of photos, people and joints."""
    tables = [parquet.read_table(file).to_pylist() for file in files]
    assert tables
    order = sorted((row for table in tables for row in table), key=lambda row: (row["image"], row["person"]))
    return [tuple(row.items()) for row in order]


def test_the_rows_are_those_of_one_process_and_a_killed_run_goes_on(folder, model_folder, tmp_path):
    out = tmp_path / "out"
    killed = started(folder, out, model_folder, "--engine", "ray", "--workers", "2")
    end = time.monotonic() + 600
    while not list(out.glob(f"{FOLDER}/part-*")) and killed.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)  # driver, actors and all of the cluster that it started
    killed.communicate()
    (out / FOLDER / ".part-0.di2pose-0000-1-abcdefgh.parquet").write_text("what a killed writer leaves")
    old = {path.name: path.stat().st_mtime_ns for path in out.glob(f"{FOLDER}/part-*")}
    assert old
    again = started(folder, out, model_folder, "--engine", "ray", "--workers", "2")
    said, problems = again.communicate(timeout=600)
    assert again.returncode == 1, problems  # the broken one
    assert "photos are in" in said
    assert "broken.jpg  failed: " in problems
    assert "Traceback" not in problems
    for name, when in old.items():
        assert (out / FOLDER / name).stat().st_mtime_ns == when
    rest = started(folder, out, model_folder, "--engine", "ray", "--workers", "2")  # the broken one is left
    said, problems = rest.communicate(timeout=600)
    assert rest.returncode == 1, problems
    assert f"{PHOTOS} of {PHOTOS + 1} photos are in" in said
    assert f"nothing done, 0 people\n{PHOTOS} photos done earlier\nfailed, wholly or in part: broken.jpg" in said
    one = started(folder, tmp_path / "one", model_folder, "--format", "parquet")
    one.communicate(timeout=600)
    ray_rows = rows((out / FOLDER).glob("part-*.parquet"))
    assert len(ray_rows) == 17 * (PHOTOS - 1)
    assert ray_rows == rows((tmp_path / "one").glob("*.parquet"))
    assert len(photos_in(out / FOLDER, settings(options_of(folder, model_folder)))) == PHOTOS  # nobody is known, too


def options_of(folder, model_folder, **changes):
    given = {"hypotheses": 2, "steps": 2, "box_source": folder.parent / "boxes.json", "engine": "ray"}
    return PredictOptions(model=str(model_folder), **(given | changes))


def test_rows_that_were_made_otherwise_are_not_mixed(folder, model_folder, tmp_path):
    made_by = settings(options_of(folder, model_folder))
    write_rows(tmp_path / "part-0.parquet", [], {"images": ["a.png"], "options": made_by})
    assert photos_in(tmp_path, made_by) == {"a.png"}
    assert photos_in(tmp_path / "nothing yet", made_by) == set()
    with pytest.raises(InputError, match="made with another seed:"):
        photos_in(tmp_path, settings(options_of(folder, model_folder, seed=1)))
    (folder.parent / "boxes.json").write_text("{}")
    with pytest.raises(InputError, match="made with another boxes:"):
        photos_in(tmp_path, settings(options_of(folder, model_folder)))


def test_what_ray_does_not_do_is_said_before_it_starts(folder, model_folder):
    with pytest.raises(InputError, match="--engine ray writes parquet alone, got --format json"):
        PredictOptions(engine="ray", format="json")
    with pytest.raises(InputError, match="--ray-address is of --engine ray"):
        PredictOptions(ray_address="10.0.0.1:6379")
    (folder / "walk.mp4").write_bytes(b"")
    process = started(folder, folder.parent / "out", model_folder, "--engine", "ray")
    _, problems = process.communicate(timeout=600)
    assert process.returncode == 2
    assert "--engine ray takes photos, got walk.mp4" in problems
