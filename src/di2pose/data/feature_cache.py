"""Cached features of a frozen encoder, in memory-mapped shards.

    features.json      encoder, fields, count, rows a shard; written first, and compared when a run goes on
    shard-00012.npy    one record a crop: the encoder's parts (maps in fp16) and the labels; written whole or not at all
    shard-00012.jsonl  id, subject, action, sequence, split of the same crops

Shard k holds crops k * rows to (k + 1) * rows whatever the number of processes, so a run that was killed, split over
torchrun ranks or extended by more crops gives the identical files. Labels are in the axes and pixels of the crop.
"""

import json
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, astuple
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from di2pose.errors import InputError
from di2pose.files import Json, read_json, reading, replacing, write_text
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.pose.skeleton import H36M_17, Skeleton, get

FORMAT_VERSION = 2
ROWS = 1024
BATCH = 8
FLIPPED = "flipped_"
"""Begins the names of what the encoder saw in the mirror images of the crops."""
MOST = 10**6
"""Largest number of tokens or channels of a block in a header."""
AGAIN = "make the features again, by the command that made them (`di2pose features`, `di2pose people features`)"
TEXT = ("id", "subject", "action", "sequence", "split")

Crop = tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]
"""Pixels, labels (arrays of one fixed shape and dtype each), and the five texts of TEXT."""


@runtime_checkable
class CacheEncoder(Protocol):
    """What of an `image.encoder.Encoder` a cache is made with."""

    @property
    def name(self) -> str: ...

    @property
    def layout(self) -> FeatureLayout: ...

    def cache_parts(self, crops: np.ndarray) -> dict[str, np.ndarray]: ...


@runtime_checkable
class CropSource(Protocol):
    """Anything that can make crop number i: a prepared dataset, or a renderer that keeps no pictures."""

    def __len__(self) -> int: ...

    def crop(self, i: int) -> Crop: ...


_worker_source: CropSource  # of a process that makes crops for another


def write_features(
    source: CropSource,
    encoder: CacheEncoder,
    out: Path,
    about: Mapping[str, object],
    flip: bool = False,
    rows: int = ROWS,
    batch: int = BATCH,
    workers: int = 0,
) -> None:
    """Encode every crop of `source` into `out`: this process's share of the shards that are not there yet.

    `about` joins the header. With `flip` the mirror images of the crops are encoded, too, for the flip test; an encoder
    of other things than pixels has a function `mirrored`. The crops of the next batches are made by `workers` other
    processes while one is encoded: the files are the same.
    """
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

    mirrored = getattr(encoder, "mirrored", lambda crops: np.ascontiguousarray(crops[:, :, ::-1]))

    def encode(crops: np.ndarray) -> dict[str, np.ndarray]:
        flipped = encoder.cache_parts(mirrored(crops)) if flip else {}
        return encoder.cache_parts(crops) | {FLIPPED + name: values for name, values in flipped.items()}

    (((pixels, labels, _),),) = _crops(source, [range(1)], min(workers, 1))
    parts = {name: x[0] for name, x in encode(pixels[None]).items()} | labels
    fields = [[name, x.dtype.str, list(x.shape)] for name, x in parts.items()]
    header = {"format_version": FORMAT_VERSION, "encoder": encoder.name, **about, "rows": rows, "count": len(source)}
    header |= {"layout": [asdict(block) for block in encoder.layout.blocks], "fields": fields}
    path = out / "features.json"
    if path.is_file():  # go on where the header differs in nothing but the number of crops
        before, now = _read_header(path), json.loads(json.dumps(header))
        if differing := [key for key in now if key != "count" and before.get(key) != now[key]]:
            other = ", ".join(differing)
            raise InputError(f"{out} holds features of another kind (other {other}): choose another --out")
    write_text(path, json.dumps(header, indent=1))
    dtype = _dtype(fields)
    spans = [(k, range(k * rows, min((k + 1) * rows, len(source)))) for k in range(-(-len(source) // rows))]
    missing = [(k, span) for k, span in spans if k % world == rank and len(_load(_shard(out, k))) != len(span)]
    batches = [span[start : start + batch] for _, span in missing for start in range(0, len(span), batch)]
    with tqdm(total=sum(len(span) for _, span in missing), unit="crop", disable=rank > 0) as progress:
        crops = _crops(source, batches, workers)
        for k, span in missing:
            records, lines = np.zeros(len(span), dtype), []
            for start in range(0, len(span), batch):
                made = next(crops)
                some = records[start : start + len(made)]
                for name, values in encode(np.stack([pixels for pixels, _, _ in made])).items():
                    some[name] = values
                for record, (_, labels, text) in zip(some, made, strict=True):
                    for name, value in labels.items():
                        record[name] = value
                    lines.append(json.dumps(text) + "\n")
                progress.update(len(made))
            write_text(_shard(out, k).with_suffix(".jsonl"), "".join(lines))
            with replacing(_shard(out, k)) as temporary:  # the shard counts from here on
                np.save(temporary, records)


def _crops(source: CropSource, batches: Sequence[range], workers: int) -> Iterator[list[Crop]]:
    """The crops of each batch, in order."""
    if not workers:
        for batch in batches:
            yield [source.crop(i) for i in batch]
        return
    # Forked, workers share what the source has loaded; elsewhere it is sent to them.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    with ProcessPoolExecutor(workers, context, _begin_worker, (source,)) as pool:
        coming: deque[Future[list[Crop]]] = deque()
        for batch in batches:
            coming.append(pool.submit(_make_crops, batch))
            if len(coming) > 2 * workers:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def _begin_worker(source: CropSource) -> None:
    global _worker_source
    _worker_source = source
    torch.set_num_threads(1)


def _make_crops(batch: range) -> list[Crop]:
    return [_worker_source.crop(i) for i in batch]


class FeatureCache:
    """A finished feature cache, memory-mapped: encoder parts and labels of crop i in one contiguous record."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        path = self.folder / "features.json"
        if not path.is_file():
            raise InputError(
                f"{self.folder} holds no features.json: make it with `di2pose features DIR --out {folder}`"
            )
        self.header: Json = _read_header(path)
        with reading(path, AGAIN):
            self.layout = FeatureLayout(tuple(_block(block) for block in self.header["layout"]))
            self.rows = int(self.header["rows"])
            wanted = -(-len(self) // self.rows)
            if len(self) < 0 or self.rows < 1 or not self.layout.blocks:
                raise ValueError("a number of crops and rows a shard expected")
            dtype = _dtype(self.header["fields"])
        there = min(wanted, sum(1 for _ in self.folder.glob("shard-*.npy")))  # a damaged header may claim any number
        self.shards = [_load(_shard(self.folder, k)) for k in range(there)]
        expected = [min(self.rows, len(self) - k * self.rows) for k in range(there)]
        missing = wanted - sum(len(shard) == count for shard, count in zip(self.shards, expected, strict=True))
        if missing:
            raise InputError(
                f"{self.folder}: {missing} of {wanted} shards are not there yet: run `di2pose features` again"
            )
        if wrong := [k for k, shard in enumerate(self.shards) if shard.dtype != dtype]:
            raise InputError(f"{_shard(self.folder, wrong[0])} holds other fields than features.json lists: {AGAIN}")

    def __len__(self) -> int:
        return int(self.header["count"])

    @property
    def skeleton(self) -> Skeleton:
        """Skeleton of the labels."""
        return get(self.header.get("skeleton", H36M_17.name))

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of what is kept of every crop."""
        return tuple(name for name, _, _ in self.header["fields"])

    @property
    def has_flipped(self) -> bool:
        """Whether it holds features of the crops' mirror images, too."""
        return any(name.startswith(FLIPPED) for name in self.fields)

    @cached_property
    def index(self) -> list[dict[str, str]]:
        """id, subject, action, sequence, split of every crop."""
        lines: list[dict[str, str]] = []
        for k, shard in enumerate(self.shards):
            path = _shard(self.folder, k).with_suffix(".jsonl")
            with reading(path, AGAIN):
                found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
                if len(found) != len(shard) or not all(isinstance(each[name], str) for each in found for name in TEXT):
                    raise ValueError(f"{len(shard)} lines with {', '.join(TEXT)} expected")
            lines += found
        return lines

    def select(self, **wanted: str | Sequence[str]) -> np.ndarray:
        """Crop numbers that match all of e.g. split="train", subject=("S1", "S5")."""
        allowed = {name: {values} if isinstance(values, str) else set(values) for name, values in wanted.items()}
        keep = [all(line[name] in values for name, values in allowed.items()) for line in self.index]
        return np.flatnonzero(keep)

    def column(self, name: str) -> np.ndarray:
        """One field of all crops, in memory: for labels."""
        return np.concatenate([shard[name] for shard in self.shards])

    def read(self, crops: np.ndarray, *names: str) -> dict[str, np.ndarray]:
        """The named fields (default: all) of the given crops, in the given order."""
        records = np.stack([self.shards[i // self.rows][i % self.rows] for i in crops.tolist()])
        return {name: np.array(records[name]) for name in names or records.dtype.names or ()}

    def features(
        self, crops: np.ndarray, flipped: bool = False, layout: FeatureLayout | None = None
    ) -> Float[Tensor, "B L F"]:
        """The fp32 feature sequence of the given crops, or of their mirror images; in a layout that extends the cache's
        with NaN for the observer that it lacks."""
        prefix = FLIPPED if flipped else ""
        parts = self.read(crops, *(prefix + block.name for block in self.layout.blocks))
        named = {name.removeprefix(prefix): x for name, x in parts.items()}
        return torch.from_numpy((layout or self.layout).assemble(named))


def _shard(folder: Path, k: int) -> Path:
    return folder / f"shard-{k:05d}.npy"


def _load(path: Path) -> np.ndarray:
    """The records of a shard; none where there is no such file."""
    if not path.is_file():
        return np.empty(0)
    with reading(path, "delete it, and the same command makes it again"):
        shard: np.ndarray = np.load(path, mmap_mode="r")
        if shard.ndim != 1 or not shard.dtype.names:
            raise ValueError("a row of records expected")
    return shard


def _dtype(fields: Iterable[Sequence[Any]]) -> np.dtype:
    """Of a record; name, dtype and shape of each field."""
    return np.dtype([(str(name), kind, tuple(shape)) for name, kind, shape in fields], align=True)


def _block(record: Json) -> TokenBlock:
    block = TokenBlock(**record)
    if not isinstance(block.name, str) or not all(type(v) is int and 0 <= v < MOST for v in astuple(block)[1:]):
        raise ValueError(f"no block of tokens: {record}")
    return block


def _read_header(path: Path) -> Json:
    header: Json = read_json(path, AGAIN)
    if not isinstance(header, dict) or header.get("format_version") != FORMAT_VERSION:
        found = header.get("format_version") if isinstance(header, dict) else None
        raise InputError(
            f"{path} is of format {found}, this program reads {FORMAT_VERSION}: delete the folder and {AGAIN}"
        )
    return header
