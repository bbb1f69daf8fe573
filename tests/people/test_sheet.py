"""Contact sheets."""

import pytest
from PIL import Image

from di2pose.cli import main
from di2pose.errors import InputError
from di2pose.people.sheet import chosen, sheet


def test_a_sheet_is_a_square_of_pictures_with_skeletons(folder, tmp_path, capsys):
    assert main(["people", "sheet", str(folder), "--out", str(tmp_path / "a.png"), "--count", "9"]) == 0
    sheet(folder, tmp_path / "b.png", count=9, skeletons=False)
    with Image.open(tmp_path / "a.png") as drawn, Image.open(tmp_path / "b.png") as bare:
        assert drawn.size == bare.size == (768, 768)
        assert drawn.tobytes() != bare.tobytes()
    assert "9 of 24 people" in capsys.readouterr().out


def test_sheets_of_a_kind_hold_only_that_kind(people):
    name = people[0].extra["pose_class"]
    rows = chosen(people, name)
    assert 0 in rows
    assert len(rows) < len(people)
    assert len(chosen(people, "all")) == 24
    with pytest.raises(InputError, match="must be one of all, above, close"):
        chosen(people, "flying")
