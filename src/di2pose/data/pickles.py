"""Third-party pickles and npz files, opened without running anything that they name.

A pickle is a program. `load_pickle` lets it build plain containers, strings, numbers and numpy arrays, and refuses
every other name; Python 2 strings come back as str (latin1).
"""

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.lib import format as npy

from di2pose.errors import InputError

# fmt: off
DAMAGED = (
    pickle.UnpicklingError, zipfile.BadZipFile, EOFError, OSError, ValueError, KeyError, IndexError, AttributeError,
    TypeError, MemoryError, OverflowError, NotImplementedError,
)
# fmt: on
"""What reading a truncated or overwritten pickle, zip or npy can raise; callers turn it into an InputError."""

Allowed = Mapping[tuple[str, str], Callable[..., object]]
"""(module, name) in a pickle -> what is built for it."""


def _latin1(text: str, codec: str = "latin1") -> bytes:
    """Stands for `_codecs.encode`, by which Python 3 writes bytes in protocol 2; takes no codec but latin1."""
    if codec not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"refused: bytes in the codec '{codec}'")
    return text.encode("latin1")


class Refused(InputError):
    """The pickle named something that is neither numpy nor a plain container."""


# numpy's own builders, wherever this version keeps them, by the two names that its modules had
_BUILDERS: dict[tuple[str, str], Any] = {
    ("multiarray", "_reconstruct"): np.zeros(1).__reduce__()[0],
    ("multiarray", "scalar"): np.float64(0).__reduce__()[0],
    ("numeric", "_frombuffer"): np.zeros(1).__reduce_ex__(5)[0],  # protocol 5
}
_ALLOWED: Allowed = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    **{(f"numpy.{core}.{module}", name): f for core in ("core", "_core") for (module, name), f in _BUILDERS.items()},
    ("_codecs", "encode"): _latin1,
    ("collections", "OrderedDict"): OrderedDict,
}


class NumpyUnpickler(pickle.Unpickler):
    """Builds numpy arrays and containers; `also` adds inert stand-ins for named classes."""

    def __init__(self, file: IO[bytes] | BufferedIOBase, also: Allowed | None = None) -> None:
        super().__init__(file, encoding="latin1")
        self.allowed = {**_ALLOWED, **(also or {})}

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        if (module, name) not in self.allowed:
            raise Refused(f"it asks for '{module}.{name}'; only numpy arrays and plain containers are let in")
        return self.allowed[module, name]

    def persistent_load(self, pid: object) -> NoReturn:
        raise Refused("it refers to objects outside itself")


def load_pickle(path: Path, also: Allowed | None = None) -> Any:
    """The object of a pickle file. Raises InputError when the file is missing, damaged, or wants to run something."""
    try:
        with path.open("rb") as file:
            return NumpyUnpickler(file, also).load()
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}") from error
    except Refused as error:
        raise InputError(f"the pickle {path} was not opened: {error}") from error
    except DAMAGED as error:
        raise InputError(f"{path} is damaged or not a pickle ({error}); fetch or make it again") from error


def load_npz(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Named arrays of an npz file. An object array (a pickle inside the npz) goes through `NumpyUnpickler`."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            missing = [name for name in required if name not in names]
            if missing:
                raise Refused(f"it has no array {', '.join(missing)}; it has {', '.join(sorted(names))}")
            wanted = (*required, *(name for name in optional if name in names))
            return {name: _member(archive, f"{name}.npy") for name in wanted}
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}") from error
    except Refused as error:
        raise InputError(f"{path} was not read: {error}") from error
    except DAMAGED as error:
        raise InputError(f"{path} is damaged or not an npz file ({error}); fetch or make it again") from error


def _member(archive: zipfile.ZipFile, name: str) -> Any:
    with archive.open(name) as file:
        version = npy.read_magic(file)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        if version <= (2, 0) and read_header(file)[2].hasobject:
            return NumpyUnpickler(file).load()
    with archive.open(name) as file:
        return npy.read_array(file, allow_pickle=False)


def text(value: object) -> str:
    """str from the str, bytes or numpy scalar that a file gave."""
    value = value.item() if isinstance(value, np.generic | np.ndarray) else value
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
