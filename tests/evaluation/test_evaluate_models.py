import json

import pytest

from di2pose.cli import main


@pytest.fixture
def files(make_samples, write_dataset, write_predictions, tmp_path):
    samples = make_samples(4)
    return write_dataset(samples).folder, write_predictions(samples), tmp_path / "out"


def run(*words):
    return main(["evaluate", *map(str, words)])


def test_a_prediction_file_is_evaluated_from_the_command_line(files, capsys):
    data, poses, out = files
    words = ("--predictions", poses, "--data", data, "--out", out, "--protocol", "h36m-p1,limb-12", "--every", 1)
    assert run(*words) == 0
    assert "| limb-12 | 1 sample | 0.0 | 0.0 |" in " ".join(capsys.readouterr().out.split())
    report = json.loads((out / "report.json").read_text())
    assert [n["value"] for n in report["numbers"] if n["metric"] == "mpjpe"] == pytest.approx([0, 0], abs=1e-9)
    assert {path.name for path in out.iterdir()} == {
        "report.json",
        "report.md",
        "report.tex",
        "worst.html",
        "run.json",
        "records",
    }
    assert main(["compare", str(out), str(out)]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--protocol", "limb-12"), "give either a MODEL (checkpoint folder, run, name) or --predictions"),
        (("--predictions", "POSES", "--protocol", "nope"), "no protocol is called nope"),
        (("--predictions", "POSES", "--hypotheses", "1;8"), "--hypotheses takes counts with commas"),
        (("--predictions", "POSES", "--protocol", "occ-40"), "occ-40 put patches on the pictures"),
        (("--predictions", "none.npz"), "no prediction file at none.npz"),
        (("nowhere",), "no checkpoint at nowhere"),
    ],
)
def test_mistakes_end_with_one_line_and_status_2(files, capsys, words, message):
    data, poses, out = files
    assert run(*(poses if word == "POSES" else word for word in words), "--data", data, "--out", out) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_checkpoint_without_an_image_encoder_is_refused(files, tmp_path, capsys):
    from di2pose import recipes
    from di2pose.pipeline.pipeline import Di2Pose

    Di2Pose(recipes.tiny()).save(tmp_path / "model")
    assert run(tmp_path / "model", "--data", files[0], "--out", files[2]) == 2
    assert "cannot look at pictures" in capsys.readouterr().err
