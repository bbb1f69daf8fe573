"""Pickles and npz files of other programs, read without executing anything that they name.

Plain containers, text, numbers and numpy arrays are let in, Python 2 strings as str (latin1); another name is an
InputError. The __setstate__ of numpy's dtypes and arrays can crash on damaged bytes: `_Dtype` and `_Array` check them.
"""

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from di2pose.files import reading

AGAIN = "fetch or make it again"
Allowed = Mapping[tuple[str, str], Callable[..., object]]
"""(module, name) in a pickle -> what is called for it."""


class _Dtype:
    def __init__(self, name: str, *_: object) -> None:
        self.dtype: np.dtype[Any] = np.dtype(name)
        if self.dtype.kind not in "biufcSUO":
            raise ValueError(f"an array of type {name}: numbers, text and objects are read")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray):
    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *version, shape, kind, fortran, data = state
        size = 1 if isinstance(data, list) else kind.dtype.itemsize
        fits = isinstance(data, list) == kind.dtype.hasobject and len(data) == size * math.prod(shape)
        if not fits or min(shape, default=0) < 0:
            raise ValueError(f"an array of shape {shape} and type {kind.dtype} does not hold these {len(data)} values")
        super().__setstate__((*version, shape, kind.dtype, fortran, data))


def _scalar(kind: _Dtype, data: bytes | str) -> object:
    return np.frombuffer(data.encode("latin1") if isinstance(data, str) else data, kind.dtype)[0]


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): lambda value, _: value.encode("latin1"),  # bytes as Python 3 writes them in protocol 2
    ("collections", "OrderedDict"): OrderedDict,
}
for _core in ("numpy.core", "numpy._core"):
    _ALLOWED |= {
        (f"{_core}.multiarray", "_reconstruct"): lambda *_: _Array(0),
        (f"{_core}.multiarray", "scalar"): _scalar,
        (f"{_core}.numeric", "_frombuffer"): lambda data, kind, shape, order: np.frombuffer(data, kind.dtype).reshape(
            shape, order=order
        ),
    }


class _Unpickler(pickle._Unpickler):  # in Python: a damaged number of a memo entry allocates nothing
    def __init__(self, file: Any, also: Allowed) -> None:
        super().__init__(file, encoding="latin1")
        self.allowed = {**_ALLOWED, **also}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"it asks for '{module}.{name}'; only arrays and plain containers are read")
        return self.allowed[module, name]


def load_pickle(path: Path, also: Allowed | None = None) -> Any:
    """The object of a pickle file; `also` adds what is called for further names."""
    with reading(path, AGAIN):
        return _Unpickler(io.BytesIO(path.read_bytes()), also or {}).load()


def load_npz(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Named arrays of an npz file; object arrays in it are read as `load_pickle` does."""
    with reading(path, AGAIN), zipfile.ZipFile(path) as archive:
        names = {name.removesuffix(".npy") for name in archive.namelist()}
        if missing := [name for name in required if name not in names]:
            raise ValueError(f"it has no array {', '.join(missing)}; it has {', '.join(sorted(names))}")
        found = {}
        for name in [*required, *(name for name in optional if name in names)]:
            file = io.BytesIO(archive.read(f"{name}.npy"))
            version = npy.read_magic(file)
            read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            holds_objects = read_header(file)[2].hasobject
            found[name] = _Unpickler(file, {}).load() if holds_objects else npy.read_array(io.BytesIO(file.getvalue()))
        return found


def text(value: object) -> str:
    """str from the str, bytes or numpy scalar that a file holds."""
    value = value.item() if isinstance(value, np.generic | np.ndarray) else value
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
