"""A new dataset is one file and one line: a reader written here goes through the real `prepare` and `check`."""

import importlib.util
import json

import numpy as np
import pytest
from data.cmu_files import joints_world, walk, write_cmu
from PIL import Image

from di2pose.cli import main
from di2pose.data.prepare import READERS, Reader
from di2pose.data.sample import Dataset

THE_FILE = '''
"""Toy: a folder of clip.npy (frames 17 3, camera frame, mm) with one picture each."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from di2pose.data.record import Part, Sample, Skip, Sources
from di2pose.errors import InputError
from di2pose.pose.camera import Camera

CAMERA = Camera(focal=(900.0, 900.0), centre=(200.0, 200.0), size=(400, 400))


def read(sources: Sources) -> Iterator[Part]:
    files = sorted(sources.src.glob("*.npy"))
    if not files:
        raise InputError(f"no clip.npy in {sources.src}")
    for path in files:
        yield Part(path.stem, partial(_samples, path, sources.every))


def _samples(path: Path, every: int) -> Iterator[Sample | Skip]:
    poses = np.load(path)
    if poses.shape[1:] != (17, 3):
        raise InputError(f"{path}: 17 joints expected, got {poses.shape}")
    for frame in range(0, len(poses), every):
        pose = poses[frame]
        image = f"{path.stem}.png"
        yield Sample.from_camera(
            f"{path.stem}_{frame}", pose, CAMERA.project(pose), CAMERA, image=image, subject=path.stem, split="test"
        )
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The folder of the dataset; its reader is in the table."""
    (tmp_path / "toy_reader.py").write_text(THE_FILE)
    spec = importlib.util.spec_from_file_location("toy_reader", tmp_path / "toy_reader.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(READERS, "toy", Reader(module.read, "CC0-1.0", "this test"))  # the line

    folder = tmp_path / "toy"
    folder.mkdir()
    world = joints_world(write_cmu(tmp_path / "01_01.bvh", walk(12)))
    poses = (world - world[:, :1]) * [1, -1, -1] + [0.0, 0.0, 5000.0]
    for name in ("anna", "bert"):
        np.save(folder / f"{name}.npy", poses)
        Image.new("RGB", (400, 400), (90, 90, 90)).save(folder / f"{name}.png")
    np.save(folder / "odd.npy", np.zeros((4, 14, 3)))
    return folder


def test_prepare_and_check_know_the_new_dataset(toy, tmp_path, capsys):
    out = tmp_path / "prepared"
    assert main(["data", "prepare", "toy", "--src", str(toy), "--out", str(out), "--every", "3"]) == 0
    assert "8 records of h36m_17, 1 files or records skipped" in capsys.readouterr().out
    dataset = Dataset(out)
    assert (dataset.name, dataset.header["licence"], dataset.header["source"]) == ("toy", "CC0-1.0", "this test")
    assert [skip["file"] for skip in json.loads((out / "dataset.json").read_text())["skipped"]] == ["odd"]
    assert dataset.select(subject="bert", split="test").tolist() == [4, 5, 6, 7]
    assert dataset[5].id == "bert_3"
    np.testing.assert_allclose(dataset[5].joints_mm + dataset[5].root_mm, np.load(toy / "bert.npy")[3], atol=1e-3)
    assert dataset.read_image(dataset[5]).size == (400, 400)

    assert main(["data", "check", str(out), "--samples", "4"]) == 0
    assert "no problem found" in capsys.readouterr().out
    assert (out / "check/sheet.png").is_file()


def test_its_mistakes_are_answered_as_any_other_s(toy, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["data", "prepare", "toy", "--src", str(tmp_path / "empty"), "--out", str(tmp_path / "out")]) == 2
    assert "no clip.npy in" in capsys.readouterr().err
    assert main(["data", "prepare", "toy", "--out", str(tmp_path / "out")]) == 2
    assert "toy needs --src DIR, the dataset as it was downloaded from this test" in capsys.readouterr().err
