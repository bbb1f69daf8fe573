"""The examples run, by default on fetched footage; here at small settings."""

import json
from contextlib import closing
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from video.films import write_film

from di2pose import Motion, Result
from di2pose.assets import extract
from di2pose.data.demo_footage import CLIP, FRAME, REGION
from di2pose.data.frames import Video
from di2pose.image import encoder as encoders

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(encoders, "ENCODERS", dict(encoders.ENCODERS))
    return import_module


def test_photo(example, tmp_path, capsys):
    result = example("photo").main(out=tmp_path, hypotheses=2)
    (person,) = result.people
    assert person["left_knee"].state == person["right_knee"].state == "occluded"  # behind the board
    assert Result.load(tmp_path / "photo.json").people[0].state.tolist() == person.state.tolist()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "photo.bvh", "photo.csv", "photo.html", "photo.jpg", "photo.json",
    ]  # fmt: skip
    assert f"{person['left_knee'].r90_mm:4.0f} mm, occluded" in capsys.readouterr().out
    Image.new("RGB", (64, 64)).save(tmp_path / "empty.png")
    assert example("photo").main(tmp_path / "empty.png", tmp_path / "empty", hypotheses=2).people == ()


def test_video_to_opensim(example, tmp_path, capsys):
    with closing(Video(extract("sports2d-demo", CLIP) / CLIP)) as video:
        pictures = [np.asarray(video.frame(FRAME + k).crop(REGION)) for k in range(6)]
    film = write_film(tmp_path / "walk.mp4", pictures, rate=12)
    motion = example("video_to_opensim").main(film, tmp_path, "1.8", hypotheses=2)
    assert isinstance(motion, Motion)
    assert "person 0: in 6 of 6 frames" in capsys.readouterr().out
    rows = [line.split("\t") for line in (tmp_path / "walk.trc").read_text().splitlines()]
    about = dict(zip(rows[1], rows[2], strict=True))
    assert (float(about["DataRate"]), about["NumFrames"], about["Units"]) == (12, "6", "mm")
    assert (tmp_path / "walk.angles.csv").read_text().count("\n") == 1 + 6


def test_keypoints_of_another_detector(example, tmp_path):
    module = example("keypoints_of_another_detector")
    from_file, from_array, alone = module.main(out=tmp_path, hypotheses=2)
    np.testing.assert_allclose(from_file.people[0].joints_mm, from_array.people[0].joints_mm, atol=0.1)
    assert (alone.model, alone.size) == ("lift", from_file.size)
    # Two files of the user's: the second person is the first one, moved.
    entries = json.loads((tmp_path / "walker-coco.json").read_text())
    moved = [value + 60 * (k % 3 == 0) for k, value in enumerate(entries[0]["keypoints"])]
    (tmp_path / "two.json").write_text(json.dumps([*entries, entries[0] | {"keypoints": moved}]))
    results = module.main(tmp_path / "walker.jpg", tmp_path / "two.json", tmp_path / "two", hypotheses=2)
    assert [len(result.people) for result in results] == [2, 2, 2]


def test_own_encoder(example, tmp_path):
    result = example("own_encoder").main(tmp_path, frames=4, iterations=2)
    assert (result.model, result.people[0].joints_mm.shape) == ("tiny", (17, 3))
    config = json.loads((tmp_path / "denoiser" / "model" / "config.json").read_text())["config"]
    assert (config["encoder"], config["denoiser"]["feature_width"]) == ("grid", 3)
