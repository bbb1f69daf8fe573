"""Photos to people with ONNX networks: the answers of PyTorch, without PyTorch."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from di2pose import Result
from di2pose.errors import InputError
from di2pose.onnx import OnnxModel, OnnxPredictor
from di2pose.onnx.model import LIFT_PARTS, PARTS

WALKER = (200.0, 15.0, 440.0, 500.0)
MOST_MM = 0.05
WITHOUT_TORCH = """
import sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "scipy", "tyro", "safetensors", "tabulate", "tqdm"):
            raise ImportError(name + " is not to be had")

sys.meta_path.insert(0, Nowhere())
"""


def check_same(here, there):
    """Boxes, scores, states and tokens; every joint of the estimate and of the hypotheses to MOST_MM."""
    assert (here.seed, here.steps, here.hypotheses, here.model) == (there.seed, there.steps, there.hypotheses, "small")
    assert len(here.people) == len(there.people) > 0
    for a, b in zip(here.people, there.people, strict=True):
        assert a.box == pytest.approx(b.box, abs=0.01)
        assert a.score == pytest.approx(b.score, abs=1e-3)
        np.testing.assert_array_equal(a.state, b.state)
        np.testing.assert_array_equal(a.tokens, b.tokens)
        for name in ("joints_mm", "samples_mm", "root_mm", "r90_mm"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=MOST_MM, rtol=0, err_msg=name)


def test_the_folder_has_the_difference_of_every_network_from_pytorch(folder):
    about = json.loads((folder / "onnx.json").read_text())
    parts = (*PARTS, *LIFT_PARTS)
    assert set(about["files"]) == set(parts)
    assert {path.name for path in folder.iterdir()} == {"onnx.json", *(f"{part}.onnx" for part in parts)}
    assert all(0 <= each["largest_difference"] < 0.05 for each in about["files"].values())
    assert about["files"]["tokens"]["largest_difference"] == 0
    assert any(each["largest_difference"] > 0 for each in about["files"].values())  # they were compared at all


def test_several_people_with_something_hidden_are_the_same(ours, theirs, group):
    here, there = (model(group, hypotheses=2, occluded=[(600.0, 330.0, 840.0, 530.0)]) for model in (ours, theirs))
    check_same(here, there)
    assert any(person["left_ankle"].state == "occluded" for person in here.people)


def test_kept_tokens_stay(ours, theirs, walker):
    options = {"boxes": [WALKER], "second_look": False, "hypotheses": 2, "keep_tokens": {0: 3, 17: 200}}
    here = ours(walker, **options)
    check_same(here, theirs(walker, **options))
    assert here.people[0].tokens[:, [0, 17]].tolist() == [[3, 200]] * 2


def test_an_empty_picture_has_no_people(ours):
    assert ours(np.full((300, 400, 3), 90, dtype=np.uint8)).people == ()


def test_a_photo_needs_no_pytorch(ours, folder, walker, tmp_path):
    walker.save(tmp_path / "walker.png")
    program = f"""
from di2pose.onnx import OnnxPredictor
model = OnnxPredictor({str(folder)!r}, threads=1)
result = model({str(tmp_path / "walker.png")!r}, boxes=[{WALKER!r}], hypotheses=2)
for ending in ("json", "html", "jpg", "trc"):
    result.save({str(tmp_path)!r} + "/walker." + ending)
assert "torch" not in sys.modules
"""
    command = [sys.executable, "-W", "error", "-c", WITHOUT_TORCH + program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (here,), (there,) = Result.load(tmp_path / "walker.json").people, ours(walker, boxes=[WALKER], hypotheses=2).people
    np.testing.assert_allclose(here.joints_mm, there.joints_mm, atol=0.02)  # the file has few decimals
    assert all((tmp_path / f"walker.{ending}").stat().st_size > 0 for ending in ("html", "jpg", "trc"))


def test_pins_are_refused(ours, walker):
    with pytest.raises(InputError, match=r"pins need gradients.*use di2pose.Di2Pose"):
        ours(walker, boxes=[WALKER], second_look=False, pin={"left_wrist": (0.0, 0.0, 100.0)})


def test_a_bad_folder_is_named(folder, tmp_path):
    with pytest.raises(InputError, match=r"is no ONNX folder.*export MODEL --onnx"):
        OnnxPredictor(tmp_path)
    about = json.loads((folder / "onnx.json").read_text())
    for text, words in (
        ("{", r"onnx.json is not JSON"),
        (json.dumps(about | {"format_version": 1}), "is of format version 1, expected 2: export the model again"),
        (json.dumps(about | {"config": None}), "Config must be a JSON object"),
        (json.dumps({name: value for name, value in about.items() if name != "files"}), "lacks files"),
    ):
        (tmp_path / "onnx.json").write_text(text)
        with pytest.raises(InputError, match=words):
            OnnxModel(tmp_path)


def test_a_damaged_network_is_found_before_it_runs(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    decoder = tmp_path / "copy" / "decoder.onnx"
    decoder.write_bytes(decoder.read_bytes()[:-1] + b"x")
    model = OnnxModel(tmp_path / "copy")
    with pytest.raises(InputError, match=r"decoder.onnx is damaged"):
        model.run("decoder", tokens=np.zeros((1, 48), np.int64))
    decoder.unlink()
    with pytest.raises(InputError, match=r"decoder.onnx is missing"):
        model.run("decoder", tokens=np.zeros((1, 48), np.int64))
    with pytest.raises(InputError, match="has no network 'encoder': export the model again"):
        model.run("encoder")
