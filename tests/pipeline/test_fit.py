"""One body out of several hypotheses: what was seen, by one look or two, and what is unclear."""

from dataclasses import replace

import numpy as np
import pytest
from output.people import pose
from PIL import Image

from di2pose.image.detect import from_boxes
from di2pose.pipeline.assemble import fit_bodies, mean_body, unclear
from di2pose.pipeline.crops import PersonCrop
from di2pose.pipeline.observations import (
    PersonView,
    fuse,
    keypoint_observation,
    observed_joints,
    without_neighbour_limbs,
)
from di2pose.pose.bones import adult_range, impossible
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import BLAZEPOSE_33, COCO_17, H36M_17, H36M_21, LSP_14, bone_lengths

WIDTH = 256.0


@pytest.fixture
def landmarks():
    random = np.random.default_rng(0)
    return random.uniform(40, 200, (3, 33, 2)), random.uniform(0.5, 1, (3, 33))


def flipped(points, shown):
    """What a look at the mirror image gives."""
    order = list(BLAZEPOSE_33.mirror_order)
    return (points * (-1, 1) + (WIDTH, 0))[:, order], shown[:, order]


def test_limbs_are_landmarks_and_the_head_is_told_by_ears_mouth_and_shoulders(landmarks):
    points, shown = observed_joints([landmarks], WIDTH, BLAZEPOSE_33)
    wrist = H36M_17.index("left_wrist")
    np.testing.assert_allclose(points[:, wrist], landmarks[0][:, BLAZEPOSE_33.index("left_wrist")])
    assert np.isnan(points[:, H36M_17.index("spine")]).all()
    assert (shown[:, H36M_17.index("spine")] == 0).all()
    ears = landmarks[0][:, list(BLAZEPOSE_33.indices("left_ear", "right_ear"))].mean(1)
    shoulders = landmarks[0][:, list(BLAZEPOSE_33.indices("left_shoulder", "right_shoulder"))].mean(1)
    up = points[:, H36M_17.index("head")] - ears
    np.testing.assert_allclose(up, 0.6 * (ears - shoulders))


def test_without_a_mouth_the_nose_helps_and_without_ears_nothing_tells_of_the_head():
    marks = np.random.default_rng(2).uniform(0, 200, (17, 2))
    points, _ = observed_joints([(marks, np.ones(17))], WIDTH, COCO_17)
    ears, nose = marks[list(COCO_17.indices("left_ear", "right_ear"))].mean(0), marks[COCO_17.index("nose")]
    np.testing.assert_allclose(points[H36M_17.index("nose")], (ears + nose) / 2)
    bare, _ = observed_joints([(marks[:14], np.ones(14))], WIDTH, LSP_14)
    assert np.isnan(bare[H36M_17.index("head")]).all()
    assert np.isfinite(bare[H36M_17.index("left_knee")]).all()


def test_further_joints_are_observed_where_a_landmark_is_the_same_point(landmarks):
    points, shown = observed_joints([landmarks], WIDTH, BLAZEPOSE_33, H36M_21)
    for name, landmark in (("left_heel", "left_heel"), ("right_toe", "right_foot_index")):
        np.testing.assert_array_equal(points[:, H36M_21.index(name)], landmarks[0][:, BLAZEPOSE_33.index(landmark)])
        np.testing.assert_array_equal(shown[:, H36M_21.index(name)], landmarks[1][:, BLAZEPOSE_33.index(landmark)])
    np.testing.assert_array_equal(points[:, :17], observed_joints([landmarks], WIDTH, BLAZEPOSE_33)[0])
    marks, scores = observed_joints([(landmarks[0][:, :17], np.ones((3, 17)))], WIDTH, COCO_17, H36M_21)
    assert np.isnan(marks[:, 17:]).all()
    assert (scores[:, 17:] == 0).all()


def test_two_observers_are_one_where_they_agree_and_the_surer_counts_more():
    points, other, noise = np.zeros((17, 2)), np.full((17, 2), 4.0), np.full(17, 3.0)
    other[3], other[5], noise[5], points[7], other[9], points[9] = 500.0, np.nan, np.inf, np.nan, np.nan, np.nan
    found, spread = fuse([(points, np.full(17, 6.0)), (other, noise)])
    np.testing.assert_allclose(found[0], 4.0 * 0.8)
    assert spread[0] == pytest.approx((1 / 36 + 1 / 9) ** -0.5)
    for joint, believed, off in ((3, other, 3.0), (5, points, 6.0), (7, other, 3.0)):
        np.testing.assert_allclose(found[joint], believed[joint])  # what contradicts the surer one is left out
        assert spread[joint] == pytest.approx(off)
    assert np.isnan(found[9]).all()
    assert spread[9] == np.inf


def test_a_keypoint_may_be_farther_off_the_less_sure_its_observer_is():
    points = np.zeros((17, 2))
    points[2] = np.nan
    _, noise = keypoint_observation(points, np.linspace(0.9, 0.1, 17), 256.0)
    assert noise[0] == pytest.approx(4.0)
    assert noise[2] == np.inf
    assert (np.diff(noise[[0, 1, 3, 4, 5, 6]]) > 0).all()
    assert 30 < noise[H36M_17.index("right_wrist")] < 100


def test_two_looks_are_averaged_and_where_they_contradict_each_other_the_first_counts_less_surely(landmarks):
    points, shown = landmarks
    other = points + np.array([4.0, 0.0])
    elbow, knee = "left_elbow", "right_knee"
    other[:, BLAZEPOSE_33.index(knee)] += 80
    found, weights = observed_joints([landmarks, flipped(other, shown * 0.5)], WIDTH, BLAZEPOSE_33)
    first = points[:, list(BLAZEPOSE_33.indices(elbow, knee))]
    np.testing.assert_allclose(found[:, H36M_17.index(elbow)], first[:, 0] + (2.0, 0.0))
    np.testing.assert_allclose(found[:, H36M_17.index(knee)], first[:, 1])
    np.testing.assert_allclose(weights[:, H36M_17.index(knee)], shown[:, BLAZEPOSE_33.index(knee)] * 0.5)


def test_a_mean_body_has_an_adults_bones_between_those_of_the_mean_and_the_mean_of_those():
    random = np.random.default_rng(1)
    body = pose(random)
    samples = body + random.normal(scale=60, size=(8, 17, 3)) * (np.arange(17) > 0)[:, None]
    mean, lengths = mean_body(samples)
    low, high = adult_range().T
    assert ((low <= lengths) & (lengths <= high)).all()
    np.testing.assert_allclose(bone_lengths(mean, H36M_17), lengths)
    np.testing.assert_allclose(mean[0], samples.mean(0)[0])


def view_of(points, shown):
    camera = Camera((300.0, 300.0), (128.0, 128.0), (256, 256))
    return PersonView(camera, (30.0, 30.0, 226.0, 226.0), False, WIDTH, points, shown)


def body_of(samples, seen, view):
    (fit,) = fit_bodies(samples[None], [seen], [view], np.full(17, 100.0))
    return fit


def test_people_are_fitted_together_as_each_alone():
    random, single_mm2 = np.random.default_rng(8), np.full(17, 100.0)
    samples = np.stack([pose(random, 0.3) + random.normal(scale=60, size=(4, 17, 3)) for _ in range(3)])
    samples -= samples[:, :, :1]
    views = []
    for hidden, each in zip((0, 5, 17), samples, strict=True):
        at = each.mean(0) + np.array([0.0, 0.0, 1500.0 + 100 * hidden])
        points = at[:, :2] / at[:, 2:] * 300 + 128
        points[len(points) - hidden :] = np.nan
        views.append(view_of(points, np.isfinite(points).all(-1).astype(float)))
    together = fit_bodies(samples, [np.ones(17)] * 3, views, single_mm2, height_m=1.7)
    for fit, each, view in zip(together, samples, views, strict=True):
        (alone,) = fit_bodies(each[None], [np.ones(17)], [view], single_mm2, height_m=1.7)
        np.testing.assert_allclose(fit.pose.joints_mm, alone.pose.joints_mm, atol=1e-6)
        np.testing.assert_allclose(fit.pose.root_mm, alone.pose.root_mm, atol=1e-6)
        np.testing.assert_allclose(fit.samples_mm, alone.samples_mm, atol=1e-6)
        assert fit.scale == pytest.approx(alone.scale)
    assert fit_bodies(samples[:0], [], [], single_mm2) == []


def test_an_observation_on_a_neighbours_limb_is_left_out():
    """Not that of an observer who is alone, of the shoulders, of someone in another picture, or the user's."""
    random = np.random.default_rng(2)
    own = random.uniform(60, 100, (17, 2))
    theirs = own + np.array([60.0, 0.0])
    wrist, elbow, shoulder = H36M_17.indices("left_wrist", "right_elbow", "left_shoulder")
    on_them = own.copy()
    on_them[[wrist, shoulder]] = theirs[[wrist, shoulder]] + 1
    on_them[elbow] += np.array([0.0, 60.0])
    noise = np.full(17, 6.0)
    one = replace(view_of(own, np.ones(17)), others=((on_them, noise),))
    other = replace(view_of(theirs, np.ones(17)), others=((theirs + 2, noise),))
    camera, pictures = one.camera, [Image.new("RGB", (256, 256)) for _ in range(2)]
    found = from_boxes([one.box, other.box])
    crops = [PersonCrop(pictures[0], person, camera, person.roi) for person in found]
    clean, same = without_neighbour_limbs([one, other], crops)
    assert same is other
    assert clean.points is one.points
    assert np.flatnonzero(np.isinf(clean.others[0][1])).tolist() == [wrist]
    apart = [crops[0], replace(crops[1], picture=pictures[1])]
    given = [replace(crops[0], detection=replace(found[0], given=True)), crops[1]]
    alone = replace(one, points=np.full((17, 2), np.nan))
    for views, where in (([one, other], apart), ([one, other], given), ([alone, other], crops)):
        assert without_neighbour_limbs(views, where)[0] is views[0]


def test_a_joint_is_unclear_where_hypotheses_disagree_across_the_view_and_not_along_it():
    body = pose(np.random.default_rng(1))
    nothing = view_of(np.full((17, 2), np.nan), np.zeros(17))
    wrist, ankle = H36M_17.indices("left_wrist", "right_ankle")
    samples = np.repeat(body[None], 8, 0)
    samples[:, wrist, 0] += np.linspace(-400, 400, 8)
    samples[:, ankle, 2] += np.linspace(-400, 400, 8)
    fit = body_of(samples, np.ones(17), nothing)
    fitted, doubt = fit.pose, fit.unclear
    assert doubt[wrist]
    assert not doubt[ankle]
    assert not unclear(samples[:1], fitted, nothing).any()


def test_hypotheses_have_the_bodys_bones_and_agree_about_what_was_seen():
    random = np.random.default_rng(3)
    body = pose(random)
    samples = body + random.normal(scale=80, size=(8, 17, 3)) * (np.arange(17) > 0)[:, None]
    at = body + np.array([0.0, 0.0, 1500.0])
    seen_view = view_of(at[:, :2] / at[:, 2:] * 300 + 128, np.ones(17))
    fit = body_of(samples, np.ones(17), seen_view)
    fitted, bodies = fit.pose, fit.samples_mm
    assert bodies.shape == samples.shape
    for each in bodies:
        np.testing.assert_allclose(bone_lengths(each, H36M_17), bone_lengths(fitted.joints_mm, H36M_17))
    across, along = (poses.std(0)[1:].mean(0) for poses in (samples, bodies))
    assert (along[:2] < 0.75 * across[:2]).all()
    assert along[2] > 0.5 * across[2]
    one = body_of(samples[:1], np.ones(17), seen_view)
    np.testing.assert_allclose(one.samples_mm[0], one.pose.joints_mm)


def test_the_body_and_every_hypothesis_have_distances_that_a_body_can_have():
    random = np.random.default_rng(6)
    samples = np.stack([pose(random, 1.0) for _ in range(8)])
    at = samples[0] + np.array([0.0, 0.0, 2500.0])
    seen_view = view_of(at[:, :2] / at[:, 2:] * 300 + 128, np.ones(17))
    fit = body_of(samples, np.ones(17), seen_view)
    fitted, bodies = fit.pose, fit.samples_mm
    assert impossible(samples, mean_body(samples)[1]).all()
    lengths = bone_lengths(fitted.joints_mm, H36M_17)
    assert not impossible(np.concatenate([fitted.joints_mm[None], bodies]), lengths).any()


def test_a_second_observer_mends_what_the_landmarks_have_wrong():
    wrist, off = H36M_17.index("left_wrist"), []
    for seed in range(4, 12):
        body = pose(np.random.default_rng(seed), 0.3)
        samples = body + np.random.default_rng(5).normal(scale=60, size=(8, 17, 3)) * (np.arange(17) > 0)[:, None]
        at = body + np.array([0.0, 0.0, 1500.0])
        true = at[:, :2] / at[:, 2:] * 300 + 128
        wrong = true.copy()
        wrong[wrist] += 40
        seen, hidden = np.ones(17), np.ones(17)
        hidden[wrist] = 0.7
        alone, both = (
            body_of(samples, hidden, replace(view_of(wrong, seen), others=others)).pose.joints_mm
            for others in ((), (keypoint_observation(true, np.full(17, 0.9), WIDTH),))
        )
        off.append([np.linalg.norm((each - body)[wrist, :2]) for each in (alone, both)])
    assert np.mean(off, axis=0)[1] < 0.8 * np.mean(off, axis=0)[0]
