"""Results -> files of the chosen formats, each whole or not at all; and what a run prints about them."""

import errno
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from di2pose.commands.inputs import Input
from di2pose.errors import InputError
from di2pose.files import printable, remove_leftovers, write_files
from di2pose.output.tables import as_json
from di2pose.result import WRITERS, Motion, Result, count_people

PICTURES = ("html", "overlay", "png")
"""Formats that show the photo; the others hold numbers alone."""
NEED_SOMEBODY = ("trc", "c3d", "bvh")
"""Motion files: nothing can stand in them where nobody was found."""
NOT_OF_VIDEOS: tuple[str, ...] = ("overlay", "png")
"""A video's overlay is a video, written as the frames come."""
PARTIAL = ".partial"
"""Behind the stem of what a stopped run leaves: `walk.partial.json` never takes the place of `walk.json`."""
FILM = ".overlay.mp4"
PROGRESS_S = 10.0
"""Seconds from one line of progress to the next."""
MOST_IGNORED = 6
"""Names in the summary; of more it says how many."""


def endings() -> dict[str, str]:
    """Every format of `Result.save`: its name on the command line -> the ending of the file."""
    written = [".overlay.jpg" if end == ".jpg" else end for end in WRITERS]
    return {end.split(".")[1]: end for end in written}


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


def _ending(path: Path) -> str:
    """`.json`, `.overlay.mp4`."""
    return max((end for end in (*endings().values(), FILM) if path.name.endswith(end)), key=len)


@dataclass
class OutputFiles:
    """The files of one input's results."""

    paths: list[Path] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Formats that do not apply, each with the reason."""
    failed: list[str] = field(default_factory=list)
    """What could not be written, and why."""
    disk_full: bool = False
    """Or the quota: then nothing more can be written."""

    def fail(self, error: InputError) -> None:
        cause = error.__cause__
        self.failed.append(str(error))
        self.disk_full |= isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)

    def save(
        self, stem: Path, formats: tuple[str, ...], numbers: Result | Motion, shown: Result | Motion,
        wanted: int | None = None,
    ) -> None:  # fmt: skip
        """Write a photo or a video. `numbers`: in pixels of the original; `shown`: for pictures and pages, in pixels of
        its own pictures, which may be smaller; `wanted`: frames of a video that was stopped before its end."""
        if isinstance(numbers, Motion):
            somebody, never = bool(numbers.tracks), NOT_OF_VIDEOS
            self.skipped += ["no png of a video"] if "png" in formats else []
        else:
            somebody, never = bool(numbers.people), ()
        empty = [] if somebody else [kind for kind in formats if kind in NEED_SOMEBODY]
        if empty:
            self.skipped.append(f"no {', '.join(empty)} without people")
        for kind in formats:
            if kind not in empty and kind not in never:
                path = Path(f"{stem}{endings()[kind]}")
                try:
                    if kind == "json" and wanted is not None and isinstance(numbers, Motion):
                        self.paths += write_files(path.parent, as_json(path.name, list(numbers), numbers.fps, wanted))
                    else:
                        self.paths += (shown if kind in PICTURES else numbers).save(path)
                except InputError as error:
                    self.fail(error)

    def remove_stale(self, stem: Path) -> None:
        """Remove the partial files of earlier runs, of the formats that were written now."""
        start, now = f"{stem.name}{PARTIAL}", {path.name for path in self.paths}
        kinds = "|".join({re.escape(_ending(path)) for path in self.paths})
        stale = re.compile(rf"{re.escape(start)}(_p\d+)?({kinds})", re.DOTALL)
        for path in stem.parent.iterdir() if self.paths else ():
            if stale.fullmatch(path.name) and path.name not in now:
                with suppress(OSError):  # it only lies about
                    path.unlink()


@dataclass
class Report:
    """What became of one input."""

    item: Input
    text: str = ""
    """The result in words; empty where there is none."""
    files: OutputFiles = field(default_factory=OutputFiles)
    people: int = 0
    partial: str | None = None
    """How far a video that was stopped came."""
    problems: list[str] = field(default_factory=list)
    """What went wrong before anything was written."""
    earlier: bool = False
    """Done by an earlier run, and skipped by this one."""


ReportCallback = Callable[[Report], None]


def print_line(text: str, error: bool = False) -> None:
    """A line on stdout or stderr, above the progress bars; flushed, so that a log file has it at once."""
    file = sys.stderr if error else sys.stdout
    tqdm.write(text, file=file)
    file.flush()


class ProgressLines:
    """Plain lines on stderr where that is no terminal and shows no progress bar, one every PROGRESS_S seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def update(self, text: str) -> None:
        """`text` is printed if the last line is old enough."""
        if time.monotonic() - self._last >= PROGRESS_S and not sys.stderr.isatty():
            print_line(text, error=True)
            self._last = time.monotonic()


@dataclass
class RunLog:
    """Counts of one run: a line for each input as it is done, and a summary. Failures go to stderr."""

    folder: Path
    width: int
    """Of the column of names."""
    total: int
    """How many inputs there are."""
    reported: int = 0
    """How many of them are done or have failed."""
    done: Counter[str] = field(default_factory=Counter)
    """Kind of input -> how many."""
    earlier: Counter[str] = field(default_factory=Counter)
    """The same of those that an earlier run had done."""
    people: int = 0
    empty: Counter[str] = field(default_factory=Counter)
    """Kind of input -> how many showed nobody."""
    files: list[Path] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    """Videos that were stopped, each with how far they came."""
    failed: list[str] = field(default_factory=list)
    """Inputs that were not done, or not wholly."""
    progress: ProgressLines = field(default_factory=ProgressLines)

    def add(self, report: Report) -> None:
        """An input is done, as far as it could be."""
        self.reported += 1
        if report.earlier:
            self.earlier[report.item.kind] += 1
        else:
            self._add(report)
        self.progress.update(f"{self.reported} of {self.total} files, {len(self.failed)} failed")

    def _add(self, report: Report) -> None:
        item, text, output = report.item, report.text, report.files
        for problem in report.problems:
            self.fail(item.label, problem)
        if not text:
            return
        self.people += report.people
        self.empty[item.kind] += not report.people
        if report.partial is None:
            self.done[item.kind] += bool(output.paths) or not output.failed
        else:
            self.partial.append(f"{item.label} ({report.partial})")
            text = f"PARTIAL, {text}"
        self.files += output.paths
        parts = [text, *output.skipped]
        if output.paths:  # the first name in full, then what differs
            first, *others = (path.name for path in output.paths)
            names = ["wrote", first, *(name.removeprefix(item.name) for name in others)]
            parts.append(" ".join(map(printable, names)))
        print_line(f"{item.label:<{self.width}}  {' · '.join(parts)}")
        for problem in output.failed:
            self.fail(item.label, problem)

    def fail(self, label: str, problem: str) -> None:
        """Something went wrong with an input."""
        label, problem = printable(label), printable(problem)
        if label not in self.failed:
            self.failed.append(label)
        print_line(f"{label:<{self.width}}  failed: {problem}", error=True)

    @property
    def exit_code(self) -> int:
        """0: all done; 1: something failed, the rest is done, now or earlier; 2: nothing could be done."""
        some = self.files or self.done.total() or self.earlier.total()
        return 0 if not self.failed else 1 if some else 2

    def summary(self, ignored: list[str]) -> str:
        lines = [f"{_counts(self.done) or 'nothing'} done, {count_people(self.people)}"]
        if self.earlier:
            lines.append(f"{_counts(self.earlier)} done earlier")
        if self.files:
            kinds = Counter(_ending(path).split(".")[1] for path in self.files)
            counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            lines.append(f"written to {printable(self.folder)}: {counted}")
        if self.empty.total():
            boxes = "say where they are with --boxes X0,Y0,X1,Y1 (pixels), or " if self.empty["photo"] else ""
            lines.append(
                f"nobody found in {_counts(self.empty)}. If there is somebody: {boxes}"
                "try a lower --min-score or another --detector"
            )
        if ignored:
            names = [printable(Path(each).name) for each in ignored[:MOST_IGNORED]]
            more = f" and {len(ignored) - MOST_IGNORED} more" if len(ignored) > MOST_IGNORED else ""
            lines.append(f"ignored, neither photo nor video: {', '.join(names)}{more}")
        if self.partial:
            lines.append(f"partial, in files named *{PARTIAL}.*: {', '.join(self.partial)}")
        if self.failed:
            lines.append(f"failed, wholly or in part: {', '.join(self.failed)}")
        return "\n".join(lines)


def _counts(kinds: Counter[str]) -> str:
    """'2 photos, 1 video'."""
    return ", ".join(f"{count} {kind}{'s' * (count != 1)}" for kind, count in sorted(kinds.items()) if count)
