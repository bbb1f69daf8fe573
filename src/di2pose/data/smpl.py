"""SMPL's joints from the user's own model files, in numpy: Human3.6M's 17 joints as J_regressor_h36m.npy defines them.

V vertices, B shape numbers. SMPL poses a person in four steps: shape, joints of the shape, pose corrections, and linear
blend skinning. A regressor is a weighted sum of vertices, and skinning is linear in the vertices, so both can be
exchanged: only sums over the vertices are kept, not the vertices of each frame. The result is the same.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.sparse import csc_array
from scipy.spatial.transform import Rotation

from di2pose.data.pickles import DAMAGED, Allowed, load_npz, load_pickle
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17, SMPL_24

ORIGIN = "the SMPL models come from smpl.is.tue.mpg.de (registration), J_regressor_h36m.npy from SPIN's data download"
FILES = {"f": r"female|_f_", "m": r"(?<!fe)male|_m_"}
"""Gender -> how its model file is called: SMPL_FEMALE.pkl, basicModel_f_lbs_10_207_0_v1.0.0.pkl, ..."""
KEYS = ("v_template", "shapedirs", "posedirs", "weights", "J_regressor", "kintree_table")
LIMBS = ("hip", "knee", "ankle"), ("shoulder", "elbow", "wrist")


class Stored:
    """Stands for a chumpy array or a scipy sparse matrix in a model file: keeps what was stored, does nothing."""

    def __setstate__(self, state: object) -> None:
        self.state = state


def _rebuild(kind: type, base: type, state: object) -> Stored:
    """Stands for copy_reg._reconstructor, by which old pickles make objects; makes nothing but `Stored`."""
    if kind is not Stored:
        raise InputError(f"refused: an object of {kind}")
    return Stored()


_ALSO: Allowed = {
    ("chumpy.ch", "Ch"): Stored,
    ("scipy.sparse.csc", "csc_matrix"): Stored,
    ("scipy.sparse._csc", "csc_matrix"): Stored,
    ("scipy.sparse._csc", "csc_array"): Stored,
    ("copy_reg", "_reconstructor"): _rebuild,
    ("copyreg", "_reconstructor"): _rebuild,
    ("__builtin__", "object"): object,
    ("builtins", "object"): object,
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
        missing = [key for key in KEYS if key not in raw]
        if missing:
            raise InputError(f"{path} is not an SMPL model: it lacks {', '.join(missing)}")
        template, shapes, corrections, weights, joints, tree = (_array(raw[key], f"{path}: {key}") for key in KEYS)
        count = len(template)
        given = [array.shape for array in (template, shapes[..., :1], corrections, weights, joints, tree)]
        wanted = [(count, 3), (count, 3, 1), (count, 3, 207), (count, 24), (24, count), (2, 24)]
        if given != wanted:
            raise InputError(f"{path} is not an SMPL model of 24 joints: shapes {given}, expected {wanted}")
        return cls(template, shapes, corrections, weights, joints, (-1, *(int(parent) for parent in tree[0, 1:])))


@dataclass(frozen=True, eq=False)
class Regressed:
    """Human3.6M's 17 joints of one person, as a function of the pose alone."""

    rest_joints: Float[np.ndarray, "24 3"]
    parents: tuple[int, ...]
    mass: Float[np.ndarray, "17 24"]
    """How much of each joint's weight moves with each bone; its rows sum to 1."""
    moment: Float[np.ndarray, "17 24 3"]
    bend: Float[np.ndarray, "17 24 3 207"]

    @classmethod
    def of(cls, model: Smpl, regressor: Float[np.ndarray, "17 V"], betas: Float[np.ndarray, " b"]) -> "Regressed":
        vertices = model.template + model.shapes[..., : len(betas)] @ betas[: model.shapes.shape[-1]]
        return cls(
            model.joints @ vertices,
            model.parents,
            regressor @ model.weights,
            np.einsum("kv,vj,vx->kjx", regressor, model.weights, vertices, optimize=True),
            np.einsum("kv,vj,vxp->kjxp", regressor, model.weights, model.corrections, optimize=True),
        )

    def __call__(self, poses: Float[np.ndarray, "F 72"], translations: Float[np.ndarray, "F 3"]) -> np.ndarray:
        """World positions (F 17 3), metres."""
        local = Rotation.from_rotvec(poses.reshape(-1, 3)).as_matrix().reshape(-1, 24, 3, 3)  # F 24 3 3
        turned, placed = np.empty_like(local), np.empty(local.shape[:3])
        turned[:, 0], placed[:, 0] = local[:, 0], self.rest_joints[0]
        for joint, parent in enumerate(self.parents[1:], 1):
            turned[:, joint] = turned[:, parent] @ local[:, joint]
            bone = self.rest_joints[joint] - self.rest_joints[parent]
            placed[:, joint] = placed[:, parent] + turned[:, parent] @ bone
        shift = placed - np.einsum("fjxy,jy->fjx", turned, self.rest_joints)
        feature = (local[:, 1:] - np.eye(3)).reshape(len(poses), 207)
        moment = self.moment + np.einsum("kjxp,fp->fkjx", self.bend, feature, optimize=True)
        moved = np.einsum("fjxy,fkjy->fkx", turned, moment, optimize=True) + np.einsum("kj,fjx->fkx", self.mass, shift)
        return moved + translations[:, None]


class Models:
    """The model files of a folder, opened when first needed."""

    def __init__(self, folder: Path) -> None:
        files = sorted(path for path in folder.rglob("*") if path.suffix in (".pkl", ".npz"))
        self.files = {
            gender: next((path for path in files if re.search(pattern, path.name.lower())), None)
            for gender, pattern in FILES.items()
        }
        regressors = sorted(path for path in folder.rglob("*.npy") if "regressor_h36m" in path.name.lower())
        wanted = {"SMPL_FEMALE.pkl": self.files["f"], "SMPL_MALE.pkl": self.files["m"]}
        missing = [name for name, path in wanted.items() if path is None]
        missing += [] if regressors else ["J_regressor_h36m.npy"]
        if missing:
            raise InputError(f"--smpl {folder} lacks {', '.join(missing)}: {ORIGIN}")
        self.regressor_file = regressors[0]
        self._loaded: dict[str, tuple[Smpl, np.ndarray]] = {}

    def person(self, gender: str, betas: Float[np.ndarray, " b"]) -> Regressed:
        """gender 'f' or 'm'; the first ten shape numbers are used."""
        key = gender[:1].lower()
        path = self.files.get(key)
        if path is None:
            raise InputError(f"the gender must be 'f' or 'm', got '{gender}'")
        if key not in self._loaded:
            model = Smpl.load(path)
            self._loaded[key] = model, load_regressor(self.regressor_file, model)
        model, regressor = self._loaded[key]
        return Regressed.of(model, regressor, betas[:10])


def load_regressor(path: Path, model: Smpl) -> Float[np.ndarray, "17 V"]:
    """J_regressor_h36m.npy with its rows in the order of H36M_17.

    HMR's and SPIN's file has the left leg first, "_correct" copies the right leg, and the name does not tell. So each
    limb is laid on the model's own joints, in the rest pose, and gets the side that is nearer.
    """
    try:
        regressor = np.load(path, allow_pickle=False).astype(np.float64)
    except DAMAGED as error:
        raise InputError(f"{path} is damaged or not an npy file ({error}): {ORIGIN}") from error
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


def _array(value: object, where: str) -> Float[np.ndarray, "..."]:
    """A plain array from what a model file may hold: an array, a chumpy array, a sparse matrix."""
    if isinstance(value, Stored):
        state = value.state if isinstance(value.state, dict) else {}
        if "x" in state:
            value = state["x"]
        elif {"data", "indices", "indptr", "_shape"} <= set(state):
            data, rows, starts = (state[name] for name in ("data", "indices", "indptr"))
            return csc_array((data, rows, starts), state["_shape"], np.float64).toarray()
        else:
            raise InputError(f"{where}: stored in a way that is not known: {sorted(map(str, state))}")
    try:
        return np.asarray(value).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: numbers expected ({error})") from error
