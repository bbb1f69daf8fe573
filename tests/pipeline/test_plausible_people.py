"""The packaged model on real pictures: bodies, places, states, neighbours and duplicates."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from di2pose import Di2Pose
from di2pose.assets import fetch
from di2pose.errors import InputError
from di2pose.image.crop import assumed_camera
from di2pose.image.detect import Detection, from_boxes
from di2pose.image.region import region_round
from di2pose.pipeline.assemble import Estimate, suppress_duplicates
from di2pose.pipeline.crops import painted
from di2pose.pipeline.second_look import on_neighbour, with_second_looks
from di2pose.pose.bones import adult_range, impossible, stature_mm
from di2pose.pose.skeleton import H36M_17, bone_lengths

FEW = {"hypotheses": 2, "steps": 2}


@pytest.fixture(scope="module")
def model():
    return Di2Pose.from_pretrained()


@pytest.fixture(scope="module")
def astronaut():
    try:
        return Image.open(fetch("astronaut")).convert("RGB")
    except InputError as error:
        pytest.skip(f"the photo cannot be fetched here: {error}")


@pytest.fixture(scope="module")
def frame(footage):
    return footage.read_image(footage[40])


@pytest.fixture(scope="module")
def walker(model, frame):
    return model(frame, max_people=1)


def test_bodies_are_possible_with_bones_of_an_adult_left_and_right_alike(model, walker, footage):
    # Of a second, hardly visible person in this frame a hypothesis had its knees 39 mm apart.
    crowded = model(footage.read_image(footage[84]), hypotheses=4, max_people=2).people
    assert len(crowded) == 2
    left, right = np.array(H36M_17.pairs).T
    column = {child: bone for bone, (child, _) in enumerate(H36M_17.bones)}
    for person in (*walker.people, *crowded):
        lengths = bone_lengths(person.joints_mm, H36M_17)
        low, high = adult_range().T
        assert (lengths >= low - 1e-6).all()
        assert (lengths <= high + 1e-6).all()
        a, b = (lengths[[column[j] for j in side.tolist()]] for side in (left, right))
        np.testing.assert_allclose(a, b, rtol=1e-6)
        assert not impossible(np.concatenate([person.joints_mm[None], person.samples_mm]), lengths).any()
        np.testing.assert_array_equal(person.mean_mm, person.samples_mm.mean(0))
        assert stature_mm(person.mean_mm) < stature_mm(person.joints_mm)


def test_joints_that_are_called_seen_lie_on_the_landmarks(model, frame, walker):
    (person,) = walker.people
    crop = model.crop(frame, model.find(frame, 1)[0], walker.camera)
    encoded = model.encode([crop], second_look=True)
    skeleton, region = encoded.output.skeleton, encoded.crops[0].region
    seen = [j for j in range(17) if person.state[j] == "seen" and H36M_17.joints[j].startswith(("left_", "right_"))]
    assert len(seen) >= 6
    marks = encoded.output.landmarks_2d[0, list(skeleton.indices(*(H36M_17.joints[j] for j in seen)))]
    off = np.linalg.norm(person.joints_2d[seen] - region.to_image(marks), axis=-1) / region.side
    assert np.median(off) < 0.015
    assert off.max() < 0.06


def test_the_root_has_a_deviation_and_most_of_it_is_along_the_view(walker, model, frame):
    (person,) = walker.people
    assert person.root_std_mm.shape == (3,)
    assert person.root_std_mm[2] > 2 * person.root_std_mm[:2].max()
    known = model(frame, max_people=1, camera=walker.camera, height_m=1.8).people[0]
    assert known.root_std_mm[2] < 0.5 * person.root_std_mm[2]


def test_a_pinned_joint_is_returned_at_its_pin(model, frame, walker):
    (person,) = walker.people
    wrist = H36M_17.index("left_wrist")
    pin = person.joints_mm[wrist] + (0.0, -60.0, -80.0)
    (held,) = model(frame, max_people=1, pin={"left_wrist": pin}, **FEW).people
    np.testing.assert_allclose(held["left_wrist"].xyz_mm, pin)
    assert held["left_wrist"].state == "pinned"
    assert held["left_wrist"].r90_mm < 1
    assert not held.guessed[wrist]
    assert np.isfinite(held.joints_mm).all()
    lengths = bone_lengths(held.joints_mm, H36M_17)
    assert (np.abs(lengths / bone_lengths(person.joints_mm, H36M_17) - 1) < 0.2).all()


def test_a_portrait_does_not_come_out_near_and_says_what_it_assumed(model, astronaut):
    astronaut = astronaut.crop((130, 0, 330, 250)).resize((400, 500))  # head and shoulders
    result = model(astronaut)
    (person,) = result.people
    assert person.root_mm[2] >= 1100
    assert "assumed" in result.camera_source
    assert "close" in result.camera_source
    assert result.camera.focal[0] > 500 / 2 / np.tan(np.radians(30))
    np.testing.assert_allclose(result.camera.project(person.joints_mm + person.root_mm), person.joints_2d, atol=1e-6)
    given_fov = model(astronaut, field_of_view=60.0, **FEW)
    assert given_fov.people[0].root_mm[2] < 1100
    assert "given" in given_fov.camera_source


class _Fixed:
    """A detector with fixed detections."""

    def __init__(self, *detections):
        self.detections = detections

    def detect(self, image, max_people=8):
        return list(self.detections)[:max_people]


WALL = region_round(np.array([900.0, 300.0]), 150.0, 0.0)


def test_a_low_score_is_dropped_unless_the_user_gave_the_box(model, frame):
    person = model.find(frame, 1)[0]
    wall = Detection((750.0, 150.0, 1050.0, 450.0), 0.9, WALL)
    (kept,) = model(frame, detector=_Fixed(wall, person)).people
    assert kept.box == person.box
    assert kept.score > model.least_score > 0
    assert not model(frame, detector=_Fixed(wall, person), min_score=(1 + kept.score) / 2).people
    (drawn,) = model(frame, boxes=[wall.box], **FEW).people
    assert drawn.score == 1.0


def test_a_dropped_detection_changes_neither_lens_nor_count_nor_pins(model, frame, walker):
    person = model.find(frame, 1)[0]
    wall = Detection((0.0, 0.0, 1080.0, 1900.0), 0.9, WALL)
    both = _Fixed(wall, person)
    result = model(frame, detector=both, max_people=1)
    (kept,) = result.people
    assert kept.box == person.box
    assert result.camera == model(frame, detector=_Fixed(person)).camera
    wrist = walker.people[0]["left_wrist"].xyz_mm
    (held,) = model(frame, detector=both, pin={"left_wrist": wrist}).people
    np.testing.assert_allclose(held["left_wrist"].xyz_mm, wrist)


def test_a_joint_of_large_spread_is_not_seen(model, frame, walker):
    crop = model.crop(frame, model.find(frame, 1)[0], walker.camera)
    encoded = model.encode([crop])
    (person,) = walker.people
    samples = np.repeat(person.mean_mm[None], 8, 0)
    samples[:, H36M_17.index("left_wrist")] += np.linspace(-300, 300, 8)[:, None] * (1.0, 0.0, 0.0)
    all_seen = np.tile([1.0, 0.0, 0.0, 0.0], (1, 17, 1))
    (found,) = model.place(encoded, Estimate(samples[None], all_seen, None))
    assert found["left_wrist"].state == "occluded"
    assert found["right_knee"].state == "seen"


def test_a_cut_box_does_not_decide_the_distance(model, frame):
    result = model(frame, max_people=1, field_of_view=60.0)
    whole = result.people[0]
    low = int(whole.joints_2d[[H36M_17.index("left_hip"), H36M_17.index("right_hip")], 1].mean())
    half = frame.crop((0, 0, frame.width, low))
    camera = replace(result.camera, size=half.size)
    x0, y0, x1, _ = whole.box
    (cut,) = model(half, boxes=[(x0, y0, x1, float(low))], camera=camera).people
    assert cut.root_mm[2] == pytest.approx(whole.root_mm[2], rel=0.5)
    assert from_boxes([cut.box])[0].box == cut.box


@pytest.fixture(scope="module")
def trio(frame, walker):
    """The man three times, shoulder to shoulder."""
    x0, _, x1, _ = (int(value) for value in walker.people[0].box)
    strip = frame.crop((x0 - 10, 0, x1 + 10, frame.height))
    group = Image.new("RGB", (3 * strip.width, strip.height))
    for place in range(3):
        group.paste(strip, (place * strip.width, 0))
    return group, strip.width


def test_everybody_in_a_group_gets_a_pose_of_their_own(model, trio):
    group, width = trio
    people = model(group).people
    hips = list(H36M_17.indices("left_hip", "right_hip", "left_shoulder", "right_shoulder"))
    middles = sorted(float(person.joints_2d[hips, 0].mean()) for person in people)
    assert len(people) == 3
    assert [int(x // width) for x in middles] == [0, 1, 2]


def test_a_crop_on_a_neighbour_is_found_and_the_neighbour_painted_over(model, trio):
    group, _ = trio
    found = sorted(model.find(group), key=lambda each: each.box[0])
    boxes = [each.box for each in found]
    camera = assumed_camera(group.size)
    middle = replace(model.crop(group, found[1], camera), others=(boxes[0], boxes[2]))
    at_neighbour = middle.at(model.encoder.region(found[2]))
    wrong, right = model.encode([at_neighbour]), model.encode([middle])
    assert on_neighbour(wrong, model.encoder).tolist() == [True]
    assert on_neighbour(right, model.encoder).tolist() == [False]
    again = with_second_looks(wrong, model.encoder, model.numpy_model)
    assert on_neighbour(again, model.encoder).tolist() == [False]
    alone = replace(middle, alone=True)
    pixels = np.asarray(painted(group, alone.covers))
    assert (pixels == 127).all(-1).mean() > 0.2
    x0, y0, x1, y1 = (int(value) for value in boxes[1])
    own = np.s_[y0 + 2 : y1 - 2, x0 + 2 : x1 - 2]
    np.testing.assert_array_equal(pixels[own], np.asarray(group)[own])


def test_two_poses_in_one_place_are_one_person(walker):
    (person,) = walker.people
    beside = replace(person, box=tuple(float(x + 400) for x in person.box))
    aside = replace(person, joints_2d=person.joints_2d + 300, box=tuple(float(x + 300) for x in person.box))
    assert suppress_duplicates([beside, person, aside]) == [person, aside]
