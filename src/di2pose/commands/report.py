"""What a run of `predict` says: one line for each input as it is done, and a summary."""

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from di2pose.commands.inputs import Input
from di2pose.commands.writing import FORMATS, Written

MOST_IGNORED = 6
"""Names in the summary; of more it says how many."""


@dataclass
class Report:
    """Counts of one run. Lines go to stdout, failures to stderr."""

    folder: Path
    width: int
    """Of the column of names."""
    done: Counter[str] = field(default_factory=Counter)
    """Kind of input -> how many."""
    people: int = 0
    files: list[Path] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Inputs that were not done, or not wholly."""

    def line(self, item: Input, text: str, written: Written) -> None:
        """An input is done, or as far as it could be."""
        self.done[item.kind] += 1
        self.files += written.files
        parts = [text, *written.skipped, f"wrote {_names(written.files, item.name)}" if written.files else ""]
        tqdm.write(f"{item.label:<{self.width}}  {' · '.join(filter(None, parts))}")
        for problem in written.failed:
            self.fail(item.label, problem)

    def fail(self, label: str, problem: str) -> None:
        """Something went wrong with an input."""
        if label not in self.failed:
            self.failed.append(label)
        tqdm.write(f"{label:<{self.width}}  failed: {problem}", file=sys.stderr)

    @property
    def exit_code(self) -> int:
        """0: all done; 1: something failed, the rest is done; 2: nothing could be done."""
        return 0 if not self.failed else 1 if self.files else 2

    def summary(self, ignored: list[str]) -> str:
        counts = [f"{count} {kind}{'s' * (count != 1)}" for kind, count in sorted(self.done.items())]
        people = f"{self.people} {'person' if self.people == 1 else 'people'}"
        lines = [f"{', '.join(counts) or 'nothing'} done, {people}"]
        if self.files:
            kinds = Counter(_format(path) for path in self.files)
            lines.append(f"written to {self.folder}: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items()))
        if ignored:
            names = [Path(each).name for each in ignored[:MOST_IGNORED]]
            more = f" and {len(ignored) - MOST_IGNORED} more" if len(ignored) > MOST_IGNORED else ""
            lines.append(f"ignored, neither photo nor video: {', '.join(names)}{more}")
        if self.failed:
            lines.append(f"failed, wholly or in part: {', '.join(self.failed)}")
        return "\n".join(lines)


def _names(files: list[Path], name: str) -> str:
    """'photo.json .html' : the first in full, then what differs."""
    short = [files[0].name, *(path.name.removeprefix(name) for path in files[1:])]
    return " ".join(short)


def _format(path: Path) -> str:
    known = {ending: kind for kind, ending in FORMATS.items()} | {".overlay.mp4": "overlay"}
    return next(kind for ending, kind in known.items() if path.name.endswith(ending))
