"""A new output format is one file and one line: a module with a Writer, and its row in `result.WRITERS`."""

import pytest
from output.people import person, result
from PIL import Image

from di2pose.cli import main
from di2pose.errors import InputError
from di2pose.result import WRITERS, Motion

MODULE = '''
"""The names of all joints and how high they stand, one a line."""

from di2pose.files import encoded


def as_heights(name, results, fps):
    people = [person for one in results for person in one.people]
    lines = [f"{joint} {-person[joint].xyz_mm[1]:.1f}\\n" for person in people for joint in person.skeleton.joints]
    return {name: encoded("".join(lines))}
'''


@pytest.fixture
def heights(tmp_path, monkeypatch):
    """The one file, where Python finds it, and the one line."""
    (tmp_path / "heights_of_joints.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(WRITERS, ".heights", "heights_of_joints:as_heights")


@pytest.mark.usefixtures("heights")
def test_a_result_and_a_motion_are_saved_with_it(tmp_path):
    someone = person(track=0)
    assert result([someone]).save(tmp_path / "a.heights") == [tmp_path / "a.heights"]
    lines = (tmp_path / "a.heights").read_text().splitlines()
    assert len(lines) == 17
    assert lines[3] == f"right_ankle {-someone['right_ankle'].xyz_mm[1]:.1f}"
    Motion([result([someone])] * 2, fps=30.0).save(tmp_path / "m.heights")
    assert (tmp_path / "m.heights").read_text().splitlines() == lines * 2
    with pytest.raises(InputError, match=r"\.jpg \.heights: the ending says"):
        result([someone]).save(tmp_path / "a.depths")


@pytest.mark.usefixtures("heights")
def test_the_command_line_knows_it(tmp_path, capsys):
    Image.new("RGB", (256, 256), (90, 120, 160)).save(tmp_path / "a.png")
    (tmp_path / "boxes.json").write_text('{"a.png": [[40, 20, 220, 240]]}')
    words = ["predict", str(tmp_path / "a.png"), "-o", str(tmp_path / "out"), "--format", "json,heights"]
    words += ["--boxes", str(tmp_path / "boxes.json"), "--no-second-look"]
    assert main([*words, "--hypotheses", "2", "--steps", "2"]) == 0
    said = capsys.readouterr().out
    assert "wrote a.json .heights" in said
    assert "1 json, 1 heights" in said
    assert len((tmp_path / "out" / "a.heights").read_text().splitlines()) == 17
    words[words.index("json,heights")] = "depths"
    assert main(words) == 2
    assert "--format knows json, csv, angles, npz, parquet, trc, c3d, bvh, html, png, overlay, heights; got depths" in (
        capsys.readouterr().err
    )
