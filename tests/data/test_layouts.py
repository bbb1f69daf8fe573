"""What single layouts allow: variants of the official and processed files, and how a layout is chosen. test_readers.py
has the contract."""

import shutil

import h5py
import numpy as np
import pytest
from data import layouts
from data.layouts import H36M_NAMES, MPI_NAMES, MPI_TEST_NAMES, NO_LENS
from data.test_readers import CLIP, SEQUENCE, mpi_test, positions_npz

from di2pose.data.human36m import ACTIONS, parse_clip
from di2pose.data.prepare import READERS, prepare
from di2pose.data.sample import OUT_OF_FRAME, Dataset, Sources
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17

TRAIN, CAMERAS = "annotation_body3d/fps50/h36m_train.npz", "annotation_body3d/cameras.pkl"
MPI_TEST = "annotations/mpi_inf_3dhp_test_valid.npz"


def read(name, folder, **options):
    """Samples, and what is left out with its reason."""
    return layouts.drain(READERS[name].read(Sources(name, folder, **options)))


# Human3.6M, official


def test_the_camera_is_fitted_with_its_distortion_and_poses_end_with_the_video(tmp_path):
    layouts.write_human36m(tmp_path, "S1", CLIP)
    layouts.write_video(tmp_path / "S1" / "Videos" / f"{CLIP}.mp4", 7)
    samples, _ = read("h36m", tmp_path)
    assert len(samples) == 7
    camera, extra = samples[0].camera, samples[0].extra
    np.testing.assert_allclose(camera.focal, layouts.FOCAL, atol=0.05)
    np.testing.assert_allclose(camera.centre, layouts.CENTRE, atol=0.05)
    rays = np.stack(np.meshgrid([-0.35, 0.1, 0.3], [-0.3, 0.2]), -1).reshape(-1, 2)
    points = 4000 * np.concatenate([rays, np.ones((6, 1))], 1)
    expected = layouts.project(points, layouts.RADIAL, layouts.TANGENTIAL)
    assert np.abs(camera.project(points) - expected).max() < 0.05
    assert camera.size == (1000, 1002)
    assert 0 <= extra["camera_fit_mean_px"] <= extra["camera_fit_largest_px"] < 0.01


def test_spellings_takes_and_all_are_understood_and_a_missing_video_is_listed(tmp_path):
    for stem in ("TakingPhoto.54138969", "WalkingDog 1.54138969", "_ALL.54138969", "_ALL 1.54138969"):
        layouts.write_human36m(tmp_path, "S9", stem, 4, video=False)
    layouts.write_human36m(tmp_path, "S11", "Directions.55011271", 4)
    layouts.write_human36m(tmp_path, "S11", "Eating.55011271", 4, video=False)
    samples, left_out = read("h36m", tmp_path, every=4)
    assert {(sample.action, sample.sequence, sample.split, sample.image) for sample in samples} == {
        ("Photo", "S9_TakingPhoto.54138969", "test", None),
        ("WalkDog", "S9_WalkingDog_1.54138969", "test", None),
        ("Directions", "S11_Directions.55011271", "test", "S11/Videos/Directions.55011271.mp4#0"),
    }
    assert "Eating.55011271.mp4 is missing" in left_out["S11/MyPoseFeatures/D3_Positions_mono/Eating.55011271.cdf"]
    for action in ACTIONS:
        for base in (action, f"{action} 1", f"{action}_2"):
            assert parse_clip("S1", base)["action"] == action


@pytest.mark.parametrize("order", [layouts.H36M_32, layouts.H36M_17], ids=["32", "17"])
def test_poses_without_cameras_are_turned_rigidly_with_left_and_right_kept(tmp_path, order):
    joints = layouts.people(2)
    positions_npz(tmp_path, layouts.ordered(joints, order))
    samples, _ = read("h36m-npz", tmp_path, seed=3)
    actions = {("Directions", "train"), ("Photo", "train"), ("WalkDog", "test")}
    assert {(sample.action, sample.split) for sample in samples} == actions
    truth = layouts.ordered(joints, layouts.H36M_17)
    for sample in samples:
        turn = np.array(sample.extra["rotation"]) @ [[1, 0, 0], [0, 0, 1], [0, -1, 0]]
        assert np.linalg.det(turn) == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose(sample.joints_mm @ turn, truth[sample.frame] - truth[sample.frame, 0], atol=0.01)
        assert sample.joints_mm[H36M_17.index("head"), 1] < -300  # y is down: the head is above the pelvis
    again, other = (read("h36m-npz", tmp_path, seed=seed)[0][2] for seed in (3, 4))
    np.testing.assert_array_equal(again.joints_mm, samples[2].joints_mm)
    assert np.abs(other.joints_mm - samples[2].joints_mm).max() > 100


def test_each_layout_is_chosen_by_its_name_and_the_fullest_by_default(tmp_path):
    layouts.write_h36m_processed(tmp_path)
    for file in (tmp_path / "annotation_body3d/fps50").iterdir():
        file.rename(tmp_path / file.name)
    positions_npz(tmp_path)
    counts = {name: len(read(name, tmp_path)[0]) for name in ("h36m", "h36m-processed", "h36m-npz")}
    assert counts == {"h36m": 10, "h36m-processed": 10, "h36m-npz": 15}
    layouts.write_human36m(tmp_path, "S1", "Walking 1.54138969", 12)
    official = {sample.id for sample in read("h36m", tmp_path)[0]}
    assert len(official) == 12
    names = {sample.id for sample in read("h36m-processed", tmp_path)[0] if sample.subject == "S1"}
    assert len(names & official) == 3  # records of one picture have one id in both layouts


# mmpose's processed layout


@pytest.fixture
def h36m(tmp_path):
    layouts.write_h36m_processed(tmp_path)
    return tmp_path


@pytest.fixture
def mpi(tmp_path):
    layouts.write_mpi_processed(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("key", "edit"),
    [
        ("S", lambda a: a[..., :3].astype(np.float32)),
        ("part", lambda a: a[..., :2]),
        ("imgname", lambda a: a.astype("S")),
        ("imgname", lambda a: a.astype(object)),
        ("imgname", lambda a: np.array([name.replace("/", "\\") for name in a])),
        ("center", lambda a: None),
        ("vertices", lambda a: np.zeros(3)),
    ],
    ids=["S3", "part2", "bytes", "object", "backslashes", "no boxes", "more keys"],
)
def test_variants_are_read_alike(h36m, key, edit):
    arrays, joints = layouts.processed_arrays(H36M_NAMES, layouts.H36M_17)
    arrays[key] = edit(arrays.get(key))
    layouts.write_npz(h36m / "x.npz", {key: value for key, value in arrays.items() if value is not None})
    samples, left_out = read("h36m", h36m, annotations=h36m / "x.npz", cameras=h36m / CAMERAS)
    assert (len(samples), left_out) == (6, {})
    for sample in samples:
        layouts.assert_true(sample, {name: {5 * k: at for k, at in enumerate(rows)} for name, rows in joints.items()})
        x0, y0, x1, y1 = sample.box
        low, high = sample.joints_2d.min(0), sample.joints_2d.max(0)
        assert x1 - x0 == pytest.approx(1.2 * (high - low).max(), rel=1e-5)
        np.testing.assert_allclose([(x0 + x1) / 2, (y0 + y1) / 2], (low + high) / 2, rtol=1e-5)
        assert sample.camera.distortion == (*layouts.RADIAL[:2], *layouts.TANGENTIAL, layouts.RADIAL[2])


def test_without_pictures_there_are_none_and_without_a_camera_file_cameras_are_fitted_to_enough_points(h36m):
    shutil.rmtree(h36m / "images")
    (h36m / CAMERAS).unlink()
    sample = read("h36m", h36m, annotations=h36m / TRAIN)[0][0]
    assert sample.image is None
    assert sample.extra["camera_fit_largest_px"] < 0.5
    assert np.abs(sample.camera.project(sample.joints_mm + sample.root_mm) - sample.joints_2d).max() < 0.5
    layouts.write_npz(h36m / "x.npz", layouts.processed_arrays(H36M_NAMES[:2], layouts.H36M_17)[0])
    sample = read("h36m", h36m, annotations=h36m / "x.npz")[0][0]
    assert sample.camera is None
    assert "too few" in sample.extra["camera"]


@pytest.mark.parametrize("pictures", [True, False])
def test_joints_outside_the_picture_are_marked_whatever_the_camera_file_says_of_its_size(mpi, pictures):
    """Real camera files say 204 for 2048."""
    camera = layouts.camera_record(k=None, p=None, w=2048, h=204)
    layouts.write_pickle(mpi / "annotations/cameras_train.pkl", {"S4_Seq2_Cam0": camera, "S8_Seq1_Cam8": camera})
    shutil.rmtree(mpi / "images")
    for name in MPI_NAMES if pictures else ():
        layouts.write_picture(mpi / "images" / name, (400, 1002))
    samples = [sample for sample in read("mpi-inf-3dhp", mpi)[0] if sample.split == "train"]
    assert len(samples) > 3
    for sample in samples:
        assert sample.camera.size == ((400, 1002) if pictures else (2048, 2048))
        outside = sample.joints_2d[:, 0] >= sample.camera.size[0]
        np.testing.assert_array_equal(sample.visibility == OUT_OF_FRAME, outside)
        assert sample.valid.all()


def test_strange_names_and_missing_cameras_are_listed(h36m):
    arrays, _ = layouts.processed_arrays([H36M_NAMES[0], "photo.jpg", *H36M_NAMES[2:]], layouts.H36M_17)
    layouts.write_npz(h36m / TRAIN, arrays)
    layouts.write_pickle(h36m / CAMERAS, {("S1", "54138969"): layouts.camera_record()})
    samples, left_out = read("h36m", h36m)
    assert [sample.split for sample in samples] == ["train"] * 5
    assert "is not a name like" in left_out["photo.jpg"]
    assert "no camera S9/55011271" in left_out["h36m_test/S9_WalkDog.55011271"]


@pytest.mark.parametrize("record", [{"f": None}, {"c": np.ones(3)}, None])
def test_a_camera_file_of_another_form_is_refused(h36m, record):
    cameras = [] if record is None else {("S1", "54138969"): layouts.camera_record(**record)}
    layouts.write_pickle(h36m / CAMERAS, cameras)
    with pytest.raises(InputError, match=r"cameras\.pkl"):
        read("h36m", h36m)


def test_places_by_option_strange_names_and_of_all_and_valid_test_frames_the_valid_ones(mpi):
    place = mpi / "annotations"
    (mpi / "elsewhere").mkdir()
    options = {"annotations": place / "mpi_inf_3dhp_train.npz", "cameras": place / "cameras_train.pkl"}
    samples, left_out = read("mpi-inf-3dhp", mpi / "elsewhere", images=mpi / "images", **options)
    assert (len(samples), left_out, samples[0].image) == (6, {}, MPI_NAMES[0])
    names = [*MPI_TEST_NAMES, "TS2_000001.jpg", "frame.jpg"]
    arrays, _ = layouts.processed_arrays(names, layouts.MPI_17, 1, NO_LENS)
    layouts.write_npz(place / "mpi_inf_3dhp_test_all.npz", arrays)  # mmpose writes both files side by side
    layouts.write_npz(mpi / MPI_TEST, {key: value[1:] for key, value in arrays.items()})
    samples, left_out = read("mpi-inf-3dhp", mpi)
    assert [sample.frame for sample in samples if sample.split == "test"] == [1, 2, 3, 4]
    assert "no camera TS2" in left_out["mpi_inf_3dhp_test_valid/TS2"]
    assert "is not a name like" in left_out["frame.jpg"]
    assert len(read("mpi-inf-3dhp", mpi, annotations=place / "mpi_inf_3dhp_test_all.npz")[0]) == 5


# MPI-INF-3DHP, official; 3DPW


def test_training_frames_come_from_the_videos_and_end_with_them(tmp_path):
    layouts.write_mpi_train(tmp_path, frames=6, video_frames=4)
    prepare("mpi-inf-3dhp", tmp_path / "out", src=tmp_path)
    dataset = Dataset(tmp_path / "out")
    assert len(dataset) == 2 * 4
    for sample in dataset:
        assert abs(np.asarray(dataset.read_image(sample)).mean() - 10 * sample.frame) < 5
    assert any("video_8.avi is missing" in skip["reason"] for skip in dataset.header["skipped"])
    assert dataset[0].camera.size == (2048, 2048)


def test_a_version_7_3_test_file_is_read_and_outdoor_sequences_have_their_own_size(tmp_path):
    joints = mpi_test(tmp_path, "TS6")
    with h5py.File(tmp_path / "TS6/annot_data.mat", "w", userblock_size=512) as file:
        for key, value in layouts.mpi_test_arrays()[0].items():
            file[key] = value.T  # Matlab stores the last axis first
    with (tmp_path / "TS6/annot_data.mat").open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")
    samples, left_out = read("mpi-inf-3dhp", tmp_path)
    assert left_out == {}
    assert [sample.frame for sample in samples] == [1, 2, 3, 4, 5, 6, 7]
    for sample in samples:
        layouts.assert_true(sample, joints)
        assert sample.extra["camera_fit_largest_px"] < 0.5
        assert sample.camera.size == (1920, 1080)


def test_3dpw_has_a_record_for_each_person_of_each_frame_with_an_aligned_camera(tmp_path):
    layouts.write_3dpw(tmp_path, "test", SEQUENCE)
    samples, _ = read("3dpw", tmp_path)
    frames = {person: [s.frame for s in samples if s.extra["person"] == person] for person in (0, 1)}
    assert frames == {0: [0, 2, 3, 4, 5], 1: [0, 1, 2, 3, 4, 5]}
    camera = samples[0].camera
    np.testing.assert_allclose(camera.rotation, layouts.WORLD_ROTATION)
    np.testing.assert_allclose(camera.translation_mm, 1000 * layouts.WORLD_TRANSLATION)
    assert (camera.focal, camera.centre) == ((1961.85, 1969.23), (540, 960))
    assert [s.extra["box"] for s in samples[:2]] == ["detected 2D joints", "projected joints"]
    named = [j for j, name in enumerate(layouts.SMPL_24) if name != "-"]
    for sample in samples:
        x0, y0, x1, y1 = sample.box
        assert ((sample.joints_2d[named] > (x0, y0)) & (sample.joints_2d[named] < (x1, y1))).all()


def test_3dpw_s_splits_come_from_the_folders_and_pictures_give_the_size(tmp_path):
    layouts.write_3dpw(tmp_path, "train", "courtyard_box_00", persons=1)
    layouts.write_3dpw(tmp_path, "validation", "outdoors_parcours_01", persons=1)
    layouts.write_picture(tmp_path / "imageFiles/courtyard_box_00/image_00000.jpg", (1080, 1920))
    assert {(s.split, s.sequence, s.camera.size) for s in read("3dpw", tmp_path)[0]} == {
        ("train", "courtyard_box_00", (1080, 1920)),
        ("validation", "outdoors_parcours_01", None),
    }
    shutil.move(tmp_path / "imageFiles", tmp_path / "photos")
    assert read("3dpw", tmp_path)[0][0].image is None
    assert read("3dpw", tmp_path, images=tmp_path / "photos")[0][0].image == "courtyard_box_00/image_00000.jpg"
