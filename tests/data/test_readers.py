"""The contract of all dataset readers: each is run on a small set in its true layout, and on damaged ones."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from data import layouts
from data.cmu_files import walk, write_cmu

from di2pose.data.prepare import READERS, prepare
from di2pose.data.sample import Dataset, Sources
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17, H36M_21, SMPL_24, Skeleton

CLIP = "Directions 1.54138969"
FEATURES = "S1/MyPoseFeatures"
D2, D3 = f"{FEATURES}/D2_Positions/{CLIP}.cdf", f"{FEATURES}/D3_Positions_mono/{CLIP}.cdf"
NPZ = "annotation_body3d/fps50/h36m_train.npz"
MPI_NPZ = "annotations/mpi_inf_3dhp_train.npz"
SEQUENCE = "downtown_walking_00"
PICKLE = f"sequenceFiles/test/{SEQUENCE}.pkl"


def positions_npz(folder: Path, joints: np.ndarray | None = None, **changes) -> None:
    """VideoPose3D's data_3d_h36m.npz: metres, z up, the person upright in the hall."""
    joints = layouts.ordered(layouts.people(5), layouts.H36M_32) if joints is None else joints
    world = np.stack([joints[..., 0], joints[..., 2], -joints[..., 1]], -1).astype(np.float32) / 1000
    positions = {"S1": {"Directions 1": world, "Photo": world}, "S9": {"WalkDog": world}} | changes
    folder.mkdir(exist_ok=True)
    np.savez_compressed(folder / "data_3d_h36m.npz", positions_3d=positions)


def two_people(folder: Path) -> list[dict]:
    for frame in range(6):
        layouts.write_picture(folder / f"imageFiles/{SEQUENCE}/image_{frame:05d}.jpg", (108, 192))
    return layouts.write_3dpw(folder, "test", SEQUENCE)


def mpi_test(folder: Path, subject: str = "TS1", **changes) -> dict:
    arrays, joints = layouts.mpi_test_arrays()
    for frame in range(8):
        layouts.write_picture(folder / subject / f"imageSequence/img_{frame + 1:06d}.jpg")
    scipy.io.savemat(folder / subject / "annot_data.mat", arrays | changes)
    return joints


@dataclass(frozen=True)
class Case:
    """A reader, a set for it, and what must come out."""

    reader: str
    write: Callable[[Path], object]
    """Writes the set and returns the joints, (for 3DPW) of each person; None where there is no camera to compare in."""
    count: int
    first: tuple[str, str, str, str, int, str, str | None]
    """id, subject, action, sequence, frame, split and image of the first record."""
    empty: str
    """The message for an empty folder."""
    skeleton: Skeleton = H36M_17
    size: tuple[int, int] | None = None
    """Of the pictures; of videos, whose frame i is grey of brightness 10 i, (64, 48)."""


H36M_LAYOUTS = r"(?s)D3_Positions_mono.*h36m_train\.npz.*data_3d_h36m\.npz"
MPI_LAYOUTS = r"(?s)annot\.mat.*mpi_inf_3dhp_train\.npz"
WALKING = "S1_Walking_1.54138969"
CASES = {
    "h36m": Case(
        "h36m", lambda folder: layouts.write_human36m(folder, "S1", CLIP), 12,
        ("S1_Directions_1.54138969_000001", "S1", "Directions", "S1_Directions_1.54138969", 0, "train",
         f"S1/Videos/{CLIP}.mp4#0"), H36M_LAYOUTS, size=(64, 48),
    ),
    "h36m-processed": Case(
        "h36m-processed", layouts.write_h36m_processed, 10,
        ("S9_WalkDog.55011271_000001", "S9", "WalkDog", "S9_WalkDog.55011271", 0, "test",
         "images/S9/S9_WalkDog.55011271/S9_WalkDog.55011271_000001.jpg"), H36M_LAYOUTS, size=(60, 80),
    ),
    "h36m-npz": Case(
        "h36m-npz", positions_npz, 15,
        ("S1_Directions_1_000001", "S1", "Directions", "S1_Directions_1", 0, "train", None), H36M_LAYOUTS,
    ),
    "3dpw": Case(
        "3dpw", two_people, 11,
        (f"{SEQUENCE}/p0/00000", f"{SEQUENCE}/p0", "", SEQUENCE, 0, "test", f"imageFiles/{SEQUENCE}/image_00000.jpg"),
        r"sequenceFiles\.zip", SMPL_24, (108, 192),
    ),
    "mpi train": Case(
        "mpi-inf-3dhp", layouts.write_mpi_train, 40,
        ("S1_Seq1_Cam0_000001", "S1", "Seq1", "S1_Seq1_Cam0", 0, "train", None), MPI_LAYOUTS,
    ),
    "mpi test": Case(
        "mpi-inf-3dhp", mpi_test, 7,
        ("TS1_000002", "TS1", "Sit on Chair", "TS1", 1, "test", "TS1/imageSequence/img_000002.jpg"), MPI_LAYOUTS,
        size=(60, 80),
    ),
    "mpi processed": Case(
        "mpi-inf-3dhp-processed", layouts.write_mpi_processed, 11,
        ("TS1_000001", "TS1", "", "TS1", 0, "test", "images/TS1_000001.jpg"), MPI_LAYOUTS, size=(60, 80),
    ),
    "bvh": Case(
        "bvh", lambda folder: write_cmu(folder / "001/01_01.bvh", walk(4)) and None, 4,
        ("01_01_000000", "001", "", "01_01", 0, "train", None), r"no \.bvh file below .* CMU",
        skeleton=H36M_21,
    ),
}  # fmt: skip


def read(case: Case, folder: Path, **options):
    return layouts.drain(READERS[case.reader].read(Sources(case.reader, folder, **options)))


@pytest.fixture(scope="module", params=CASES)
def whole(request, tmp_path_factory):
    """A case, the folder of its set, the true joints, and all samples."""
    case, folder = CASES[request.param], tmp_path_factory.mktemp("whole")
    truth = case.write(folder)
    samples, left_out = read(case, folder)
    assert left_out == {}
    return case, folder, truth, samples


def test_joints_are_where_their_names_say_and_project_onto_the_2d(whole):
    case, _, truth, samples = whole
    assert len({sample.id for sample in samples}) == len(samples) == case.count
    first = samples[0]
    assert (first.id, first.subject, first.action, first.sequence, first.frame, first.split, first.image) == case.first
    for sample in samples if truth is not None else ():
        joints = truth[sample.extra["person"]] if isinstance(truth, list) else truth.get(sample.split, truth)
        layouts.assert_true(sample, joints, case.skeleton)
        x0, y0, x1, y1 = sample.box
        assert x1 - x0 == pytest.approx(y1 - y0)
        assert sample.valid.all()


def test_every_second_record_is_prepared_and_read_back_with_its_picture(whole, tmp_path):
    case, folder, _, samples = whole
    prepare(case.reader, tmp_path / "out", src=folder, every=2)
    dataset = Dataset(tmp_path / "out")
    assert dataset.skeleton is case.skeleton
    sequences: dict[str, list] = {}
    for sample in samples:
        sequences.setdefault(sample.subject + sample.sequence, []).append(sample)
    if case.reader == "3dpw":  # whose frame numbers count those that have no camera
        wanted = {sample.id: sample for sample in samples if sample.frame % 2 == 0}
    else:
        wanted = {sample.id: sample for sequence in sequences.values() for sample in sequence[::2]}
    assert wanted.keys() == {sample.id for sample in dataset}
    for row, sample in enumerate(dataset):
        np.testing.assert_array_equal(sample.joints_mm, wanted[sample.id].joints_mm)
        assert (sample.camera, sample.box, sample.row) == (wanted[sample.id].camera, wanted[sample.id].box, row)
        if case.size is not None:
            picture = dataset.read_image(sample)
            assert picture.size == case.size
            assert "#" not in sample.image or abs(np.asarray(picture).mean() - 10 * sample.frame) < 5


def test_an_empty_folder_is_refused_with_the_layouts_that_are_read(whole, tmp_path):
    case = whole[0]
    with pytest.raises(InputError, match=case.empty):
        list(READERS[case.reader].read(Sources(case.reader, tmp_path)))


# Damage: what is done to a file, and what is said of which part. Every other part is still read.


def cut(path: Path, keep: int = 200) -> None:
    path.write_bytes(path.read_bytes()[:keep])


def cdf(*shape: int):
    return lambda path: layouts.write_cdf(path, np.random.default_rng(0).uniform(0, 1000, shape))


def npz(edit):
    """Arrays of the file after `edit`; None removes one."""

    def damage(path: Path) -> None:
        arrays = dict(np.load(path))
        arrays |= edit(arrays)
        np.savez(path, **{key: value for key, value in arrays.items() if value is not None})

    return damage


def wrong_cells(path: Path) -> None:
    """annot.mat with 17 joints instead of 28 in the cells of 14 cameras."""
    joints = np.empty((14, 1), object)
    joints[:, 0] = [np.zeros((5, 51))] * 14
    scipy.io.savemat(path, {"annot2": joints, "annot3": joints})


def sequence(**changes):
    return lambda path: layouts.write_3dpw(path.parents[2], "test", path.stem, **changes)


PLAIN_MAT = {"annot3": np.zeros((5, 84)), "annot2": np.zeros((5, 56))}
MAT, TEST_MAT = "S1/Seq1/annot.mat", "TS1/annot_data.mat"
NOISE = np.random.default_rng(0).uniform(0, 2048, (2, 17, 1, 8))
TRAIN = "h36m_train.npz"
DAMAGE = [
    ("h36m", D2, cut, D3, "damaged"),
    ("h36m", D2, lambda path: path.rename(path.with_name("x.cdf")), D3, "Poses_D2_Positions_S1.tgz"),
    ("h36m", D3, cdf(12, 20, 3), D3, "32 joints of 3 numbers"),
    ("h36m", D2, cdf(11, 32, 2), D3, "11 in 2D"),
    ("h36m", D2, cdf(12, 32, 2), D3, "no camera takes its 3D"),
    ("h36m-processed", NPZ, lambda path: cut(path, 1000), TRAIN, "damaged"),
    ("h36m-processed", NPZ, npz(lambda a: {"S": np.zeros((6, 24, 4))}), TRAIN, "17 joints of h36m_17"),
    ("h36m-processed", NPZ, npz(lambda a: {"part": a["part"][:5]}), TRAIN, "'part' has shape"),
    ("h36m-processed", NPZ, npz(lambda a: {"S": a["S"] * 1000}), TRAIN, "must be metres"),
    ("h36m-processed", NPZ, npz(lambda a: {"S": a["S"][..., [2, 0, 1, 3]]}), f"h36m_train/{WALKING}", "do not project"),
    ("h36m-processed", NPZ, npz(lambda a: {"S": None}), TRAIN, "no array S"),
    ("h36m-processed", NPZ, npz(lambda a: {key: value[:0] for key, value in a.items()}), TRAIN, "has no rows"),
    ("mpi processed", MPI_NPZ, npz(lambda a: {"S": np.zeros((6, 28, 4))}), "mpi_inf_3dhp_train.npz", "17 joints of"),
    ("mpi train", MAT, lambda path: cut(path, 3000), "S1/Seq1/camera 0", "damaged"),
    ("mpi train", MAT, wrong_cells, "S1/Seq1/camera 0", "expected (frames, 84)"),
    ("mpi train", MAT, lambda path: scipy.io.savemat(path, PLAIN_MAT), "S1/Seq1/camera 0", "cell array"),
    ("mpi test", TEST_MAT, {"annot3": np.ones((3, 14, 1, 8))}, "TS1", "expected (frames, 51)"),
    ("mpi test", TEST_MAT, {"valid_frame": np.ones((1, 20))}, "TS1", "'valid_frame' names frame 19"),
    ("mpi test", TEST_MAT, {"annot2": NOISE}, "TS1", "no camera takes its 3D"),
    ("mpi test", TEST_MAT, {"valid_frame": np.zeros((1, 8))}, "TS1", "too few"),
    ("3dpw", PICKLE, sequence(jointPositions=[np.zeros((6, 57))] * 2), f"test/{SEQUENCE}", "24 joints"),
    ("3dpw", PICKLE, sequence(cam_poses=None), f"test/{SEQUENCE}", "without cam_poses"),
    ("3dpw", PICKLE, sequence(cam_poses=np.zeros((6, 3, 3))), f"test/{SEQUENCE}", "(frames, 4, 4)"),
    ("3dpw", PICKLE, sequence(cam_poses=np.tile(np.eye(4), (5, 1, 1))), f"test/{SEQUENCE}", "one per frame expected"),
    ("3dpw", PICKLE, lambda path: cut(path, -10), f"test/{SEQUENCE}", "damaged"),
    ("h36m-npz", "", {"S5": {"Eating": np.zeros((5, 25, 3))}}, "S5_Eating", "32 or 17"),
    ("h36m-npz", "", {"S5": {"Eating": 500 * np.random.default_rng(0).normal(size=(5, 17, 3))}}, "S5_Eating", "metres"),
    ("bvh", "001/01_01.bvh", cut, "001/01_01.bvh", "not a whole BVH"),
]


@pytest.mark.parametrize(("name", "file", "damage", "key", "message"), DAMAGE)
def test_a_damaged_file_is_listed_with_its_reason(tmp_path, name, file, damage, key, message):
    case = CASES[name]
    case.write(tmp_path)
    if isinstance(damage, dict):
        case.write(tmp_path, **damage)
    else:
        damage(tmp_path / file)
    samples, left_out = read(case, tmp_path)
    assert message in left_out[key]
    kept = {"h36m-processed": {"test"}, "mpi processed": {"test"}, "h36m-npz": {"train", "test"}}.get(name, set())
    assert {sample.split for sample in samples} == kept


def nan_in_npz(path: Path) -> None:
    arrays = dict(np.load(path))
    arrays["S"][3, 6] = np.nan
    np.savez(path, **arrays)


def nan_in_mat(path: Path) -> None:
    cells = scipy.io.loadmat(path)
    cells["annot3"][0, 0][2, 3 * 14] = np.nan
    scipy.io.savemat(path, {key: value for key, value in cells.items() if key.startswith("annot")})


@pytest.mark.parametrize(
    ("name", "file", "damage", "key", "message"),
    [
        ("h36m-processed", NPZ, nan_in_npz, f"{WALKING}_000016", "left_ankle"),
        ("mpi train", MAT, nan_in_mat, "S1_Seq1_Cam0_000003", "right_shoulder"),
    ],
)
def test_a_record_with_nan_joints_is_left_out_alone(tmp_path, name, file, damage, key, message):
    CASES[name].write(tmp_path)
    damage(tmp_path / file)
    samples, left_out = read(CASES[name], tmp_path)
    assert message in left_out[key]
    assert (len(samples), len(left_out)) == (CASES[name].count - 1, 1)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("h36m-processed", "annotation_body3d/cameras.pkl"),
        ("mpi processed", "annotations/cameras_train.pkl"),
        ("3dpw", "sequenceFiles/test/evil_00.pkl"),
        ("h36m-npz", None),
    ],
)
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path, name, file):
    spy = {("S1", "54138969"): layouts.Spy(tmp_path / "ran")}
    CASES[name].write(tmp_path)
    if file is None:
        positions_npz(tmp_path, S5={"Eating": layouts.Spy(tmp_path / "ran")})
    else:
        layouts.write_pickle(tmp_path / file, spy)
    if name == "3dpw":
        assert "mkdir" in read(CASES[name], tmp_path)[1]["test/evil_00"]
    else:
        with pytest.raises(InputError, match="mkdir"):
            read(CASES[name], tmp_path)
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(spy))  # the trap itself works
    assert (tmp_path / "ran").exists()
