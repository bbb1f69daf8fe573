"""One person, one detection."""

import numpy as np

from di2pose.image.merge import Candidate, add_new, covered, distinct_poses, merge, same_person
from di2pose.pose.skeleton import COCO_17

BODY = (100.0, 100.0, 200.0, 400.0)


def pose(box, strength=2.0, head=None, sure=0.9):
    """Somebody standing in a box; the head's middle in its upper eighth, or where it is said to be."""
    x0, y0, x1, y1 = box
    points = np.zeros((17, 3))
    points[:, 0] = np.linspace(x0, x1, 17)
    points[:, 1] = np.linspace(y0 + (y1 - y0) / 4, y1, 17)
    points[:, 2] = sure
    face = list(COCO_17.indices("nose", "left_eye", "right_eye", "left_ear", "right_ear"))
    points[face, :2] = head or ((x0 + x1) / 2, y0 + (y1 - y0) / 8)
    return Candidate(box, strength, points)


def boxes_of(people):
    return [person.box for person in people]


def test_a_box_and_a_pose_of_one_person_are_merged_and_their_strengths_added():
    box = Candidate((105.0, 95.0, 205.0, 410.0), 1.5)
    (person,) = merge([pose(BODY)], [box])
    assert person.box == box.box
    assert person.strength == 3.5
    assert person.keypoints is not None


def test_a_half_body_box_in_a_body_is_the_same_person():
    half, legs = (100.0, 100.0, 200.0, 230.0), (110.0, 250.0, 190.0, 390.0)
    assert boxes_of(merge([pose(BODY)], [Candidate(half, 1.5)])) == [BODY]
    assert boxes_of(merge([pose(BODY)], [Candidate(legs, 1.5)])) == [BODY]
    assert boxes_of(merge([], [Candidate(BODY, 2.0), Candidate(half, 1.5)])) == [BODY]


def test_a_child_before_its_father_is_another_person():
    child = (120.0, 250.0, 180.0, 400.0)
    assert len(merge([pose(BODY), pose(child)], [Candidate(BODY, 2.0), Candidate(child, 1.5)])) == 2
    assert len(merge([], [Candidate(BODY, 2.0), Candidate(child, 1.5)])) == 2


def test_people_side_by_side_stay_apart_though_their_boxes_overlap():
    neighbour = (140.0, 100.0, 240.0, 400.0)
    people = merge([pose(BODY), pose(neighbour)], [Candidate(BODY, 2.0), Candidate(neighbour, 1.8)])
    assert sorted(boxes_of(people)) == [BODY, neighbour]
    assert all(person.keypoints is not None for person in people)


def test_a_box_across_two_people_with_heads_of_their_own_is_nobody():
    neighbour, across = (180.0, 100.0, 280.0, 400.0), (145.0, 110.0, 235.0, 395.0)
    assert covered(across, [pose(BODY), pose(neighbour)]) == 1
    assert len(merge([pose(BODY), pose(neighbour)], [Candidate(across, 1.2)])) == 2


def test_somebody_between_two_who_cover_them_is_found():
    left = pose((100.0, 110.0, 240.0, 400.0), head=(130.0, 140.0))
    right = pose((200.0, 110.0, 340.0, 400.0), head=(310.0, 140.0))
    between, low = Candidate((160.0, 100.0, 280.0, 400.0), 1.1), Candidate((160.0, 180.0, 280.0, 400.0), 1.1)
    assert covered(between.box, [left, right]) > 0.9
    assert len(merge([left, right], [between])) == 3
    assert len(merge([left, right], [low])) == 2


def test_legs_that_a_tile_shows_are_not_somebody_new():
    legs, other = Candidate((110.0, 260.0, 190.0, 395.0), 2.0), Candidate((400.0, 260.0, 480.0, 395.0), 1.5)
    assert boxes_of(add_new([pose(BODY)], [other, legs])) == [BODY, other.box]


def test_the_box_round_a_close_up_is_that_of_the_face_in_its_middle():
    face, whole = (180.0, 120.0, 330.0, 320.0), (0.0, 0.0, 500.0, 500.0)
    (person,) = merge([pose(face, head=(250.0, 250.0))], [Candidate(whole, 1.5)])
    assert person.box == whole


def test_poses_made_of_anothers_keypoints_are_left_out():
    twin = pose((95.0, 100.0, 205.0, 400.0), 1.0)
    shifted = pose((300.0, 100.0, 400.0, 400.0), 1.0)
    assert boxes_of(distinct_poses([twin, pose(BODY), shifted])) == [BODY, shifted.box]


def test_two_looks_at_one_person_are_one_by_the_head_and_two_who_hug_are_two():
    head = (150.0, 130.0)
    other = pose((95.0, 100.0, 215.0, 330.0), 1.0, head=(155.0, 133.0))
    assert boxes_of(distinct_poses([other, pose(BODY, head=head)])) == [BODY]
    hugging = pose((120.0, 100.0, 230.0, 400.0), 1.0, head=(185.0, 130.0))
    assert boxes_of(distinct_poses([hugging, pose(BODY, head=head)])) == [BODY, hugging.box]


def test_apart_is_apart():
    assert not same_person(Candidate((0.0, 0.0, 50.0, 100.0), 1.0), pose(BODY))
