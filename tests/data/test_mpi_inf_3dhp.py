"""MPI-INF-3DHP: official training and test files, and the processed layout."""

import importlib.util

import numpy as np
import pytest
import scipy.io
from data import layouts

from di2pose.data.mpi_inf_3dhp import CAMERAS, read, read_calibration
from di2pose.data.prepare import prepare
from di2pose.data.sample import OUT_OF_FRAME, Dataset, Sources
from di2pose.errors import InputError, MissingExtra
from di2pose.pose.skeleton import H36M_17

NO_LENS = ((0, 0, 0), (0, 0))
TRAIN_NAMES = [f"S4_Seq2_Cam0_{i + 1:06d}.jpg" for i in range(4)] + [
    f"S8_Seq1_Cam8_{i + 1:06d}.jpg" for i in range(4, 6)
]
TEST_NAMES = [f"TS1_{i + 1:06d}.jpg" for i in range(5)]


def mpi(folder, name="mpi-inf-3dhp", **options):
    return Sources(name, folder, **options)


# official training files


def test_training_joints_are_where_their_names_say_and_project_onto_annot2(tmp_path):
    joints = layouts.write_mpi_train(tmp_path)
    samples, left_out = layouts.drain(read(mpi(tmp_path)))
    assert left_out == {}
    assert len(samples) == 5 * len(CAMERAS)
    for sample in samples:
        layouts.assert_true(sample, joints)
    first = samples[0]
    assert (first.id, first.subject, first.action, first.sequence, first.split, first.image) == (
        "S1_Seq1_Cam0_000001", "S1", "Seq1", "S1_Seq1_Cam0", "train", None,
    )  # fmt: skip
    assert first.camera.size == (2048, 2048)
    np.testing.assert_allclose(first.camera.rotation, layouts.WORLD_ROTATION)


def test_training_frames_come_from_the_videos_and_end_with_them(tmp_path):
    layouts.write_mpi_train(tmp_path, frames=6, video_frames=4)
    prepare("mpi-inf-3dhp", tmp_path / "out", src=tmp_path)
    dataset = Dataset(tmp_path / "out")
    assert len(dataset) == 2 * 4
    for sample in dataset:
        assert abs(np.asarray(dataset.read_image(sample)).mean() - 10 * sample.frame) < 5
    assert any("video_8.avi" in skip["file"] for skip in dataset.header["skipped"])


def test_calibration_of_every_camera_is_read(tmp_path):
    (tmp_path / "camera.calibration").write_text(layouts.calibration())
    cameras = read_calibration(tmp_path / "camera.calibration")
    assert list(cameras) == list(range(14))
    assert (cameras[13].focal, cameras[13].centre) == (layouts.FOCAL, layouts.CENTRE)
    np.testing.assert_allclose(cameras[13].translation_mm, layouts.WORLD_TRANSLATION * 1000)


def no_calibration(place):
    (place / "camera.calibration").unlink()


def short_calibration(place):
    (place / "camera.calibration").write_text(layouts.calibration()[:200])


def fewer_cameras(place):
    (place / "camera.calibration").write_text(layouts.calibration(0))


def truncated(place):
    (place / "annot.mat").write_bytes((place / "annot.mat").read_bytes()[:3000])


def not_a_mat(place):
    (place / "annot.mat").write_bytes(b"gone" * 200)


def other_joints(place):
    cells = np.empty((14, 1), object)
    cells[:, 0] = [np.zeros((5, 51))] * 14
    scipy.io.savemat(place / "annot.mat", {"annot3": cells, "annot2": cells})


def no_cells(place):
    scipy.io.savemat(place / "annot.mat", {"annot3": np.zeros((5, 84)), "annot2": np.zeros((5, 56))})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (no_calibration, "beside annot.mat"),
        (short_calibration, "damaged near camera"),
        (fewer_cameras, "has no camera 0"),
        (truncated, "damaged"),
        (not_a_mat, "damaged"),
        (other_joints, "expected (frames, 84)"),
        (no_cells, "cell array"),
    ],
)
def test_damaged_training_files_are_listed(tmp_path, damage, message):
    layouts.write_mpi_train(tmp_path)
    damage(tmp_path / "S1" / "Seq1")
    samples, left_out = layouts.drain(read(mpi(tmp_path)))
    assert samples == []
    assert message in left_out["S1/Seq1/camera 0"]


def test_nan_joints_are_left_out_one_by_one(tmp_path):
    layouts.write_mpi_train(tmp_path)
    path = tmp_path / "S1/Seq1/annot.mat"
    cells = scipy.io.loadmat(path)
    cells["annot3"][0, 0][2, 3 * 14] = np.nan
    scipy.io.savemat(path, {key: value for key, value in cells.items() if key.startswith("annot")})
    samples, left_out = layouts.drain(read(mpi(tmp_path)))
    assert len(samples) == 5 * len(CAMERAS) - 1
    assert "right_shoulder" in left_out["S1_Seq1_Cam0_000003"]


def test_an_empty_folder_is_told_both_layouts(tmp_path):
    with pytest.raises(InputError, match=r"(?s)annot\.mat.*mpi_inf_3dhp_train\.npz"):
        list(read(mpi(tmp_path)))


# official test files


def write_test(folder, arrays, subject="TS1"):
    (folder / subject).mkdir(parents=True)
    scipy.io.savemat(folder / subject / "annot_data.mat", arrays)


def check_test_samples(folder, joints):
    layouts.write_picture(folder / "TS1/imageSequence/img_000001.jpg")
    samples, left_out = layouts.drain(read(mpi(folder)))
    assert left_out == {}
    assert [sample.frame for sample in samples] == [1, 2, 3, 4, 5, 6, 7]
    for sample in samples:
        layouts.assert_true(sample, joints)
        assert sample.extra["camera_fit_largest_px"] < 0.5
    assert (samples[0].id, samples[0].action, samples[0].split) == ("TS1_000002", "Sit on Chair", "test")
    assert samples[0].image == "TS1/imageSequence/img_000002.jpg"


def test_test_joints_of_a_version_5_file_are_where_their_names_say(tmp_path):
    arrays, joints = layouts.mpi_test_arrays()
    write_test(tmp_path, arrays)
    check_test_samples(tmp_path, joints)


def test_test_joints_of_a_version_7_3_file_are_where_their_names_say(tmp_path):
    h5py = pytest.importorskip("h5py")
    arrays, joints = layouts.mpi_test_arrays()
    (tmp_path / "TS1").mkdir()
    with h5py.File(tmp_path / "TS1/annot_data.mat", "w", userblock_size=512) as file:
        for key, value in arrays.items():
            file[key] = value.T  # Matlab stores the last axis first
    with (tmp_path / "TS1/annot_data.mat").open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")
    check_test_samples(tmp_path, joints)


@pytest.mark.skipif(importlib.util.find_spec("h5py") is not None, reason="h5py is installed")
def test_without_h5py_a_version_7_3_file_says_what_to_install(tmp_path):
    (tmp_path / "TS1").mkdir()
    (tmp_path / "TS1/annot_data.mat").write_bytes(
        b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512) + b"\x89HDF\r\n\x1a\n"
    )
    with pytest.raises(MissingExtra, match="h5py"):
        layouts.drain(read(mpi(tmp_path)))


def test_outdoor_test_sequences_have_their_own_size(tmp_path):
    write_test(tmp_path, layouts.mpi_test_arrays()[0], "TS6")
    assert layouts.drain(read(mpi(tmp_path)))[0][0].camera.size == (1920, 1080)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"annot3": np.ones((3, 14, 1, 8))}, "expected (frames, 51)"),
        ({"valid_frame": np.ones((1, 20))}, "'valid_frame' names frame 19"),
        ({"annot2": np.random.default_rng(0).uniform(0, 2048, (2, 17, 1, 8))}, "no camera takes annot3 to annot2"),
        ({"valid_frame": np.zeros((1, 8))}, "too few"),
    ],
)
def test_damaged_test_files_are_listed(tmp_path, changes, message):
    write_test(tmp_path, layouts.mpi_test_arrays()[0] | changes)
    samples, left_out = layouts.drain(read(mpi(tmp_path)))
    assert samples == []
    assert message in left_out["TS1"]


# the processed layout


@pytest.fixture
def processed(tmp_path):
    """As mmpose writes it, with the joints by row."""
    train, train_joints = layouts.processed_arrays(TRAIN_NAMES, layouts.MPI_17, lens=NO_LENS)
    test, test_joints = layouts.processed_arrays(TEST_NAMES, layouts.MPI_17, 1, NO_LENS)
    train["S"][:, :3, 3] = 0  # outside of the picture, says mmpose; the joints are annotated all the same
    layouts.write_npz(tmp_path / "annotations/mpi_inf_3dhp_train.npz", train)
    layouts.write_npz(tmp_path / "annotations/mpi_inf_3dhp_test_valid.npz", test)
    camera = layouts.camera_record(k=None, p=None, w=2048, h=2048, name="train_cam_0", id=None)
    cameras = {"S4_Seq2_Cam0": camera, "S8_Seq1_Cam8": camera}
    layouts.write_pickle(tmp_path / "annotations/cameras_train.pkl", cameras)
    test_camera = {key: camera[key] for key in ("f", "c", "w", "h", "name")}
    layouts.write_pickle(tmp_path / "annotations/cameras_test.pkl", {"TS1": test_camera})
    return tmp_path, train_joints, test_joints


def test_processed_joints_are_where_their_names_say_and_project_onto_part(processed):
    folder, train_joints, test_joints = processed
    samples, left_out = layouts.drain(read(mpi(folder, "mpi-inf-3dhp-processed")))
    assert left_out == {}
    assert len(samples) == 11
    for sample in samples:
        layouts.assert_true(sample, train_joints if sample.split == "train" else test_joints)
        assert sample.valid.all()
    assert {(s.subject, s.action, s.sequence, s.split) for s in samples} == {
        ("S4", "Seq2", "S4_Seq2_Cam0", "train"), ("S8", "Seq1", "S8_Seq1_Cam8", "train"), ("TS1", "", "TS1", "test"),
    }  # fmt: skip


def test_processed_prepare_and_read_back(processed, tmp_path):
    folder, train_joints, _ = processed
    for name in TRAIN_NAMES + TEST_NAMES:
        layouts.write_picture(folder / "images" / name)
    prepare("mpi-inf-3dhp-processed", tmp_path / "out", src=folder)
    dataset = Dataset(tmp_path / "out")
    assert (len(dataset), dataset.skeleton) == (11, H36M_17)
    train = dataset.select(split="train")
    for row in train:
        layouts.assert_true(dataset[int(row)], train_joints)
    assert dataset.read_image(dataset[int(train[0])]).size == (60, 80)


def test_each_part_by_its_own_option(processed, tmp_path):
    folder, train_joints, _ = processed
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    sources = mpi(
        elsewhere,
        annotations=folder / "annotations/mpi_inf_3dhp_train.npz",
        cameras=folder / "annotations/cameras_train.pkl",
        images=folder / "images",
    )
    samples, left_out = layouts.drain(read(sources))
    assert left_out == {}
    layouts.assert_true(samples[0], train_joints)


def test_processed_joints_outside_the_picture_are_marked_but_kept(processed):
    folder, _, _ = processed
    camera = layouts.camera_record(k=None, p=None, w=2048, h=450)
    layouts.write_pickle(folder / "annotations/cameras_test.pkl", {"TS1": camera})
    samples = [s for s in layouts.drain(read(mpi(folder)))[0] if s.split == "test"]
    for sample in samples:
        np.testing.assert_array_equal(sample.visibility == OUT_OF_FRAME, sample.joints_2d[:, 1] >= 450)
        assert sample.valid.all()


@pytest.mark.parametrize("pictures", [True, False])
def test_a_wrong_height_in_the_camera_file_puts_no_joint_out_of_frame(processed, tmp_path, pictures):
    """As in real files: 204 for 2048."""
    folder, _, _ = processed
    camera = layouts.camera_record(k=None, p=None, w=2048, h=204, c=np.array([[512.54], [515.45]]))
    cameras = {"S4_Seq2_Cam0": camera, "S8_Seq1_Cam8": camera}
    layouts.write_pickle(folder / "annotations/cameras_train.pkl", cameras)
    if pictures:
        for name in TRAIN_NAMES:
            layouts.write_picture(folder / "images" / name, (2048, 2048))
    samples = [s for s in layouts.drain(read(mpi(folder)))[0] if s.split == "train"]
    assert len(samples) > 3
    for sample in samples:
        assert sample.camera.size == ((2048, 2048) if pictures else None)
        assert sample.visibility is None or not (sample.visibility == OUT_OF_FRAME).any()
        assert "the camera file says 2048x204" in sample.extra["picture_size"]


def test_two_files_of_one_split_give_ids_of_their_own(processed, tmp_path):
    """mmpose writes all frames and the valid ones of the test set side by side."""
    folder, _, _ = processed
    arrays, _ = layouts.processed_arrays(TEST_NAMES, layouts.MPI_17, 1, NO_LENS)
    layouts.write_npz(folder / "annotations/mpi_inf_3dhp_test_all.npz", arrays)
    prepare("mpi-inf-3dhp-processed", tmp_path / "out", src=folder)
    dataset = Dataset(tmp_path / "out")
    ids = [line["id"] for line in dataset.index]
    assert len(ids) == len(set(ids)) == len(TRAIN_NAMES) + 2 * len(TEST_NAMES)
    name = TEST_NAMES[0].removesuffix(".jpg")
    assert {f"mpi_inf_3dhp_test_all/{name}", f"mpi_inf_3dhp_test_valid/{name}"} <= set(ids)
    assert TRAIN_NAMES[0].removesuffix(".jpg") in ids, "files that share nothing keep their ids"


def test_a_missing_camera_and_a_strange_name_are_listed(processed):
    folder, _, _ = processed
    arrays, _ = layouts.processed_arrays([*TEST_NAMES[:4], "TS2_000001.jpg", "frame.jpg"], layouts.MPI_17, lens=NO_LENS)
    layouts.write_npz(folder / "annotations/mpi_inf_3dhp_test_valid.npz", arrays)
    _, left_out = layouts.drain(read(mpi(folder)))
    assert "no camera TS2" in left_out["mpi_inf_3dhp_test_valid/TS2"]
    assert "is not a name like" in left_out["frame.jpg"]


def test_28_joints_in_the_processed_layout_are_refused(processed):
    folder, _, _ = processed
    arrays, _ = layouts.processed_arrays(TEST_NAMES, layouts.MPI_28, lens=NO_LENS)
    layouts.write_npz(folder / "annotations/mpi_inf_3dhp_test_valid.npz", arrays)
    _, left_out = layouts.drain(read(mpi(folder)))
    assert "17 joints of MPI-INF-3DHP" in left_out["mpi_inf_3dhp_test_valid.npz"]
