"""`di2pose features`: run a frozen encoder once over all crops, and keep what it saw in memory-mapped shards.

    features.json      encoder, fields, count, rows a shard; written first, and compared when a run goes on
    shard-00012.npy    one record a crop: the encoder's parts (maps in fp16) and the labels; written whole or not at all
    shard-00012.jsonl  id, subject, action, sequence, split of the same crops

Shard k holds crops k * rows to (k + 1) * rows whatever the number of processes, so a run that was killed, split over
torchrun ranks or extended by more crops gives the identical files. Labels are in the axes and pixels of the crop.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import torch
import tyro
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from di2pose.data.sample import Dataset, Sample
from di2pose.errors import InputError
from di2pose.image.blazepose import CROP, BlazePose, Block, Layout, sequence
from di2pose.image.crop import (
    Roi,
    apply,
    crop,
    crop_camera,
    invert,
    roi_from_box,
    roi_from_keypoints,
    upright_matrix,
    warp,
)
from di2pose.image.vitpose import HEIGHT, TOKENS, WIDTH, VitPose
from di2pose.pose.skeleton import Skeleton

FORMAT_VERSION = 1
ROWS = 1024
BATCH = 16
BODY_TO_SIDE = 1.15
"""The detector's circle over the distance of the farthest joint from the hips: median on real footage."""
TEXT = ("id", "subject", "action", "sequence", "split")

EncoderName = Literal["blazepose-heavy", "blazepose-full", "blazepose-lite", "vitpose"]


class Encoder(Protocol):
    """Anything that turns a batch of uint8 crops into named arrays with the batch first."""

    def encode_batch(self, crops: np.ndarray) -> dict[str, np.ndarray]: ...


class CropSource(Protocol):
    """Anything that can make crop number i: a prepared dataset, or a renderer that keeps no pictures."""

    def __len__(self) -> int: ...

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        """Pixels, labels (arrays of one fixed shape and dtype each), and the five texts of TEXT."""
        ...


class DatasetCrops:
    """The crops of a prepared dataset's records that have an image and a place in it.

    The place is `extra["roi"]` (x, y, side, angle) where a record has it, else the hip-centred turned square that
    BlazePose's detector would give for its 2D joints, else its upright box. With `paper` it is the 256x192 box crop.
    """

    def __init__(self, dataset: Dataset, paper: bool = False) -> None:
        self.dataset, self.paper = dataset, paper
        placed = ~np.isnan(dataset.box).any(-1) | ~np.isnan(dataset.joints_2d).all((1, 2))
        rows = [i for i, line in enumerate(dataset.index) if line["image"] and (placed[i] or "roi" in line["extra"])]
        self.rows = np.array(rows, dtype=np.int64)
        if not rows:
            raise InputError(
                f"no record of {dataset.folder} has both an image and a box or 2D joints: nothing to encode"
            )

    def __len__(self) -> int:
        return len(self.rows)

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        row = int(self.rows[i])
        sample = self.dataset[row]
        image = self.dataset.read_image(sample)
        roi = region(sample, self.dataset.skeleton)
        if self.paper:
            matrix = upright_matrix(sample.box or _box_of(sample))
            pixels, rotation, focal = warp(image, matrix, (WIDTH, HEIGHT)), np.eye(3), np.nan
        else:
            matrix, pixels, rotation, focal = roi.matrix(CROP), crop(image, roi, CROP), np.eye(3), np.nan
            if sample.camera is not None:
                camera, rotation = crop_camera(sample.camera, roi, CROP)
                focal = camera.focal[0]
        joints = len(sample.joints_mm)
        flat = np.full((joints, 2), np.nan) if sample.joints_2d is None else apply(invert(matrix), sample.joints_2d)
        seen = np.full(joints, -1) if sample.visibility is None else sample.visibility
        labels = {
            "joints_mm": (sample.joints_mm @ rotation.T).astype(np.float32),
            "joints_2d": flat.astype(np.float32),
            "rotation": rotation.astype(np.float32),
            "roi": np.array([*roi.centre, roi.side, roi.angle], np.float32),
            "focal": np.array(focal, np.float32),
            "row": np.array(row, np.int64),
            "visibility": seen.astype(np.int8),
            "valid": sample.valid,
        }
        return pixels, labels, {name: getattr(sample, name) for name in TEXT}


def region(sample: Sample, skeleton: Skeleton) -> Roi:
    """Where a record's crop is taken; see DatasetCrops."""
    if "roi" in sample.extra:
        x, y, side, angle = (float(value) for value in sample.extra["roi"])
        return Roi((x, y), side, angle)
    ends = [skeleton.joints.index(name) for name in ("left_hip", "right_hip", "left_shoulder", "right_shoulder")]
    if sample.joints_2d is not None and np.isfinite(sample.joints_2d[ends]).all():
        hip, neck = sample.joints_2d[ends[:2]].mean(0), sample.joints_2d[ends[2:]].mean(0)
        up = (neck - hip) / max(float(np.linalg.norm(neck - hip)), 1e-6)
        radius = BODY_TO_SIDE * float(np.nanmax(np.linalg.norm(sample.joints_2d - hip, axis=-1)))
        return roi_from_keypoints(hip.tolist(), (hip + radius * up).tolist())
    return roi_from_box(sample.box or _box_of(sample))


def _box_of(sample: Sample) -> tuple[float, float, float, float]:
    if sample.joints_2d is None:
        raise InputError(f"record {sample.id} has neither a box nor 2D joints: it cannot be cropped")
    (x0, y0), (x1, y1) = np.nanmin(sample.joints_2d, axis=0), np.nanmax(sample.joints_2d, axis=0)
    return float(x0), float(y0), float(x1), float(y1)


def features(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")],
    out: Path,
    encoder: EncoderName = "blazepose-heavy",
    map16: bool = False,
    movenet: bool = False,
    runtime: Literal["torch", "litert"] = "torch",
    weights: str | None = None,
    images: Path | None = None,
    device: str = "cpu",
) -> None:
    """Cache a frozen encoder's features of a prepared dataset.

    Run it again to go on after a stop; start it with torchrun to split it over processes. On a CPU start one process a
    core, with OMP_NUM_THREADS=1.

    Args:
        folder: the prepared dataset, as `di2pose data prepare` or `di2pose people render` made it
        out: folder of the cache
        encoder: the frozen backbone
        map16: keep BlazePose's 16x16 map too (98 KB more a crop)
        movenet: add MoveNet's keypoint tokens
        runtime: litert is faster on a CPU and needs the extra `litert`
        weights: hub name or folder of ViTPose's weights
        images: where the images are, if not where the dataset says
        device: cpu, cuda, mps
    """
    source = DatasetCrops(Dataset(folder, images), paper=encoder == "vitpose")
    network: BlazePose | VitPose
    if encoder == "vitpose":
        network = VitPose(weights) if weights else VitPose()
        layout = Layout((Block("tokens", TOKENS, network.width, 0),))
    else:
        variant: Any = encoder.removeprefix("blazepose-")
        network = BlazePose(variant, map16=map16, movenet=movenet, runtime=runtime)
        layout = network.layout
    about = {"encoder": encoder, "runtime": runtime, "weights": weights, "source": source.dataset.name}
    about |= {"skeleton": source.dataset.skeleton.name}
    write_features(source, network.to(device), out, layout, about)


def write_features(
    source: CropSource, encoder: Encoder, out: Path, layout: Layout, about: Mapping[str, Any], rows: int = ROWS
) -> None:
    """Encode every crop of `source` into `out`: this process's share of the shards that are not there yet."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    out.mkdir(parents=True, exist_ok=True)
    pixels, labels, _ = source.crop(0)
    fields = _fields(encoder.encode_batch(pixels[None]), labels)
    header = {"format_version": FORMAT_VERSION, **about, "rows": rows, "count": len(source)}
    header |= {"layout": [asdict(block) for block in layout.blocks], "fields": fields}
    _agree(out / "features.json", header)
    spans = [(k, range(k * rows, min((k + 1) * rows, len(source)))) for k in range(-(-len(source) // rows))]
    missing = [(k, span) for k, span in spans if k % world == rank and _rows_in(_shard(out, k)) != len(span)]
    with tqdm(total=sum(len(span) for _, span in missing), unit="crop", disable=rank > 0) as progress:
        for k, span in missing:
            _write_shard(source, encoder, _shard(out, k), span, _dtype(fields), progress)


def _write_shard(
    source: CropSource, encoder: Encoder, path: Path, span: range, dtype: np.dtype, progress: "tqdm[Any]"
) -> None:
    records, lines = np.zeros(len(span), dtype), []
    for start in range(0, len(span), BATCH):
        made = [source.crop(i) for i in span[start : start + BATCH]]
        parts = encoder.encode_batch(np.stack([pixels for pixels, _, _ in made]))
        some = records[start : start + len(made)]
        for name, values in parts.items():
            some[name] = values
        for record, (_, labels, text) in zip(some, made, strict=True):
            for name, value in labels.items():
                record[name] = value
            lines.append(json.dumps(text) + "\n")
        progress.update(len(made))
    _replace(path.with_suffix(".jsonl"), "".join(lines).encode())
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        np.save(file, records)
    os.replace(temporary, path)  # the shard counts from here on


class FeatureCache:
    """A finished feature cache, memory-mapped: encoder parts and labels of crop i in one contiguous record."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        path = self.folder / "features.json"
        if not path.is_file():
            raise InputError(
                f"{self.folder} holds no features.json: make it with `di2pose features DIR --out {folder}`"
            )
        self.header: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if self.header["format_version"] != FORMAT_VERSION:
            raise InputError(f"{path}: format {self.header['format_version']}, this program reads {FORMAT_VERSION}")
        self.layout = Layout(tuple(Block(**block) for block in self.header["layout"]))
        self.rows: int = self.header["rows"]
        shards = [_shard(self.folder, k) for k in range(-(-len(self) // self.rows))]
        expected = [min(self.rows, len(self) - k * self.rows) for k in range(len(shards))]
        missing = sum(_rows_in(shard) != count for shard, count in zip(shards, expected, strict=True))
        if missing:
            raise InputError(
                f"{self.folder}: {missing} of {len(shards)} shards are not there yet: run `di2pose features` on"
            )
        self.shards: list[np.ndarray] = [np.load(shard, mmap_mode="r") for shard in shards]

    def __len__(self) -> int:
        return int(self.header["count"])

    @cached_property
    def index(self) -> list[dict[str, str]]:
        """id, subject, action, sequence, split of every crop."""
        paths = [_shard(self.folder, k).with_suffix(".jsonl") for k in range(len(self.shards))]
        return [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]

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
        return {name: np.ascontiguousarray(records[name]) for name in names or records.dtype.names or ()}

    def features(self, crops: np.ndarray) -> Float[Tensor, "B L F"]:
        """The fp32 feature sequence of the given crops."""
        names = [block.name for block in self.layout.blocks]
        if "landmarks" not in names:
            return self.layout.assemble(
                {name: torch.from_numpy(x).float() for name, x in self.read(crops, *names).items()}
            )
        parts = self.read(crops, *names, "world_mm")
        return sequence(self.layout, {name: torch.from_numpy(x) for name, x in parts.items()})


def _shard(folder: Path, k: int) -> Path:
    return folder / f"shard-{k:05d}.npy"


def _rows_in(path: Path) -> int:
    """How many records a shard holds; 0 where there is none."""
    return len(np.load(path, mmap_mode="r")) if path.is_file() else 0


def _fields(parts: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray]) -> list[list[Any]]:
    """[name, dtype, shape] of a record; encoder parts first, then labels."""
    described = [[name, x.dtype.str, list(x.shape[1:])] for name, x in parts.items()]
    return described + [[name, x.dtype.str, list(x.shape)] for name, x in labels.items()]


def _dtype(fields: list[list[Any]]) -> np.dtype:
    return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in fields], align=True)


def _agree(path: Path, header: dict[str, Any]) -> None:
    """Write the header, or go on with one that differs in nothing but the number of crops."""
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        differing = [key for key in header if key != "count" and before.get(key) != json.loads(json.dumps(header[key]))]
        if differing:
            raise InputError(
                f"{path.parent} holds features of another kind (other {', '.join(differing)}): choose another --out"
            )
    _replace(path, json.dumps(header, indent=1).encode())


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)
