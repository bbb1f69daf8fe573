"""3DPW with --smpl: Human3.6M's joints, regressed from SMPL models."""

import re

import numpy as np
import pytest
from data import layouts
from data.test_readers import SEQUENCE
from scipy.linalg import expm
from scipy.sparse import csc_matrix

from di2pose.data import threedpw
from di2pose.data.sample import Sources
from di2pose.data.smpl import Models, Smpl
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17


def write_smpl(folder, order=layouts.LEFT_LEG_FIRST, protocol=2):
    models = {"f": layouts.smpl_model(seed=1), "m": layouts.smpl_model(seed=2)}
    for gender, model in models.items():
        name = f"basicModel_{gender}_lbs_10_207_0_v1.0.0.pkl"
        layouts.write_python2_pickle(folder / "smpl" / name, model, protocol)
    np.save(folder / "smpl/J_regressor_h36m.npy", layouts.regressor_h36m(order))
    return models


def regress(folder, gender, betas, poses, trans):
    model, regressor = Models(folder / "smpl").load(gender)
    return model.regress(regressor, betas, poses, trans)


def skinned(model, poses, betas, trans):
    """Every vertex of every frame, written from the SMPL paper: nothing shared with the code under test."""
    shapes, joints = model["shapedirs"].x, model["J_regressor"]
    vertices = model["v_template"] + shapes @ betas
    rest = csc_matrix((joints.data, joints.indices, joints.indptr), joints._shape) @ vertices
    result = []
    for pose, shift in zip(poses.reshape(-1, 24, 3), trans, strict=True):
        turns = [turn(vector) for vector in pose]
        bent = vertices + model["posedirs"] @ np.concatenate([(r - np.eye(3)).ravel() for r in turns[1:]])
        world = []
        for joint in range(24):
            local = np.eye(4)
            parent = int(model["kintree_table"][0, joint])
            local[:3, :3], local[:3, 3] = turns[joint], rest[joint] - (0 if joint == 0 else rest[parent])
            world.append(local if joint == 0 else world[parent] @ local)
        moved = np.stack([(bent - rest[j]) @ g[:3, :3].T + g[:3, 3] for j, g in enumerate(world)])
        result.append(np.einsum("vj,jvx->vx", model["weights"], moved) + shift)
    return np.array(result)


def turn(vector):
    """exp of the cross-product matrix."""
    x, y, z = vector
    return expm(np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]))


@pytest.mark.parametrize("order", [layouts.LEFT_LEG_FIRST, layouts.H36M_17], ids=["left leg first", "right leg first"])
def test_regressed_joints_are_those_of_the_skinned_vertices_with_the_sides_right(tmp_path, order):
    models = write_smpl(tmp_path, order)
    rng = np.random.default_rng(0)
    poses, trans, betas = rng.normal(0, 0.4, (3, 72)), rng.normal(0, 1, (3, 3)), rng.normal(0, 1, 10)
    native = layouts.regressor_h36m(layouts.H36M_17)
    for gender, model in models.items():
        joints = regress(tmp_path, gender, betas, poses, trans)
        expected = native @ skinned(model, poses, betas, trans)
        np.testing.assert_allclose(joints, expected, atol=1e-9)


def test_records_are_17_joints_in_the_camera_of_the_frame(tmp_path):
    models = write_smpl(tmp_path)
    rng = np.random.default_rng(1)
    turn_over = np.array([np.pi / 2, 0, 0])  # y up to the z up of 3DPW's world
    poses = [np.concatenate([np.tile(turn_over, (6, 1)), rng.normal(0, 0.1, (6, 69))], 1) for _ in range(2)]
    trans = [np.tile(layouts.to_world(np.array([0.2, 0.1, 5.0])), (6, 1)) for _ in range(2)]
    layouts.write_3dpw(tmp_path, "test", SEQUENCE, poses=poses, trans=trans, betas=[np.full(300, 0.5)] * 2)
    parts = list(threedpw.read(Sources("3dpw", tmp_path, smpl=tmp_path / "smpl")))
    assert parts[0].skeleton is H36M_17
    samples, left_out = layouts.drain(parts)
    assert left_out == {}
    regressor = layouts.regressor_h36m(layouts.H36M_17)
    for sample in samples:
        person, frame = sample.extra["person"], slice(sample.frame, sample.frame + 1)
        model = models["mf"[person]]
        world = regressor @ skinned(model, poses[person][frame], np.full(10, 0.5), trans[person][frame])[0]
        camera = 1000 * (world @ layouts.WORLD_ROTATION.T + layouts.WORLD_TRANSLATION)
        np.testing.assert_allclose(sample.joints_mm + sample.root_mm, camera, atol=0.01)
        projected = sample.camera.project(sample.joints_mm + sample.root_mm)
        assert np.abs(projected - sample.joints_2d).max() < 0.5


def test_models_as_protocol_1_pickles_and_as_npz_are_the_same(tmp_path):
    write_smpl(tmp_path / "old", protocol=1)
    write_smpl(tmp_path / "new")
    old, new = (Smpl.load(tmp_path / age / "smpl/basicModel_f_lbs_10_207_0_v1.0.0.pkl") for age in ("old", "new"))
    arrays = {"v_template": new.template, "shapedirs": new.shapes, "posedirs": new.corrections}
    arrays |= {"weights": new.weights, "J_regressor": new.joints, "kintree_table": np.array([new.parents, range(24)])}
    np.savez(tmp_path / "SMPL_FEMALE.npz", **arrays)
    for other in (old, Smpl.load(tmp_path / "SMPL_FEMALE.npz")):
        for name in ("template", "shapes", "corrections", "weights", "joints", "parents"):
            np.testing.assert_array_equal(getattr(other, name), getattr(new, name))


def no_sides(folder):
    even = layouts.regressor_h36m(layouts.H36M_17)
    even[1:7] = even[0]
    np.save(folder / "J_regressor_h36m.npy", even)


def runs_code(folder):
    model = layouts.smpl_model() | {"shapedirs": layouts.Spy(folder / "ran")}
    layouts.write_python2_pickle(folder / "basicModel_m_lbs_10_207_0_v1.0.0.pkl", model)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "J_regressor_h36m.npy").unlink(), "smpl.is.tue"),
        (no_sides, "cannot tell left from right"),
        (lambda folder: np.save(folder / "J_regressor_h36m.npy", np.zeros((14, 60))), "expected (17, 60)"),
        (runs_code, "mkdir"),
    ],
)
def test_models_that_are_missing_or_cannot_be_used_are_refused(tmp_path, damage, message):
    layouts.write_3dpw(tmp_path, "test", SEQUENCE, frames=3)
    write_smpl(tmp_path)
    damage(tmp_path / "smpl")
    with pytest.raises(InputError, match=re.escape(message)):
        list(next(threedpw.read(Sources("3dpw", tmp_path, smpl=tmp_path / "smpl"))).samples())
    assert not (tmp_path / "smpl/ran").exists()
