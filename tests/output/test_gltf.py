"""glTF read back: joints by the nodes' own kinematics, corners by the skin; and Khronos' validator."""

import json
import shutil
import struct
import subprocess

import numpy as np
import pytest
from output.people import person, pose, result, video
from scipy.spatial.transform import Rotation

from di2pose.errors import InputError
from di2pose.output.bvh import MIXAMO
from di2pose.output.gltf import JOINT_M
from di2pose.pose.skeleton import H36M_21
from di2pose.result import Motion

VALIDATOR = "gltf-validator@2.0.0-dev.3.10"
SCRIPT = """
const validator = require("gltf-validator"), { readFileSync } = require("fs");
Promise.all(process.argv.slice(1).map(path => validator.validateBytes(new Uint8Array(readFileSync(path)))))
  .then(reports => console.log(JSON.stringify(reports.map(report => report.issues))));
"""


class Glb:
    """A .glb as its specification says, with nothing of the writer."""

    def __init__(self, path):
        content = path.read_bytes()
        assert struct.unpack_from("<4sII", content) == (b"glTF", 2, len(content))
        size, kind = struct.unpack_from("<I4s", content, 12)
        self.tree = json.loads(content[20 : 20 + size])
        assert (kind, content[24 + size : 28 + size]) == (b"JSON", b"BIN\0")
        self.binary = content[28 + size :]
        self.nodes = self.tree["nodes"]
        self.parents = {child: k for k, node in enumerate(self.nodes) for child in node.get("children", ())}

    def read(self, number):
        about = self.tree["accessors"][number]
        view = self.tree["bufferViews"][about["bufferView"]]
        width = {"SCALAR": 1, "VEC3": 3, "VEC4": 4, "MAT4": 16}[about["type"]]
        kind = {5126: "<f4", 5125: "<u4", 5123: "<u2"}[about["componentType"]]
        return np.frombuffer(self.binary, kind, width * about["count"], view["byteOffset"]).reshape(-1, width)

    def worlds(self):
        """(F, N, 4, 4) of the bones, and the times; of a file without animation its one pose."""
        moves, times = {}, np.zeros(1)
        for animation in self.tree.get("animations", ()):
            for channel in animation["channels"]:
                sampler = animation["samplers"][channel["sampler"]]
                times = self.read(sampler["input"])[:, 0]
                moves[channel["target"]["node"], channel["target"]["path"]] = self.read(sampler["output"])
        worlds = np.tile(np.eye(4), (len(times), len(self.nodes) - 1, 1, 1))
        for k, node in enumerate(self.nodes[:-1]):
            turn = moves.get((k, "rotation"), np.array([node.get("rotation", [0, 0, 0, 1])]))
            worlds[:, k, :3, :3] = Rotation.from_quat(turn).as_matrix()
            worlds[:, k, :3, 3] = moves.get((k, "translation"), node["translation"])
            if k in self.parents:
                worlds[:, k] = worlds[:, self.parents[k]] @ worlds[:, k]
        return worlds, times

    def joints_mm(self, skeleton):
        names = [node["name"] for node in self.nodes]
        order = [names.index(MIXAMO[joint]) for joint in skeleton.joints]
        return 1000 * self.worlds()[0][:, order][..., :3, 3]

    def corners_mm(self):
        """(F, V, 3): the skin of every frame."""
        attributes = self.tree["meshes"][0]["primitives"][0]["attributes"]
        points, weights = self.read(attributes["POSITION"]), self.read(attributes["WEIGHTS_0"])
        assert (weights == [1, 0, 0, 0]).all()
        skin = self.tree["skins"][0]
        bind = self.read(skin["inverseBindMatrices"]).reshape(-1, 4, 4).transpose(0, 2, 1)
        turned = (self.worlds()[0] @ bind)[:, self.read(attributes["JOINTS_0"])[:, 0]]
        return 1000 * np.einsum("fvij,vj->fvi", turned[..., :3, :], np.pad(points, ((0, 0), (0, 1)), constant_values=1))


def wanted(someone):
    return (someone.joints_mm + someone.root_mm) * np.array([1.0, -1.0, -1.0])


@pytest.fixture(scope="module")
def moving():
    rng = np.random.default_rng(0)
    return [person(k, 0, joints_mm=pose(rng, 0.4, H36M_21), root_mm=(9.0 * k, 0.0, 3000.0), skeleton=H36M_21)
            for k in range(8)]  # fmt: skip


def test_a_video_comes_back_with_its_own_times_and_its_skin(tmp_path, moving):
    times = [2.0, 2.04, 2.1, 2.11, 2.3, 2.34, 2.38, 2.5]
    frames = [result([each], frame_index=k, time_s=times[k]) for k, each in enumerate(moving)]
    Motion([result([], frame_index=0, time_s=1.0), *frames], fps=25.0).save(tmp_path / "v.glb")
    glb, truth = Glb(tmp_path / "v.glb"), np.stack([wanted(each) for each in moving])
    np.testing.assert_allclose(glb.worlds()[1], times, atol=1e-6)
    np.testing.assert_allclose(glb.joints_mm(H36M_21), truth, atol=0.05)
    (animation,) = glb.tree["animations"]
    turned = [each["target"]["node"] for each in animation["channels"] if each["target"]["path"] == "rotation"]
    assert turned == list(range(len(glb.nodes) - 1)) == glb.tree["skins"][0]["joints"]
    assert sum(each["target"]["path"] == "translation" for each in animation["channels"]) == 1
    corners = glb.corners_mm()
    nearest = np.linalg.norm(corners[:, :, None] - truth[:, None], axis=-1).min(1)
    assert nearest.max() < 0.05  # a bone ends in every joint
    low, high = truth.min(1) - 1000 * JOINT_M, truth.max(1) + 1000 * JOINT_M
    assert ((corners > low[:, None] - 40) & (corners < high[:, None] + 40)).all()


def test_at_rest_it_stands_on_the_ground_in_a_t_pose(tmp_path, moving):
    video(moving).save(tmp_path / "v.glb")
    glb = Glb(tmp_path / "v.glb")
    del glb.tree["animations"]
    at = dict(zip(H36M_21.joints, glb.joints_mm(H36M_21)[0], strict=True))
    assert min(y for _, y, _ in at.values()) == pytest.approx(0, abs=1e-3)
    assert at["head"][1] > at["thorax"][1] > at["pelvis"][1] > at["left_knee"][1] > at["left_ankle"][1] > 40
    assert at["left_wrist"][0] > at["left_elbow"][0] > at["left_shoulder"][0] > 0 > at["right_wrist"][0]
    assert at["left_wrist"][1] == pytest.approx(at["left_shoulder"][1], abs=1e-3)
    np.testing.assert_allclose(glb.corners_mm()[0].min(0)[1], -1000 * JOINT_M, atol=1e-3)


def test_faces_look_outwards_and_sides_have_colours(tmp_path, moving):
    video(moving).save(tmp_path / "v.glb")
    glb = Glb(tmp_path / "v.glb")
    assert [each["name"] for each in glb.tree["materials"]] == ["Left", "Right", "Middle"]
    for primitive, sign in zip(glb.tree["meshes"][0]["primitives"], (1, -1, 0), strict=True):
        points = glb.read(primitive["attributes"]["POSITION"]).astype(float)
        triangles = glb.read(primitive["indices"]).reshape(-1, 3)
        a, b, c = (points[triangles[:, k]] for k in range(3))
        volume = np.einsum("ti,ti->t", a - points.mean(0), np.cross(b - points.mean(0), c - points.mean(0)))
        assert volume.sum() > 0
        assert (np.sign(points[triangles].mean((0, 1))[0].round(3)) == sign).all()


def test_a_photo_is_one_pose_without_an_animation(tmp_path, moving):
    result([moving[3]]).save(tmp_path / "p.glb")
    glb = Glb(tmp_path / "p.glb")
    assert "animations" not in glb.tree
    np.testing.assert_allclose(glb.joints_mm(H36M_21)[0], wanted(moving[3]), atol=0.05)
    with pytest.raises(InputError, match="before they are converted"):
        result([person().convert("coco17")]).save(tmp_path / "c.glb")
    with pytest.raises(InputError, match="must increase"):
        Motion([result([moving[0]], time_s=0.0)] * 2, fps=25.0).save(tmp_path / "still.glb")


def test_bones_that_stretch_and_missing_frames(tmp_path):
    rng = np.random.default_rng(1)
    people = [person(k, 0, joints_mm=pose(rng) * (1 + k / 20)) for k in range(6)]
    video(people).save(tmp_path / "s.glb")
    truth = np.stack([wanted(each) for each in people])
    np.testing.assert_allclose(Glb(tmp_path / "s.glb").joints_mm(people[0].skeleton), truth, atol=8.1)
    video([*people[:2], None, people[3]]).save(tmp_path / "g.glb")
    glb = Glb(tmp_path / "g.glb")
    assert len(glb.worlds()[1]) == 4
    np.testing.assert_allclose(glb.joints_mm(people[0].skeleton)[[0, 1, 3]], truth[[0, 1, 3]], atol=8.1)


@pytest.fixture(scope="module")
def validator(tmp_path_factory):
    """A folder with Khronos' validator."""
    folder = tmp_path_factory.mktemp("validator")
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("no node and npm, which run Khronos' glTF validator")
    done = subprocess.run(["npm", "install", "--prefix", folder, VALIDATOR], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"npm did not install {VALIDATOR}: {done.stderr[-200:]}")
    return folder


def test_khronos_validator_finds_nothing(validator, tmp_path, moving):
    video(moving).save(tmp_path / "v.glb")
    video([person(k, 0, joints_mm=pose(np.random.default_rng(k)) * (1 + k / 20)) for k in range(4)]).save(
        tmp_path / "s.glb"
    )
    result([moving[0]]).save(tmp_path / "p.glb")
    video([moving[0]]).save(tmp_path / "one.glb")
    paths = sorted(map(str, tmp_path.glob("*.glb")))
    done = subprocess.run(["node", "-e", SCRIPT, *paths], cwd=validator, capture_output=True, text=True, check=True)
    reports = json.loads(done.stdout)
    assert len(reports) == 4
    assert [report["messages"] for report in reports] == [[]] * 4
