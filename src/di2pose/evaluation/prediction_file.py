"""Anybody's poses: a file that is evaluated in place of a model."""

import hashlib
import zipfile
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17, Skeleton, get


class PredictionFile:
    """A `Predictor` of finished poses: an npz file with

    ids        (n,) record ids of the prepared dataset
    joints_mm  (n, J, 3) or (n, H, J, 3), root-relative, camera axes (x right, y down, z away)
    units      'mm' (may be left out: the key joints_mm says it)
    skeleton   name of the joint order, e.g. 'lsp_14' (left out: 'h36m_17')
    """

    def __init__(self, path: Path) -> None:
        self.path, arrays = path, _read_arrays(path)
        words = {key: str(arrays[key].squeeze()) for key in ("skeleton", "units") if key in arrays}
        self.skeleton: Skeleton = get(words.get("skeleton", H36M_17.name))
        if words.get("units", "mm") != "mm":
            raise InputError(f"{path}: joints_mm must be in 'mm', the file says units '{words['units']}'")
        given, ids, count = arrays["joints_mm"], arrays["ids"], self.skeleton.count
        joints = given[:, None] if given.ndim == 3 else given
        if joints.ndim != 4 or joints.shape[2:] != (count, 3) or not np.issubdtype(joints.dtype, np.floating):
            raise InputError(
                f"{path}: joints_mm must be floating point of shape (n, {count}, 3) or (n, H, {count}, 3) for "
                f"{self.skeleton.name}, got {given.dtype} of shape {given.shape}; another joint order is named by the "
                "key 'skeleton'"
            )
        if ids.shape != (len(joints),):
            raise InputError(f"{path}: {len(joints)} poses need as many ids, got ids of shape {ids.shape}")
        self.joints_mm, self.hypotheses = joints, joints.shape[1]
        names = np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids
        self.rows = {str(name): row for row, name in enumerate(names)}
        if len(self.rows) != len(ids):
            raise InputError(f"{path}: {len(ids) - len(self.rows)} of the {len(ids)} ids occur more than once")
        if not len(joints):
            raise InputError(f"{path}: the file holds no poses")
        if broken := [name for name, row in self.rows.items() if not np.isfinite(joints[row]).all()]:
            raise InputError(f"{path}: NaN or infinite joints in {len(broken)} poses: {_some(broken)}")
        hips = joints[:, :, self.skeleton.indices("left_hip", "right_hip")].mean(axis=2, dtype=np.float64)
        reach = float(np.median(np.linalg.norm(joints - hips[:, :, None], axis=-1).max(axis=-1)))
        if reach < 200:
            raise InputError(
                f"{path}: the farthest joint lies {reach:.3g} from the hips (median), a body's lies 500 to 1200 "
                "mm from them: the poses look like metres or centimetres, multiply by 1000 or 10"
            )
        offset = float(np.median(np.linalg.norm(hips, axis=-1)))
        if offset > 400:
            raise InputError(
                f"{path}: the hips lie {offset:.0f} mm from the origin (median): the poses must be root-relative, "
                "subtract the pelvis"
            )

    @property
    def fingerprint(self) -> str:
        """Tells files apart that lie under the same name."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]

    def check_hypotheses(self, wanted: int) -> None:
        if wanted > self.hypotheses:
            raise InputError(f"{self.path} holds {self.hypotheses} hypotheses per record, {wanted} were asked for")

    def check_records(self, wanted: Collection[str], known: Collection[str]) -> None:
        """Every wanted record must be in the file, and the file must speak of this dataset only."""
        missing = [name for name in wanted if name not in self.rows]
        known_set = set(known)
        foreign = [name for name in self.rows if name not in known_set]
        if missing or foreign:
            raise InputError(
                f"{self.path} does not fit the dataset: {len(missing)} of {len(wanted)} records have no pose"
                f"{f' ({_some(missing)})' if missing else ''}, {len(foreign)} of {len(self.rows)} ids are not in the "
                f"dataset{f' ({_some(foreign)})' if foreign else ''}; ids are those of its index.jsonl"
            )

    def predict(
        self, images: object, samples: Sequence[Sample], hypotheses: int, steps: int | None, seed: int
    ) -> np.ndarray:
        self.check_hypotheses(hypotheses)
        return self.joints_mm[[self.rows[sample.id] for sample in samples], :hypotheses]


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise InputError(f"no prediction file at {path}")
    try:
        with path.open("rb") as stream:
            loaded = np.load(stream, allow_pickle=False)
            arrays = {name: loaded[name] for name in loaded.files} if isinstance(loaded, NpzFile) else {}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is not a readable npz file without pickled objects: {error}") from error
    absent = {"ids", "joints_mm"} - set(arrays)
    if absent:
        raise InputError(
            f"{path} lacks the keys {sorted(absent)}; it has {sorted(arrays)}: "
            "save with np.savez(file, ids=..., joints_mm=...)"
        )
    return arrays


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
