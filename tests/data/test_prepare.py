"""`di2pose data prepare`: the whole command on small sets; damage is listed, resumed runs are identical."""

import errno
import json
import re
from pathlib import Path

import numpy as np
import pytest
from data.cmu_files import column, walk, write_cmu

from di2pose.cli import main
from di2pose.data.prepare import READERS, _image_root, _write_part, prepare
from di2pose.data.record import Part, Skip, Sources
from di2pose.data.sample import Dataset, Writer
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17


@pytest.fixture
def clips(tmp_path):
    """Three good clips of 4 frames, of subjects 1 and 20."""
    folder = tmp_path / "clips"
    for k, name in enumerate(("001/01_01", "001/01_02", "020/20_01")):
        write_cmu(folder / f"{name}.bvh", walk(4, seed=k))
    return folder


def test_the_command_writes_a_dataset_that_reads_back(clips, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["data", "prepare", "bvh", "--src", str(clips), "--out", str(out), "--seed", "3", "--every", "2"]) == 0
    assert "6 records of h36m_17, 0 files or records skipped" in capsys.readouterr().out
    dataset = Dataset(out)
    assert [sample.id for sample in dataset][:3] == ["01_01_000000", "01_01_000002", "01_02_000000"]
    assert dataset.select(split="test").tolist() == [4, 5]
    assert dataset.select(subject="001").tolist() == [0, 1, 2, 3]
    (_, part, _) = READERS["bvh"].read(Sources("bvh", clips, seed=3, every=2))
    first = next(iter(part.samples()))
    np.testing.assert_array_equal(dataset[2].joints_mm, first.joints_mm)
    assert dataset[2].extra == first.extra


def test_damaged_files_and_records_are_listed_and_the_rest_is_kept(clips, tmp_path, capsys):
    whole = (clips / "001/01_01.bvh").read_text()
    (clips / "001/01_01.bvh").write_text("\n".join(whole.splitlines()[:-1]))
    motion = walk(4)
    motion[1, column("LeftLeg", "X")] = np.nan
    write_cmu(clips / "001/01_02.bvh", motion)
    (clips / "001/01_03.bvh").write_bytes(b"\x00\xff" * 500)
    assert prepare("bvh", tmp_path / "out", clips) == 0
    skipped = json.loads((tmp_path / "out/dataset.json").read_text())["skipped"]
    assert [(skip["file"], skip["reason"].rpartition(": ")[2]) for skip in skipped] == [
        ("001/01_01.bvh", "4 frames of 72 channels need 288 numbers, the file has 216"),
        ("001/01_03.bvh", "it must begin with HIERARCHY and hold MOTION"),
        ("001/01_02.bvh record 01_02_000001", "left_ankle"),
    ]
    assert [sample.id for sample in Dataset(tmp_path / "out")][:3] == ["01_02_000000", "01_02_000002", "01_02_000003"]
    printed = capsys.readouterr().out
    assert "7 records of h36m_17, 3 files or records skipped" in printed
    assert all(skip["file"] in printed for skip in skipped)


def test_a_part_that_breaks_half_way_is_left_out_whole_and_skips_survive_a_resume(tmp_path):
    good = next(READERS["bvh"].read(Sources("bvh", write_cmu(tmp_path / "c/01_01.bvh", walk(2)).parent)))

    def breaks():
        yield from good.samples()
        raise InputError("the file ends early")

    def lists():
        yield Skip("photo 7", "no such file")
        yield from good.samples()

    writer = Writer(tmp_path / "out", "made", H36M_17)
    _write_part(writer, Part("a", breaks))
    _write_part(writer, Part("b", lists))
    assert not writer.has("a")
    assert writer.skipped == [{"file": "a", "reason": "the file ends early"}]
    resumed = Writer(tmp_path / "out", "made", H36M_17)
    assert resumed.has("b")
    dataset = Dataset(resumed.finish())
    assert len(dataset) == 2
    assert dataset.header["skipped"] == [{"file": "photo 7", "reason": "no such file"}]


def test_a_full_disk_stops_the_run_and_is_not_taken_for_a_damaged_file(clips, tmp_path, monkeypatch):
    def full(*arguments, **arrays):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        with pytest.raises(InputError, match="No space left on device; make room"):
            prepare("bvh", tmp_path / "out", clips)
    assert prepare("bvh", tmp_path / "out", clips) == 0
    assert len(Dataset(tmp_path / "out")) == 12
    assert Dataset(tmp_path / "out").header["skipped"] == []


def test_an_interrupted_run_resumes_without_reading_finished_parts_again(clips, tmp_path):
    prepare("bvh", tmp_path / "whole", clips)
    settings = Dataset(tmp_path / "whole").header
    names = ("image_root", "licence", "source", "settings")
    writer = Writer(tmp_path / "out", "bvh", H36M_17, **{name: settings[name] for name in names})
    for part in list(READERS["bvh"].read(Sources("bvh", clips)))[:2]:
        _write_part(writer, part)
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


def test_relative_image_roots_are_kept_relative_to_the_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _image_root(Sources("h36m", Path("raw/h36m")), Path("prepared/h36m")) == "../../raw/h36m"
    assert _image_root(Sources("h36m", Path("raw"), images=tmp_path / "pictures"), Path("out")) == str(
        tmp_path / "pictures"
    )


def test_only_pose2sim_is_fetched_by_the_program_itself():
    assert [name for name, reader in READERS.items() if reader.fetch is not None] == ["pose2sim"]
