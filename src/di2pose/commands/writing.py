"""Results -> files of the chosen formats, each whole or not at all; and what a run prints about them."""

import errno
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from di2pose.commands.inputs import Input, Kind
from di2pose.errors import InputError
from di2pose.files import printable, remove_leftovers, write_files
from di2pose.output.tables import as_json
from di2pose.result import WRITERS, Motion, Result, count_people

PICTURES = ("html", "overlay", "png")
"""Formats that show the photo; the others hold numbers alone."""
MOTION_FILES = ("trc", "c3d", "bvh", "mixamo", "glb", "mot")
"""One file for each person, none where nobody was found."""
NOT_OF_VIDEOS = ("overlay", "png")
"""A video's overlay is a video, written as the frames come."""
PARTIAL = ".partial"
"""Behind the stem of what a stopped run leaves: `walk.partial.json` never takes the place of `walk.json`."""
FILM = ".overlay.mp4"
PROGRESS_S = 10.0
"""Seconds from one progress line to the next where stderr is no terminal."""
MOST_IGNORED = 6
"""Names in the summary; of more it says how many."""


def endings() -> dict[str, str]:
    """Every format of `Result.save`: its name on the command line -> the ending of the file."""
    written = [".overlay.jpg" if end == ".jpg" else end for end in WRITERS]
    return {end.split(".")[1]: end for end in written}


def floor_words(found: Result | Motion, up: str) -> list[str]:
    """The floor, or why there is none, and how long the feet are on it; nothing where nobody was found."""
    if not (found.tracks if isinstance(found, Motion) else found.people):
        return []
    words = [found.floor_note + (", the files keep the camera's up" if up == "floor" and found.floor is None else "")]
    shares = found.contact_shares().values() if isinstance(found, Motion) else ()
    if shares:
        each = ", ".join("/".join(f"{share:.0%}" for share in sides.values()) for sides in shares)
        words.append(f"left/right foot on it {each} of the time")
    return words


def parse_formats(text: str) -> tuple[str, ...]:
    """'json,html' -> ('json', 'html'), each once."""
    known = endings()
    names = tuple(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
    if wrong := [name for name in names if name not in known]:
        raise InputError(f"--format knows {', '.join(known)}; got {', '.join(wrong)}")
    if not names:
        raise InputError(f"--format needs one or several of {', '.join(known)}, with commas between them")
    return names


def ready_folder(folder: Path) -> Path:
    """The output folder, made and tested before any work, without temporary files of killed runs."""
    try:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"the output must be a folder, {folder} is a file: give another with -o")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror or error}; choose a folder that you may write to, with -o"
        ) from error
    remove_leftovers(folder)
    return folder


@dataclass
class Report:
    """What became of one input, and its files."""

    item: Input
    text: str = ""
    """The result in words; empty where there is none."""
    people: int = 0
    partial: str = ""
    """How far a video that was stopped came."""
    problems: list[str] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    """Files written."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Format -> number of files."""
    skipped: list[str] = field(default_factory=list)
    """Formats that do not apply, each with the reason."""
    disk_full: bool = False
    """Or the quota: then nothing more can be written."""

    def add(self, kind: str, paths: list[Path]) -> None:
        self.paths += paths
        self.kinds[kind] += len(paths)

    def fail(self, error: InputError) -> None:
        cause = error.__cause__
        self.problems.append(str(error))
        self.disk_full |= isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)

    def save(
        self, stem: Path, formats: tuple[str, ...], numbers: Result | Motion, shown: Result | Motion,
        wanted: int | None = None, up: str = "camera",
    ) -> None:  # fmt: skip
        """Write a photo or a video. `numbers`: in pixels of the original; `shown`: for pictures and pages, in pixels of
        its own pictures, which may be smaller; `wanted`: frames of a video that was stopped before its end."""
        video = isinstance(numbers, Motion)
        somebody = bool(numbers.tracks if isinstance(numbers, Motion) else numbers.people)
        empty = [] if somebody else [kind for kind in formats if kind in MOTION_FILES]
        self.skipped += ["no png of a video"] if video and "png" in formats else []
        self.skipped += [f"no {', '.join(empty)} without people"] if empty else []
        for kind in formats:
            if kind in empty or (video and kind in NOT_OF_VIDEOS):
                continue
            name, results = f"{stem.name}{endings()[kind]}", shown if kind in PICTURES else numbers
            try:
                if kind == "json" and isinstance(numbers, Motion):
                    files = as_json(name, list(numbers), numbers.fps, wanted)
                else:
                    files = results.to_files(name, up)
                self.add(kind, write_files(stem.parent, files))
            except InputError as error:
                self.fail(error)


ReportCallback = Callable[[Report], None]


def remove_partial(stem: Path) -> None:
    """Remove what earlier, stopped runs of the same video left."""
    ours = "|".join(re.escape(ending) for ending in (*endings().values(), FILM))
    partial = re.compile(rf"{re.escape(stem.name + PARTIAL)}(_p\d+)?({ours})", re.DOTALL)
    for path in [path for path in stem.parent.iterdir() if partial.fullmatch(path.name)]:
        with suppress(OSError):
            path.unlink()


def print_line(text: str, error: bool = False) -> None:
    """A line on stdout or stderr, above the progress bars of a terminal; flushed, so that a log file has it at once."""
    file = sys.stderr if error else sys.stdout
    (tqdm.write if sys.stderr.isatty() else print)(text, file=file)
    file.flush()


def progress_bar(label: str | None, total: int | None, unit: str, disable: bool = False) -> "tqdm[Any]":
    """On stderr; where that is no terminal, a line every PROGRESS_S seconds."""
    pause = 0.0 if sys.stderr.isatty() else PROGRESS_S
    return tqdm(
        desc=label, total=total, unit=unit, disable=disable, delay=pause, mininterval=pause or 0.1, leave=False
    )


@dataclass
class RunLog:
    """Prints a line for each input as it is done, and a summary. Failures go to stderr."""

    folder: Path
    width: int
    """Of the column of names."""
    earlier: int = 0
    """Inputs that an earlier run has done."""
    reports: list[Report] = field(default_factory=list)
    """Of the inputs with a result."""
    failed: list[str] = field(default_factory=list)
    """Inputs that were not done, or not wholly."""

    def add(self, report: Report) -> None:
        """An input is done, as far as it could be."""
        item = report.item
        if report.text:
            self.reports.append(report)
            parts = ["PARTIAL, " * bool(report.partial) + report.text, *report.skipped]
            if report.paths:  # the first name in full, then what differs
                first, *others = (path.name for path in report.paths)
                names = ["wrote", first, *(name.removeprefix(item.name) for name in others)]
                parts.append(" ".join(map(printable, names)))
            print_line(f"{item.label:<{self.width}}  {' · '.join(parts)}")
        for problem in report.problems:
            self.fail(item.label, problem)

    def fail(self, label: str, problem: str) -> None:
        """Something went wrong with an input."""
        label, problem = printable(label), printable(problem)
        if label not in self.failed:
            self.failed.append(label)
        print_line(f"{label:<{self.width}}  failed: {problem}", error=True)

    @property
    def done(self) -> Counter[Kind]:
        """Kind of input -> how many were done to their end."""
        ended = [each for each in self.reports if not each.partial and (each.paths or not each.problems)]
        return Counter(each.item.kind for each in ended)

    @property
    def exit_code(self) -> int:
        """0: all done; 1: something failed, the rest is done, now or earlier; 2: nothing could be done."""
        some = self.done or self.earlier or any(each.paths for each in self.reports)
        return 0 if not self.failed else 1 if some else 2

    def summary(self, ignored: list[str]) -> str:
        people = sum(each.people for each in self.reports)
        lines = [f"{_counts(self.done) or 'nothing'} done, {count_people(people)}"]
        if self.earlier:
            lines.append(f"{self.earlier} done earlier")
        if kinds := sum((each.kinds for each in self.reports), Counter()):
            counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            lines.append(f"written to {printable(self.folder)}: {counted}")
        if empty := Counter(each.item.kind for each in self.reports if not each.people):
            boxes = "say where they are with --boxes X0,Y0,X1,Y1 (pixels), or " if empty["photo"] else ""
            lines.append(
                f"nobody found in {_counts(empty)}. If there is somebody: {boxes}"
                "try a lower --min-score or another --detector"
            )
        if ignored:
            names = [printable(Path(each).name) for each in ignored[:MOST_IGNORED]]
            more = f" and {len(ignored) - MOST_IGNORED} more" if len(ignored) > MOST_IGNORED else ""
            lines.append(f"ignored, neither photo nor video: {', '.join(names)}{more}")
        if partial := [f"{each.item.label} ({each.partial})" for each in self.reports if each.partial]:
            lines.append(f"partial, in files named *{PARTIAL}.*: {', '.join(partial)}")
        if self.failed:
            lines.append(f"failed, wholly or in part: {', '.join(self.failed)}")
        return "\n".join(lines)


def _counts(kinds: Counter[Kind]) -> str:
    """'2 photos, 1 video'."""
    return ", ".join(f"{count} {kind}{'s' * (count != 1)}" for kind, count in sorted(kinds.items()) if count)
