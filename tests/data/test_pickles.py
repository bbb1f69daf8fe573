"""Pickles and npz files of third parties: arrays come through, programs do not."""

import os
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from data import layouts

from di2pose.data.pickles import load_npz, load_pickle
from di2pose.errors import InputError

VALUE = {
    ("S1", 7): np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.float64(2.5),
    "names": np.array(["a", "b"], object),
    "fortran": np.asfortranarray(np.eye(3)),
    "bytes": b"\xe9",
    "ordered": OrderedDict(x=1),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_containers_of_every_protocol_come_through(tmp_path, protocol):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(VALUE, protocol))
    loaded = load_pickle(tmp_path / "x.pkl")
    assert list(loaded) == list(VALUE)
    for key, value in VALUE.items():
        np.testing.assert_array_equal(loaded[key], value)
        assert isinstance(loaded[key], type(value))


def test_python_2_text_becomes_str(tmp_path):
    layouts.write_python2_pickle(tmp_path / "x.pkl", {"name": "caf\xe9", "data": np.arange(300)})
    loaded = load_pickle(tmp_path / "x.pkl")
    assert loaded["name"] == "caf\xe9"
    np.testing.assert_array_equal(loaded["data"], np.arange(300))


class Calls:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("call", [(os.system, "true"), (eval, "1"), (getattr, np.ndarray, "dump"), (np.load, "x")])
def test_any_other_name_is_refused(tmp_path, call):
    layouts.write_pickle(tmp_path / "x.pkl", {"a": Calls(*call)})
    with pytest.raises(InputError, match="it asks for"):
        load_pickle(tmp_path / "x.pkl")
    np.savez(tmp_path / "x.npz", a=np.array(Calls(*call), object))
    with pytest.raises(InputError, match="it asks for"):
        load_npz(tmp_path / "x.npz", ["a"])


def test_a_missing_array_or_file_is_named(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(1))
    with pytest.raises(InputError, match="no array b, c; it has a"):
        load_npz(tmp_path / "x.npz", ["a", "b", "c"])
    for load in (load_pickle, lambda path: load_npz(path, ["a"])):
        with pytest.raises(InputError, match="No such file"):
            load(tmp_path / "gone")
