"""Every parser of the project: a good input, the file of it that is made bad, and how it is read.

`media`, `own` and `handed_in` fill the list. A parser's `make(folder)` writes the good input there;
`read(folder)` reads it and looks at what came out. `file` is the one that is damaged; `fix`, where there is one, makes
checksums right again, so that the damage gets past them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Parser:
    name: str
    file: str
    make: Callable[[Path], None]
    read: Callable[[Path], object]
    kind: str = "bytes"
    count: int = 60
    fix: Callable[[Path], None] | None = None
    also: tuple[type[Exception], ...] = field(default=())
    """Documented errors besides InputError."""


PARSERS: list[Parser] = []


def add(name: str, file: str, make: Callable[[Path], None], read: Callable[[Path], object], **more: Any) -> None:
    PARSERS.append(Parser(name, file, make, read, **more))
