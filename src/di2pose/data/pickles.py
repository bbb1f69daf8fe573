"""Third-party pickles and npz files, opened without running anything that they name.

A pickle is a program. `load_pickle` lets it build plain containers, strings, numbers and numpy arrays, and refuses
every other name; Python 2 strings come back as str (latin1). numpy's own builders do not check the sizes and types in
a pickle, and crash where they are wrong: types and arrays are built here, of checked parts.
"""

import io
import math
import pickle
import re
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.lib import format as npy

from di2pose import files
from di2pose.errors import InputError

DAMAGED = (*files.DAMAGED, pickle.UnpicklingError, zipfile.BadZipFile)
"""What reading a truncated or overwritten pickle, zip or npy can raise; callers turn it into an InputError."""

MOST_TEXT_BYTES = 1 << 20
"""Of one entry of an array of text."""
MOST_AXES = 32
KEY_DEPTH = 4
"""Tuples within tuples in a key: Python computes the hash of a deep one by recursion in C, and crashes."""

Allowed = Mapping[tuple[str, str], Callable[..., object]]
"""(module, name) in a pickle -> what is built for it."""


class Refused(InputError):
    """The pickle named something that is neither numpy nor a plain container."""


class _Dtype:
    """Stands for a numpy dtype while the pickle is read: of numbers, text, or (for whole arrays) objects; no fields, no
    subarrays, nothing that can be changed after an array was made of it."""

    def __init__(self, name: object, *_: object) -> None:
        if not isinstance(name, str) or re.fullmatch(r"[<>|=]?[biufcSUO]\d{0,9}", name) is None:
            raise Refused(f"it asks for an array of type {name!r}; numbers, text and objects are let in")
        order, kind, size = re.fullmatch(r"([<>|=]?)(.)(\d*)", name).groups()  # type: ignore[union-attr]
        self.kind, self.size, self.order = kind, size, order or "="

    def set_state(self, state: object) -> None:
        """From numpy's (3, byte order, subarray, names, fields, bytes, alignment, flags)."""
        if not isinstance(state, tuple) or len(state) != 8 or state[0] != 3 or state[1] not in tuple("<>|="):
            raise Refused(f"it describes an array's type by {str(state)[:80]}")
        _, order, *within, size, _, flags = state
        holds_objects = not isinstance(flags, int) or (flags & 1 and self.kind != "O")
        if within != [None, None, None] or holds_objects:
            raise Refused("it asks for an array whose entries have fields, subarrays or hidden objects")
        self.order = order
        if self.kind in "SU":
            if not isinstance(size, int) or size < 0:
                raise Refused(f"it asks for text of {size} bytes")
            self.size = str(size // (4 if self.kind == "U" else 1))

    def resolve(self, objects: bool = False) -> np.dtype[Any]:
        """numpy's own; object only where `objects`."""
        if self.kind == "O":
            if not objects:
                raise Refused("it asks for objects in the place of numbers")
            return np.dtype(object)
        dtype: np.dtype[Any] = np.dtype(f"{self.order}{self.kind}{self.size}")
        if not 0 < dtype.itemsize <= MOST_TEXT_BYTES:
            raise Refused(f"it asks for entries of {dtype.itemsize} bytes")
        return dtype


class _ArrayClass:
    """Stands for the class numpy.ndarray, which a pickle names and must not call."""


_ARRAY_CLASS = _ArrayClass()


def _reconstruct(kind: object, *_: object) -> np.ndarray:
    """The empty array that the pickle fills next."""
    if kind is not _ARRAY_CLASS:
        raise Refused("it asks for an array that is not numpy's own")
    return np.zeros(0, np.int8)


def _scalar(dtype: object, data: object) -> object:
    if not isinstance(dtype, _Dtype):
        raise Refused("it asks for a number without its type")
    return np.frombuffer(_bytes(data), dtype.resolve(), count=1)[0]


def _from_buffer(data: object, dtype: object, shape: object, order: object) -> np.ndarray:
    """As protocol 5 writes an array."""
    if not isinstance(dtype, _Dtype) or order not in ("C", "F"):
        raise Refused("it asks for an array without its type and order")
    flat = np.frombuffer(bytearray(_bytes(data)), dtype.resolve())
    return flat.reshape(_shape(shape), order="C" if order == "C" else "F")


def _fill(array: np.ndarray, state: object) -> None:
    """From numpy's (1, shape, dtype, column by column?, data); checked, since numpy does not."""
    if not isinstance(state, tuple) or len(state) not in (4, 5) or not isinstance(state[-3], _Dtype):
        raise Refused("it fills an array in an unknown way")
    *_, shape, dtype, fortran, data = state
    shape, kind = _shape(shape), dtype.resolve(objects=True)
    if kind.hasobject:
        if not isinstance(data, list) or len(data) != math.prod(shape):
            raise Refused("it fills an array of objects with something else")
    else:
        data = _bytes(data)
        if len(data) != math.prod(shape) * kind.itemsize:
            raise ValueError(f"an array of shape {shape} does not hold {len(data)} bytes")
    array.__setstate__((1, shape, kind, bool(fortran), data))  # type: ignore[arg-type]


def _shape(shape: object) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if len(sizes) > MOST_AXES or not all(type(size) is int and 0 <= size < 2**48 for size in sizes):
        raise Refused(f"it asks for an array of shape {str(shape)[:80]}")
    return sizes


def _bytes(data: object) -> bytes:
    """Of Python 2 they come as str."""
    if isinstance(data, str):
        return data.encode("latin1")
    if not isinstance(data, bytes | bytearray):
        raise Refused(f"it gives {type(data).__name__} for the bytes of an array")
    return bytes(data)


def _latin1(text: object, codec: str = "latin1") -> bytes:
    """Stands for `_codecs.encode`, by which Python 3 writes bytes in protocol 2; takes no codec but latin1."""
    if codec not in ("latin1", "latin-1") or not isinstance(text, str):
        raise pickle.UnpicklingError(f"refused: bytes in the codec '{codec}'")
    return text.encode("latin1")


def _ordered(items: object = ()) -> OrderedDict[Any, Any]:
    if not isinstance(items, list | tuple) or not all(isinstance(item, list | tuple) for item in items):
        raise Refused("it makes an ordered dictionary of something else than pairs")
    for key, _ in items:
        _check_key(key)
    return OrderedDict(items)


def _check_key(key: object, depth: int = KEY_DEPTH) -> None:
    if isinstance(key, tuple) and depth:
        for part in key:
            _check_key(part, depth - 1)
    elif not (key is None or isinstance(key, str | bytes | int | float | np.generic)):
        raise Refused(f"it asks for a {type(key).__name__} as a key; text, numbers and tuples of them are let in")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _ARRAY_CLASS,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,
    ("collections", "OrderedDict"): _ordered,
}
for _core in ("numpy.core", "numpy._core"):  # the two names that numpy's modules had
    _ALLOWED |= {
        (f"{_core}.multiarray", "_reconstruct"): _reconstruct,
        (f"{_core}.multiarray", "scalar"): _scalar,
        (f"{_core}.numeric", "_frombuffer"): _from_buffer,  # protocol 5
    }


class _Whole(io.BytesIO):
    """Raises EOFError where fewer bytes are left than requested, or a line has no end."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if size is not None and len(data) < size:
            raise EOFError("it ends too early")
        return data

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n"):
            raise EOFError("it ends within a line")
        return line


class NumpyUnpickler(pickle._Unpickler):
    """Builds numpy arrays and containers; `also` adds inert stand-ins for named classes.

    Python's own unpickler in Python, not the one in C: the operations by which a pickle could set the state of an
    object, or give a dictionary a key, are checked here.
    """

    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)
    stack: list[Any]
    append: Callable[[Any], None]
    read: Callable[[int], bytes]
    metastack: list[list[Any]]

    def __init__(self, data: bytes, also: Allowed | None = None) -> None:
        super().__init__(_Whole(data), encoding="latin1")
        self.allowed = {**_ALLOWED, **(also or {})}
        self.stand_ins = tuple(kind for kind in (also or {}).values() if isinstance(kind, type) and kind is not object)
        self.arrays: dict[int, np.ndarray] = {}
        """Arrays that were filled, by id. Filling one again would free memory that views of it still use."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise Refused(f"it asks for '{module}.{name}'; only numpy arrays and plain containers are let in")
        return self.allowed[module, name]

    def persistent_load(self, pid: object) -> NoReturn:
        raise Refused("it refers to objects outside itself")

    def get_extension(self, code: int) -> NoReturn:
        raise Refused("it refers to the extension registry")

    def load_build(self) -> None:
        state = self.stack.pop()
        built = self.stack[-1]
        if isinstance(built, _Dtype):
            built.set_state(state)
        elif isinstance(built, self.stand_ins):
            built.__setstate__(state)  # type: ignore[attr-defined]
        elif type(built) is np.ndarray and built.shape == (0,) and id(built) not in self.arrays:
            self.arrays[id(built)] = built
            _fill(built, state)
        else:
            raise Refused(f"it sets the state of a {type(built).__name__}")

    def load_bytearray8(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(length)))  # read before memory of that length is allocated


def _guard(
    operation: bytes,
    kind: type = object,
    target: Callable[[NumpyUnpickler], object] | None = None,
    keys: Callable[[list[Any]], list[Any]] | None = None,
) -> None:
    """Let `operation` change only a `target` of that kind, and check the `keys` of the stack before they are hashed."""
    run: Callable[[Any], None] = pickle._Unpickler.dispatch[operation[0]]

    def load(self: NumpyUnpickler) -> None:
        if target is not None and not isinstance(changed := target(self), kind):
            raise Refused(f"it gives items to a {type(changed).__name__}")
        for key in [] if keys is None else keys(self.stack):
            _check_key(key)
        run(self)

    NumpyUnpickler.dispatch[operation[0]] = load  # type: ignore[assignment]


# Items of an operation on many stand above a mark: they are the stack, and what they are given to is below it.
_guard(pickle.APPEND, list, lambda self: self.stack[-2])
_guard(pickle.APPENDS, list, lambda self: self.metastack[-1][-1])
_guard(pickle.SETITEM, dict, lambda self: self.stack[-3], lambda stack: stack[-2:-1])
_guard(pickle.SETITEMS, dict, lambda self: self.metastack[-1][-1], lambda stack: stack[::2])
_guard(pickle.ADDITEMS, set, lambda self: self.metastack[-1][-1], list)
_guard(pickle.DICT, keys=lambda stack: stack[::2])
_guard(pickle.FROZENSET, keys=list)
NumpyUnpickler.dispatch[pickle.BUILD[0]] = NumpyUnpickler.load_build  # type: ignore[assignment]
NumpyUnpickler.dispatch[pickle.BYTEARRAY8[0]] = NumpyUnpickler.load_bytearray8  # type: ignore[assignment]


def load_pickle(path: Path, also: Allowed | None = None) -> Any:
    """The object of a pickle file. Raises InputError when the file is missing, damaged, or wants to run something."""
    with _reading(path, "a pickle"):
        return NumpyUnpickler(path.read_bytes(), also).load()


def load_npz(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Named arrays of an npz file. An object array (a pickle inside the npz) goes through `NumpyUnpickler`."""
    with _reading(path, "an npz file"), zipfile.ZipFile(path) as archive:
        names = {name.removesuffix(".npy") for name in archive.namelist()}
        missing = [name for name in required if name not in names]
        if missing:
            raise Refused(f"it has no array {', '.join(missing)}; it has {', '.join(sorted(names))}")
        wanted = (*required, *(name for name in optional if name in names))
        return {name: _member(archive, f"{name}.npy") for name in wanted}


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}") from error
    except Refused as error:
        raise InputError(f"{path} was not opened: {error}") from error
    except DAMAGED as error:
        raise InputError(f"{path} is damaged or not {kind} ({error}); fetch or make it again") from error


def _member(archive: zipfile.ZipFile, name: str) -> Any:
    with archive.open(name) as file:
        version = npy.read_magic(file)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        if version <= (2, 0) and read_header(file)[2].hasobject:
            return NumpyUnpickler(file.read()).load()
    with archive.open(name) as file:
        return npy.read_array(file, allow_pickle=False)


def text(value: object) -> str:
    """str from the str, bytes or numpy scalar that a file gave."""
    value = value.item() if isinstance(value, np.generic | np.ndarray) else value
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
