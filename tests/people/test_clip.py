"""Films: one person through time, with labels that are exact in every frame."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.people.clip import film
from di2pose.people.render import Plan
from di2pose.pose.skeleton import H36M_17, bone_lengths

SECONDS, FPS = 1.0, 6.0
TRUNK = ("spine", "thorax", "nose", "shoulder")
"""Joints whose bones are not rigid: the spine bends, the collar bones move."""


@pytest.fixture(scope="module")
def plain(motion):
    return list(film(Plan(motion, "test", 5), 0, SECONDS, FPS))


@pytest.fixture(scope="module")
def behind(motion):
    return list(film(Plan(motion, "test", 5), 1, SECONDS, FPS, hidden=True))


def test_the_camera_takes_the_joints_to_their_pixels(plain, behind):
    for frames in (plain, behind):
        assert len(frames) == 6
        for k, frame in enumerate(frames):
            sample = frame.sample
            assert sample.fault(H36M_17) is None
            assert sample.frame == k
            pixels = sample.camera.project(sample.joints_mm.astype(np.float64) + sample.root_mm)
            assert np.abs(pixels - sample.joints_2d).max() < 0.1
            assert sample.joints_2d.min() > 0
            assert sample.joints_2d.max() < 256


def test_one_person_moves_before_one_camera(plain):
    first = plain[0].sample
    poses = np.stack([frame.sample.joints_mm for frame in plain])
    assert all(frame.sample.camera == first.camera for frame in plain)
    limbs = [k for k, (child, _) in enumerate(H36M_17.bones) if not H36M_17.joints[child].endswith(TRUNK)]
    assert np.ptp(bone_lengths(poses, H36M_17)[:, limbs], axis=0).max() < 1.0  # mm
    steps = np.linalg.norm(np.diff(poses, axis=0), axis=-1)
    assert 1 < steps.max() < 500
    pictures = np.stack([np.asarray(Image.open(io.BytesIO(frame.jpeg)), float) for frame in plain])
    still = np.ptp(pictures, axis=0).max(-1) < 40  # the room stands still; the person and the shadow do not
    assert 0.5 < still.mean() < 0.999


def test_what_stands_in_front_hides_joints(plain, behind):
    hidden = [np.mean([(frame.sample.visibility == 2).mean() for frame in frames]) for frames in (plain, behind)]
    assert hidden[0] == 0
    assert hidden[1] > 0.03


def test_a_film_is_the_same_on_every_call(motion, plain):
    again = next(film(Plan(motion, "test", 5), 0, SECONDS, FPS))
    assert again.jpeg == plain[0].jpeg
    np.testing.assert_array_equal(again.sample.joints_mm, plain[0].sample.joints_mm)
    other = next(film(Plan(motion, "test", 6), 0, SECONDS, FPS))
    assert other.jpeg != plain[0].jpeg


def test_a_film_longer_than_every_clip_is_refused(motion):
    with pytest.raises(InputError, match="no clip of the motion is 1000 seconds long"):
        next(film(Plan(motion, "test", 5), 0, 1000.0, FPS))


def test_the_benchmark_of_angles_measures_a_film(motion, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import angles

    angles.main(films=1, motion=motion, seconds=0.5, fps=4.0, hypotheses=2, out=tmp_path / "a.json")
    said = capsys.readouterr().out
    told = json.loads((tmp_path / "a.json").read_text())
    assert told["poses"] == 2
    knees = told["angles"]["knee_flexion"]["all"]
    assert knees["count"] == 2 * (told["poses"] - told["missed"])
    assert 0 <= knees["median"] < 90
    assert 0 <= knees["held"] <= 1
    assert "| knee flexion " in said
    with pytest.raises(InputError, match="--films N or --data DIR"):
        angles.main()
