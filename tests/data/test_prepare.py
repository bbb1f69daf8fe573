"""`di2pose data prepare`: the whole command on small sets; damage is listed, resumed runs are identical."""

import errno
import json
import re
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from data.cmu_files import column, joints_world, walk, write_cmu
from PIL import Image

from di2pose.cli import main
from di2pose.data.prepare import READERS, Reader, prepare
from di2pose.data.sample import Dataset, Part, Sample
from di2pose.errors import InputError
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_21


def broken_knee():
    """Motion of 4 frames, the second with an angle that is NaN."""
    motion = walk(4)
    motion[1, column("LeftLeg", "X")] = np.nan
    return motion


@pytest.fixture
def clips(tmp_path):
    """Three good clips of 4 frames, of subjects 1 and 20."""
    folder = tmp_path / "clips"
    for k, name in enumerate(("001/01_01", "001/01_02", "020/20_01")):
        write_cmu(folder / f"{name}.bvh", walk(4, seed=k))
    return folder


def test_damaged_files_and_records_are_listed_and_the_rest_is_kept(clips, tmp_path, capsys):
    whole = (clips / "001/01_01.bvh").read_text()
    (clips / "001/01_01.bvh").write_text("\n".join(whole.splitlines()[:-1]))
    write_cmu(clips / "001/01_02.bvh", broken_knee())
    (clips / "001/01_03.bvh").write_bytes(b"\x00\xff" * 500)
    assert prepare("bvh", tmp_path / "out", clips) == 0
    skipped = json.loads((tmp_path / "out/dataset.json").read_text())["skipped"]
    wanted = {
        "001/01_01.bvh": "4 frames of 72 channels need 288 numbers, the file has 216",
        "001/01_03.bvh": "it must begin with HIERARCHY and hold MOTION",
        "001/01_02.bvh record 01_02_000001": "left_ankle",
    }
    assert [skip["file"] for skip in skipped] == list(wanted)
    assert all(wanted[skip["file"]] in skip["reason"] for skip in skipped)
    assert [sample.id for sample in Dataset(tmp_path / "out")][:3] == ["01_02_000000", "01_02_000002", "01_02_000003"]
    printed = capsys.readouterr().out
    assert "7 records of h36m_21, 3 files or records skipped" in printed
    assert all(skip["file"] in printed for skip in skipped)


def test_a_full_disk_stops_the_run_which_goes_on_without_reading_finished_parts_again(clips, tmp_path, monkeypatch):
    write_cmu(clips / "001/01_02.bvh", broken_knee())  # its record stays listed
    real, saved = np.savez, []

    def savez(file, **arrays):
        saved.append(file)
        if len(saved) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, **arrays)

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", savez)
        with pytest.raises(InputError, match="No space left on device; make room"):
            prepare("bvh", tmp_path / "out", clips)
    prepare("bvh", tmp_path / "whole", clips)
    for name in ("01_01", "01_02"):  # would be skipped as damaged if they were read again
        (clips / f"001/{name}.bvh").write_text("gone")
    prepare("bvh", tmp_path / "out", clips)
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


def test_a_finished_dataset_is_left_alone_and_other_settings_are_refused(clips, tmp_path, capsys):
    prepare("bvh", tmp_path / "out", clips)
    (clips / "001/01_01.bvh").write_text("gone")
    assert prepare("bvh", tmp_path / "out", clips) == 0
    assert "already prepared: 12 records" in capsys.readouterr().out
    with pytest.raises(InputError, match="other settings"):
        prepare("bvh", tmp_path / "out", clips, seed=1)


def test_a_source_without_one_good_record_is_an_error(tmp_path):
    write_cmu(tmp_path / "clips/01_01.bvh", np.full_like(walk(3), np.nan))
    (tmp_path / "clips/01_02.bvh").write_text("")
    with pytest.raises(InputError, match=r"no usable record\n  01_02.bvh: .*not a whole BVH"):
        prepare("bvh", tmp_path / "out", tmp_path / "clips")
    assert not (tmp_path / "out/dataset.json").exists()
    write_cmu(tmp_path / "clips/01_02.bvh", walk(3))
    assert prepare("bvh", tmp_path / "out", tmp_path / "clips", seed=9) == 0  # nothing of the failed run is in the way


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["coco"], "no dataset is called 'coco': choose from bvh, pose2sim, h36m"),
        (["h36m"], "h36m needs --src DIR, .* vision.imar.ro"),
        (["bvh", "--src", "nowhere"], "--src nowhere does not exist; .* B. Hahne"),
        (["bvh", "--src", ".", "--annotations", "nowhere.npz"], "--annotations nowhere.npz does not exist"),
        (["bvh", "--src", ".", "--every", "0"], "--every must be 1 or more"),
        (["bvh", "--src", "empty"], "no .bvh file below empty"),
    ],
)
def test_mistakes_are_answered_with_what_to_do(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["data", "prepare", *arguments, "--out", "out"]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error


# A new dataset: a file with a `read`, and a line in READERS or an entry point of another distribution.

CAMERA = Camera(focal=(900.0, 900.0), centre=(200.0, 200.0), size=(400, 400))


def read_toy(sources):
    """Files clip.npy (frames 21 3, camera frame, mm) with one picture each."""
    files = sorted(sources.src.glob("*.npy"))
    if not files:
        raise InputError(f"no clip.npy in {sources.src}")
    return (Part(path.stem, partial(toy_samples, path, sources.every), H36M_21) for path in files)


def toy_samples(path, every):
    poses = np.load(path)
    for frame in range(0, len(poses), every):
        if np.isnan(poses[frame]).any():
            raise InputError(f"{path} is damaged")
        labels = {"image": f"{path.stem}.png", "subject": path.stem, "split": "test"}
        pixels = CAMERA.project(poses[frame])
        yield Sample.from_camera(f"{path.stem}_{frame}", poses[frame], pixels, CAMERA, **labels)


TOY = SimpleNamespace(read=read_toy, licence="CC0-1.0", origin="this test")
NO_READER = SimpleNamespace()


@pytest.fixture(params=["table", "entry point"])
def toy(request, tmp_path, monkeypatch):
    """The folder of the dataset, whose reader is known."""
    if request.param == "table":
        monkeypatch.setitem(READERS, "toy", Reader(read_toy, "CC0-1.0", "this test"))
    else:
        points = [EntryPoint(name, f"{__name__}:{value}", "di2pose.datasets")
                  for name, value in (("toy", "TOY"), ("broken", "NO_READER"))]  # fmt: skip
        monkeypatch.setattr("di2pose.data.prepare.entry_points", lambda group: points)
    folder = tmp_path / "toy"
    folder.mkdir()
    world = joints_world(write_cmu(tmp_path / "01_01.bvh", walk(12)))
    poses = (world - world[:, :1]) * [1, -1, -1] + [0.0, 0.0, 5000.0]
    for name in ("anna", "bert"):
        np.save(folder / f"{name}.npy", poses)
        Image.new("RGB", (400, 400), (90, 90, 90)).save(folder / f"{name}.png")
    poses[6] = np.nan
    np.save(folder / "odd.npy", poses)  # breaks half way: left out whole
    return folder


def test_prepare_and_check_take_an_added_dataset(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = Path("prepared")
    src = toy.name if "toy" in READERS else str(toy)  # a relative image root is kept relative to the dataset
    assert main(["data", "prepare", "toy", "--src", src, "--out", str(out), "--every", "3"]) == 0
    assert "8 records of h36m_21, 1 files or records skipped" in capsys.readouterr().out
    dataset = Dataset(out)
    assert (dataset.name, dataset.header["licence"], dataset.header["source"]) == ("toy", "CC0-1.0", "this test")
    assert [skip["file"] for skip in dataset.header["skipped"]] == ["odd"]
    assert dataset.select(subject="bert", split="test").tolist() == [4, 5, 6, 7]
    assert dataset[5].id == "bert_3"
    assert Path(dataset.header["image_root"]) == (Path("../toy") if "toy" in READERS else toy)
    np.testing.assert_allclose(dataset[5].joints_mm + dataset[5].root_mm, np.load(toy / "bert.npy")[3], atol=1e-3)
    assert dataset.read_image(dataset[5]).size == (400, 400)
    assert main(["data", "check", str(out), "--samples", "4"]) == 0
    assert "no problem found" in capsys.readouterr().out
    assert (out / "check/sheet.png").is_file()
    (tmp_path / "empty").mkdir()
    for words, message in (
        (["toy", "--src", str(tmp_path / "empty")], "no clip.npy in"),
        (["toy"], "toy needs --src DIR, the dataset as it was downloaded from this test"),
        (["broken"], "no dataset is called 'broken'" if "toy" in READERS else "has no read(sources)"),
        (["coco"], "choose from bvh" if "toy" in READERS else "mpi-inf-3dhp-processed, toy, broken"),
    ):
        assert main(["data", "prepare", *words, "--out", str(tmp_path / "out")]) == 2
        assert message in capsys.readouterr().err
