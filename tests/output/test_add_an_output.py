"""A new output format is one file and one line: a module with a Writer, and its row in `result.WRITERS`."""

import pytest
from output.people import person, result

from di2pose.commands.writing import parse_formats
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
def test_results_motions_and_the_command_line_know_it(tmp_path):
    someone = person(track=0)
    assert result([someone]).save(tmp_path / "a.heights") == [tmp_path / "a.heights"]
    lines = (tmp_path / "a.heights").read_text().splitlines()
    assert len(lines) == 17
    assert lines[3] == f"right_ankle {-someone['right_ankle'].xyz_mm[1]:.1f}"
    Motion([result([someone])] * 2, fps=30.0).save(tmp_path / "m.heights")
    assert (tmp_path / "m.heights").read_text().splitlines() == lines * 2
    with pytest.raises(InputError, match=r"\.jpg \.heights: the ending says"):
        result([someone]).save(tmp_path / "a.depths")
    assert parse_formats("json,heights") == ("json", "heights")
    with pytest.raises(InputError, match=r"--format knows json, csv, angles, .*, png, overlay, heights; got depths"):
        parse_formats("depths")
