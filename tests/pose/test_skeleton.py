import numpy as np
import pytest
import torch
from output.people import H36M_19, standing

from di2pose.errors import InputError
from di2pose.pose.skeleton import (
    BLAZEPOSE_33,
    BODY_25,
    BODY_25B,
    COCO_17,
    H36M_17,
    H36M_21,
    HALPE_26,
    LIMB_12,
    LSP_14,
    MEANING,
    MPI_INF_3DHP_17,
    MPI_INF_3DHP_28,
    RULES,
    SKELETONS,
    SMPL_24,
    Skeleton,
    bone_lengths,
    convert,
    get,
    mirror,
)

every_skeleton = pytest.mark.parametrize("skeleton", SKELETONS.values(), ids=str)


def test_h36m_has_the_names_and_parents_of_the_contract():
    assert " ".join(H36M_17.joints) == (
        "pelvis right_hip right_knee right_ankle left_hip left_knee left_ankle spine thorax nose head left_shoulder "
        "left_elbow left_wrist right_shoulder right_elbow right_wrist"
    )
    assert H36M_17.parents == (-1, 0, 1, 2, 0, 4, 5, 0, 7, 8, 9, 8, 11, 12, 8, 14, 15)
    assert set(H36M_17.pairs) == {(4, 1), (5, 2), (6, 3), (11, 14), (12, 15), (13, 16)}
    assert len(H36M_17.bones) == 16
    legs = [f"{side}_{part}" for side in ("right", "left") for part in ("hip", "knee", "ankle")]
    arms = [f"{side}_{part}" for side in ("left", "right") for part in ("shoulder", "elbow", "wrist")]
    assert [*LIMB_12] == [*legs, *arms]  # the order that seeds of patches depend on


def test_the_feet_follow_the_17_joints_and_are_found_in_other_skeletons_by_name():
    assert H36M_21.joints[:17] == H36M_17.joints
    assert H36M_21.parents[:17] == H36M_17.parents
    for source, toe in ((BLAZEPOSE_33, "foot_index"), (HALPE_26, "big_toe"), (BODY_25, "big_toe")):
        joints = np.random.default_rng(0).normal(size=(source.count, 3))
        found, known = convert(joints, source, H36M_21)
        assert known[17:].all()
        wanted = source.indices("left_heel", f"left_{toe}", "right_heel", f"right_{toe}")
        np.testing.assert_array_equal(found[17:], joints[list(wanted)])


def test_the_28_joints_of_mpi_inf_3dhp_hold_its_17_at_the_official_places():
    one_based = [8, 6, 15, 16, 17, 10, 11, 12, 24, 25, 26, 19, 20, 21, 5, 4, 7]  # 'relevant' in mpii_get_joint_set.m
    assert tuple(MPI_INF_3DHP_28.joints[i - 1] for i in one_based) == MPI_INF_3DHP_17.joints


def test_native_h36m_gives_the_14_joints_in_the_order_of_the_3dpw_protocol():
    joints = np.arange(17 * 3, dtype=np.float64).reshape(17, 3)
    converted, known = convert(joints, H36M_17, LSP_14)
    np.testing.assert_array_equal(converted, joints[[3, 2, 1, 4, 5, 6, 16, 15, 14, 11, 12, 13, 8, 10]])
    assert known.all()


@every_skeleton
def test_every_tree_is_symmetric_and_converts_and_mirrors_to_itself(skeleton):
    assert str(skeleton.count) in skeleton.name
    order = skeleton.mirror_order
    for joint, parent in enumerate(skeleton.parents):
        assert skeleton.parents[order[joint]] == (-1 if parent == -1 else order[parent])
    joints = np.random.default_rng(0).normal(size=(5, skeleton.count, 3))
    converted, known = convert(joints, skeleton, skeleton)
    np.testing.assert_array_equal(converted, joints)
    assert known.all()
    np.testing.assert_array_equal(mirror(mirror(joints, skeleton), skeleton), joints)
    assert not np.array_equal(mirror(joints, skeleton), joints)
    tensor = torch.from_numpy(joints).float()
    assert torch.equal(mirror(mirror(tensor, skeleton), skeleton), tensor)
    sided = [name for name in skeleton.joints if name.startswith(("left_", "right_"))]
    assert len(sided) == 2 * len(skeleton.pairs)
    assert not [name for name in skeleton.joints if "left" in name[1:] or "right" in name[1:]]


def test_tables_speak_only_of_points_that_exist():
    names = {MEANING.get(s.name, {}).get(joint, joint) for s in SKELETONS.values() for joint in s.joints}
    for point, ways in RULES.items():
        assert {point, *(name for way in ways for name in way)} <= names
    for skeleton, meanings in MEANING.items():
        assert set(meanings) <= set(SKELETONS[skeleton].joints)


@pytest.mark.parametrize(
    ("other", "built", "lost"),
    [
        (MPI_INF_3DHP_17, set(), set()),
        (MPI_INF_3DHP_28, set(), set()),
        (H36M_19, set(), set()),
        (LSP_14, {"pelvis", "spine"}, {"nose"}),
        (COCO_17, {"pelvis", "spine", "thorax"}, {"head"}),
        (SMPL_24, set(), {"head"}),
        (BODY_25B, {"pelvis", "spine", "thorax"}, set()),
        (BLAZEPOSE_33, {"pelvis", "spine", "thorax"}, {"head"}),
    ],
    ids=lambda value: value.name if isinstance(value, Skeleton) else "+".join(sorted(value)),
)
def test_round_trip_returns_each_joint_or_says_that_it_is_built_or_lost(other, built, lost):
    joints = np.random.default_rng(0).normal(size=(17, 3))
    there, _ = convert(joints, H36M_17, other)
    back, known = convert(there, other, H36M_17)
    same = {name for name, a, b in zip(H36M_17.joints, joints, back, strict=True) if np.array_equal(a, b)}
    assert {name for name, k in zip(H36M_17.joints, known, strict=True) if not k} == lost
    assert set(H36M_17.joints) - same == built | lost
    assert np.isnan(back[~known]).all()


def test_built_joints_follow_the_rules_and_a_nan_reaches_only_those_made_from_it():
    joints = np.random.default_rng(0).normal(size=(17, 3))
    at = dict(zip(COCO_17.joints, joints, strict=True))
    converted, _ = convert(joints, COCO_17, H36M_17)
    made = dict(zip(H36M_17.joints, converted, strict=True))
    hips = (at["left_hip"] + at["right_hip"]) / 2
    shoulders = (at["left_shoulder"] + at["right_shoulder"]) / 2
    np.testing.assert_allclose(made["pelvis"], hips)
    np.testing.assert_allclose(made["thorax"], shoulders)
    np.testing.assert_allclose(made["spine"], (hips + shoulders) / 2)
    np.testing.assert_array_equal(made["nose"], at["nose"])
    joints[COCO_17.index("left_hip")] = np.nan
    converted, known = convert(joints, COCO_17, H36M_17)
    bad = {name for name, row in zip(H36M_17.joints, converted, strict=True) if np.isnan(row).any()}
    assert bad == {"pelvis", "spine", "left_hip", "head"}
    assert known[H36M_17.index("pelvis")]


def test_a_name_shared_by_two_different_points_is_not_copied():
    joints = np.random.default_rng(0).normal(size=(24, 3))
    _, known = convert(joints, SMPL_24, H36M_17)
    assert not known[H36M_17.index("head")]  # SMPL's head is the skull base, H36M's the top of the head
    _, known = convert(joints, SMPL_24, MPI_INF_3DHP_28)
    assert not known[list(MPI_INF_3DHP_28.indices("spine2", "spine3"))].any()


def test_torch_and_numpy_agree_and_torch_is_differentiable():
    joints = np.random.default_rng(0).normal(size=(4, 25, 3))
    tensor = torch.tensor(joints, requires_grad=True)
    converted, known = convert(tensor, BODY_25B, H36M_17)
    expected, expected_known = convert(joints, BODY_25B, H36M_17)
    np.testing.assert_array_equal(converted.detach().numpy(), expected)
    np.testing.assert_array_equal(known.numpy(), expected_known)
    converted.sum().backward()
    assert tensor.grad.isfinite().all()
    assert tensor.grad.sum() == pytest.approx(4 * 17 * 3)
    px, known = convert(np.ones((17, 2), dtype=np.float32), COCO_17, LSP_14)
    assert (px.dtype, px.shape, known.sum()) == (np.float32, (14, 2), 13)


def test_a_standing_body_stays_right_sided_through_mirror_and_conversion():
    pose = standing()  # facing the camera, in camera axes (x right, y down): the right side is at x < 0
    np.testing.assert_array_equal(mirror(pose, H36M_17), pose)
    pose[H36M_17.index("left_wrist"), 1] = -900  # the left hand is raised; it is on the right of the picture
    mirrored = mirror(pose, H36M_17)
    assert mirrored[H36M_17.index("right_wrist")].tolist() == [-170, -900, -20]
    for target in SKELETONS.values():
        converted, known = convert(pose, H36M_17, target)
        for left, right in target.pairs:
            assert known[left] == known[right]
            if known[left]:
                assert converted[left, 0] > 0 > converted[right, 0], target.joints[left]
        assert converted[target.index("left_wrist"), 1] == -900


def test_names_are_found_in_any_spelling():
    assert get("coco17") is COCO_17
    assert get("MPI-INF-3DHP_28") is MPI_INF_3DHP_28
    with pytest.raises(InputError, match=r"no skeleton is called 'coco19'.*coco_17"):
        get("coco19")
    assert H36M_17.indices("left_hip", "right_hip") == (4, 1)
    with pytest.raises(InputError, match=r"no joint 'neck'.*thorax"):
        H36M_17.index("neck")


@pytest.mark.parametrize(
    ("joints", "parents", "message"),
    [
        (("a", "a"), (-1, 0), "must occur once"),
        (("a", "b"), (-1,), "as many parents"),
        (("a", "b"), (-1, -1), "one -1"),
        (("a", "b"), (-1, 7), "joint indices"),
        (("a", "b", "c"), (-1, 2, 1), "circle"),
    ],
)
def test_a_tree_that_is_none_is_refused(joints, parents, message):
    with pytest.raises(InputError, match=message):
        Skeleton("bad", joints, parents)


@pytest.mark.parametrize("bad", [np.zeros((16, 3)), np.zeros((17, 4)), np.zeros(17), np.zeros((17, 3), dtype=int)])
def test_wrong_poses_are_refused_with_the_expected_shape(bad):
    for call, more in ((convert, (H36M_17, COCO_17)), (mirror, (H36M_17,)), (bone_lengths, (H36M_17,))):
        with pytest.raises(InputError, match=r"\(\.\.\., 17, 3\)"):
            call(bad, *more)
