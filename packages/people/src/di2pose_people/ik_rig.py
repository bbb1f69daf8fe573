"""A body that is posed by contacts: a trunk from real motion, legs and arms that reach for points (inverse kinematics).

Axes as in the motion: x to the body's left, y up, z to its front, metres. Two rows are left, right.
"""

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from di2pose.pose.skeleton import H36M_21
from di2pose_people.motion import NODES
from di2pose_people.retarget import AXES, SIGNS, Pose, Rig

SIDES = ("Left", "Right")
DOWN, FRONT, UP = np.array([0.0, -1, 0]), np.array([0.0, 0, 1]), np.array([0.0, 1, 0])
KNEE, ELBOW = (np.radians(2), np.radians(156)), (np.radians(4), np.radians(148))
"""Least and greatest bend."""
HIP_FLEXION = (np.radians(-25), np.radians(130))
"""Of the thigh against the pelvis, forwards positive."""
SPINE = np.radians(62)
"""Greatest turn of the chest against the pelvis."""
FOOT = (np.radians(-28), np.radians(58))
"""Of the foot against the shin: toes up, toes down."""
NECK = np.radians((60, 38, 25))
"""Of the head against the chest: turn, nod, tilt; either way."""
WRIST = np.radians(70)
"""Greatest bend of a hand that lies on something."""
UPPER = ("Arm", "ForeArm", "Hand")
CLEARANCE = {  # metres between the axes of two body parts that must not be inside each other
    ("forearm", "trunk"): 0.10, ("forearm", "thigh"): 0.075, ("forearm", "shin"): 0.065, ("forearm", "head"): 0.10,
    ("forearm", "forearm"): 0.045, ("shin", "shin"): 0.06, ("shin", "thigh"): 0.075, ("thigh", "trunk"): 0.11,
    ("upper", "thigh"): 0.08, ("knee", "knee"): 0.10,
}  # fmt: skip


def euler(yaw: float, pitch: float, roll: float) -> np.ndarray:
    """Turn about the vertical (to the left), then lean forwards, then tilt; radians."""
    (a, b, c), (d, e, f) = np.cos((yaw, pitch, roll)), np.sin((yaw, pitch, roll))
    return np.array(
        [
            [a * c + d * e * f, d * e * c - a * f, d * b],
            [b * f, b * c, -e],
            [a * e * f - d * c, d * f + a * e * c, a * b],
        ]
    )


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """numpy's own takes ten times as long for two vectors."""
    (x, y, z), (u, v, w) = a, b
    return np.array([y * w - z * v, z * u - x * w, x * v - y * u])


def two_bones(
    start: np.ndarray, target: np.ndarray, pole: np.ndarray, first: float, second: float, bend: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Directions of two bones of these lengths that reach from `start` to `target`, or as near as `bend` allows.

    The joint between them goes to the side of `pole`. The third result is the axis of the hinge: turned about it, the
    first direction becomes the second.
    """
    least, most = (float(np.sqrt(first**2 + second**2 + 2 * first * second * np.cos(b))) for b in bend[::-1])
    way = target - start
    distance = float(np.clip(np.linalg.norm(way), least, most))
    way = way / max(float(np.linalg.norm(way)), 1e-6)
    side = pole - (pole @ way) * way
    if np.linalg.norm(side) < 1e-6:
        side = cross(way, np.eye(3)[int(np.argmin(np.abs(way)))])
    side = side / np.linalg.norm(side)
    along = (first**2 + distance**2 - second**2) / (2 * distance)
    joint = along * way + np.sqrt(max(first**2 - along**2, 0.0)) * side
    return joint / first, (distance * way - joint) / second, cross(side, way)


class IkRig:
    """One body while it is being posed: 20 world rotations, and where its joints are."""

    def __init__(self, rig: Rig, source: Float[np.ndarray, "20 3 3"], grip: tuple[float, float]) -> None:
        self.rig, self.source, self.turns, self.grip = rig, source, source.copy(), grip
        length = {node: float(np.linalg.norm(along, axis=1).mean()) for node, along in rig.along.items()}
        self.thigh, self.shin, self.upper_arm, self.forearm = (length[n] for n in ("UpLeg", "Leg", "Arm", "ForeArm"))
        self.size = (self.thigh + self.shin) / 0.84
        """Against a person of 1.75 m or so."""
        self.reaches: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray | None]] = {}

    def node(self, name: str) -> np.ndarray:
        return self.turns[NODES.index(name)]

    def place(self, name: str) -> np.ndarray:
        """A joint of Human3.6M's 17, a heel or a toe."""
        return AXES.T @ self.posed.joints[H36M_21.index(name)]

    def joint(self, side: int, name: str) -> np.ndarray:
        return self.place(f"{SIDES[side].lower()}_{name}")

    def trunk(
        self, base: np.ndarray, pelvis: tuple[float, float, float], chest: tuple[float, float, float], gaze: float,
        swing: float = 1.0,
    ) -> None:  # fmt: skip
        """Pelvis and chest (yaw, pitch, roll) within `base`; twist, arms and head as in the motion, less by `swing`.

        `gaze`: how much of the chest's lean the head undoes, 0 to 1.
        """
        names = {name: number for number, name in enumerate(NODES)}
        hips, ribs = self.source[names["Hips"]], self.source[names["Spine1"]]
        twist = Rotation.from_matrix(hips.T @ ribs).as_euler("YXZ")
        twist = swing * np.clip(twist, -np.radians((25, 8, 12)), np.radians((25, 8, 12)))
        nod = Rotation.from_matrix(ribs.T @ self.source[names["Head"]]).as_euler("YXZ")
        nod = np.clip(nod - np.array([0.0, gaze * chest[1], 0.0]), -NECK, NECK)
        self.turns[:] = base @ euler(*pelvis)
        top = base @ euler(*(np.array(chest) + twist))
        for name in ("Spine", "Spine1", "Neck1", "LeftShoulder", "RightShoulder"):
            self.turns[names[name]] = top
        self.turns[names["Head"]] = top @ euler(*nod)
        for side in SIDES:
            for limb in UPPER:
                self.turns[names[side + limb]] = top @ ribs.T @ self.source[names[side + limb]]
        self.reaches.clear()
        self.settle()

    def settle(self) -> Pose:
        """Find the joints."""
        self.posed = self.rig.pose(self.turns, self.grip)
        return self.posed

    def leg(self, side: int, ankle: np.ndarray, pole: np.ndarray, foot: float | None = None) -> None:
        """Bring an ankle to a point, knee towards `pole`. `foot`: toes down by this; None: flat, as far as it can."""
        hip = self.joint(side, "hip")
        self.bones(side, *two_bones(hip, ankle, pole, self.thigh, self.shin, KNEE), foot)

    def bones(self, side: int, thigh: np.ndarray, shin: np.ndarray, hinge: np.ndarray, foot: float | None) -> None:
        """Directions of thigh and shin, the knee's axis."""
        upper, lower = (np.stack([hinge, -d, cross(hinge, -d)], axis=1) for d in (thigh, shin))
        if foot is None:
            ahead = cross(hinge, UP) + 1e-3 * FRONT  # toes point where the knee does, on the floor
            flat = euler(float(np.arctan2(ahead[0], ahead[2])) + SIGNS[side] * np.radians(6), 0.0, 0.0)
            angles = Rotation.from_matrix(lower.T @ flat).as_euler("XYZ")
            limits = np.array([FOOT, (-0.4, 0.4), (-0.35, 0.35)])
            toes = Rotation.from_euler("XYZ", np.clip(angles, *limits.T)).as_matrix()
        else:
            toes = euler(0.0, foot, 0.0)
        for name, turn in zip(("UpLeg", "Leg", "Foot"), (upper, lower, lower @ toes), strict=True):
            self.turns[NODES.index(SIDES[side] + name)] = turn

    def knee(self, side: int) -> np.ndarray:
        """Where the knee is after `leg`, before the body is settled."""
        return self.joint(side, "hip") - self.thigh * self.node(f"{SIDES[side]}UpLeg")[:, 1]

    def reach(self, side: int, wrist: np.ndarray, pole: np.ndarray, palm: np.ndarray | None = None) -> None:
        """Bring a wrist to a point, elbow towards `pole`; the palm as far as it can towards `palm`."""
        self.reaches[side] = (wrist, pole, palm)
        first, second, hinge = two_bones(self.joint(side, "shoulder"), wrist, pole, self.upper_arm, self.forearm, ELBOW)
        sign = SIGNS[side]
        across = -sign * hinge
        upper, fore = (np.stack([sign * d, across, cross(sign * d, across)], axis=1) for d in (first, second))
        hand = fore
        if palm is not None:  # at rest it faces along -across
            want = palm - (palm @ second) * second
            turn = np.arctan2(cross(-across, want) @ second, -across @ want)
            hand = Rotation.from_rotvec(np.clip(turn, -1.4, 1.4) * second).as_matrix() @ hand
            flat = second - max(float(second @ palm), 0.0) * palm + 0.25 * FRONT  # the hand lies on what it touches
            lift = Rotation.align_vectors(flat, second)[0].as_rotvec()
            hand = Rotation.from_rotvec(lift * min(1.0, WRIST / max(np.linalg.norm(lift), 1e-6))).as_matrix() @ hand
        for name, matrix in zip(UPPER, (upper, fore, hand), strict=True):
            self.turns[NODES.index(SIDES[side] + name)] = matrix

    def finished(self) -> Pose:
        """The pose. A raised arm lifts its shoulder: arms that reach for something do so once more from there."""
        self.settle()
        for side, reach in list(self.reaches.items()):
            self.reach(side, *reach)
        return self.settle() if self.reaches else self.posed


def within_limits(turns: Float[np.ndarray, "20 3 3"]) -> bool:
    """Can a human being bend like that? Knees, elbows, hips, spine and neck."""
    node = {name: turns[number] for number, name in enumerate(NODES)}
    hips, chest = node["Hips"], node["Spine1"]
    if Rotation.from_matrix(hips.T @ chest).magnitude() > SPINE:
        return False
    for side, sign in zip(SIDES, SIGNS, strict=True):
        thigh = hips.T @ -node[f"{side}UpLeg"][:, 1]
        flexion, out = np.arctan2(thigh[2], -thigh[1]), np.arcsin(np.clip(sign * thigh[0], -1, 1))
        if not (HIP_FLEXION[0] <= flexion <= HIP_FLEXION[1] or abs(out) > 1.1) or not -0.6 < out < 1.25:
            return False
        local = node[f"{side}UpLeg"].T @ node[f"{side}Leg"]
        bend = np.arctan2(local[2, 1], local[1, 1])
        if not -0.05 <= bend <= KNEE[1] + 0.02:
            return False
        arm = chest.T @ node[f"{side}Arm"][:, 0] * sign
        if arm[2] < -0.5 and arm[1] > 0.3:  # up behind the back
            return False
        if arm[0] * sign < -0.75 or (arm[0] * sign < -0.25 and arm[2] < 0):  # through the chest
            return False
    return True


def clear(joints: Float[np.ndarray, "21 3"]) -> bool:
    """Is no limb inside another or inside the trunk?"""
    at = dict(zip(H36M_21.joints, joints, strict=True))
    steps = np.linspace(0, 1, 7)[:, None]

    def line(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + steps * (b - a)

    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("forearm", "upper", "shin", "thigh", "knee")}
    for side in ("left", "right"):
        hand = at[f"{side}_wrist"] + 0.12 * (at[f"{side}_wrist"] - at[f"{side}_elbow"])
        parts["forearm"].append(line(at[f"{side}_elbow"], hand))
        parts["upper"].append(line(at[f"{side}_shoulder"], at[f"{side}_elbow"])[3:])
        parts["shin"].append(line(at[f"{side}_knee"], at[f"{side}_ankle"]))
        parts["thigh"].append(line(at[f"{side}_hip"], at[f"{side}_knee"])[2:])
        parts["knee"].append(at[f"{side}_knee"][None])
    parts["trunk"] = [line(at["pelvis"], at["thorax"])[1:]]
    parts["head"] = [line(at["nose"], at["head"])]
    for (a, b), least in CLEARANCE.items():
        for i, one in enumerate(parts[a]):
            for j, other in enumerate(parts[b]):
                if (a == b and i >= j) or ((a, b) == ("shin", "thigh") and i == j):
                    continue
                if np.linalg.norm(one[:, None] - other, axis=-1).min() < least:
                    return False
    return True
