"""Human3.6M in its three layouts."""

import pickle
import shutil

import numpy as np
import pytest
from data import layouts

from di2pose.data.human36m import ACTIONS, parse_clip, read
from di2pose.data.prepare import prepare
from di2pose.data.sample import OUT_OF_FRAME, Dataset, Sources
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17, bone_lengths

CLIP = "Directions 1.54138969"
NAMES = [f"S1/S1_Walking_1.54138969/S1_Walking_1.54138969_{5 * i + 1:06d}.jpg" for i in range(6)]
TEST_NAMES = [f"S9/S9_WalkDog.55011271/S9_WalkDog.55011271_{i + 1:06d}.jpg" for i in range(4)]


def h36m(folder, name="h36m", **options):
    return Sources(name, folder, **options)


def without_videos_of_other_cameras(left_out):
    return {key: reason for key, reason in left_out.items() if "this camera's file is missing" not in reason}


# the official download


@pytest.fixture
def official(tmp_path):
    layouts.write_human36m(tmp_path, "S1", CLIP)
    return tmp_path


def test_official_joints_are_where_their_names_say_and_project_onto_d2(tmp_path):
    joints = layouts.write_human36m(tmp_path, "S1", CLIP)
    samples, left_out = layouts.drain(read(h36m(tmp_path)))
    assert len(samples) == 12
    assert without_videos_of_other_cameras(left_out) == {}
    for sample in samples:
        layouts.assert_true(sample, joints)
    first = samples[0]
    assert (first.id, first.subject, first.action, first.sequence, first.frame, first.split) == (
        "S1_Directions_1.54138969_000001", "S1", "Directions", "S1_Directions_1.54138969", 0, "train",
    )  # fmt: skip
    assert first.image == "S1/Videos/Directions 1.54138969.mp4#0"


def test_official_camera_is_found_from_the_data_with_its_distortion(official):
    camera = layouts.drain(read(h36m(official)))[0][0].camera
    np.testing.assert_allclose(camera.focal, layouts.FOCAL, atol=0.05)
    np.testing.assert_allclose(camera.centre, layouts.CENTRE, atol=0.05)
    rays = np.stack(np.meshgrid([-0.35, 0.1, 0.3], [-0.3, 0.2]), -1).reshape(-1, 2)
    points = 4000 * np.concatenate([rays, np.ones((6, 1))], 1)
    expected = layouts.project(points, layouts.RADIAL, layouts.TANGENTIAL)
    assert np.abs(camera.project(points) - expected).max() < 0.05
    assert camera.size == (1000, 1002)


def test_official_fit_is_stated_in_the_record(official):
    extra = layouts.drain(read(h36m(official)))[0][0].extra
    assert 0 <= extra["camera_fit_mean_px"] <= extra["camera_fit_largest_px"] < 0.01


def test_official_cameras_file_is_used_where_given(official):
    layouts.write_pickle(official / "cameras.pkl", {("S1", "54138969"): layouts.camera_record()})
    samples, _ = layouts.drain(read(h36m(official, cameras=official / "cameras.pkl")))
    assert samples[0].camera.focal == layouts.FOCAL
    assert samples[0].extra == {}


def test_a_camera_that_the_given_file_lacks_is_listed(official):
    layouts.write_pickle(official / "cameras.pkl", {("S5", "54138969"): layouts.camera_record()})
    samples, left_out = layouts.drain(read(h36m(official, cameras=official / "cameras.pkl")))
    assert samples == []
    assert "has no camera ('S1', '54138969')" in "".join(left_out.values())


def test_every_nth_frame(official):
    samples, _ = layouts.drain(read(h36m(official, every=5)))
    assert [sample.frame for sample in samples] == [0, 5, 10]


def test_spellings_takes_and_all_are_understood(tmp_path):
    for stem in ("TakingPhoto.54138969", "WalkingDog 1.54138969", "_ALL.54138969", "_ALL 1.54138969"):
        layouts.write_human36m(tmp_path, "S9", stem, 4, video=False)
    samples, _ = layouts.drain(read(h36m(tmp_path)))
    assert {(sample.action, sample.sequence, sample.split, sample.image) for sample in samples} == {
        ("Photo", "S9_TakingPhoto.54138969", "test", None),
        ("WalkDog", "S9_WalkingDog_1.54138969", "test", None),
    }


def test_each_of_the_15_actions_parses_with_and_without_a_take():
    for action in ACTIONS:
        for base in (action, f"{action} 1", f"{action}_2"):
            assert parse_clip("S1", f"{base}.58860488")["action"] == action


def test_the_missing_video_of_s11_is_listed_as_known(tmp_path):
    layouts.write_human36m(tmp_path, "S11", "Directions.54138969", video=False)
    layouts.write_human36m(tmp_path, "S11", "Directions.55011271")
    samples, left_out = layouts.drain(read(h36m(tmp_path)))
    assert {sample.sequence for sample in samples} == {"S11_Directions.55011271"}
    assert left_out["S11/Videos/Directions.54138969.mp4"].startswith("the official release does not have this video")


def test_other_missing_videos_and_cameras_are_listed(tmp_path):
    layouts.write_human36m(tmp_path, "S1", CLIP)
    layouts.write_human36m(tmp_path, "S1", "Eating.55011271", video=False)
    _, left_out = layouts.drain(read(h36m(tmp_path)))
    assert left_out["S1/Videos/Eating.55011271.mp4"].startswith("the video is missing")
    missing = "S1/MyPoseFeatures/D3_Positions_mono/Directions 1.60457274.cdf"
    assert "this camera's file is missing" in left_out[missing]


def test_poses_beyond_the_end_of_the_video_are_not_read(official):
    layouts.write_video(official / "S1" / "Videos" / f"{CLIP}.mp4", 7)
    samples, _ = layouts.drain(read(h36m(official)))
    assert len(samples) == 7


def test_prepare_reads_the_frame_that_belongs_to_the_pose(official, tmp_path):
    prepare("h36m", tmp_path / "out", src=official, every=3)
    dataset = Dataset(tmp_path / "out")
    assert len(dataset) == 4
    for sample in dataset:
        grey = np.asarray(dataset.read_image(sample)).mean()
        assert abs(grey - 10 * sample.frame) < 5


def broken_cdf(folder):
    path = folder / "S1/MyPoseFeatures/D2_Positions" / f"{CLIP}.cdf"
    path.write_bytes(path.read_bytes()[:200])


def no_cdf(folder):
    (folder / "S1/MyPoseFeatures/D2_Positions" / f"{CLIP}.cdf").rename(folder / "S1/MyPoseFeatures/D2_Positions/x.cdf")


def few_joints(folder):
    layouts.write_cdf(folder / "S1/MyPoseFeatures/D3_Positions_mono" / f"{CLIP}.cdf", np.zeros((12, 20, 3)))


def other_frames(folder):
    layouts.write_cdf(folder / "S1/MyPoseFeatures/D2_Positions" / f"{CLIP}.cdf", np.zeros((11, 32, 2)))


def other_pixels(folder):
    pixels = np.random.default_rng(0).uniform(0, 1000, (12, 32, 2))
    layouts.write_cdf(folder / "S1/MyPoseFeatures/D2_Positions" / f"{CLIP}.cdf", pixels)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (broken_cdf, "damaged"),
        (no_cdf, "Poses_D2_Positions_S1.tgz"),
        (few_joints, "32 joints of 3 numbers"),
        (other_frames, "11 in D2_Positions"),
        (other_pixels, "no camera takes its 3D"),
    ],
)
def test_damaged_official_files_are_listed(official, damage, message):
    damage(official)
    samples, left_out = layouts.drain(read(h36m(official)))
    assert samples == []
    assert message in left_out[f"S1/MyPoseFeatures/D3_Positions_mono/{CLIP}.cdf"]


def test_a_folder_without_2d_says_which_archive_to_unpack(official):
    shutil.rmtree(official / "S1/MyPoseFeatures/D2_Positions")
    with pytest.raises(InputError, match=r"Poses_D2_Positions_S1\.tgz"):
        list(read(h36m(official)))


def test_an_empty_folder_is_told_all_three_layouts(tmp_path):
    with pytest.raises(InputError, match=r"(?s)D3_Positions_mono.*h36m_train\.npz.*data_3d_h36m\.npz"):
        list(read(h36m(tmp_path)))


# the processed layout


@pytest.fixture
def processed(tmp_path):
    """As mmpose writes it, and the joints of the training file."""
    arrays, joints = layouts.processed_arrays(NAMES, layouts.H36M_17)
    layouts.write_npz(tmp_path / "annotation_body3d/fps50/h36m_train.npz", arrays)
    layouts.write_npz(
        tmp_path / "annotation_body3d/fps50/h36m_test.npz", layouts.processed_arrays(TEST_NAMES, layouts.H36M_17, 1)[0]
    )
    keys = [(f"S{n}", camera) for n in range(1, 12) for camera in layouts.CAMERA_IDS]
    layouts.write_pickle(tmp_path / "annotation_body3d/cameras.pkl", {key: layouts.camera_record() for key in keys})
    for name in NAMES:
        layouts.write_picture(tmp_path / "images" / name)
    return tmp_path, by_frame(joints)


def by_frame(joints, step=5):
    """The writer's rows under the frame numbers of their file names."""
    return {name: dict(zip(range(0, step * len(rows), step), rows, strict=True)) for name, rows in joints.items()}


def test_processed_joints_are_where_their_names_say_and_project_onto_part(processed):
    folder, joints = processed
    samples, left_out = layouts.drain(read(h36m(folder, "h36m-processed")))
    assert left_out == {}
    assert [sample.split for sample in samples].count("test") == 4
    train = [sample for sample in samples if sample.split == "train"]
    for sample in train:
        layouts.assert_true(sample, joints)
    assert (train[1].id, train[1].action, train[1].frame) == ("S1_Walking_1.54138969_000006", "Walking", 5)
    assert train[0].image == f"images/{NAMES[0]}"
    assert train[0].camera.distortion == (*layouts.RADIAL[:2], *layouts.TANGENTIAL, layouts.RADIAL[2])


def test_processed_box_is_the_square_of_200_scale(processed):
    folder, _ = processed
    sample = layouts.drain(read(h36m(folder)))[0][-1]
    x0, y0, x1, y1 = sample.box
    pixels = sample.joints_2d
    assert x1 - x0 == pytest.approx(1.2 * np.ptp(pixels, axis=0).max(), rel=1e-5)
    assert x1 - x0 == pytest.approx(y1 - y0)
    np.testing.assert_allclose([(x0 + x1) / 2, (y0 + y1) / 2], (pixels.min(0) + pixels.max(0)) / 2, rtol=1e-5)


def test_processed_and_official_records_of_a_picture_have_the_same_id(tmp_path):
    layouts.write_human36m(tmp_path, "S1", "Walking 1.54138969", 11, video=False)
    official = {sample.id for sample in layouts.drain(read(h36m(tmp_path, every=5)))[0]}
    arrays, _ = layouts.processed_arrays(NAMES[:3], layouts.H36M_17)
    layouts.write_npz(tmp_path / "annotations/x.npz", arrays)
    assert {sample.id for sample in layouts.drain(read(h36m(tmp_path, "h36m-processed")))[0]} == official


@pytest.mark.parametrize(
    "change",
    [
        {"S": lambda a: a[..., :3].astype(np.float32)},
        {"part": lambda a: a[..., :2]},
        {"scale": lambda a: a[:, None]},
        {"imgname": lambda a: a.astype("S")},
        {"imgname": lambda a: a.astype(object)},
        {"imgname": lambda a: np.array([name.rsplit("/")[-1] for name in a])},
        {"imgname": lambda a: np.array([name.replace("/", "\\") for name in a])},
        {"center": lambda a: None},
        {"vertices": lambda a: np.zeros(3)},
    ],
    ids=["S3", "part2", "scale column", "bytes", "object", "no folders", "backslashes", "no boxes", "more keys"],
)
def test_processed_variants_that_occur_are_read_alike(processed, tmp_path, change):
    folder, joints = processed
    arrays, _ = layouts.processed_arrays(NAMES, layouts.H36M_17)
    for key, edit in change.items():
        arrays[key] = edit(arrays.get(key))
    layouts.write_npz(tmp_path / "x.npz", {key: value for key, value in arrays.items() if value is not None})
    samples, left_out = layouts.drain(read(h36m(folder, annotations=tmp_path / "x.npz")))
    assert left_out == {}
    assert len(samples) == 6
    for sample in samples:
        layouts.assert_true(sample, joints)
        assert sample.box is not None


@pytest.mark.parametrize(
    "key",
    [(1, 54138969), ("S1", 54138969), (b"S1", b"54138969"), ("S1", "54138969")],
    ids=["int", "mix", "bytes", "str"],
)
def test_camera_keys_may_be_written_in_several_ways(processed, tmp_path, key):
    folder, _ = processed
    layouts.write_pickle(tmp_path / "c.pkl", {key: layouts.camera_record(w=None)})
    train = folder / "annotation_body3d/fps50/h36m_train.npz"
    samples, left_out = layouts.drain(read(h36m(folder, annotations=train, cameras=tmp_path / "c.pkl")))
    assert left_out == {}
    assert samples[0].camera.focal == layouts.FOCAL


def test_pictures_may_lie_without_folders(processed, tmp_path):
    folder, _ = processed
    for name in NAMES:
        layouts.write_picture(tmp_path / "flat" / name.rsplit("/")[-1])
    samples, _ = layouts.drain(read(h36m(folder, images=tmp_path / "flat")))
    assert {sample.image for sample in samples if sample.split == "train"} == {n.rsplit("/")[-1] for n in NAMES}


def test_without_pictures_a_record_names_none(processed):
    folder, _ = processed
    shutil.rmtree(folder / "images")
    assert {sample.image for sample in layouts.drain(read(h36m(folder)))[0]} == {None}


def test_without_a_camera_file_the_camera_is_found_from_the_data(processed):
    folder, joints = processed
    (folder / "annotation_body3d/cameras.pkl").unlink()
    train = folder / "annotation_body3d/fps50/h36m_train.npz"
    samples, _ = layouts.drain(read(h36m(folder, annotations=train)))
    layouts.assert_true(samples[0], joints)
    assert samples[0].extra["camera_fit_largest_px"] < 0.5


def test_too_few_points_give_a_record_without_a_camera_and_say_so(processed, tmp_path):
    folder, _ = processed
    (folder / "annotation_body3d/cameras.pkl").unlink()
    layouts.write_npz(tmp_path / "x.npz", layouts.processed_arrays(NAMES[:2], layouts.H36M_17)[0])
    samples, _ = layouts.drain(read(h36m(folder, annotations=tmp_path / "x.npz")))
    assert samples[0].camera is None
    assert "too few" in samples[0].extra["camera"]


def test_joints_outside_the_picture_are_marked(processed):
    folder, _ = processed
    keys = [("S1", "54138969"), ("S9", "55011271")]
    layouts.write_pickle(folder / "annotation_body3d/cameras.pkl", {key: layouts.camera_record(w=400) for key in keys})
    for name in NAMES:
        layouts.write_picture(folder / "images" / name, (400, 1002))
    for sample in layouts.drain(read(h36m(folder)))[0]:
        np.testing.assert_array_equal(sample.visibility == OUT_OF_FRAME, sample.joints_2d[:, 0] >= 400)


def test_prepare_and_read_back_is_the_same(processed, tmp_path):
    folder, joints = processed
    prepare("h36m-processed", tmp_path / "out", src=folder)
    dataset = Dataset(tmp_path / "out")
    assert len(dataset) == 10
    assert set(dataset.column("action")) == {"Walking", "WalkDog"}
    for sample in dataset:
        if sample.split == "train":
            layouts.assert_true(sample, joints)
            assert dataset.read_image(sample).size == (60, 80)
    assert bone_lengths(np.array(dataset.joints_mm), H36M_17).min() > 50


def truncated(arrays, path):
    layouts.write_npz(path, arrays)
    path.write_bytes(path.read_bytes()[:1000])


def flipped_bytes(arrays, path):
    layouts.write_npz(path, arrays)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


def wrong_count(arrays, path):
    layouts.write_npz(path, arrays | {"S": np.zeros((6, 24, 4))})


def fewer_rows(arrays, path):
    layouts.write_npz(path, arrays | {"part": arrays["part"][:5]})


def millimetres(arrays, path):
    layouts.write_npz(path, arrays | {"S": arrays["S"] * 1000})


def world(arrays, path):
    layouts.write_npz(path, arrays | {"S": arrays["S"][..., [2, 0, 1, 3]]})


def no_poses(arrays, path):
    layouts.write_npz(path, {key: value for key, value in arrays.items() if key != "S"})


def empty(arrays, path):
    layouts.write_npz(path, {key: value[:0] for key, value in arrays.items()})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated, "damaged"),
        (flipped_bytes, "damaged"),
        (wrong_count, "17 joints of Human3.6M"),
        (fewer_rows, "'part' has shape"),
        (millimetres, "must be metres"),
        (world, "do not project onto"),
        (no_poses, "no array S"),
        (empty, "has no rows"),
    ],
)
def test_damaged_processed_files_are_listed_and_the_good_one_is_kept(processed, damage, message):
    folder, _ = processed
    damage(layouts.processed_arrays(NAMES, layouts.H36M_17)[0], folder / "annotation_body3d/fps50/h36m_train.npz")
    samples, left_out = layouts.drain(read(h36m(folder)))
    assert {sample.split for sample in samples} == {"test"}
    assert message in "".join(left_out.values())


def test_nan_joints_and_strange_names_are_left_out_one_by_one(processed):
    folder, _ = processed
    names = [NAMES[0], "photo.jpg", *NAMES[2:]]
    arrays, _ = layouts.processed_arrays(names, layouts.H36M_17)
    arrays["S"][3, 6] = np.nan
    layouts.write_npz(folder / "annotation_body3d/fps50/h36m_train.npz", arrays)
    samples, left_out = layouts.drain(read(h36m(folder)))
    assert len(samples) == 4 + 4
    assert "left_ankle" in left_out["S1_Walking_1.54138969_000016"]
    assert "is not a name like" in left_out["photo.jpg"]


def test_a_missing_camera_is_listed_with_its_key(processed):
    folder, _ = processed
    layouts.write_pickle(folder / "annotation_body3d/cameras.pkl", {("S1", "54138969"): layouts.camera_record()})
    samples, left_out = layouts.drain(read(h36m(folder)))
    assert {sample.split for sample in samples} == {"train"}
    assert "no camera S9/55011271" in left_out["h36m_test/S9_WalkDog.55011271"]


@pytest.mark.parametrize(
    "cameras",
    [
        {("S1", "54138969"): layouts.camera_record(f=None)},
        {("S1", "54138969"): layouts.camera_record(c=np.ones(3))},
        [],
    ],
)
def test_a_camera_file_of_another_form_is_refused(processed, cameras):
    folder, _ = processed
    layouts.write_pickle(folder / "annotation_body3d/cameras.pkl", cameras)
    with pytest.raises(InputError, match=r"cameras\.pkl"):
        list(read(h36m(folder)))


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(processed, tmp_path):
    folder, _ = processed
    spy = {("S1", "54138969"): layouts.Spy(tmp_path / "ran")}
    layouts.write_pickle(folder / "annotation_body3d/cameras.pkl", spy)
    with pytest.raises(InputError, match=r"not opened.*mkdir"):
        list(read(h36m(folder)))
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(spy))  # the proof that the trap works
    assert (tmp_path / "ran").exists()


# data_3d_h36m.npz


def write_positions(folder, joints=None, **changes):
    """VideoPose3D's file: metres, z up, the person upright in the hall."""
    joints = layouts.ordered(layouts.people(5), layouts.H36M_32) if joints is None else joints
    world = np.stack([joints[..., 0], joints[..., 2], -joints[..., 1]], -1).astype(np.float32) / 1000
    positions = {"S1": {"Directions 1": world, "Photo": world}, "S9": {"WalkDog": world}} | changes
    np.savez_compressed(folder / "data_3d_h36m.npz", positions_3d=positions)


@pytest.mark.parametrize("order", [layouts.H36M_32, layouts.H36M_17], ids=["32", "17"])
def test_positions_are_turned_rigidly_with_left_and_right_kept(tmp_path, order):
    joints = layouts.people(5)
    write_positions(tmp_path, layouts.ordered(joints, order))
    samples, left_out = layouts.drain(read(h36m(tmp_path, "h36m-npz", seed=3)))
    assert left_out == {}
    assert len(samples) == 15
    assert {(sample.action, sample.split) for sample in samples} == {
        ("Directions", "train"), ("Photo", "train"), ("WalkDog", "test"),
    }  # fmt: skip
    truth = layouts.ordered(joints, layouts.H36M_17)
    truth = truth - truth[:, :1]
    for sample in samples:
        turn = np.array(sample.extra["rotation"]) @ [[1, 0, 0], [0, 0, 1], [0, -1, 0]]
        assert np.linalg.det(turn) == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose(sample.joints_mm @ turn, truth[sample.frame], atol=0.01)
        assert sample.joints_mm[H36M_17.index("head"), 1] < -300  # y is down: the head is above the pelvis


def test_each_layout_is_chosen_by_its_name_and_the_fullest_by_default(processed):
    folder, _ = processed
    for file in (folder / "annotation_body3d/fps50").iterdir():
        file.rename(folder / file.name)
    write_positions(folder)
    counts = {name: len(layouts.drain(read(h36m(folder, name)))[0]) for name in ("h36m", "h36m-processed", "h36m-npz")}
    assert counts == {"h36m": 10, "h36m-processed": 10, "h36m-npz": 15}
    layouts.write_human36m(folder, "S1", CLIP)
    assert len(layouts.drain(read(h36m(folder)))[0]) == 12


def test_positions_depend_on_the_seed_alone(tmp_path):
    write_positions(tmp_path)
    first, again, other = (
        np.stack([sample.joints_mm for sample in layouts.drain(read(h36m(tmp_path, "h36m-npz", seed=seed)))[0]])
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 100


@pytest.mark.parametrize(
    ("poses", "message"),
    [
        (np.zeros((5, 25, 3)), "32 or 17"),
        (np.random.default_rng(0).normal(0, 500, (5, 17, 3)), "not in metres"),
        ("gone", "32 or 17"),
    ],
)
def test_damaged_positions_are_listed(tmp_path, poses, message):
    write_positions(tmp_path, S5={"Eating": poses})
    samples, left_out = layouts.drain(read(h36m(tmp_path)))
    assert len(samples) == 15
    assert message in left_out["S5_Eating"]


def test_positions_that_run_code_are_refused(tmp_path):
    write_positions(tmp_path, S5={"Eating": layouts.Spy(tmp_path / "ran")})
    with pytest.raises(InputError, match="mkdir"):
        list(read(h36m(tmp_path)))
    assert not (tmp_path / "ran").exists()
