"""The first region, from keypoints: of whole bodies, of cut ones, of faces."""

import math

import numpy as np
import pytest

from di2pose.image.region import region_of
from di2pose.pose.skeleton import COCO_17

# A person of 1.75 m facing the camera, 1 px = 1 mm, y down from the crown; x to the viewer's right.
STANDING = {
    "nose": (0, 130), "left_eye": (32, 100), "right_eye": (-32, 100), "left_ear": (75, 110),
    "right_ear": (-75, 110), "left_shoulder": (180, 320), "right_shoulder": (-180, 320), "left_elbow": (240, 600),
    "right_elbow": (-240, 600), "left_wrist": (250, 850), "right_wrist": (-250, 850), "left_hip": (120, 830),
    "right_hip": (-120, 830), "left_knee": (120, 1270), "right_knee": (-120, 1270), "left_ankle": (120, 1670),
    "right_ankle": (-120, 1670),
}  # fmt: skip
BOX = (-300.0, 0.0, 300.0, 1750.0)


def body(*hidden):
    points = np.array([(*STANDING[name], 0.9) for name in COCO_17.joints])
    points[[COCO_17.index(name) for name in COCO_17.joints if any(part in name for part in hidden)], 2] = 0.02
    return points


def test_a_standing_person_is_wholly_inside_with_the_hips_in_the_middle():
    region = region_of(body(), BOX)
    assert region.centre == (0, 830)
    assert region.angle == 0
    assert 2 * 920 * 1.1 < region.side < 2 * 920 * 1.45  # from the hips to the soles, and a margin


def test_the_region_turns_with_the_body():
    points = body()
    points[:, :2] = points[:, 1::-1] * (1, -1)  # lying, head to the left, feet to the right
    region = region_of(points, (0.0, -300.0, 1750.0, 300.0))
    assert region.centre == (830, 0)
    assert abs(region.angle) == pytest.approx(math.pi / 2)


def test_hips_that_are_not_seen_are_where_head_and_shoulders_put_them():
    region = region_of(body("hip", "knee", "ankle", "wrist"), (-300.0, 0.0, 300.0, 650.0))
    assert region.centre[0] == pytest.approx(0, abs=1)
    assert region.centre[1] == pytest.approx(830, abs=60)
    assert region.side == pytest.approx(region_of(body(), BOX).side, rel=0.25)


def test_a_face_alone_tells_where_the_body_would_be():
    face = body("shoulder", "elbow", "wrist", "hip", "knee", "ankle")
    region = region_of(face, (-150.0, 0.0, 150.0, 300.0))
    assert region.centre[1] == pytest.approx(830, abs=80)
    assert region.side == pytest.approx(region_of(body(), BOX).side, rel=0.25)


def test_a_bent_neck_does_not_turn_the_region_and_a_lying_body_does():
    hidden = ("hip", "knee", "ankle")
    bent = body(*hidden)
    bent[:5, 0] += 100
    assert region_of(bent, BOX).angle == 0
    lying = body(*hidden)
    lying[:, :2] = lying[:, 1::-1]
    assert abs(region_of(lying, (0.0, -300.0, 1750.0, 300.0)).angle) == pytest.approx(math.pi / 2, abs=0.1)


def test_unsure_keypoints_and_those_of_somebody_else_give_no_region():
    unsure = body()
    unsure[:, 2] = 0.1
    assert region_of(unsure, BOX) is None
    assert region_of(body(), (5000.0, 0.0, 5600.0, 1750.0)) is None
    assert region_of(body("nose", "eye", "ear", "hip"), BOX) is None
