"""Random pickles for `load_pickle`: only an InputError or a value may come out. Run as a program, since what it looks
for would end the process: `python pickle_fuzz.py EXAMPLES FOLDER`."""

import pickle
import struct
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from di2pose.data.pickles import load_pickle
from di2pose.errors import InputError

VALUES = [
    {("S1", "54138969"): {"f": np.ones((2, 1)), "c": np.zeros((2, 1)), "w": 1000}},
    [np.arange(6, dtype=">i4").reshape(2, 3), np.float64(2.5), np.str_("x"), np.asfortranarray(np.eye(3))],
    np.array(["a", None, 3], object),
    np.zeros(3, [("x", "O"), ("y", "f8", (2,))]),
    np.zeros((), "S5"),
    np.array(["ab", "c"]),
    OrderedDict(a=bytearray(b"123"), b={1, 2}, c=frozenset("x")),
    np.zeros(2, "datetime64[s]"),
]
WHOLE = [pickle.dumps(value, protocol) for value in VALUES for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
NAMES = (
    "numpy ndarray", "numpy dtype", "numpy.core.multiarray _reconstruct", "numpy._core.multiarray scalar",
    "numpy._core.numeric _frombuffer", "_codecs encode", "collections OrderedDict",
)  # fmt: skip
TYPES = ("f8", "i4", "O", "O8", "S5", "U3", "V16", "b1", "M8[s]", "S999999999", "|O", "f8,O")


def short(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


names = st.sampled_from(NAMES).map(lambda name: f"c{name.replace(' ', chr(10))}\n".encode())
words = st.sampled_from((*TYPES, "<", ">", "|", "latin1", "C", "F", "x")).map(short)
numbers = st.one_of(st.integers(-3, 70), st.sampled_from([2**31 - 1, 2**62, 2**63])).map(lambda n: f"I{n}\n".encode())
data = st.binary(max_size=40).map(lambda raw: b"C" + bytes([len(raw)]) + raw)
lengths = st.sampled_from([b"\x8b", b"\x8e", b"\x96", b"\x8d", b"\x95", b"r", b"j", b"\x8a"])
sizes = st.sampled_from([b"\xff" * 4, b"\xff" * 8, b"\x00" * 8, b"\xff\xff\xff\x3f" * 2])
huge = st.tuples(lengths, sizes).map(b"".join)
operations = st.sampled_from([bytes([k]) for k in range(256)])
MARKS = b"(tRb]})N20suaeld\x81\x85\x86\x87\x88\x8f\x90\x94"
building = st.sampled_from([*(bytes([k]) for k in MARKS), b"h\x00", b"q\x00"])
programs = st.lists(
    st.one_of(names, words, numbers, data, building, building, building, operations, huge), max_size=40
).map(lambda parts: b"".join(parts) + b".")


@st.composite
def states(draw: st.DrawFn) -> bytes:
    """An array whose type and contents are told by a made-up state, as the crafted files are."""

    class Told:
        def __init__(self, reduced: tuple[object, ...]) -> None:
            self.reduced = reduced

        def __reduce__(self) -> tuple[object, ...]:
            return self.reduced

    inner: object = draw(st.sampled_from([None, ("f8", (2,)), (np.dtype("O"), (2,)), np.dtype("O")]))
    fields: object = draw(st.sampled_from([None, {"x": (np.dtype("O"), 0)}, {"x": (np.dtype("f8"), 64)}]))
    version, order = draw(st.sampled_from([3, 4, 2])), draw(st.sampled_from("<>|=?"))
    size, alignment, flags = draw(st.integers(-2, 2**34)), draw(st.integers(-1, 16)), draw(st.integers(0, 255))
    state = (version, order, inner, draw(st.sampled_from([None, ("x",)])), fields, size, alignment, flags)
    dtype = Told((np.dtype, (draw(st.sampled_from(TYPES)), False, draw(st.booleans())), state))
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 5, 2**40, -1]), max_size=3)))
    contents = draw(st.one_of(st.binary(max_size=80), st.lists(st.none(), max_size=6)))
    rebuild = np.zeros(1).__reduce__()[0]
    filled = Told((rebuild, (np.ndarray, (0,), b"b"), (1, shape, dtype, draw(st.booleans()), contents)))
    return pickle.dumps([filled, filled], draw(st.integers(2, 4)))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid pickle with bytes changed, cut out, repeated, or taken from another one."""
    raw = bytearray(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        kind = draw(st.sampled_from(["change", "cut", "insert", "splice"]))
        if kind == "change" and at < len(raw):
            raw[at] = draw(st.integers(0, 255))
        elif kind == "cut":
            del raw[at : at + draw(st.integers(1, 12))]
        elif kind == "insert":
            raw[at:at] = draw(st.one_of(st.binary(min_size=1, max_size=8), building, names, words))
        else:
            other = draw(st.sampled_from(WHOLE))
            start = draw(st.integers(0, len(other)))
            raw[at:at] = other[start : start + draw(st.integers(1, 60))]
    return bytes(raw)


def touch(value: object, depth: int = 6) -> None:
    """Look at every byte: memory that is not there must show."""
    if isinstance(value, np.ndarray):
        value.copy().tobytes()
        if value.dtype == object and depth:
            for item in value.ravel()[:20]:
                touch(item, depth - 1)
    elif isinstance(value, list | tuple | set | frozenset) and depth:
        for item in list(value)[:20]:
            touch(item, depth - 1)
    elif isinstance(value, dict) and depth:
        touch(list(value.items()), depth - 1)
    elif isinstance(value, str | bytes | bytearray | int | float | np.generic):
        str(value)[:10]


def fuzz(examples: int, path: Path) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    @given(st.one_of(mutated(), programs, states()))
    def try_one(raw: bytes) -> None:
        path.write_bytes(raw)
        try:
            value = load_pickle(path)
        except InputError:
            return
        touch(value)

    try_one()


if __name__ == "__main__":
    fuzz(int(sys.argv[1]), Path(sys.argv[2]) / "x.pkl")
