"""Parquet: the rows of `to_pandas`, typed, with nulls for what is not known, and notes about the run."""

import numpy as np
import pandas
import pytest
from output.people import person, result

from di2pose.errors import InputError
from di2pose.output.parquet import read_notes
from di2pose.result import Motion

parquet = pytest.importorskip("pyarrow.parquet")


def test_a_file_holds_the_rows_of_to_pandas(tmp_path):
    found = result([person(0), person(1)])
    assert found.save(tmp_path / "a.parquet") == [tmp_path / "a.parquet"]
    read, told = pandas.read_parquet(tmp_path / "a.parquet"), found.to_pandas()
    assert list(read.columns) == list(told.columns)
    assert len(read) == 2 * 17
    for name in told.columns:
        if pandas.api.types.is_numeric_dtype(told[name]):
            assert np.array_equal(read[name].to_numpy(), told[name].to_numpy(), equal_nan=told[name].isna().any()), name
        else:
            assert read[name].tolist() == told[name].tolist()


def test_a_number_that_is_not_known_is_null_and_not_nan(tmp_path):
    result([person(0)]).save(tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    unknown = table.column("root_std_x_mm")
    assert unknown.null_count == 17
    assert str(unknown.type) == "double"
    assert (str(table.column("frame").type), str(table.column("state").type)) == ("int64", "string")


def test_a_picture_without_people_is_a_table_without_rows(tmp_path):
    result([]).save(tmp_path / "a.parquet")
    result([person(0)]).save(tmp_path / "b.parquet")
    empty, full = (parquet.read_table(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert empty.num_rows == 0
    assert empty.schema.equals(full.schema)


def test_a_video_has_its_frames_and_the_notes_say_how_it_was_made(tmp_path):
    Motion([result([person(0, track=3)], frame_index=k) for k in range(2)], fps=30.0).save(tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet").to_pydict()
    assert (table["frame"][0], table["frame"][-1], set(table["person"])) == (0, 1, {3})
    notes = read_notes(tmp_path / "a.parquet")
    assert (notes["format"], notes["fps"], notes["seed"]) == ("di2pose.result", 30.0, 7)


def test_a_file_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_text("no table")
    with pytest.raises(InputError, match="not a Parquet file of this program"):
        read_notes(tmp_path / "a.parquet")
    pandas.DataFrame({"a": [1]}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match="not a Parquet file of this program"):
        read_notes(tmp_path / "b.parquet")
