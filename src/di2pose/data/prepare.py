"""`di2pose data prepare NAME`: any dataset into the one prepared form (data/sample.py)."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import tyro
from tqdm import tqdm

from di2pose.data import bvh, human36m, mpi_inf_3dhp, pose2sim, threedpw
from di2pose.data.sample import Dataset, Part, Sources, Writer
from di2pose.errors import InputError
from di2pose.files import Json


@dataclass(frozen=True)
class Reader:
    """A dataset: how it is read, its licence and origin, `fetch` where the program can download it, and whether its
    records have images."""

    read: Callable[[Sources], Iterator[Part]]
    licence: str
    origin: str
    fetch: Callable[[], Path] | None = None
    images: bool = True


_H36M = ("Human3.6M licence: academic use, after registration", "vision.imar.ro/human3.6m")
_MPI = ("MPI-INF-3DHP licence: non-commercial research", "vcai.mpi-inf.mpg.de/3dhp-dataset")
_PW3D = ("3DPW licence: non-commercial research", "virtualhumans.mpi-inf.mpg.de/3DPW")
_CMU = (
    "CMU Graphics Lab Motion Capture Database: free for all uses, not to be resold as data",
    "the BVH conversion of 2010 by B. Hahne of mocap.cs.cmu.edu",
)

READERS: dict[str, Reader] = {
    "bvh": Reader(bvh.read, *_CMU, images=False),
    "pose2sim": Reader(
        pose2sim.read, "BSD-3-Clause", "the PyPI package pose2sim, 0.10.49 and 0.4.15", fetch=pose2sim.fetch
    ),
    "h36m": Reader(human36m.read, *_H36M),
    "h36m-processed": Reader(human36m.read, *_H36M),
    "h36m-npz": Reader(human36m.read, *_H36M, images=False),
    "3dpw": Reader(threedpw.read, *_PW3D),
    "mpi-inf-3dhp": Reader(mpi_inf_3dhp.read, *_MPI),
    "mpi-inf-3dhp-processed": Reader(mpi_inf_3dhp.read, *_MPI),
}
"""A new dataset is a file with a `read` and a line here, or an entry point of another distribution (`find_reader`)."""
ENTRY_POINTS = "di2pose.datasets"


def find_reader(name: str) -> Reader:
    """A reader of READERS, or an entry point of the group `di2pose.datasets` of an installed distribution: a module or
    object with `read(sources)`; `licence`, `origin`, `fetch` and `images` where it has them."""
    if name in READERS:
        return READERS[name]
    added = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in added:
        raise InputError(f"no dataset is called '{name}': choose from {', '.join((*READERS, *added))}")
    module = added[name].load()
    about = {each.name: getattr(module, each.name) for each in fields(Reader) if hasattr(module, each.name)}
    if "read" not in about:
        raise InputError(f"the entry point {name} of {ENTRY_POINTS} ({added[name].value}) has no read(sources)")
    return Reader(**{"licence": "", "origin": added[name].value} | about)


def prepare(
    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME", help=f"one of {', '.join(READERS)}")],
    out: Path,
    src: Path | None = None,
    annotations: Path | None = None,
    cameras: Path | None = None,
    images: Path | None = None,
    smpl: Path | None = None,
    seed: int = 0,
    every: int = 1,
    unit_mm: float = Sources.unit_mm,
) -> int:
    """Bring a dataset into the one prepared form.

    A run that was stopped goes on where it stopped when the same command is given again. Damaged files and records are
    left out, listed at the end and in dataset.json.

    Args:
        out: Folder to write.
        src: Folder of the dataset as it was downloaded; not needed for pose2sim, which is fetched by package name.
        annotations: Annotation file or folder, where it lies outside of --src.
        cameras: Camera file, where it lies outside of --src.
        images: Folder of the images or videos, where it lies outside of --src.
        smpl: Folder with the SMPL model files and J_regressor_h36m.npy (3dpw).
        seed: Seed of the virtual cameras (bvh, h36m-npz).
        every: Keep every n-th frame.
        unit_mm: Length of one unit of a BVH file in mm; the default is CMU's.
    """
    reader = find_reader(name)
    if src is None:
        if reader.fetch is None:
            raise InputError(f"{name} needs --src DIR, the dataset as it was downloaded from {reader.origin}")
        src = reader.fetch()
    for flag, path in (("src", src), ("annotations", annotations), ("cameras", cameras), ("images", images)):
        if path is not None and not path.exists():
            raise InputError(f"--{flag} {path} does not exist; {name} comes from {reader.origin}")
    sources = Sources(name, src, annotations, cameras, images, smpl, seed, every, unit_mm)
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(sources).items()}
    if (out / "dataset.json").exists():
        ready = Dataset(out)
        if ready.header["settings"] != settings:
            raise InputError(
                f"{out} holds '{ready.name}' prepared with other settings: delete it, or use another --out"
            )
        print(f"{out} is already prepared: {len(ready)} records")
        return 0
    parts = list(reader.read(sources))
    if not parts:
        raise InputError(f"{src} holds no file that the reader of {name} reads; it comes from {reader.origin}")
    if len({part.key for part in parts}) < len(parts):
        raise InputError(f"the reader of {name} gave two parts of one key")
    root = sources.image_root if sources.image_root.is_absolute() else Path(os.path.relpath(sources.image_root, out))
    image_root = root.as_posix() if reader.images else None
    about: Json = {"licence": reader.licence, "source": reader.origin, "settings": settings}
    writer = Writer(out, name, parts[0].skeleton, image_root=image_root, **about)
    for part in tqdm(parts, desc=name, unit="part", disable=None):
        if not writer.has(part.key):
            _write_part(writer, part)
    dataset = Dataset(writer.finish())
    skipped = dataset.header["skipped"]
    print(f"{out}: {len(dataset)} records of {dataset.skeleton.name}, {len(skipped)} files or records skipped")
    for skip in skipped[:20]:
        print(f"  skipped {skip['file']}: {skip['reason']}")
    if len(skipped) > 20:
        print(f"  ... and {len(skipped) - 20} more, all listed in {out / 'dataset.json'}")
    return 0


def _write_part(writer: Writer, part: Part) -> None:
    """All good records of a part. A part that breaks half way is left out whole; a full disk is not its fault."""
    good, skipped = [], []
    try:
        for sample in part.samples():
            if fault := sample.fault(writer.skeleton):
                skipped.append({"file": f"{part.key} record {sample.id}", "reason": fault})
            else:
                good.append(sample)
    except InputError as error:
        writer.skipped.append({"file": part.key, "reason": str(error)})
    else:
        writer.write(part.key, good, skipped)
