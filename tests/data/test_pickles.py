"""Pickles and npz files of third parties: arrays come through, programs do not."""

import io
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

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
        assert type(loaded[key]) is type(value)


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


@pytest.mark.parametrize(
    "call",
    [
        Calls(os.system, "true"),
        Calls(eval, "1"),
        Calls(getattr, np.ndarray, "dump"),
        Calls(np.load, "x"),
        Calls(np.fromfile, "x"),
        Calls(__import__, "os"),
    ],
    ids=["system", "eval", "getattr", "np.load", "np.fromfile", "import"],
)
def test_any_other_name_is_refused(tmp_path, call):
    layouts.write_pickle(tmp_path / "x.pkl", {"a": call})
    with pytest.raises(InputError, match="was not opened: it asks for"):
        load_pickle(tmp_path / "x.pkl")
    np.savez(tmp_path / "x.npz", a=np.array(call, object))
    with pytest.raises(InputError, match="was not opened: it asks for"):
        load_npz(tmp_path / "x.npz", ["a"])


def test_other_codecs_and_outside_references_are_refused(tmp_path):
    (tmp_path / "codec.pkl").write_bytes(b"c_codecs\nencode\n(Va\nVrot13\ntR.")
    with pytest.raises(InputError, match="rot13"):
        load_pickle(tmp_path / "codec.pkl")
    (tmp_path / "outside.pkl").write_bytes(b"Pthing\n.")
    with pytest.raises(InputError, match="outside itself"):
        load_pickle(tmp_path / "outside.pkl")


def test_a_missing_array_or_file_is_named(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(1))
    with pytest.raises(InputError, match="no array b, c; it has a"):
        load_npz(tmp_path / "x.npz", ["a", "b", "c"])
    for load in (load_pickle, lambda path: load_npz(path, ["a"])):
        with pytest.raises(InputError, match="there is no file"):
            load(tmp_path / "gone")


@pytest.mark.parametrize("keep", range(0, 400, 23))
def test_a_cut_pickle_is_called_damaged_wherever_it_was_cut(tmp_path, keep):
    file = io.BytesIO()
    layouts.Python2Pickler(file).dump(VALUE)
    (tmp_path / "x.pkl").write_bytes(file.getvalue()[:keep])
    with pytest.raises(InputError, match="damaged"):
        load_pickle(tmp_path / "x.pkl")


def crafted(kind: str, state: tuple[object, ...], shape: tuple[int, ...], data: object) -> bytes:
    """An array of a type whose pickled state says something else than its name."""
    dtype = Calls(np.dtype, kind, False, True)
    dtype.call = (*dtype.call, state)
    array = Calls(np.zeros(1).__reduce__()[0], np.ndarray, (0,), b"b")
    array.call = (*array.call, (1, shape, dtype, False, data))
    return pickle.dumps({"a": array}, 2)


HIDDEN = [
    crafted("V8", (3, "|", None, ("x",), {"x": (np.dtype("O"), 0)}, 8, 1, 0), (2,), b"\x01" * 16),
    crafted("V16", (3, "|", (np.dtype("O"), (2,)), None, None, 16, 1, 0), (1,), b"\x01" * 16),
    crafted("f8", (3, "<", None, None, None, -1, -1, 63), (2,), b"\x01" * 16),
    crafted("V8", (3, "|", None, ("x",), {"x": (np.dtype("f8"), 1000)}, 8, 1, 0), (2,), b"\x01" * 16),
    crafted("O", (3, "|", None, None, None, -1, -1, 63), (2,), b"\x01" * 16),
    crafted("f8", (3, "<", None, None, None, -1, -1, 0), (2, 2**40), b"\x01" * 16),
    pickle.dumps(np.zeros(2, [("x", "O"), ("y", "f8")])),
]


OPEN_ALL = """
import sys
from pathlib import Path
from di2pose.data.pickles import load_pickle
from di2pose.errors import InputError
for name in sys.argv[1:]:
    try:
        print(str(load_pickle(Path(name))['a'].tolist())[:20], flush=True)
    except InputError:
        print('InputError', flush=True)
"""


def test_types_that_hide_objects_or_wrong_sizes_are_refused_and_nothing_crashes(tmp_path):
    files = [tmp_path / f"{k}.pkl" for k in range(len(HIDDEN))]
    for path, raw in zip(files, HIDDEN, strict=True):
        path.write_bytes(raw)
    program = [sys.executable, "-c", OPEN_ALL, *map(str, files)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["InputError"] * len(HIDDEN), done.stdout


def test_an_array_is_filled_once_and_a_deep_key_is_refused(tmp_path):
    """Filled again, its memory would go while a view of it is there; a deep key overflows the stack of C."""
    array = pickle.dumps(np.arange(3.0), 2)
    state = array[array.rindex(b"(K\x01") : -1]  # from the state to before STOP
    (tmp_path / "twice.pkl").write_bytes(array[:-1] + state + b".")
    with pytest.raises(InputError, match="sets the state of a ndarray"):
        load_pickle(tmp_path / "twice.pkl")
    (tmp_path / "deep.pkl").write_bytes(b"\x80\x02})" + b"\x85" * 200_000 + b"Ns.")
    with pytest.raises(InputError, match="as a key"):
        load_pickle(tmp_path / "deep.pkl")


def test_random_pickles_give_a_value_or_an_input_error_and_never_a_crash(tmp_path):
    program = [sys.executable, str(Path(__file__).with_name("pickle_fuzz.py")), "600", str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
