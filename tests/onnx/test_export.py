"""`di2pose export --onnx`: another shape of model, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from di2pose import Di2Pose, recipes
from di2pose.cli import main
from di2pose.image.blazepose import BlazePose
from di2pose.noise import hypothesis_generators
from di2pose.onnx import OnnxModel
from di2pose.onnx import export as onnx_export
from di2pose.onnx.export import Part


@pytest.fixture(scope="module")
def tiny():
    """Untrained, without adapter, self-condition or second observer: the paper's shape."""
    torch.manual_seed(0)
    config = recipes.tiny(feature_width=BlazePose("lite").layout.width)
    return Di2Pose(dataclasses.replace(config, encoder="blazepose-lite")).eval()


def test_a_model_of_the_papers_shape(tiny, tmp_path, capsys, as_user):
    folder = tiny.save(tmp_path / "tiny")
    out = tmp_path / "onnx"
    assert main(["export", str(folder), "--onnx", str(out)]) == 0
    said = capsys.readouterr().out
    about = json.loads((out / "onnx.json").read_text())
    assert "largest difference from PyTorch" in said
    assert about["calibration"] is None
    model = OnnxModel(out)
    layout = BlazePose("lite").layout
    features = np.random.default_rng(0).normal(size=(2, layout.length, layout.width)).astype(np.float32)
    here = model.predict(features, 3, 4, hypothesis_generators(0, range(2), 3))
    assert here.joints_mm.shape == (2, 3, 17, 3)
    assert here.visibility is None
    assert model.certainty(features).shape == (2,)


def test_what_differs_is_refused_and_an_older_folder_stays(tiny, tmp_path, monkeypatch, capsys, as_user):
    calls = []

    def impure(x):
        """Adds its number of calls: its trace differs from the next call."""
        calls.append(x)
        return (x + float(len(calls)),)

    def impure_parts(model):
        return [Part("denoiser", impure, {"x": torch.zeros(2)}, ("y",), {"x": {0: "R"}}, most=1e-3)]

    folder, out = tiny.save(tmp_path / "tiny"), tmp_path / "onnx"
    out.mkdir()
    (out / "onnx.json").write_text("an older one")
    monkeypatch.setattr(onnx_export, "parts_of", impure_parts)
    assert main(["export", str(folder), "--onnx", str(out)]) == 2
    assert "denoiser: ONNX differs from PyTorch by" in capsys.readouterr().err
    assert (out / "onnx.json").read_text() == "an older one"
    assert {path.name for path in tmp_path.iterdir()} == {"tiny", "onnx"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--out FOLDER"),
        (["--onnx", "{tmp}"], "is there and is no ONNX folder"),
    ],
)
def test_options_that_make_no_sense(tmp_path, words, message, capsys):
    (tmp_path / "letter.txt").write_text("mine")
    assert main(["export", "small", *(word.format(tmp=tmp_path) for word in words)]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "letter.txt").read_text() == "mine"


def test_other_kinds_and_encoders_are_refused(tmp_path, capsys):
    torch.manual_seed(0)
    folder = Di2Pose(recipes.tiny()).save(tmp_path / "vitpose")
    assert main(["export", str(folder), "--onnx", str(tmp_path / "out")]) == 2
    assert "look through BlazePose" in capsys.readouterr().err
