"""Every part that is used or fetched has its licence and its source in the list."""

import json

from di2pose.assets import ASSETS
from di2pose.commands.doctor import dependencies
from di2pose.commands.licences import everything, licences


def test_nothing_is_left_out_and_nothing_is_without_terms():
    rows = [row for rows in everything().values() for row in rows]
    parts = {row.part for row in rows}
    assert parts >= {"code", "weights", *ASSETS, *dependencies()}
    assert [row.part for row in rows if not row.licence or row.licence == "see the package"] == []
    assert [row.part for row in rows if not row.source] == []


def test_a_fetched_file_is_named_by_its_package():
    rows = {row.part: row for rows in everything().values() for row in rows}
    assert rows["blazepose-heavy"].source == "npm @mediapipe/pose@0.5.1675469404"
    assert rows["sports2d-demo"].source == "PyPI sports2d==0.8.34"
    assert rows["av"].note.startswith("extra ")
    assert "video" in rows["av"].note


def test_the_list_and_its_json_say_the_same(capsys):
    licences()
    text = capsys.readouterr().out
    licences(json=True)
    record = json.loads(capsys.readouterr().out)
    assert list(record) == list(everything())
    for title, rows in record.items():
        assert title in text
        assert all(row["part"] in text and row["licence"] in text for row in rows)
