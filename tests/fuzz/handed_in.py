"""What users and other programs hand in."""

import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
from data.layouts import write_cdf
from fuzz.corpus import add
from output.people import person, result
from scipy.io import savemat

from di2pose.commands.inputs import BoxFile, fitted_camera, read_camera
from di2pose.data import pose2sim
from di2pose.data.bvh import Bvh, h36m_joints
from di2pose.data.human36m import read_cdf
from di2pose.data.mpi_inf_3dhp import _load_mat, read_calibration
from di2pose.data.pickles import load_npz, load_pickle
from di2pose.errors import InputError
from di2pose.evaluation.predictors import PredictionFile
from di2pose.result import Motion

CAMERA = {"K": [[600, 0, 320], [0, 600, 240], [0, 0, 1]], "size": [640, 480], "distortion": [0.1, 0, 0, 0, 0]}
TEXTS = {
    "boxes.json": '{"a.jpg": [[10, 20, 200.5, 300], [1, 2, 3, 4]], "b.jpg": []}',
    "boxes.csv": "file,x0,y0,x1,y1\na.jpg,10,20,200.5,300\nb.jpg,1,2,3,4\n",
    "camera.json": json.dumps(CAMERA),
    "calib.toml": """[cam_01]
name = "cam_01"
size = [1088.0, 1920.0]
matrix = [[1681.0, 0.0, 539.0], [0.0, 1681.0, 960.0], [0.0, 0.0, 1.0]]
distortions = [-0.05, 0.1, 0.0, 0.0]
rotation = [1.2, -0.5, 0.3]
translation = [0.4, 1.0, 4.0]
""",
    "camera.calibration": """Skeletool Camera Calibration File V1.0
name          0
  sensor      10 10
  size        2048 2048
  animated    0
  intrinsic   1497.6 0 1024.7 0 0 1497.1 1051.3 0 0 0 1 0 0 0 0 1
  extrinsic   0.8 0.0 0.6 -562.8 0 1 0 1398.1 -0.6 0 0.8 3852.6 0 0 0 1
  radial      0
""",
}


def _make_texts(folder: Path) -> None:
    for name, text in TEXTS.items():
        (folder / name).write_text(text)


def _read_boxes(path: Path) -> object:
    boxes = BoxFile(path)
    return boxes.of(Path("a.jpg")), boxes.unused


def _read_camera(folder: Path) -> object:
    camera = fitted_camera(read_camera(folder / "camera.json"), (640, 480))
    return camera.project(np.array([[0.0, 0.0, 1000.0]]))


def _read_toml(folder: Path) -> object:
    return pose2sim.read_camera(folder / "calib.toml", "cam_01", (1080, 1920))


def _read_skeletool(folder: Path) -> object:
    return read_calibration(folder / "camera.calibration")


add("boxes json", "boxes.json", _make_texts, lambda folder: _read_boxes(folder / "boxes.json"), kind="json", count=120)
add("boxes csv", "boxes.csv", _make_texts, lambda folder: _read_boxes(folder / "boxes.csv"), count=80)
add("camera", "camera.json", _make_texts, _read_camera, kind="json", count=150)
add("pose2sim calibration", "calib.toml", _make_texts, _read_toml, count=120)
add("mpi calibration", "camera.calibration", _make_texts, _read_skeletool, count=120)


def _make_predictions(folder: Path) -> None:
    poses = np.random.default_rng(0).normal(0, 300, (4, 2, 17, 3)).astype(np.float32)
    np.savez_compressed(folder / "p.npz", ids=np.array(list("abcd")), joints_mm=poses - poses[:, :, :1], units="mm")


def _read_predictions(folder: Path) -> object:
    file = PredictionFile(folder / "p.npz")
    return file.predict([], [SimpleNamespace(id=name) for name in file.rows], 1, None, 0)


add("predictions", "p.npz", _make_predictions, _read_predictions, count=150)


def _make_pickle(folder: Path) -> None:
    value = {("S1", "54138969"): {"f": np.ones((2, 1)), "names": np.array(["a", "b"], object)}, "w": 1000}
    (folder / "c.pkl").write_bytes(pickle.dumps(value, 2))
    np.savez(folder / "c.npz", a=np.arange(6.0).reshape(2, 3), b=np.array(value, object))


add("pickle", "c.pkl", _make_pickle, lambda folder: load_pickle(folder / "c.pkl"), count=150)
add("npz of others", "c.npz", _make_pickle, lambda folder: load_npz(folder / "c.npz", ["a", "b"]), count=120)


def _make_motion(folder: Path) -> None:
    frames = [result([person(k, track=0, hypotheses=1)], frame_index=k, time_s=k / 10) for k in range(3)]
    for name in ("m.bvh", "m.trc"):
        Motion(frames, 10.0).save(folder / name)


def _read_bvh(folder: Path) -> object:
    bvh = Bvh.read(folder / "m.bvh", 1.0)
    bvh.positions()
    try:
        bvh.motion_frames(1)
        h36m_joints(bvh)
    except InputError as error:
        assert "CMU" in str(error) or "motion" in str(error)  # noqa: PT017
    return bvh


add("bvh", "m.bvh", _make_motion, _read_bvh, count=150)
add("trc", "m.trc", _make_motion, lambda folder: pose2sim.read_trc(folder / "m.trc"), count=120)


def _make_mat(folder: Path) -> None:
    arrays = {"frames": np.arange(4), "annot3": np.zeros((4, 84)), "univ_annot3": np.ones((4, 84))}
    savemat(folder / "annot.mat", arrays)


def _make_h5(folder: Path) -> None:
    """Matlab's 7.3 is HDF5."""
    with h5py.File(folder / "annot.mat", "w") as file:
        file["annot3"], file["univ_annot3"] = np.zeros((4, 1, 17, 3)), np.ones((4, 1, 17, 3))


def _read_mat(folder: Path) -> object:
    _load_mat.cache_clear()
    return _load_mat(folder / "annot.mat")


add("mat", "annot.mat", _make_mat, _read_mat, count=80)
add("mat 7.3", "annot.mat", _make_h5, _read_mat, count=60)


def _make_cdf(folder: Path) -> None:
    write_cdf(folder / "Walking.cdf", np.random.default_rng(0).normal(0, 300, (3, 32, 3)))


add("cdf", "Walking.cdf", _make_cdf, lambda folder: read_cdf(folder / "Walking.cdf", 3), count=80)
