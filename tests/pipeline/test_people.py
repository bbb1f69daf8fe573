"""The packaged model on real pictures: bodies, places, states, second looks, neighbours, keypoints of the user."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from di2pose import Di2Pose
from di2pose.assets import fetch
from di2pose.data.demo_footage import walker
from di2pose.errors import InputError
from di2pose.image.crop import assumed_camera
from di2pose.image.detect import Detection
from di2pose.image.movenet import keypoints_of
from di2pose.image.read import read_image
from di2pose.image.region import region_round
from di2pose.noise import hypothesis_generators
from di2pose.pipeline.assemble import Estimate, fit_people, suppress_duplicates
from di2pose.pipeline.crops import EncodedCrops, encode_mirrored, painted
from di2pose.pipeline.given import detections_of
from di2pose.pipeline.observations import observe
from di2pose.pipeline.second_look import needs_second_look, on_neighbour, with_second_looks
from di2pose.pose.bones import adult_range, impossible, stature_mm
from di2pose.pose.skeleton import COCO_17, H36M_17, H36M_21, bone_lengths

FEW = {"hypotheses": 2, "steps": 2, "second_look": False}


class Fixed:
    """A detector with fixed detections."""

    def __init__(self, *detections):
        self.detections = detections

    def detect(self, image, max_people=8):
        return list(self.detections)[:max_people]


@pytest.fixture(scope="module")
def model():
    return Di2Pose.from_pretrained()


@pytest.fixture(scope="module")
def photo():
    return walker()


@pytest.fixture(scope="module")
def found(model, photo):
    """The detection of the one person in the photo."""
    (person,) = model.find(photo)
    return person


@pytest.fixture(scope="module")
def walked(model, photo, found):
    return model(photo, detector=Fixed(found), hypotheses=4)


@pytest.fixture(scope="module")
def crop(model, photo, found):
    return model.crop(photo, found, assumed_camera(photo.size))


@pytest.fixture(scope="module")
def both(model, crop):
    """The crop and its mirror image, encoded."""
    return model.encode([crop], flip_test=True)


def test_bodies_are_possible_with_bones_of_an_adult_left_and_right_alike(walked):
    (person,) = walked.people
    lengths = bone_lengths(person.joints_mm, H36M_21)
    low, high = adult_range(H36M_21).T
    assert ((lengths >= low - 1e-6) & (lengths <= high + 1e-6)).all()
    column = {child: bone for bone, (child, _) in enumerate(H36M_21.bones)}
    a, b = (lengths[[column[j] for j in side]] for side in zip(*H36M_21.pairs, strict=True))
    np.testing.assert_allclose(a, b, rtol=1e-6)
    assert not impossible(np.concatenate([person.joints_mm[None], person.samples_mm]), lengths, H36M_21).any()
    assert stature_mm(person.mean_mm, H36M_21) < stature_mm(person.joints_mm, H36M_21)


def test_joints_that_are_called_seen_lie_on_the_landmarks(both, walked):
    (person,) = walked.people
    skeleton, region = both.output.skeleton, both.crops[0].region
    seen = [j for j in range(17) if person.state[j] == "visible" and H36M_17.joints[j].startswith(("left_", "right_"))]
    assert len(seen) >= 6
    marks = both.output.landmarks_2d[0, list(skeleton.indices(*(H36M_17.joints[j] for j in seen)))]
    off = np.linalg.norm(person.joints_2d[seen] - region.to_image(marks), axis=-1) / region.side
    assert np.median(off) < 0.015
    assert off.max() < 0.06


def test_the_root_has_a_deviation_and_most_of_it_is_along_the_view(walked, model, photo, found):
    (person,) = walked.people
    assert person.root_std_mm[2] > 2 * person.root_std_mm[:2].max()
    (known,) = model(photo, detector=Fixed(found), camera=walked.camera, height_m=1.8, **FEW).people
    assert known.root_std_mm[2] < 0.5 * person.root_std_mm[2]


def test_a_pinned_joint_is_returned_at_its_pin(model, photo, found, walked):
    (person,) = walked.people
    pin = person["left_wrist"].xyz_mm + np.array([0.0, -60.0, -80.0])
    (held,) = model(photo, detector=Fixed(found), pin={"left_wrist": pin}, **FEW).people
    np.testing.assert_allclose(held["left_wrist"].xyz_mm, pin)
    assert held["left_wrist"].state == "pinned"
    assert held["left_wrist"].r90_mm < 1
    lengths = bone_lengths(held.joints_mm, H36M_21)
    assert (np.abs(lengths / bone_lengths(person.joints_mm, H36M_21) - 1) < 0.2).all()


def test_a_portrait_does_not_come_out_near_and_says_what_it_assumed(model):
    portrait = read_image(fetch("astronaut")).crop((130, 0, 330, 250)).resize((400, 500))  # head and shoulders
    result = model(portrait, hypotheses=8)
    (person,) = result.people
    assert person.root_mm[2] >= 1100
    assert result.camera_source.startswith("assumed")
    assert "close" in result.camera_source
    np.testing.assert_allclose(result.camera.project(person.joints_mm + person.root_mm), person.joints_2d, atol=1e-6)
    by_angle = model(portrait, field_of_view=60.0, **FEW)
    assert by_angle.people[0].root_mm[2] < 1100


def test_a_low_score_is_dropped_without_a_trace_unless_the_user_gave_the_box(model, photo, found, walked):
    wall = Detection((0.0, 0.0, 640.0, 520.0), 0.9, region_round(np.array([80.0, 300.0]), 60.0, 0.0))
    result = model(photo, detector=Fixed(wall, found), hypotheses=4, max_people=1)
    (kept,) = result.people
    assert kept.box == found.box
    assert kept.score > model.least_score > 0
    assert result.camera == walked.camera  # the wall would be near
    assert not model(photo, detector=Fixed(wall, found), min_score=(1 + kept.score) / 2, **FEW).people
    pin = {"left_wrist": kept["left_wrist"].xyz_mm}
    (held,) = model(photo, detector=Fixed(wall, found), pin=pin, hypotheses=4).people
    assert held.box == found.box
    (drawn,) = model(photo, boxes=[(20.0, 20.0, 160.0, 160.0)], **FEW).people
    assert drawn.score == 1.0


def test_a_joint_of_large_spread_is_visible_and_its_radius_large(model, both, walked):
    samples = np.repeat(walked.people[0].mean_mm[None], 8, 0)
    samples[:, H36M_17.index("left_wrist")] += np.linspace(-300, 300, 8)[:, None] * (1.0, 0.0, 0.0)
    seen = np.tile([1.0, 0.0, 0.0, 0.0], (1, model.skeleton.count, 1))
    (person,) = model.place(both, Estimate(samples[None], seen, None))
    assert person["left_wrist"].state == person["right_wrist"].state == "visible"  # states are about the picture
    assert person["left_wrist"].r90_mm > 1.2 * person["right_wrist"].r90_mm


def test_a_cut_box_does_not_decide_the_distance(model, photo, found):
    result = model(photo, detector=Fixed(found), field_of_view=60.0, **FEW)
    (whole,) = result.people
    low = int(whole.joints_2d[list(H36M_17.indices("left_hip", "right_hip")), 1].mean())
    half = photo.crop((0, 0, photo.width, low))
    x0, y0, x1, _ = whole.box
    camera = replace(result.camera, size=half.size)
    (cut,) = model(half, boxes=[(x0, y0, x1, float(low))], camera=camera, **FEW).people
    assert cut.root_mm[2] == pytest.approx(whole.root_mm[2], rel=0.5)


def test_two_poses_in_one_place_are_one_person(walked):
    (person,) = walked.people
    beside = replace(person, box=tuple(float(x + 400) for x in person.box))
    aside = replace(person, joints_2d=person.joints_2d + 300, box=tuple(float(x + 300) for x in person.box))
    assert suppress_duplicates([beside, person, aside]) == [person, aside]


@pytest.fixture(scope="module")
def trio(photo, found):
    """The walker three times, side by side; and the width of one."""
    x0, _, x1, _ = (int(value) for value in found.box)
    strip = photo.crop((x0 - 10, 0, x1 + 10, photo.height))
    group = Image.new("RGB", (3 * strip.width, strip.height))
    for place in range(3):
        group.paste(strip, (place * strip.width, 0))
    return group, strip.width


def test_everybody_in_a_group_gets_a_pose_of_their_own(model, trio):
    group, width = trio
    people = model(group, hypotheses=4).people
    trunk = list(H36M_17.indices("left_hip", "right_hip", "left_shoulder", "right_shoulder"))
    middles = sorted(float(person.joints_2d[trunk, 0].mean()) for person in people)
    assert [int(x // width) for x in middles] == [0, 1, 2]


def test_a_crop_on_a_neighbour_is_found_and_the_neighbour_painted_over(model, trio):
    group, _ = trio
    people = sorted(model.find(group), key=lambda each: each.box[0])
    boxes = [each.box for each in people]
    middle = replace(model.crop(group, people[1], assumed_camera(group.size)), others=(boxes[0], boxes[2]))
    wrong, right = model.encode([middle.at(model.encoder.region(people[2]))]), model.encode([middle])
    again = with_second_looks(wrong, model.encoder, model.numpy_model)
    assert [on_neighbour(each, model.encoder).tolist() for each in (wrong, right, again)] == [[True], [False], [False]]
    pixels = np.asarray(painted(group, replace(middle, alone=True).covers))
    assert (pixels == 127).all(-1).mean() > 0.2
    x0, y0, x1, y1 = (int(value) for value in boxes[1])
    own = np.s_[y0 + 2 : y1 - 2, x0 + 2 : x1 - 2]
    np.testing.assert_array_equal(pixels[own], np.asarray(group)[own])


@pytest.fixture
def passes(model, monkeypatch):
    """Crops that went through the encoder, a number for each call."""
    encoder, calls = model.encoder, []
    real = type(encoder).encode
    monkeypatch.setattr(type(encoder), "encode", lambda self, crops: (calls.append(len(crops)), real(self, crops))[1])
    return calls


def test_a_clear_crop_and_its_mirror_image_are_encoded_once_together(model, crop, both, passes):
    seen = model.encode([crop], second_look=True)
    assert passes == [2]
    assert seen.crops == [crop]
    alone, mirrored = model.encode([crop]).output, encode_mirrored(model.encoder, [crop])
    np.testing.assert_allclose(both.output.features, alone.features, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(both.flipped.features, mirrored.features, rtol=1e-5, atol=1e-5)


def test_a_turned_crop_is_replaced_with_its_mirror_image(model, crop, passes):
    turned = crop.at(replace(crop.region, angle=2.2))
    seen = model.encode([crop, turned], second_look=True)
    assert passes[0] == 4
    assert len(passes) > 2
    assert seen.crops[0] is crop
    assert abs(seen.crops[1].region.angle) < 0.5
    alone = encode_mirrored(model.encoder, [seen.crops[1]])
    np.testing.assert_allclose(seen.flipped.features[1:], alone.features, rtol=1e-5, atol=1e-5)


def test_what_needs_a_second_look(model, crop, both):
    width = model.encoder.size[0]

    def doubt(**output):
        return bool(needs_second_look(replace(both, output=replace(both.output, **output)), model.encoder)[0])

    marks, points = both.output.keypoints, both.output.landmarks_2d
    assert not doubt()
    assert doubt(person=np.array([0.2]))
    assert doubt(keypoints=marks + np.array([0.04 * width, 0.0, 0.0]))
    assert doubt(landmarks_2d=points + np.array([0.0, 0.04 * width]))
    assert doubt(landmarks_2d=None, keypoints=None)
    assert needs_second_look(EncodedCrops(both.crops, replace(both.output, keypoints=None)), model.encoder).all()
    bare = replace(crop, detection=replace(crop.detection, keypoints=np.zeros((17, 3))))
    assert needs_second_look(replace(both, crops=[bare]), model.encoder).all()


def test_the_fit_of_the_mean_alone_gives_the_same_depth(model, both):
    estimate = model.estimate(both, 4, 2, hypothesis_generators(0, [0], 4))
    (person,) = model.place(both, estimate, 1.6)
    (mean,) = fit_people(observe(both, model.encoder, model.skeleton), estimate, model.calibration, 1.6, only_mean=True)
    assert mean.depth_mm == pytest.approx(person.root_mm[2], rel=1e-9)


@pytest.fixture(scope="module")
def marks(found):
    """The walker's keypoints by a detector; all of them sure."""
    known = found.keypoints.copy()
    known[:, 2] = 0.9
    return known


def test_given_keypoints_decide_who_is_there_and_give_the_pose_that_is_found_without_them(model, photo, marks, walked):
    padded = np.stack([marks, marks, np.full((17, 3), np.nan)])
    people = model(photo, keypoints=padded, hypotheses=4).people
    assert [person.score for person in people] == [1.0, 1.0]
    assert np.linalg.norm(walked.people[0].joints_mm - people[0].joints_mm, axis=1).max() < 60
    assert not model(photo, keypoints=padded[:0], **FEW).people
    cut = marks.copy()
    cut[[COCO_17.index(f"{side}_{joint}") for side in ("left", "right") for joint in ("knee", "ankle")]] = np.nan
    (unsure,) = model(photo, keypoints=cut, hypotheses=4).people
    assert unsure["left_ankle"].r90_mm > 1.3 * people[0]["left_ankle"].r90_mm


def test_tokens_and_observations_are_the_given_keypoints_also_in_the_mirror(model, photo, marks):
    gaps = marks.copy()
    gaps[[0, 15]] = (np.nan, np.nan, 0)
    (detection,) = detections_of(gaps[None])
    encoded = model.encode([model.crop(photo, detection, assumed_camera(photo.size))], second_look=True)
    layout, region = model.encoder.layout, encoded.crops[0].region
    for output, mirrored in ((encoded.output, False), (encoded.flipped, True)):
        tokens = output.features[:, layout.tokens("movenet")][..., layout.blocks[-1].first :]
        for seen in (keypoints_of(tokens)[0], output.keypoints[0]):
            if mirrored:
                seen = (seen * (-1, 1, 1) + (256, 0, 0))[list(COCO_17.mirror_order)]
            np.testing.assert_allclose(region.to_image(seen[:, :2]), gaps[:, :2], atol=0.01)
        assert np.isnan(tokens[0]).all(-1).sum() == 2


def test_keypoints_come_as_files_and_lists(model, photo, marks, tmp_path):
    photo.save(tmp_path / "a.png")
    entry = {"category_id": 1, "score": 1.0, "keypoints": marks.ravel().tolist()}
    (tmp_path / "all.json").write_text(json.dumps([{"image_id": "a.png", **entry}] * 2))
    one = model(tmp_path / "a.png", keypoints=tmp_path / "all.json", **FEW)
    many = model([tmp_path / "a.png", photo, photo], keypoints=[tmp_path / "all.json", marks, None], **FEW)
    assert [len(each.people) for each in (one, *many)] == [2, 2, 1, 1]
    for other in many[:2]:
        np.testing.assert_allclose(one.people[0].joints_mm, other.people[0].joints_mm, atol=0.01)
    alone = model(photo, **FEW).people[0]  # beside pictures with keypoints as by itself
    np.testing.assert_allclose(many[2].people[0].joints_mm, alone.joints_mm, atol=0.01)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"keypoints": np.full((1, 17, 3), 5000.0)}, "no keypoint of person 0 lies in the picture"),
        ({"keypoints": np.zeros((1, 12, 3))}, "17 joints"),
        ({"keypoints": "none.json"}, "none.json"),
        ({"keypoints": np.full((1, 17, 3), 50.0), "boxes": [(0, 0, 100, 100)]}, "not both"),
    ],
)
def test_wrong_keypoints_are_named(model, photo, options, says):
    with pytest.raises(InputError, match=says):
        model(photo, **options)
    with pytest.raises(InputError, match="2 images need as many"):
        model([photo, photo], keypoints=[None])


def test_a_pipeline_uses_the_observer_that_is_handed_in(model, photo, found, marks):
    class Recorder:
        def __init__(self, answer):
            self.answer, self.boxes = answer, []

        def observe(self, image, boxes):
            self.boxes += list(boxes)
            return np.stack([self.answer] * len(boxes))

    def seen_by(observer):
        own = Di2Pose(model.model, model.encoder, Fixed(found), model.calibration, observer)
        return own(photo, **FEW).people[0].joints_mm

    observer = Recorder(marks)
    given = model(photo, keypoints=marks, **FEW).people[0].joints_mm
    assert np.linalg.norm(seen_by(observer) - given, axis=1).max() < 30
    assert observer.boxes == [found.box]
    plain = model(photo, detector=Fixed(found), **FEW).people[0].joints_mm
    np.testing.assert_allclose(seen_by(Recorder(np.zeros((17, 3)))), plain)
