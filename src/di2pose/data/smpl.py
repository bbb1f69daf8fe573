"""SMPL's joints from the user's own model files, in numpy: Human3.6M's 17 joints as J_regressor_h36m.npy defines them.

V vertices, B shape numbers, F frames. SMPL poses a person in four steps: shape, joints of the shape, pose corrections,
and linear blend skinning. A regressor is a weighted sum of vertices, and skinning is linear in the vertices, so both
can be exchanged: sums over the vertices are taken once, not the vertices of each frame. The result is the same.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import csc_array
from scipy.spatial.transform import Rotation

from di2pose.data.pickles import Allowed, load_npz, load_pickle
from di2pose.errors import InputError
from di2pose.files import reading
from di2pose.pose.skeleton import H36M_17, SMPL_24

ORIGIN = "the SMPL models come from smpl.is.tue.mpg.de (registration), J_regressor_h36m.npy from SPIN's data download"
FILES = {
    "f": ("SMPL_FEMALE.pkl", r"(female|_f_).*\.(pkl|npz)"),
    "m": ("SMPL_MALE.pkl", r"((?<!fe)male|_m_).*\.(pkl|npz)"),
    "regressor": ("J_regressor_h36m.npy", r"regressor_h36m.*\.npy"),
}
"""What is needed, by its usual name, and how it may be called: basicModel_f_lbs_10_207_0_v1.0.0.pkl, ..."""
KEYS = ("v_template", "shapedirs", "posedirs", "weights", "J_regressor", "kintree_table")
LIMBS = ("hip", "knee", "ankle"), ("shoulder", "elbow", "wrist")


class Stored:
    """Stands for a chumpy array or a scipy sparse matrix in a model file: keeps what was stored, does nothing."""

    def __setstate__(self, state: object) -> None:
        self.state = state


_ALSO: Allowed = {
    ("chumpy.ch", "Ch"): Stored,
    ("scipy.sparse.csc", "csc_matrix"): Stored,
    ("scipy.sparse._csc", "csc_matrix"): Stored,
    ("scipy.sparse._csc", "csc_array"): Stored,
    ("__builtin__", "object"): Stored,
    ("builtins", "object"): Stored,
    ("copy_reg", "_reconstructor"): lambda *_: Stored(),  # by which old pickles make objects
    ("copyreg", "_reconstructor"): lambda *_: Stored(),
}


@dataclass(frozen=True, eq=False)
class Smpl:
    """One gender's model."""

    template: Float[np.ndarray, "V 3"]
    shapes: Float[np.ndarray, "V 3 B"]
    corrections: Float[np.ndarray, "V 3 207"]
    weights: Float[np.ndarray, "V 24"]
    joints: Float[np.ndarray, "24 V"]
    parents: tuple[int, ...]

    @classmethod
    def load(cls, path: Path) -> "Smpl":
        raw = load_npz(path, KEYS) if path.suffix == ".npz" else load_pickle(path, _ALSO)
        with reading(path, f"expected an SMPL model with {', '.join(KEYS)}; {ORIGIN}"):
            template, shapes, corrections, weights, joints, tree = (_array(raw[key]) for key in KEYS)
        count = len(template)
        given = [array.shape for array in (template, shapes[..., :1], corrections, weights, joints, tree)]
        wanted = [(count, 3), (count, 3, 1), (count, 3, 207), (count, 24), (24, count), (2, 24)]
        if given != wanted:
            raise InputError(f"{path} is not an SMPL model of 24 joints: shapes {given}, expected {wanted}")
        return cls(template, shapes, corrections, weights, joints, (-1, *(int(parent) for parent in tree[0, 1:])))

    def regress(
        self,
        regressor: Float[np.ndarray, "17 V"],
        betas: Float[np.ndarray, " b"],
        poses: Float[np.ndarray, "F 72"],
        translations: Float[np.ndarray, "F 3"],
    ) -> Float[np.ndarray, "F 17 3"]:
        """World positions of the regressor's joints, metres, of one person; the first ten shape numbers are used."""
        betas = betas[: min(10, self.shapes.shape[-1])]
        vertices = self.template + self.shapes[..., : len(betas)] @ betas
        rest = self.joints @ vertices
        mass = regressor @ self.weights  # 17 24: how much of a joint moves with each bone; rows sum to 1
        moment = np.einsum("kv,vj,vx->kjx", regressor, self.weights, vertices, optimize=True)
        bend = np.einsum("kv,vj,vxp->kjxp", regressor, self.weights, self.corrections, optimize=True)

        local = Rotation.from_rotvec(poses.reshape(-1, 3)).as_matrix().reshape(-1, 24, 3, 3)  # F 24 3 3
        turned, placed = np.empty_like(local), np.empty(local.shape[:3])
        turned[:, 0], placed[:, 0] = local[:, 0], rest[0]
        for joint, parent in enumerate(self.parents[1:], 1):
            turned[:, joint] = turned[:, parent] @ local[:, joint]
            placed[:, joint] = placed[:, parent] + turned[:, parent] @ (rest[joint] - rest[parent])
        shift = placed - np.einsum("fjxy,jy->fjx", turned, rest)
        feature = (local[:, 1:] - np.eye(3)).reshape(len(poses), 207)
        bent = moment + np.einsum("kjxp,fp->fkjx", bend, feature, optimize=True)
        moved = np.einsum("fjxy,fkjy->fkx", turned, bent, optimize=True) + np.einsum("kj,fjx->fkx", mass, shift)
        return moved + translations[:, None]


class Models:
    """The two gendered models and the regressor of a folder, opened when first needed."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, Path] = {}
        for path in sorted(folder.rglob("*"), reverse=True):
            self.files |= {key: path for key, (_, name) in FILES.items() if re.search(f"{name}$", path.name.lower())}
        if missing := [name for key, (name, _) in FILES.items() if key not in self.files]:
            raise InputError(f"--smpl {folder} lacks {', '.join(missing)}: {ORIGIN}")
        self._loaded: dict[str, tuple[Smpl, np.ndarray]] = {}

    def load(self, gender: str) -> tuple[Smpl, Float[np.ndarray, "17 V"]]:
        """The model of 'f' or 'm' and its regressor."""
        key = gender[:1].lower()
        if key not in ("f", "m"):
            raise InputError(f"the gender must be 'f' or 'm', got '{gender}'")
        if key not in self._loaded:
            model = Smpl.load(self.files[key])
            self._loaded[key] = model, load_regressor(self.files["regressor"], model)
        return self._loaded[key]


def load_regressor(path: Path, model: Smpl) -> Float[np.ndarray, "17 V"]:
    """J_regressor_h36m.npy with its rows in the order of H36M_17.

    HMR's and SPIN's file has the left leg first, "_correct" copies the right leg, and the name does not tell. So each
    limb is laid on the model's own joints, in the rest pose, and gets the side that is nearer.
    """
    with reading(path, ORIGIN):
        regressor = np.load(path, allow_pickle=False).astype(np.float64)
    if regressor.shape != (17, len(model.template)):
        raise InputError(f"{path} has shape {regressor.shape}, expected (17, {len(model.template)})")
    regressed, own = regressor @ model.template, model.joints @ model.template
    order = list(range(17))
    for limb in LIMBS:
        names = [f"{side}_{joint}" for side in ("left", "right") for joint in limb]
        here, truth = H36M_17.indices(*names), own[list(SMPL_24.indices(*names))]
        other = [*here[3:], *here[:3]]
        straight, crossed = (np.linalg.norm(regressed[list(a)] - truth, axis=-1).sum() for a in (here, other))
        if min(straight, crossed) > 0.5 * max(straight, crossed):
            raise InputError(f"{path}: cannot tell left from right: its {limb[0]}s are near neither side of the model")
        if crossed < straight:
            for joint, swapped in zip(here, other, strict=True):
                order[joint] = swapped
    return regressor[order]


def _array(value: object) -> Float[np.ndarray, "..."]:
    """A plain array from what a model file may hold: an array, a chumpy array, a sparse matrix."""
    if not isinstance(value, Stored):
        return np.asarray(value).astype(np.float64)
    state: Any = value.state
    if "x" in state:
        return np.asarray(state["x"]).astype(np.float64)
    return csc_array((state["data"], state["indices"], state["indptr"]), state["_shape"], np.float64).toarray()
