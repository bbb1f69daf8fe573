"""The library of poses: what is taken out of clips."""

import numpy as np
import pytest
from data.cmu_files import t_pose, walk, write_cmu
from di2pose_people.motion import library

from di2pose.errors import InputError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "cache"))


def test_the_t_pose_of_a_short_120_hz_clip_is_not_its_only_pose(tmp_path):
    """A clip shorter than one step of the library gave its first frame alone."""
    write_cmu(tmp_path / "clips/01_01.bvh", np.concatenate([t_pose(), walk(15)]), frame_time=0.0083333)
    found = library(tmp_path / "clips", "train")
    assert found.frame.tolist() == [1]


def test_clips_without_motion_are_left_out_and_named(tmp_path):
    write_cmu(tmp_path / "clips/01_01.bvh", t_pose(), frame_time=0.0083333)
    with pytest.raises(InputError, match=r"1 of 1 clips .* no frame of motion but a T-pose, e\.g\. 01_01\.bvh"):
        library(tmp_path / "clips", "train")
    write_cmu(tmp_path / "clips/01_02.bvh", walk(4))
    with pytest.warns(UserWarning, match=r"1 of 2 clips .* 01_01\.bvh: left out"):
        found = library(tmp_path / "clips", "train")
    assert set(found.clip.tolist()) == {1}


def test_a_single_clip_with_a_capital_ending_is_a_library(tmp_path):
    path = write_cmu(tmp_path / "01_01.BVH", walk(4))
    assert len(library(path, "train").rotations) == 4


def test_a_120_hz_file_is_thinned_to_the_same_rate(motion, tmp_path):
    text = next(motion.rglob("01_05.bvh")).read_text()
    head, _, rows = text.partition("Frame Time:")
    (tmp_path / "001").mkdir()
    (tmp_path / "001" / "01_05.bvh").write_text(f"{head}Frame Time: 0.0083333\n" + rows.split("\n", 1)[1])
    fast, slow = library(tmp_path, "train"), library(motion, "train")
    frames = slow.frame[slow.clip == slow.clips.index("01_05")]
    assert list(fast.frame) == list(frames[::20])
