"""Writer of the prepared form: part by part, so that a killed run goes on where it stopped."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from di2pose.data.record import ARRAYS, FORMAT_VERSION, UNKNOWN, Sample, row_shape
from di2pose.errors import InputError
from di2pose.pose.skeleton import Skeleton


def _row(sample: Sample, name: str, joints: int) -> Any:
    """The array row of one sample; what is not known becomes NaN or UNKNOWN."""
    value = getattr(sample, name)
    return np.full(row_shape(name, joints), UNKNOWN if name == "visibility" else np.nan) if value is None else value


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Atomic: a reader sees the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=indent, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)


class Writer:
    """Writes a prepared folder part by part. Finished parts survive a kill and are not asked for again:

    writer = Writer(folder, "h36m", H36M_17, settings={"every": 5})
    for key in keys:
        if not writer.has(key):
            with writer.part(key):
                writer.add(sample)
    writer.finish()
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        skeleton: Skeleton,
        *,
        image_root: str | None = None,
        licence: str = "",
        source: str = "",
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.folder, self.skeleton = Path(folder), skeleton
        self.header = {
            "format_version": FORMAT_VERSION,
            "name": name,
            "skeleton": skeleton.name.lower(),
            "image_root": image_root,
            "licence": licence,
            "source": source,
            "settings": settings or {},
        }
        self.parts = self.folder / "parts.tmp"
        self.skipped: list[dict[str, str]] = []
        self._samples: list[Sample] | None = None
        self._skips: list[dict[str, str]] = []
        if (self.folder / "dataset.json").exists():
            raise InputError(f"{self.folder} is already a finished dataset: delete it, or write to another folder")
        self.parts.mkdir(parents=True, exist_ok=True)
        stamp = self.parts / "header.json"
        header = json.loads(json.dumps(self.header))
        if stamp.exists() and json.loads(stamp.read_text(encoding="utf-8")) != header:
            raise InputError(
                f"{self.folder} holds an unfinished preparation with other settings (see {stamp}): "
                "rerun with the same ones, or delete the folder"
            )
        write_json(stamp, header)

    def _file(self, key: str) -> Path:
        return self.parts / (quote(key, safe="") + ".npz")

    def has(self, key: str) -> bool:
        """Is this part already on disk?"""
        return self._file(key).exists()

    @contextmanager
    def part(self, key: str) -> Iterator[None]:
        """Samples added inside are kept together when the block ends well, and dropped when it raises."""
        self._samples, self._skips = [], []
        try:
            yield
            self._commit(key, self._samples)
        finally:
            self._samples = None

    def add(self, sample: Sample) -> None:
        if self._samples is None:
            raise RuntimeError("Writer.add outside of `with writer.part(key):`")
        fault = sample.fault(self.skeleton)
        if fault is not None:
            raise InputError(f"record {sample.id}: {fault}")
        self._samples.append(sample)

    def skip(self, file: str, reason: str) -> None:
        """List something that was left out. Inside a part it is kept with the part."""
        (self.skipped if self._samples is None else self._skips).append({"file": file, "reason": reason})

    def _commit(self, key: str, samples: list[Sample]) -> None:
        joints = self.skeleton.count
        arrays = {
            name: np.array([_row(s, name, joints) for s in samples], kind).reshape(
                len(samples), *row_shape(name, joints)
            )
            for name, (kind, _) in ARRAYS.items()
        }
        arrays["joints_mm"][~arrays["valid"]] = np.nan
        lines = [
            {
                "id": s.id,
                "image": s.image,
                "camera": None if s.camera is None else s.camera.to_json(),
                "subject": s.subject,
                "action": s.action,
                "sequence": s.sequence,
                "frame": s.frame,
                "split": s.split,
                "extra": s.extra,
            }
            for s in samples
        ]
        text = json.dumps({"lines": lines, "skipped": self._skips}, allow_nan=False)
        temporary = self._file(key).with_suffix(".tmp")
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, text=np.frombuffer(text.encode(), np.uint8), **arrays)
        os.replace(temporary, self._file(key))

    def finish(self) -> Path:
        """Join the parts in the order of their keys, so the result does not depend on interruptions."""
        files = sorted(self.parts.glob("*.npz"), key=lambda path: unquote(path.stem))
        joints, counts = self.skeleton.count, []
        for path in files:
            with np.load(path) as part:
                counts.append(len(part["valid"]))
        if not sum(counts):
            reasons = "".join(f"\n  {skip['file']}: {skip['reason']}" for skip in self.skipped[:10])
            shutil.rmtree(self.parts)
            raise InputError(f"nothing to write to {self.folder}: the source gave no usable record{reasons}")
        targets = {
            name: np.lib.format.open_memmap(
                self.folder / f"{name}.npy.tmp", "w+", kind, (sum(counts), *row_shape(name, joints))
            )
            for name, (kind, _) in ARRAYS.items()
        }
        cameras: dict[str, str] = {}  # camera as text -> id
        seen: set[str] = set()
        row = 0
        with (self.folder / "index.jsonl.tmp").open("w", encoding="utf-8") as index:
            for path, count in zip(files, counts, strict=True):
                with np.load(path) as part:
                    text = json.loads(part["text"].tobytes())
                    for name, target in targets.items():
                        target[row : row + count] = part[name]
                self.skipped += text["skipped"]
                for line in text["lines"]:
                    if line["id"] in seen:
                        raise InputError(f"the id {line['id']} occurs twice (again in {unquote(path.stem)})")
                    seen.add(line["id"])
                    if line["camera"] is not None:
                        line["camera"] = cameras.setdefault(json.dumps(line["camera"]), str(len(cameras)))
                    index.write(json.dumps(line, separators=(",", ":")) + "\n")
                row += count
        for name, target in targets.items():
            target.flush()
            os.replace(self.folder / f"{name}.npy.tmp", self.folder / f"{name}.npy")
        os.replace(self.folder / "index.jsonl.tmp", self.folder / "index.jsonl")
        write_json(self.folder / "cameras.json", {key: json.loads(text) for text, key in cameras.items()}, None)
        write_json(self.folder / "dataset.json", self.header | {"count": row, "skipped": self.skipped})
        shutil.rmtree(self.parts)
        return self.folder
