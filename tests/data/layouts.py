"""Small sets in the true layouts of Human3.6M, 3DPW and MPI-INF-3DHP: real CDF, npz, Python 2 pickles, .mat, video.

The joint orders below are written out from the datasets' own documents, not taken from the code under test, so that a
reader that swaps left and right, or reads another order, fails.
"""

import os
import pickle
import struct
from pathlib import Path

import av
import numpy as np
import scipy.io
import scipy.sparse
from cdflib import cdfwrite
from PIL import Image

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.pose import skeleton as code
from di2pose.pose.skeleton import Skeleton


def _words(text: str) -> list[str]:
    return text.split()


H36M_32 = _words("""pelvis right_hip right_knee right_ankle - - left_hip left_knee left_ankle - - - spine neck head
    head_top - left_shoulder left_elbow left_wrist - - - - - right_shoulder right_elbow right_wrist - - - -""")
H36M_17 = _words("""pelvis right_hip right_knee right_ankle left_hip left_knee left_ankle spine neck head head_top
    left_shoulder left_elbow left_wrist right_shoulder right_elbow right_wrist""")
SMPL_24 = _words("""pelvis left_hip right_hip - left_knee right_knee spine left_ankle right_ankle - - - neck - - head
    left_shoulder right_shoulder left_elbow right_elbow left_wrist right_wrist - -""")
MPI_28 = _words("""- - - spine pelvis neck head head_top - left_shoulder left_elbow left_wrist - - right_shoulder
    right_elbow right_wrist - left_hip left_knee left_ankle - - right_hip right_knee right_ankle - -""")
MPI_17 = _words("""head_top neck right_shoulder right_elbow right_wrist left_shoulder left_elbow left_wrist right_hip
    right_knee right_ankle left_hip left_knee left_ankle pelvis spine head""")
LEFT_LEG_FIRST = H36M_17[:1] + H36M_17[4:7] + H36M_17[1:4] + H36M_17[7:]  # J_regressor_h36m.npy of HMR and SPIN

T_POSE = {  # camera axes, mm; the person looks into the camera, so that its left is at +x
    "pelvis": (0, 0, 0), "spine": (0, -230, 10), "neck": (0, -480, 0), "head": (0, -590, -40), "head_top": (0, -700, 0),
    "left_hip": (135, 0, 0), "left_knee": (140, 440, -20), "left_ankle": (145, 880, 30),
    "left_shoulder": (150, -440, 0), "left_elbow": (430, -445, 5), "left_wrist": (680, -450, -10),
}  # fmt: skip
T_POSE |= {
    name.replace("left_", "right_"): (-x - 3, y, z) for name, (x, y, z) in T_POSE.items() if name.startswith("left_")
}

FOCAL, CENTRE = (1145.05, 1143.78), (512.54, 515.45)
RADIAL, TANGENTIAL = (-0.2071, 0.2478, -0.0031), (-0.00098, -0.00142)  # of the size of Human3.6M's own
CAMERA_IDS = ("54138969", "55011271", "58860488", "60457274")


def people(frames: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Joint name -> (frames, 3) in the camera frame, mm: T-poses that wander about, each joint shaken by up to 30 mm.
    "-" stands for the joints that no reader takes."""
    rng = np.random.default_rng(seed)
    place = rng.uniform((-900, -150, 3800), (900, 150, 6500), (frames, 3))
    found = {name: place + at + rng.uniform(-30, 30, (frames, 3)) for name, at in T_POSE.items()}
    return found | {"-": place + rng.uniform(-500, 500, (frames, 3))}


def ordered(joints: dict[str, np.ndarray], order: list[str]) -> np.ndarray:
    """(frames, len(order), 3)"""
    return np.stack([joints[name] for name in order], 1)


def project(points: np.ndarray, radial=(0, 0, 0), tangential=(0, 0), focal=FOCAL, centre=CENTRE) -> np.ndarray:
    """Human3.6M's projection, as its own Matlab code writes it."""
    flat = points[..., :2] / points[..., 2:]
    r2 = (flat**2).sum(-1, keepdims=True)
    scale = 1 + radial[0] * r2 + radial[1] * r2**2 + radial[2] * r2**3
    scale = scale + 2 * (tangential[0] * flat[..., 1:] + tangential[1] * flat[..., :1])
    return (flat * scale + r2 * np.array(tangential[::-1])) * focal + centre


def write_video(path: Path, frames: int, size: tuple[int, int] = (64, 48)) -> None:
    """Frame i is grey of brightness 10 * i."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=50)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for i in range(frames):
            grey = np.full((size[1], size[0], 3), min(10 * i, 255), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")))
        container.mux(stream.encode())


def write_picture(path: Path, size: tuple[int, int] = (60, 80)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (90, 120, 150)).save(path)


# Human3.6M


def write_cdf(path: Path, joints: np.ndarray) -> None:
    """The variable Pose, (1, frames, joints * 3 or 2) float32, as the official files have it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = joints.reshape(1, len(joints), -1).astype(np.float32)
    file = cdfwrite.CDF(path, cdf_spec={"Majority": "row_major"}, delete=True)
    about = {"Variable": "Pose", "Data_Type": 44, "Num_Elements": 1, "Rec_Vary": True}
    file.write_var(about | {"Dim_Sizes": list(values.shape[1:])}, var_data=values)
    file.close()


def write_human36m(folder: Path, subject: str, stem: str, frames: int = 12, seed: int = 0, video: bool = True) -> dict:
    """One clip of the official download, e.g. S1 and 'Directions 1.54138969'."""
    joints = people(frames, seed)
    poses = ordered(joints, H36M_32)
    features = folder / subject / "MyPoseFeatures"
    write_cdf(features / "D3_Positions_mono" / f"{stem}.cdf", poses)
    write_cdf(features / "D2_Positions" / f"{stem}.cdf", project(poses, RADIAL, TANGENTIAL))
    if video:
        write_video(folder / subject / "Videos" / f"{stem}.mp4", frames)
    return joints


def camera_record(**changes) -> dict:
    """One camera as preprocess_h36m.py pickles it."""
    column = {"f": FOCAL, "c": CENTRE, "k": RADIAL, "p": TANGENTIAL}
    camera = {key: np.array(value)[:, None] for key, value in column.items()}
    camera |= {"R": np.eye(3), "T": np.zeros((3, 1)), "w": 1000, "h": 1002, "name": "camera1", "id": "54138969"}
    return {key: value for key, value in (camera | changes).items() if value is not None}


def processed_arrays(names: list[str], order: list[str], seed: int = 0, lens=(RADIAL, TANGENTIAL)) -> tuple[dict, dict]:
    """The arrays of preprocess_h36m.py and preprocess_mpi_inf_3dhp.py for pictures of these names, and the joints."""
    joints = people(len(names), seed)
    poses = ordered(joints, order)
    pixels = project(poses, *lens)
    low, high, ones = pixels.min(1), pixels.max(1), np.ones((len(names), len(order), 1))
    return {
        "imgname": np.array(names),
        "center": (low + high) / 2,
        "scale": 1.2 * (high - low).max(1) / 200,
        "part": np.concatenate([pixels, ones], 2),
        "S": np.concatenate([poses * 0.001, ones], 2),
    }, joints


def write_npz(path: Path, arrays: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)


def write_pickle(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(value))


H36M_NAMES = [f"S1/S1_Walking_1.54138969/S1_Walking_1.54138969_{5 * i + 1:06d}.jpg" for i in range(6)]
H36M_TEST_NAMES = [f"S9/S9_WalkDog.55011271/S9_WalkDog.55011271_{i + 1:06d}.jpg" for i in range(4)]
MPI_NAMES = [f"S{4 if i < 4 else 8}_Seq{2 if i < 4 else 1}_Cam{0 if i < 4 else 8}_{i + 1:06d}.jpg" for i in range(6)]
MPI_TEST_NAMES = [f"TS1_{i + 1:06d}.jpg" for i in range(5)]
NO_LENS = ((0, 0, 0), (0, 0))


def write_h36m_processed(folder: Path) -> dict:
    """As mmpose writes it, every fifth frame of the training sequence: split -> joints by frame."""
    place = folder / "annotation_body3d"
    train, joints = processed_arrays(H36M_NAMES, H36M_17)
    test, test_joints = processed_arrays(H36M_TEST_NAMES, H36M_17, 1)
    write_npz(place / "fps50/h36m_train.npz", train)
    write_npz(place / "fps50/h36m_test.npz", test)
    keys = [(f"S{n}", camera) for n in range(1, 12) for camera in CAMERA_IDS]
    write_pickle(place / "cameras.pkl", {key: camera_record() for key in keys})
    for name in H36M_NAMES + H36M_TEST_NAMES:
        write_picture(folder / "images" / name)
    by_frame = {name: dict(zip(range(0, 30, 5), rows, strict=True)) for name, rows in joints.items()}
    return {"train": by_frame, "test": test_joints}


def write_mpi_processed(folder: Path) -> dict:
    """As mmpose writes it: split -> joints by frame."""
    place = folder / "annotations"
    train, joints = processed_arrays(MPI_NAMES, MPI_17, lens=NO_LENS)
    test, test_joints = processed_arrays(MPI_TEST_NAMES, MPI_17, 1, NO_LENS)
    train["S"][:, :3, 3] = 0  # outside of the picture, says mmpose; the joints are annotated all the same
    write_npz(place / "mpi_inf_3dhp_train.npz", train)
    write_npz(place / "mpi_inf_3dhp_test_valid.npz", test)
    camera = camera_record(k=None, p=None, w=2048, h=2048, name="train_cam_0", id=None)
    write_pickle(place / "cameras_train.pkl", {"S4_Seq2_Cam0": camera, "S8_Seq1_Cam8": camera})
    write_pickle(place / "cameras_test.pkl", {"TS1": {key: camera[key] for key in ("f", "c", "w", "h", "name")}})
    for name in MPI_NAMES + MPI_TEST_NAMES:
        write_picture(folder / "images" / name)
    return {"train": joints, "test": test_joints}


# 3DPW and SMPL


class Python2Pickler(pickle._Pickler):
    """Writes what Python 2's cPickle wrote: 8-bit strings for text and for array data, the old names of modules."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012 the base class keeps it so

    def __init__(self, file, protocol: int = 2) -> None:
        super().__init__(file, protocol)

    def save_text(self, value) -> None:
        data = value.encode("latin1") if isinstance(value, str) else bytes(value)
        short = len(data) < 256
        self.write((b"U" + bytes([len(data)]) if short else b"T" + struct.pack("<i", len(data))) + data)
        self.memoize(value)

    def save_name(self, value, name=None) -> None:
        old = {"numpy._core.multiarray": "numpy.core.multiarray", "copyreg": "copy_reg", "builtins": "__builtin__"}
        module = old.get(value.__module__, value.__module__)
        self.write(f"c{module}\n{value.__qualname__}\n".encode())
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_text
    dispatch[type] = save_name
    save_global = save_name


def write_python2_pickle(path: Path, value, protocol: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        Python2Pickler(file, protocol).dump(value)


WORLD_ROTATION = np.array([[0.8, 0.0, 0.6], [0.6, 0.0, -0.8], [0.0, 1.0, 0.0]])  # world -> camera, determinant +1
WORLD_TRANSLATION = np.array([0.1, -0.2, 0.4])
INTRINSICS = np.array([[1961.85, 0, 540], [0, 1969.23, 960], [0, 0, 1]])


def to_world(camera_m: np.ndarray) -> np.ndarray:
    return (camera_m - WORLD_TRANSLATION) @ WORLD_ROTATION


def write_3dpw(folder: Path, split: str, sequence: str, frames: int = 6, persons: int = 2, **changes) -> list[dict]:
    """One official sequence file; frame 1 of person 0 has no aligned camera, frame 2 no 2D detection."""
    joints = [people(frames, seed) for seed in range(persons)]
    positions = [to_world(ordered(person, SMPL_24) / 1000).reshape(frames, 72) for person in joints]
    detections = np.zeros((persons, frames, 3, 18))
    for person, body in enumerate(joints):
        pixels = project(ordered(body, MPI_17), focal=np.diag(INTRINSICS)[:2], centre=INTRINSICS[:2, 2])
        detections[person, :, :2, :17], detections[person, :, 2, :17] = pixels.transpose(0, 2, 1), 0.8
    detections[0, 2] = 0
    valid = np.ones((persons, frames), np.int64)
    valid[0, 1] = 0
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = WORLD_ROTATION, WORLD_TRANSLATION
    data = {
        "sequence": sequence,
        "poses": [np.zeros((frames, 72)) for _ in joints],
        "trans": [np.zeros((frames, 3)) for _ in joints],
        "betas": [np.zeros(300) for _ in joints],
        "genders": ["m", "f"][:persons],
        "jointPositions": positions,
        "poses2d": list(detections),
        "cam_poses": np.tile(pose, (frames, 1, 1)),
        "cam_intrinsics": INTRINSICS,
        "campose_valid": list(valid),
        "img_frame_ids": np.arange(frames) * 2,
    }
    data = {key: value for key, value in (data | changes).items() if value is not None}
    write_python2_pickle(folder / "sequenceFiles" / split / f"{sequence}.pkl", data)
    return joints


class Ch:
    """Pickles as a chumpy array does."""

    __module__ = "chumpy.ch"

    def __init__(self, x: np.ndarray) -> None:
        self.x = x


class csc_matrix:
    """Pickles as scipy's sparse matrix did in 2015."""

    __module__ = "scipy.sparse.csc"

    def __init__(self, dense: np.ndarray) -> None:
        sparse = scipy.sparse.csc_matrix(dense)
        self.data, self.indices, self.indptr, self._shape = sparse.data, sparse.indices, sparse.indptr, sparse.shape
        self.format, self.maxprint = "csc", 50


def smpl_model(vertices: int = 60, seed: int = 0) -> dict:
    """A tiny body with SMPL's keys, axes (y up, left at +x) and random but consistent numbers."""
    rng = np.random.default_rng(seed)
    parents = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21)
    joints = np.array([T_POSE.get(name, (0.0, -300.0, 0.0)) for name in SMPL_24]) * (1, -1, -1) / 1000
    owner = np.arange(vertices) % 24
    weights = np.eye(24)[owner] * 0.8
    weights += np.array([np.eye(24)[max(parents[joint], 0)] for joint in owner]) * 0.2
    shapes = rng.normal(0, 0.004, (vertices, 3, 10))
    return {
        "v_template": joints[owner] + rng.normal(0, 0.01, (vertices, 3)),
        "shapedirs": Ch(shapes),
        "posedirs": rng.normal(0, 0.002, (vertices, 3, 207)),
        "weights": weights,
        "J_regressor": csc_matrix((owner == np.arange(24)[:, None]) / np.bincount(owner, minlength=24)[:, None]),
        "kintree_table": np.array([[2**32 - 1, *parents[1:]], range(24)], np.uint32),
    }


def regressor_h36m(order: list[str], vertices: int = 60) -> np.ndarray:
    """(17, vertices): the mean of the vertices of the SMPL joint of that name; head_top borrows the head's."""
    owner = np.arange(vertices) % 24
    rows = [owner == SMPL_24.index(name if name in SMPL_24 else "head") for name in order]
    return np.stack([row / row.sum() for row in rows])


# MPI-INF-3DHP


def write_mpi_train(folder: Path, frames: int = 5, video_frames: int | None = None) -> dict:
    """One training sequence, S1/Seq1, of 14 cameras; all see the same poses."""
    joints = people(frames)
    poses = ordered(joints, MPI_28)
    cells = {key: np.empty((14, 1), object) for key in ("annot2", "annot3", "univ_annot3")}
    for camera in range(14):
        cells["annot3"][camera, 0] = poses.reshape(frames, 84)
        cells["univ_annot3"][camera, 0] = poses.reshape(frames, 84) * 0.93
        cells["annot2"][camera, 0] = project(poses).reshape(frames, 56)
    place = folder / "S1" / "Seq1"
    place.mkdir(parents=True)
    scipy.io.savemat(place / "annot.mat", cells | {"frames": np.arange(frames), "cameras": np.arange(14)})
    for camera in (0, 1) if video_frames else ():
        write_video(place / "imageSequence" / f"video_{camera}.avi", video_frames)
    return joints


def mpi_test_arrays(frames: int = 8) -> tuple[dict, dict]:
    """The variables of annot_data.mat with Matlab's axes; frame 0 is not valid."""
    joints = people(frames)
    poses = ordered(joints, MPI_17)
    valid = np.ones((1, frames))
    valid[0, 0] = 0
    return {
        "annot3": poses.transpose(2, 1, 0)[:, :, None],
        "univ_annot3": poses.transpose(2, 1, 0)[:, :, None] * 0.93,
        "annot2": project(poses).transpose(2, 1, 0)[:, :, None],
        "valid_frame": valid,
        "activity_annotation": np.full((1, frames), 3.0),
    }, joints


# What a test does with a reader


class Spy:
    """An object whose pickle makes a folder when pickle.load opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def drain(parts) -> tuple[list, dict[str, str]]:
    """All samples, and everything that was left out with its reason: as `data prepare` would list it."""
    samples, left_out = [], {}
    for part in parts:
        try:
            for item in part.samples():
                if fault := item.fault(part.skeleton):
                    left_out[item.id] = fault
                else:
                    samples.append(item)
        except InputError as error:
            left_out[part.key] = str(error)
    return samples, left_out


POINTS = {"thorax": "neck", "nose": "head", "head": "head_top"}
"""H36M_17's names of the points above, where they differ."""


def assert_true(sample: Sample, joints: dict[str, np.ndarray], skeleton: Skeleton = code.H36M_17) -> None:
    """Every joint is where the writer put the joint of that NAME, left at +x, and the 3D projects onto the 2D."""
    absolute = sample.joints_mm + sample.root_mm
    names = POINTS if skeleton is code.H36M_17 else {"spine2": "spine"}
    for joint, name in enumerate(skeleton.joints):
        point = names.get(name, name)
        if point not in joints:
            continue
        np.testing.assert_allclose(absolute[joint], joints[point][sample.frame], atol=0.02, err_msg=name)
        if name.startswith(("left_", "right_")):
            assert (sample.joints_mm[joint, 0] > 0) == name.startswith("left_"), name
    np.testing.assert_array_equal(sample.joints_mm[0], 0)
    error = np.linalg.norm(sample.camera.project(absolute) - sample.joints_2d, axis=-1)
    assert error.max() < 0.5
