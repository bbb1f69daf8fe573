"""`di2pose export --onnx`: what is refused. A model of another shape: tests/test_end_to_end.py."""

import dataclasses

import pytest
import torch

from di2pose import Di2Pose, recipes
from di2pose.cli import main
from di2pose.image.blazepose import BlazePose
from di2pose.onnx import export as onnx_export
from di2pose.onnx.export import Part


@pytest.fixture(scope="module")
def tiny():
    """Untrained, without adapter, self-condition or second observer: the paper's shape."""
    torch.manual_seed(0)
    config = recipes.tiny(feature_width=BlazePose("lite").layout.width)
    return Di2Pose(dataclasses.replace(config, encoder="blazepose-lite")).eval()


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


def test_what_makes_no_sense_is_refused(tmp_path, capsys):
    mine, vitpose = tmp_path / "mine", Di2Pose(recipes.tiny()).save(tmp_path / "vitpose")
    mine.mkdir()
    (mine / "letter.txt").write_text("mine")
    for words, message in (
        (["small"], "--out FOLDER"),
        (["small", "--onnx", str(mine)], "is there and is no ONNX folder"),
        ([str(vitpose), "--onnx", str(tmp_path / "out")], "look through BlazePose"),
    ):
        assert main(["export", *words]) == 2
        assert message in capsys.readouterr().err
    assert (mine / "letter.txt").read_text() == "mine"
