"""The prepared form: what goes in comes out; what was killed goes on; what is damaged is refused."""

import pickle
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from di2pose.data.sample import OCCLUDED, SEEN, Dataset, Sample, Writer
from di2pose.errors import InputError
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17

CAMERA = Camera(focal=(1000.0, 1001.0), centre=(500.0, 501.0), size=(1000, 1002), distortion=(0.1, 0.2, 0.3, 0.4))


def full_sample(number: int) -> Sample:
    """Every field filled; two joints are not annotated."""
    generator = np.random.default_rng(number)
    valid = np.ones(17, bool)
    valid[[9, 10]] = False
    joints_mm = generator.normal(0, 300, (17, 3)).astype(np.float32)
    joints_mm[~valid] = np.nan
    return Sample(
        id=f"s{number:03d}",
        joints_mm=joints_mm,
        root_mm=np.array([10.0, 20.0, 3000.0 + number]),
        joints_2d=generator.uniform(0, 1000, (17, 2)).astype(np.float32),
        visibility=generator.choice([SEEN, OCCLUDED], 17).astype(np.int8),
        valid=valid,
        image=f"video.mp4#{number}",
        box=(1.5, 2.5, 300.25, 400.125),
        camera=CAMERA,
        subject=f"S{number % 3}",
        action="Walking",
        sequence="a",
        frame=number,
        split="test" if number % 2 else "train",
        extra={"seed": 1, "rotation": [[1.0, 0.0]], "text": "ä"},
    )


def bare_sample(number: int) -> Sample:
    return Sample(id=f"b{number:03d}", joints_mm=np.full((17, 3), number, np.float32))


def write(folder: Path, parts: dict[str, list[Sample]], **options) -> Dataset:
    writer = Writer(folder, "made", H36M_17, **options)
    for key, samples in parts.items():
        if not writer.has(key):
            writer.write(key, samples)
    return Dataset(writer.finish())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_what_is_written_is_read_back(tmp_path):
    dataset = write(tmp_path / "d", {"a": [full_sample(0), full_sample(1)], "b": [bare_sample(2)]}, licence="free")
    assert len(dataset) == 3
    assert dataset.header["licence"] == "free"
    assert dataset.skeleton == H36M_17
    assert isinstance(dataset.joints_mm, np.memmap)
    for number in (0, 1):
        given, got = full_sample(number), dataset[number]
        for field in fields(Sample):
            one, other = getattr(given, field.name), getattr(got, field.name)
            if field.name == "row":
                assert other == number
            elif isinstance(one, np.ndarray):
                np.testing.assert_array_equal(other, one)
                assert other.dtype == one.dtype
            else:
                assert other == one
    bare = dataset[-1]
    assert (bare.root_mm, bare.joints_2d, bare.visibility, bare.image, bare.box, bare.camera) == (None,) * 6
    assert bare.valid.all()
    assert list(dataset.cameras.values()) == [CAMERA]  # stored once


def test_a_dataset_is_a_sequence_that_can_be_selected_from_and_pickled(tmp_path):
    dataset = write(tmp_path / "d", {"a": [full_sample(k) for k in range(6)]})
    assert [sample.id for sample in dataset[1:3]] == ["s001", "s002"]
    assert dataset.index[-1]["id"] == "s005"
    with pytest.raises(IndexError):
        dataset[6]
    assert dataset.select(split="test").tolist() == [1, 3, 5]
    assert dataset.select(split="test", subject=("S0", "S1")).tolist() == [1, 3]
    with pytest.raises(InputError, match="no column 'wardrobe'"):
        dataset.select(wardrobe="x")
    copy = pickle.dumps(dataset)
    assert len(copy) < 1000  # the files are mapped again
    assert pickle.loads(copy)[4].id == "s004"


def test_a_run_killed_within_a_part_goes_on_and_gives_the_identical_files(tmp_path, monkeypatch):
    parts = {key: [full_sample(10 * ord(key) + k) for k in range(3)] for key in "cab"}
    real, saved = np.savez, []

    def savez(file, **arrays):
        saved.append(file)
        if len(saved) == 3:
            Path(file).write_bytes(b"PK half")
            raise KeyboardInterrupt
        real(file, **arrays)

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", savez)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "killed", parts)
    with pytest.raises(InputError, match="unfinished preparation"):
        Dataset(tmp_path / "killed")
    resumed = Writer(tmp_path / "killed", "made", H36M_17)
    assert [resumed.has(key) for key in "abc"] == [True, False, True]
    write(tmp_path / "killed", parts)
    write(tmp_path / "whole", {key: parts[key] for key in "bac"})
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_run_killed_while_the_parts_are_joined_goes_on(tmp_path, monkeypatch):
    parts = {"a": [full_sample(0)], ".b": [full_sample(1)]}

    def killed(path, *_):
        assert path.name == "cameras.json"
        raise KeyboardInterrupt

    writer = Writer(tmp_path / "killed", "made", H36M_17)
    for key, samples in parts.items():
        writer.write(key, samples)
    with monkeypatch.context() as patch:
        patch.setattr("di2pose.data.sample.write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            writer.finish()
    assert not (tmp_path / "killed/dataset.json").exists()
    (tmp_path / "killed/parts.tmp/.a.x1.npz").write_bytes(b"PK half")  # as a kill leaves one
    write(tmp_path / "killed", {key: [] for key in parts})  # nothing is asked for again
    write(tmp_path / "whole", parts)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_what_cannot_be_written_is_refused(tmp_path):
    for _ in range(2):
        Writer(tmp_path / "begun", "made", H36M_17, settings={"seed": 0})
    with pytest.raises(InputError, match="other settings"):
        Writer(tmp_path / "begun", "made", H36M_17, settings={"seed": 1})
    write(tmp_path / "done", {"a": [full_sample(0)]})
    with pytest.raises(InputError, match="already a finished dataset"):
        Writer(tmp_path / "done", "made", H36M_17)
    with pytest.raises(InputError, match="the id s000 occurs twice"):
        write(tmp_path / "twice", {"a": [full_sample(0)], "b": [full_sample(0)]})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"joints_mm": np.zeros((16, 3), np.float32)}, r"shape \(16, 3\), h36m_17 needs \(17, 3\)"),
        ({"joints_mm": np.full((17, 3), np.inf, np.float32)}, "NaN or infinite joints: pelvis"),
        ({"joints_2d": np.zeros((14, 2), np.float32)}, r"joints_2d has shape \(14, 2\)"),
        ({"root_mm": np.array([np.nan, 0, 1])}, "root_mm"),
        ({"box": (5.0, 5.0, 5.0, 9.0)}, "box is empty"),
        ({"valid": np.zeros(17, bool)}, "no joint is annotated"),
    ],
)
def test_a_bad_record_is_named(tmp_path, change, reason):
    values = {"id": "x", "joints_mm": np.zeros((17, 3), np.float32)} | change
    assert full_sample(0).fault(H36M_17) is None  # NaN where joints are not annotated
    writer = Writer(tmp_path / "d", "made", H36M_17)
    with pytest.raises(InputError, match=f"record x: .*{reason}"):
        writer.write("a", [full_sample(0), Sample(**values)])
    assert not writer.has("a")


def test_a_damaged_prepared_folder_is_refused(tmp_path):
    folder = write(tmp_path / "d", {"a": [full_sample(k) for k in range(9)]}).folder
    whole = (folder / "joints_mm.npy").read_bytes()
    (folder / "joints_mm.npy").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"joints_mm\.npy is damaged"):
        Dataset(folder)
    (folder / "joints_mm.npy").write_bytes(whole)
    lines = (folder / "index.jsonl").read_text().splitlines(keepends=True)
    (folder / "index.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(InputError, match="8 lines for 9 records"):
        Dataset(folder)
    with pytest.raises(InputError, match=r"no dataset\.json"):
        Dataset(tmp_path)
