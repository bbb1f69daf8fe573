"""mmpose's processed layout of Human3.6M and MPI-INF-3DHP: its variants. test_readers.py has the contract."""

import shutil

import numpy as np
import pytest
from data import layouts
from data.layouts import H36M_NAMES, MPI_NAMES, MPI_TEST_NAMES, NO_LENS

from di2pose.data import human36m, mpi_inf_3dhp
from di2pose.data.sample import OUT_OF_FRAME, Sources
from di2pose.errors import InputError

TRAIN, CAMERAS = "annotation_body3d/fps50/h36m_train.npz", "annotation_body3d/cameras.pkl"


def h36m(folder, **options):
    return layouts.drain(human36m.read(Sources("h36m", folder, **options)))


def mpi(folder, **options):
    return layouts.drain(mpi_inf_3dhp.read(Sources("mpi-inf-3dhp", folder, **options)))


@pytest.fixture
def folder(tmp_path):
    """Human3.6M."""
    layouts.write_h36m_processed(tmp_path)
    return tmp_path


@pytest.fixture
def mpi_folder(tmp_path):
    layouts.write_mpi_processed(tmp_path)
    return tmp_path


def test_the_box_is_the_square_of_200_scale(folder):
    sample = h36m(folder)[0][-1]
    x0, y0, x1, y1 = sample.box
    pixels = sample.joints_2d
    assert x1 - x0 == pytest.approx(1.2 * np.ptp(pixels, axis=0).max(), rel=1e-5)
    np.testing.assert_allclose([(x0 + x1) / 2, (y0 + y1) / 2], (pixels.min(0) + pixels.max(0)) / 2, rtol=1e-5)
    assert sample.camera.distortion == (*layouts.RADIAL[:2], *layouts.TANGENTIAL, layouts.RADIAL[2])


def test_processed_and_official_records_of_a_picture_have_the_same_id(tmp_path):
    layouts.write_human36m(tmp_path, "S1", "Walking 1.54138969", 11, video=False)
    official = {sample.id for sample in h36m(tmp_path, every=5)[0]}
    layouts.write_npz(tmp_path / "x.npz", layouts.processed_arrays(H36M_NAMES[:3], layouts.H36M_17)[0])
    assert {sample.id for sample in h36m(tmp_path, annotations=tmp_path / "x.npz")[0]} == official


@pytest.mark.parametrize(
    "change",
    [
        {"S": lambda a: a[..., :3].astype(np.float32)},
        {"part": lambda a: a[..., :2]},
        {"imgname": lambda a: a.astype("S")},
        {"imgname": lambda a: a.astype(object)},
        {"imgname": lambda a: np.array([name.replace("/", "\\") for name in a])},
        {"center": lambda a: None},
        {"vertices": lambda a: np.zeros(3)},
    ],
    ids=["S3", "part2", "bytes", "object", "backslashes", "no boxes", "more keys"],
)
def test_variants_are_read_alike(tmp_path, change):
    joints = layouts.write_h36m_processed(tmp_path)["train"]
    arrays, _ = layouts.processed_arrays(H36M_NAMES, layouts.H36M_17)
    for key, edit in change.items():
        arrays[key] = edit(arrays.get(key))
    layouts.write_npz(tmp_path / "x.npz", {key: value for key, value in arrays.items() if value is not None})
    samples, left_out = h36m(tmp_path, annotations=tmp_path / "x.npz")
    assert (len(samples), left_out) == (6, {})
    for sample in samples:
        layouts.assert_true(sample, joints)
        assert sample.box is not None


def test_without_pictures_records_have_none(folder):
    shutil.rmtree(folder / "images")
    assert {sample.image for sample in h36m(folder)[0]} == {None}


def test_without_a_camera_file_the_camera_is_fitted_where_there_are_enough_points(tmp_path):
    joints = layouts.write_h36m_processed(tmp_path)["train"]
    (tmp_path / CAMERAS).unlink()
    sample = h36m(tmp_path, annotations=tmp_path / TRAIN)[0][0]
    layouts.assert_true(sample, joints)
    assert sample.extra["camera_fit_largest_px"] < 0.5
    layouts.write_npz(tmp_path / "x.npz", layouts.processed_arrays(H36M_NAMES[:2], layouts.H36M_17)[0])
    sample = h36m(tmp_path, annotations=tmp_path / "x.npz")[0][0]
    assert sample.camera is None
    assert "too few" in sample.extra["camera"]


@pytest.mark.parametrize("pictures", [True, False])
def test_joints_outside_the_picture_are_marked_whatever_the_camera_file_says_of_its_size(mpi_folder, pictures):
    """Real camera files say 204 for 2048."""
    camera = layouts.camera_record(k=None, p=None, w=2048, h=204)
    layouts.write_pickle(mpi_folder / "annotations/cameras_train.pkl", {"S4_Seq2_Cam0": camera, "S8_Seq1_Cam8": camera})
    shutil.rmtree(mpi_folder / "images")
    for name in MPI_NAMES if pictures else ():
        layouts.write_picture(mpi_folder / "images" / name, (400, 1002))
    samples = [sample for sample in mpi(mpi_folder)[0] if sample.split == "train"]
    assert len(samples) > 3
    for sample in samples:
        width, _ = sample.camera.size
        assert sample.camera.size == ((400, 1002) if pictures else (2048, 2048))
        np.testing.assert_array_equal(sample.visibility == OUT_OF_FRAME, sample.joints_2d[:, 0] >= width)
        assert sample.valid.all()


def test_strange_names_and_missing_cameras_are_listed(tmp_path):
    layouts.write_h36m_processed(tmp_path / "h36m")
    arrays, _ = layouts.processed_arrays([H36M_NAMES[0], "photo.jpg", *H36M_NAMES[2:]], layouts.H36M_17)
    layouts.write_npz(tmp_path / "h36m" / TRAIN, arrays)
    layouts.write_pickle(tmp_path / "h36m" / CAMERAS, {("S1", "54138969"): layouts.camera_record()})
    samples, left_out = h36m(tmp_path / "h36m")
    assert [sample.split for sample in samples] == ["train"] * 5
    assert "is not a name like" in left_out["photo.jpg"]
    assert "no camera S9/55011271" in left_out["h36m_test/S9_WalkDog.55011271"]
    layouts.write_mpi_processed(tmp_path / "mpi")
    names = [*MPI_TEST_NAMES[:4], "TS2_000001.jpg", "frame.jpg"]
    arrays, _ = layouts.processed_arrays(names, layouts.MPI_17, lens=NO_LENS)
    layouts.write_npz(tmp_path / "mpi/annotations/mpi_inf_3dhp_test_valid.npz", arrays)
    _, left_out = mpi(tmp_path / "mpi")
    assert "no camera TS2" in left_out["mpi_inf_3dhp_test_valid/TS2"]
    assert "is not a name like" in left_out["frame.jpg"]


@pytest.mark.parametrize("record", [{"f": None}, {"c": np.ones(3)}, None])
def test_a_camera_file_of_another_form_is_refused(folder, record):
    cameras = [] if record is None else {("S1", "54138969"): layouts.camera_record(**record)}
    layouts.write_pickle(folder / CAMERAS, cameras)
    with pytest.raises(InputError, match=r"cameras\.pkl"):
        h36m(folder)


def test_annotations_cameras_and_images_each_by_its_own_option(tmp_path):
    joints = layouts.write_mpi_processed(tmp_path)["train"]
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / "annotations"
    options = {"annotations": place / "mpi_inf_3dhp_train.npz", "cameras": place / "cameras_train.pkl"}
    samples, left_out = mpi(tmp_path / "elsewhere", images=tmp_path / "images", **options)
    assert left_out == {}
    layouts.assert_true(samples[0], joints)


def test_of_all_and_the_valid_test_frames_the_valid_ones_are_read(mpi_folder):
    """mmpose writes both files side by side."""
    arrays, _ = layouts.processed_arrays(MPI_TEST_NAMES, layouts.MPI_17, 1, NO_LENS)
    everything = mpi_folder / "annotations/mpi_inf_3dhp_test_all.npz"
    layouts.write_npz(everything, arrays)
    layouts.write_npz(mpi_folder / "annotations/mpi_inf_3dhp_test_valid.npz", {k: v[1:] for k, v in arrays.items()})
    counts = [len([s for s in mpi(mpi_folder, **options)[0] if s.split == "test"])
              for options in ({}, {"annotations": everything})]  # fmt: skip
    assert counts == [len(MPI_TEST_NAMES) - 1, len(MPI_TEST_NAMES)]
