"""2D keypoints without pictures: people, motions and files of them."""

import json

import numpy as np
import pytest
from output.people import standing

from di2pose import Di2Pose, Motion, Result
from di2pose.cli import main
from di2pose.commands.writing import endings
from di2pose.data.lift import face_points
from di2pose.errors import InputError
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import COCO_17, H36M_17
from di2pose.video.lift import lift_video

SIZE = (1920, 1080)
CAMERA = Camera((1600.0, 1600.0), (960.0, 540.0), size=SIZE)
KNEE = H36M_17.index("left_knee")


def seen(body_mm, x_mm=0.0, score=1.0):
    """COCO keypoints (17, 3) of a body 4 m away, as the camera sees it."""
    limbs = body_mm[list(H36M_17.indices(*COCO_17.joints[5:]))]
    face = face_points(body_mm[None], np.random.default_rng(0))[0]
    points_mm = np.concatenate([face, limbs]) + np.array([x_mm, 0, 4000])
    return np.column_stack([CAMERA.project(points_mm), np.full(17, score)])


@pytest.fixture(scope="module")
def model():
    return Di2Pose.from_pretrained("lift")


def test_keypoints_alone_give_a_person_with_states_and_spread(model):
    body = standing()
    result = model(keypoints=seen(body), size=SIZE, camera=CAMERA)
    assert isinstance(result, Result)
    assert (result.size, result.picture, result.image) == (SIZE, None, None)
    (person,) = result.people
    assert np.linalg.norm(person.joints_mm[:17] - body, axis=1).mean() < 100  # of a stick figure with wide hips
    assert person.samples_mm.shape == (8, 21, 3)
    marks = seen(body)[5:, :2]
    found = person.joints_2d[list(person.skeleton.indices(*COCO_17.joints[5:]))]
    assert np.linalg.norm(found - marks, axis=1).max() < 40
    again = model(keypoints=seen(body)[None], size=SIZE, camera=CAMERA).people[0]
    np.testing.assert_array_equal(again.joints_mm, person.joints_mm)


def test_missing_keypoints_are_guessed_with_a_larger_radius(model):
    whole, cut = seen(standing()), seen(standing())
    legs = list(COCO_17.indices("left_knee", "right_knee", "left_ankle", "right_ankle"))
    cut[legs] = np.nan
    first, second = (each.people[0] for each in model(keypoints=[whole[None], cut[None]], size=SIZE, camera=CAMERA))
    assert second["left_ankle"].r90_mm > 1.5 * first["left_ankle"].r90_mm
    assert second["left_ankle"].state != "visible" == first["left_ankle"].state
    assert second["nose"].state == "visible"


def test_a_list_is_of_pictures_and_one_without_people_has_none(model):
    both = np.stack([seen(standing(), -800), seen(standing(), 800)])
    results = model(keypoints=[both, np.zeros((0, 17, 3)), both[:1]], size=SIZE, camera=CAMERA, hypotheses=2)
    assert [len(each.people) for each in results] == [2, 0, 1]
    left, right = results[0].people
    assert left.root_mm[0] < -500 < 500 < right.root_mm[0]


def test_what_is_missing_is_said(model):
    with pytest.raises(InputError, match=r"give keypoints=.* and size="):
        model(keypoints=seen(standing()))
    with pytest.raises(InputError, match=r"size must be the picture's \(width, height\)"):
        model(keypoints=seen(standing()), size="1920")
    with pytest.raises(InputError, match="this model sees 2D keypoints alone"):
        model(np.zeros((64, 64, 3), np.uint8))
    with pytest.raises(InputError, match="no keypoint of person 0 lies in the picture of 640x480"):
        model(keypoints=seen(standing(), 9000), size=(640, 480))
    with pytest.raises(InputError, match="looks at pictures"):
        lift_video(Di2Pose.from_pretrained(), [seen(standing())], 30, SIZE)
    with pytest.raises(InputError, match="fps must be from 1 to 1000"):
        lift_video(model, [seen(standing())], 0, SIZE)
    with pytest.raises(InputError, match="0% of the keypoints lie in pictures of 90x50 pixels"):
        lift_video(model, [seen(standing()), np.zeros((0, 17, 3))], 30, (90, 50))


def test_people_keep_their_numbers_whatever_their_order_and_a_still_body_stays_still(model):
    frames = []
    for k in range(12):
        pair = [seen(standing(), -900 + 10 * k), seen(standing(), 900)]
        frames.append(np.stack(pair if k % 2 else pair[::-1]))
    stray = np.where(np.arange(17)[:, None] < 2, seen(standing()), np.nan)  # two keypoints are nobody
    frames[5] = np.concatenate([frames[5], stray[None]])
    motion = lift_video(model, frames, 24, SIZE, camera=CAMERA, hypotheses=4)
    assert len(motion) == 12
    assert len(motion.tracks) == 2
    for number in motion.tracks:
        track = motion.track(number)
        assert None not in track
        sides = {bool(person.root_mm[0] > 0) for person in track}
        assert len(sides) == 1
        steps = np.linalg.norm(np.diff([person.joints_mm[KNEE] for person in track], axis=0), axis=-1)
        assert steps.max() < 40  # frames are drawn apart


def test_the_command_writes_files_of_folders_and_files(model, tmp_path, capsys):
    folder, out = tmp_path / "walk", tmp_path / "out"
    folder.mkdir()
    for k in (2, 10, 1):
        people = [{"pose_keypoints_2d": seen(standing(), 20.0 * k).ravel().tolist()}]
        (folder / f"walk_{k}_keypoints.json").write_text(json.dumps({"people": people}))
    np.savez(tmp_path / "photos.npz", keypoints=np.stack([seen(standing())[None]] * 2), names=["a.jpg", "b.jpg"])
    (tmp_path / "broken.json").write_text("{")
    formats = ",".join(kind for kind in endings() if kind not in ("overlay", "png"))
    flags = ["--size", "1920x1080", "-o", str(out), "--hypotheses", "2", "--fov", "62"]
    assert main(["lift", str(folder), *flags, "--format", formats, "--fps", "25"]) == 0
    assert {path.name for path in out.iterdir()} == {f"walk{endings()[kind]}" for kind in formats.split(",")}
    motion = Motion.load(out / "walk.json")
    assert (len(motion), motion.fps) == (3, 25)
    assert f"3 frames, 1 person · {motion.floor_note}" in capsys.readouterr().out
    level = ["--up", "floor", "--no-hold-feet", "--format", "trc,json", "-o", str(tmp_path / "level")]
    assert main(["lift", str(folder), *flags[:2], *flags[4:], *level, "--fps", "25"]) == 0
    loose = Motion.load(tmp_path / "level" / "walk.json")
    last = (tmp_path / "level" / "walk.trc").read_text().splitlines()[-1].split("\t")[2:]
    person = loose.track(0)[2]
    heights = loose.floor.height_mm(person.joints_mm + person.root_mm)
    np.testing.assert_allclose(np.array(last[1::3], float), heights, atol=0.1)
    assert np.abs(loose.track(0)[1].root_mm - motion.track(0)[1].root_mm).max() > 0.1  # the held one is smoother
    places = [motion.track(0)[k].root_mm[0] for k in range(3)]
    assert places == sorted(places)  # by frame number, not by name
    coco = [{"image_id": k, "keypoints": seen(standing()).ravel().tolist()} for k in (7, 8, 9, 12)]
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    assert main(["lift", str(tmp_path / "coco.json"), *flags, "--format", "json"]) == 0
    assert "6 frames, 1 person, 2 frames that coco.json leaves out are empty" in capsys.readouterr().out
    assert [len(each.people) for each in Motion.load(out / "coco.json")] == [1, 1, 1, 0, 0, 1]
    several = [{**each, "image_id": f"{each['image_id']}/x.jpg"} for each in coco]
    paths = [tmp_path / "a" / "x.json", tmp_path / "b" / "X.json", tmp_path / "x-1.json"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(several[:2]))
    one = ["--format", "npz", "--photos", "-o", str(tmp_path / "names")]
    assert main(["lift", *map(str, paths), *flags[:2], *flags[4:], *one]) == 0
    names = {"x-x.npz", "x-x-1.npz", "X-1-x.npz", "X-1-x-1.npz", "x-1-1-x.npz", "x-1-1-x-1.npz"}
    assert {path.name for path in (tmp_path / "names").iterdir()} == names
    part = ["--format", "json", "--fps", "25", "--start", "0.04", "--end", "0.08", "--person", "largest"]
    assert main(["lift", str(folder), *flags, *part]) == 0
    assert [(each.frame_index, each.time_s) for each in Motion.load(out / "walk.json")] == [(1, 0.04)]
    assert main(["lift", str(folder), *flags, "--fps", "25", "--start", "0.12"]) == 2
    assert main(["lift", str(folder), *flags, "--person", "5"]) == 2
    problems = capsys.readouterr().err
    assert "the start at 0.12 s is after the end: the motion lasts 0.12 s" in problems
    assert "no person 5 in the video; there are 0" in problems
    assert main(["lift", str(tmp_path / "photos.npz"), str(tmp_path / "broken.json"), *flags, "--photos",
                 "--format", "json"]) == 1  # fmt: skip
    assert Result.load(out / "photos-a.json").people[0].skeleton.count == 21
    captured = capsys.readouterr()
    assert "broken.json" in captured.err
    assert main(["lift", str(folder), "--size", "wide", "-o", str(out)]) == 2
    assert "--size must be the pictures' width and height" in capsys.readouterr().err
    assert main(["lift", str(folder), *flags, "--format", "overlay"]) == 2
    assert "di2pose predict --keypoints" in capsys.readouterr().err
