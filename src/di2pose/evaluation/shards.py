"""Results on disk while a run is under way: one JSON line per record, one file per pass and rank.

A line counts when it ends in a newline. A run that was killed in the middle of a line loses that record only, which is
then computed again. Any number of ranks may go on with what any other number began.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from di2pose.errors import InputError


class Shards:
    """The lines of one pass, `<pass>.rank<k>.jsonl`, of which this process writes its own rank's file."""

    def __init__(self, folder: Path, name: str, rank: int) -> None:
        self.folder, self.name = folder, name
        self.own = folder / f"{name}.rank{rank:04d}.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(self.own)

    def append(self, lines: Iterable[dict[str, Any]]) -> None:
        text = "".join(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n" for line in lines)
        with self.own.open("a", encoding="utf-8") as file:
            file.write(text)

    def read(self) -> dict[int, dict[str, Any]]:
        """Dataset row -> line, over the files of all ranks."""
        found: dict[int, dict[str, Any]] = {}
        for path in sorted(self.folder.glob(f"{self.name}.rank*.jsonl")):
            for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
                try:
                    record = json.loads(line)
                    found.setdefault(int(record["row"]), record)
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(f"{path}, line {number} is damaged: delete the file and run again") from error
        return found


def write_text(path: Path, text: str) -> None:
    """Atomic, also when two ranks write the same file at once: a reader sees a whole file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("r+b") as file:
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
