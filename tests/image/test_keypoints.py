"""Keypoints of other programs: a file of each tool's own shape, arrays, and what is wrong with them."""

import json

import numpy as np
import pytest

from di2pose.errors import InputError
from di2pose.image.keypoints import PictureKeypoints, filled_frames, parse_keypoints, read_keypoints
from di2pose.pose.skeleton import BODY_25, COCO_17, COCO_18, HALPE_26, MPII_16, SKELETONS

RNG = np.random.default_rng(0)
PLACES = {name: RNG.uniform(10, 500, 2).round(1) for tree in SKELETONS.values() for name in tree.joints}
"""A point in the picture for every joint name."""


def person(skeleton, shift=0.0, score=0.8):
    points = np.array([PLACES[name] + shift for name in skeleton.joints])
    return np.concatenate([points, np.full((skeleton.count, 1), score)], axis=1)


def expected(skeleton, shift=0.0, score=0.8):
    """What is read of `person`: COCO's joints that the skeleton has."""
    found = person(COCO_17, shift, score)
    found[[name not in skeleton.joints for name in COCO_17.joints]] = (np.nan, np.nan, 0)
    return found


def write(path, content):
    path.write_text(json.dumps(content))
    return path


def openpose(*people):
    entries = [{"person_id": [-1], "pose_keypoints_2d": each.ravel().tolist()} for each in people]
    return {"version": 1.3, "people": entries}


def mmpose(each):
    return {
        "keypoints": each[:, :2].tolist(), "keypoint_scores": each[:, 2].tolist(),
        "bbox": [[0, 0, 9, 9]], "bbox_score": 0.9,
    }  # fmt: skip


def coco(image, each, **more):
    return {"image_id": image, "category_id": 1, "keypoints": each.ravel().tolist(), "score": 0.9, **more}


A, B = person(COCO_17), person(COCO_17, 7.0)
VIDEO = [{"frame_id": 0, "instances": [mmpose(A), mmpose(B)]}, {"frame_id": 1, "instances": [mmpose(B)]}]
TWO_PICTURES = {
    "coco-results": [coco(4, A), coco(4, B), coco(9, B)],
    "alphapose": [coco("4.jpg", A, box=[0, 0, 9, 9], idx=1), coco("4.jpg", B, idx=2), coco("9.jpg", B, idx=1)],
    "mmpose-video": VIDEO,
    "mmpose-demo": {"meta_info": {"dataset_name": "coco"}, "instance_info": VIDEO},
    "rtmlib": [
        {"keypoints": [A[:, :2].tolist(), B[:, :2].tolist()], "scores": [A[:, 2].tolist(), B[:, 2].tolist()]},
        {"keypoints": [B[:, :2].tolist()], "scores": [B[:, 2].tolist()]},
    ],
}


@pytest.mark.parametrize("tool", TWO_PICTURES)
def test_a_file_of_several_pictures(tmp_path, tool):
    first, second = read_keypoints(write(tmp_path / "poses.json", TWO_PICTURES[tool]))
    np.testing.assert_allclose(first.people, [A, B])
    np.testing.assert_allclose(second.people, [B])
    if tool == "alphapose":
        assert (first.name, second.name) == ("4.jpg", "9.jpg")


@pytest.mark.parametrize("skeleton", [COCO_17, COCO_18, BODY_25, HALPE_26, MPII_16], ids=lambda each: each.name)
def test_openpose_files_are_read_by_their_number_of_joints(tmp_path, skeleton):
    people = [person(skeleton), person(skeleton, 7.0)]
    (found,) = read_keypoints(write(tmp_path / "a_000000000012_keypoints.json", openpose(*people)))
    assert found.name == "a_000000000012"
    np.testing.assert_allclose(found.people, [expected(skeleton), expected(skeleton, 7.0)])


def test_a_folder_of_frames_in_the_order_of_their_numbers(tmp_path):
    """As Pose2Sim and Sports2D write them."""
    for number in (0, 2, 10):
        write(tmp_path / f"walk_{number}.json", openpose(*[person(HALPE_26, number)] * (number > 0)))
    found = read_keypoints(tmp_path)
    assert [each.name for each in found] == ["walk_0", "walk_2", "walk_10"]
    assert [len(each.people) for each in found] == [0, 1, 1]
    np.testing.assert_allclose(found[2].people[0], expected(HALPE_26, 10))


def test_coco_annotations_have_names_and_unlabelled_joints(tmp_path):
    labelled = A.copy()
    labelled[:, 2], labelled[3] = 2, 0
    content = {"images": [{"id": 4, "file_name": "b.jpg"}], "annotations": [coco(4, labelled)]}
    (found,) = read_keypoints(write(tmp_path / "labels.json", content))
    assert found.name == "b.jpg"
    assert np.isnan(found.people[0, 3, :2]).all()
    np.testing.assert_array_equal(found.people[0, :, 2], [1, 1, 1, 0, *[1] * 13])


def test_numpy_files(tmp_path):
    both = np.stack([np.stack([A, B]), np.stack([B, np.full_like(B, np.nan)])])
    np.save(tmp_path / "all.npy", both)
    np.savez(tmp_path / "all.npz", keypoints=both[..., :2], scores=both[..., 2], names=["x.jpg", "y.jpg"])
    for name in ("all.npy", "all.npz"):
        first, second = read_keypoints(tmp_path / name)
        np.testing.assert_allclose(first.people, [A, B])
        np.testing.assert_allclose(second.people, [B])
    assert second.name == "y.jpg"
    np.save(tmp_path / "one.npy", A)
    np.testing.assert_allclose(read_keypoints(tmp_path / "one.npy")[0].people, [A])


def test_frames_that_a_file_of_people_leaves_out_are_empty():
    def filled(*names):
        found = filled_frames([PictureKeypoints(name, A[None]) for name in names])
        return [each.name for each in found if len(each.people) or each.name is None]

    assert filled("3", "5", "2", "7", "4") == ["2", "3", "4", "5", None, "7"]
    assert filled("a_1.jpg", "a_2.jpg", "a_3.jpg", "a_5.jpg") == ["a_1.jpg", "a_2.jpg", "a_3.jpg", None, "a_5.jpg"]
    for names in (["0", "5"], ["a1", "b2", "b3"], ["x", "x"], [None], ["1"], ["1", "2", "3", "99999"]):
        assert filled(*names) == names


def test_a_result_of_this_program(tmp_path):
    joints = {name: {"uv_px": [None, None], "state": "unknown"} for name in COCO_17.joints}
    joints["nose"] = {"uv_px": [4.0, 5.0], "state": "visible"}
    joints["left_hip"] = {"uv_px": [1, 9], "state": "out_of_frame"}
    tree = {"name": "coco_17", "joints": COCO_17.joints, "parents": COCO_17.parents}
    frames = [{"image": "a/x.jpg", "people": [{"joints": joints}]}, {"image": None, "people": []}]
    content = {"format": "di2pose.result", "skeleton": tree, "frames": frames}
    first, second = read_keypoints(write(tmp_path / "own.json", content))
    assert (first.name, len(second.people)) == ("x.jpg", 0)
    assert np.flatnonzero(first.people[0, :, 2]).tolist() == [COCO_17.index("nose")]
    np.testing.assert_array_equal(first.people[0, 0], [4, 5, 1])


def test_h36m_is_named_since_its_joints_are_as_many_as_cocos(tmp_path):
    tree = SKELETONS["h36m_17"]
    np.save(tmp_path / "h.npy", person(tree)[None])
    (found,) = read_keypoints(tmp_path / "h.npy", "h36m-17")
    wanted = expected(tree)
    wanted[COCO_17.index("nose")] = (np.nan, np.nan, 0)  # H36M's nose is the base of the skull
    np.testing.assert_allclose(found.people[0], wanted)


def test_arrays():
    np.testing.assert_allclose(parse_keypoints(A), [A])
    np.testing.assert_array_equal(parse_keypoints(A[None, :, :2])[0, :, 2], 1)
    holes = A.copy()
    holes[2], holes[4, 0], holes[5, 2], holes[6, 2] = 0, np.nan, np.nan, 3.0
    found = parse_keypoints([holes])[0]
    assert np.flatnonzero(found[:, 2] == 0).tolist() == [2, 4, 5]
    assert np.isnan(found[[2, 4, 5], :2]).all()
    assert found[6, 2] == 1
    assert parse_keypoints(np.zeros((0, 17, 3))).shape == (0, 17, 3)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.zeros((2, 16, 3)), "17 joints, got 16"),
        (np.zeros((2, 17, 4)), r"\(people, joints, 3\)"),
        (np.full((1, 17, 3), 1e9), "person 0, nose: .* are no pixels"),
        ([["a"] * 3] * 17, "must be numbers"),
        (np.random.default_rng(0).random((2, 17, 3)), "must be pixels, these are shares"),
    ],
)
def test_arrays_that_are_none(values, says):
    with pytest.raises(InputError, match=says):
        parse_keypoints(values)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"no": 1}, "expected OpenPose"),
        (openpose(np.ones((21, 3))), "people of 21 joints"),
        ({"people": [{"pose_keypoints_2d": [1.0] * 7}]}, "damaged"),
        ([{"image_id": 1, "keypoints": "abc"}], "damaged"),
        (3, "expected OpenPose"),
    ],
)
def test_files_that_are_none(tmp_path, content, says):
    with pytest.raises(InputError, match=says) as error:
        read_keypoints(write(tmp_path / "bad.json", content))
    assert "bad.json" in str(error.value)


def test_damaged_and_missing_files(tmp_path):
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04")
    (tmp_path / "cut.json").write_text('{"people": [')
    (tmp_path / "empty").mkdir()
    for name in ("cut.npz", "cut.json", "none.json", "empty"):
        with pytest.raises(InputError, match=name):
            read_keypoints(tmp_path / name)
