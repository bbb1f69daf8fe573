"""People who sit, kneel, squat, lie or bend: upper bodies from real motion, legs and arms on what carries them.

Every kind of pose is a few ways to do it. A way draws pelvis, chest and legs, and lets hands rest somewhere or do what
they did in the motion; a pose that no body can take, or with a limb inside another, is drawn anew.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.spatial.transform import Rotation

from di2pose.people.body import model
from di2pose.people.motion import CLASSES, NODES, SHARES, Library, classify
from di2pose.people.puppet import DOWN, FRONT, SIDES, UP, Puppet, clear, cross, euler, within_limits
from di2pose.people.raster import skin
from di2pose.people.retarget import SIGNS, Pose, Rig, node_turns, perturb
from di2pose.people.wardrobe import DressedPerson

KINDS = {"seated": 0.45, "kneeling": 0.17, "floor": 0.17, "lying": 0.15, "bent": 0.06}
"""How often each kind of settled person is drawn."""
WAYS = {
    "seated": {"feet": 0.34, "stretched": 0.12, "tucked": 0.1, "ankles": 0.08, "crossed": 0.16, "figure4": 0.08,
               "elbows": 0.12},
    "kneeling": {"two": 0.25, "one": 0.34, "heels": 0.2, "fours": 0.17, "bow": 0.04},
    "floor": {"crosslegged": 0.26, "stretched": 0.16, "one_up": 0.14, "hugging": 0.12, "sideways": 0.12, "squat": 0.2},
    "lying": {"back": 0.34, "side": 0.22, "belly": 0.15, "curled": 0.11, "elbow": 0.08, "reclined": 0.1},
    "bent": {"pick": 0.3, "over": 0.3, "knees": 0.22, "crouch": 0.18},
}  # fmt: skip
SEATS = {"chair": 0.3, "armchair": 0.12, "stool": 0.12, "bench": 0.1, "sofa": 0.16, "bed": 0.08, "wheelchair": 0.05,
         "ball": 0.03, "block": 0.04}  # fmt: skip
HEIGHTS = {"chair": (0.42, 0.5), "armchair": (0.38, 0.48), "stool": (0.42, 0.58), "bench": (0.36, 0.48),
           "sofa": (0.34, 0.46), "bed": (0.4, 0.58), "wheelchair": (0.45, 0.52), "ball": (0.45, 0.6),
           "block": (0.22, 0.45)}  # fmt: skip
"""Of a seat above the floor, metres."""
WITH_ARMS = ("armchair", "wheelchair")
TABLE = 0.64
"""Share of those on a chair, stool, bench or wheelchair who sit at a table or desk: a third of all who sit."""
FOUND = 0.22
"""Share that keeps a whole pose of the motion of that kind, furniture put under it."""
UPPER_BODIES = {"upright": 0.42, "stride": 0.12, "arms_up": 0.12, "seated": 0.2, "bent": 0.08, "kick": 0.06}
"""Classes of the motion that trunk, arms and head are taken from."""
TRIES = 10
SITTING = ("root", "pelvis", "spine05", "upperleg01", "upperleg02")
"""Bones whose flesh rests on a seat."""


@dataclass(frozen=True)
class Seat:
    """What carries a settled person: one of SEATS, floor, mat, or for lying bed or sofa; and a table's height."""

    kind: str
    table: float | None = None
    """Metres above the middle of the hips, None for no table."""
    lean: float = 0.0
    """Of a back rest, radians backwards."""


@dataclass(frozen=True)
class Settled:
    """A pose, the frame of the library that its upper body is from, and what it is."""

    pose: Pose
    frame: int
    kind: str
    way: str
    seat: Seat
    mirrored: bool

    @property
    def name(self) -> str:
        return f"{self.kind} {self.way} {self.seat.kind}{'+table' * (self.seat.table is not None)}"


def draw_settled(person: DressedPerson, poses: Library, generator: np.random.Generator) -> Settled:
    """A settled person; everybody faces -y of the body axes."""
    kind = _pick(KINDS, generator)
    left, right = (-generator.beta(1.5, 2.5, 2)).tolist()  # `Rig.pose` bends fingers towards the back of the hand
    grip = (left, right)
    if generator.random() < FOUND and (found := _found(person, poses, kind, grip, generator)) is not None:
        return found
    way = _pick(WAYS[kind], generator)
    upper = UPPER_BODIES if UPPER_BODIES.keys() & poses.members.keys() else SHARES
    for _ in range(TRIES):
        frame = poses.draw(generator, shares=upper)
        mirrored, flipped = (bool(x) for x in generator.random(2) < 0.5)
        source = node_turns(poses.rotations[frame], mirrored)
        seat = _draw_seat(kind, way, generator)
        puppet = Puppet(person.rig, source, grip)
        draft = _Draft(puppet, generator, seat, int(flipped))
        getattr(draft, f"{kind}_{way}")()
        pose = puppet.finished()
        if within_limits(puppet.turns) and clear(pose.joints):
            break
    return Settled(pose, frame, kind, way, draft.seat, mirrored)


def _pick(shares: dict[str, float], generator: np.random.Generator) -> str:
    share = np.array(list(shares.values()))
    return list(shares)[int(generator.choice(len(share), p=share / share.sum()))]


def _draw_seat(kind: str, way: str, generator: np.random.Generator) -> Seat:
    """What carries: drawn before the pose, which fits it."""
    name, table = _pick(SEATS, generator), bool(generator.random() < TABLE)
    chance = generator.random()
    if kind == "seated":
        at_table = name in ("chair", "armchair", "stool", "bench", "wheelchair") and way != "figure4"
        return Seat(name, 0.0 if table and at_table else None)
    if kind == "lying":
        return Seat("bed" if chance < 0.4 else "sofa" if chance < 0.55 else "mat" if chance < 0.75 else "floor")
    if kind == "floor" and way != "squat":
        return Seat("bed" if chance < 0.15 else "mat" if chance < 0.4 else "floor")
    if kind == "bent":
        return Seat("counter" if way == "over" and chance < 0.7 else "floor")
    return Seat("mat" if chance < 0.25 else "floor")


def _found(
    person: DressedPerson, poses: Library, kind: str, grip: tuple[float, float], generator: np.random.Generator
) -> Settled | None:
    """A whole pose of the motion that is of this kind already, turned to face -y; None if none turns up."""
    if kind not in poses.members:
        return None
    for _ in range(3):
        frame = poses.draw(generator, shares={kind: 1.0})
        mirrored = bool(generator.random() < 0.5)
        turns = perturb(node_turns(poses.rotations[frame], mirrored), generator)
        front = turns[0][:, 2] if abs(turns[0][1, 2]) < 0.8 else turns[0][:, 1]
        turns = euler(-float(np.arctan2(front[0], front[2])), 0.0, 0.0) @ turns
        pose = person.rig.pose(turns, grip)
        if CLASSES[int(classify(pose.joints[None], up=2)[0])] != kind or not clear(pose.joints):
            continue
        seat = _draw_seat(kind, "found", generator)
        if kind == "seated":
            hips, ankles = pose.joints[0], pose.joints[[3, 6]]
            if (hips[1] - ankles[:, 1]).min() < 0.2 or np.ptp(ankles[:, 2]) > 0.25:  # a squat, a kick
                continue
            seat = Seat("chair" if seat.kind in (*WITH_ARMS, "bed", "sofa") else seat.kind)
        return Settled(pose, frame, kind, "found", seat, mirrored)
    return None


@lru_cache(maxsize=8)
def thickness(rig: Rig) -> dict[str, float]:
    """Metres from the middle of the hips down to the lowest flesh that sits or lies there."""
    base, out = model(), {}
    chosen = base.skin_vertices[np.isin(base.bone_index[base.skin_vertices, 0], sitting_bones())]
    lying = np.pi / 2
    for name, tilt, roll, lift in (
        ("seat", -0.2, 0.0, lying - 0.2),
        ("back", -lying, 0.0, 0.0),
        ("belly", -lying, np.pi, 0.0),
    ):
        hips = euler(0.0, tilt, 0.0) @ euler(roll, 0.0, 0.0)
        turns = np.tile(hips, (len(NODES), 1, 1))
        turns[[NODES.index(f"{side}{limb}") for side in SIDES for limb in ("UpLeg", "Leg", "Foot")]] = hips @ euler(
            0.0, -lift, 0.0
        )
        pose = rig.pose(turns)
        moves = pose.heads - np.einsum("bij,bj->bi", pose.turns, rig.rest)
        points = skin(
            rig.body.vertices[chosen], base.bone_index[chosen], base.bone_weight[chosen],
            pose.turns.astype(np.float32), moves.astype(np.float32),
        )  # fmt: skip
        near = np.abs(points[:, 1] - pose.joints[0, 1]) < 0.2
        out[name] = float(pose.joints[0, 2] - np.percentile(points[near, 2], 1))
    return out


def sitting_bones() -> list[int]:
    return [number for number, name in enumerate(model().bones) if name.partition(".")[0] in SITTING]


class _Draft:
    """The ways. `gap`: metres from the hips down to what they rest on; `one`: the side that does something else."""

    def __init__(self, puppet: Puppet, generator: np.random.Generator, seat: Seat, one: int) -> None:
        self.p, self.g, self.seat, self.one = puppet, generator, seat, one
        self.gap, self.k, self.floor = thickness(puppet.rig)["seat"], puppet.size, 0.0

    # Draws and places

    def u(self, low: float, high: float) -> float:
        return float(self.g.uniform(low, high))

    def n(self, mean: float, spread: float) -> float:
        return float(mean + spread * np.clip(self.g.standard_normal(), -2.2, 2.2))

    def deg(self, mean: float, spread: float) -> float:
        return float(np.radians(self.n(mean, spread)))

    def at(self, side: int, out: float, up: float, front: float) -> np.ndarray:
        """A point from the middle of the hips: `out` to that side, times the body's size."""
        return self.p.place("pelvis") + self.k * np.array([SIGNS[side] * out, up, front])

    def out(self, side: int) -> np.ndarray:
        return np.array([SIGNS[side], 0.0, 0.0])

    def low(self, height: float) -> float:
        """Height of an ankle on the floor, seen from the hips (in sizes), `height` being that of the seat."""
        return -(self.gap + height) / self.k + 0.085

    # Trunk and arms

    def sit_up(self, lean: float, slump: float = 0.0, yaw: float = 0.0) -> None:
        """The trunk of one who sits: the pelvis rolls back a little (by `slump` more), and takes half of the lean."""
        back = np.radians(self.u(4, 18)) + slump
        tilt = float(np.clip(0.5 * lean - back, np.radians(-42), np.radians(40)))
        roll = self.deg(0, 3)
        self.p.trunk(np.eye(3), (yaw, tilt, roll), (0.0, lean, -roll), self.u(0.3, 1.0))

    def arms(self, floor: float, wide: bool, rest: float | None = None) -> None:
        """Hands in the lap, on the knees, at the head or phone, or as in the motion where that is not below `floor`.

        `floor`: height that wrists stay above, from the hips, metres; `wide`: beside the body too. `rest`: the height
        of arm rests.
        """
        both = self.g.random() < 0.45
        ways = ["lap", "thigh", "knee", "phone", "chin", "motion", "rest"]
        share = np.array([0.14, 0.16, 0.1, 0.1, 0.06, 0.44, 0.0])
        if rest is not None:
            share = np.array([0.12, 0.1, 0.05, 0.1, 0.05, 0.13, 0.45])
        first = ways[int(self.g.choice(len(ways), p=share / share.sum()))]
        second = first if both else ways[int(self.g.choice(len(ways), p=share / share.sum()))]
        for side, way in ((self.one, first), (1 - self.one, second)):
            self.arm(side, way, floor, wide, rest)

    def arm(self, side: int, way: str, floor: float, wide: bool, rest: float | None) -> None:
        p, pelvis = self.p, self.p.place("pelvis")
        hip, knee = p.joint(side, "hip"), p.knee(side)
        along, out = self.u(0.3, 0.75), self.out(side)
        if way == "motion":
            wrist, elbow = p.joint(side, "wrist"), p.joint(side, "elbow")
            beside = abs(wrist[0] - pelvis[0]) > 0.26 and not wide
            if (min(wrist[1], elbow[1]) > pelvis[1] + floor or beside) and rest is None:
                return
            if rest is not None and min(wrist[1], elbow[1]) > pelvis[1] + rest + 0.05:
                return
            way = "thigh"
        if way == "rest" and rest is not None:
            elbow = pelvis + np.array([SIGNS[side] * self.u(0.29, 0.33), rest + 0.02, self.u(-0.02, 0.1)])
            p.elbow_on(side, elbow, elbow + FRONT * 0.25 - out * self.u(-0.03, 0.08) + UP * self.n(0.01, 0.01), DOWN)
        elif way == "phone":
            chest = p.place("thorax")
            ahead = p.node("Spine1")[:, 2]
            target = chest + self.k * (self.u(0.26, 0.36) * ahead - self.u(0.02, 0.25) * UP + self.u(0.02, 0.1) * out)
            p.reach(side, target, DOWN + 0.5 * out - 0.3 * FRONT, -ahead + 0.5 * UP)
        elif way == "chin":
            face = p.place("nose") + 0.12 * p.node("Head")[:, 2]
            p.reach(side, face - 0.07 * UP + self.u(0.02, 0.1) * out + 0.06 * FRONT, DOWN + 0.4 * out + 0.3 * FRONT)
        elif way == "knee":
            target = knee + self.k * (0.095 * UP - self.u(0, 0.15) * (knee - hip))
            p.reach(side, self._above(target), 0.7 * out - FRONT, DOWN)
        else:
            inward = self.u(0.4, 1.0) if way == "lap" else self.u(-0.3, 0.4)
            target = hip + along * (knee - hip) + self.k * 0.105 * UP - 0.09 * inward * out
            p.reach(side, self._above(target), out - 0.8 * FRONT - 0.4 * UP, DOWN)

    def _above(self, point: np.ndarray) -> np.ndarray:
        """The point, or so much higher that it is on top of both thighs."""
        point = point.copy()
        for side in (0, 1):
            hip = self.p.joint(side, "hip")
            thigh = self.p.knee(side) - hip
            near = hip + np.clip((point - hip) @ thigh / (thigh @ thigh), 0, 1) * thigh
            away = np.hypot(*(point - near)[[0, 2]])
            if away < 0.1 * self.k:
                point[1] = max(point[1], near[1] + np.sqrt((0.105 * self.k) ** 2 - away**2))
        return point

    def behind(self, side: int, below: float) -> None:
        """Lean on a hand behind the body; the wrist `below` the hips."""
        target = self.at(side, self.u(0.2, 0.38), 0, -self.u(0.18, 0.42))
        target[1] += -below + 0.085
        self.p.reach(side, target, -FRONT + 0.3 * UP + 0.2 * self.out(side), DOWN)

    # On a seat

    def _height(self, most: float = 0.51) -> float:
        """Of the seat; not so high that the feet do not reach the floor."""
        return min(self.u(*HEIGHTS[self.seat.kind]), most * self.k)

    def _on_seat(self, lean: float | None = None, yaw: float = 0.0) -> None:
        """Trunk and arms of one who sits on a seat, after which come the legs."""
        backed = self.seat.kind in ("chair", "armchair", "sofa", "wheelchair")
        if lean is None:
            chance = self.g.random()
            lean = self.deg(3, 7) if chance < 0.5 else self.deg(20, 8) if chance < 0.75 else self.deg(-16, 7)
            if lean < np.radians(-8) and not backed:
                lean = abs(lean)
            if self.seat.table is not None:
                lean = abs(lean)
        self.sit_up(lean, yaw=yaw)

    def _hands(self) -> None:
        lean = float(np.arcsin(np.clip(self.p.node("Spine1")[2, 1], -1, 1)))
        rest = self.u(0.1, 0.14) if self.seat.kind in WITH_ARMS else None
        height = None if self.seat.table is None else self._table()
        self.seat = Seat(self.seat.kind, height, -min(lean, 0.0))
        wide = self.seat.kind in ("chair", "stool", "ball", "block")
        self.arms(0.02, wide, rest)
        if height is None:
            return
        for side in (0, 1):
            chance = self.g.random()
            ahead, out = self.u(0.32, 0.5), self.u(-0.02, 0.24)
            if chance < 0.72:
                target = self.p.place("pelvis") + np.array([SIGNS[side] * out, height + 0.05, 0.0])
                target[2] = self.p.joint(side, "shoulder")[2] + self.k * ahead * 0.8
                self.p.reach(side, target, 0.8 * self.out(side) - 0.35 * FRONT - 0.3 * UP, DOWN)

    def _table(self) -> float:
        """Height of a table above the hips: over the knees."""
        knees = max(self.p.knee(side)[1] for side in (0, 1)) - self.p.place("pelvis")[1]
        return max(knees + self.k * 0.11, 0.12 * self.k) + self.u(0.03, 0.12)

    def _foot_down(self, side: int, low: float, front: tuple[float, float], out: tuple[float, float]) -> None:
        apart = self.u(*out)
        ankle = self.at(side, apart, low, self.p.thigh / self.k * 0.98 + self.u(*front))
        self.p.leg(side, ankle, UP + FRONT + self.out(side) * self.n(0.12, 0.18))

    def seated_feet(self) -> None:
        low, apart = self.low(self._height()), self.u(0.03, 0.22)
        self._on_seat()
        for side in (0, 1):
            self._foot_down(side, low, (-0.12, 0.14), (apart - 0.02, apart + 0.06))
        self._hands()

    def seated_stretched(self) -> None:
        low = self.low(self._height())
        self._on_seat(None if self.seat.table is not None else self.deg(-10, 12))
        far = self.u(0.2, 0.42)
        for side in (0, 1):
            if side == self.one or self.g.random() < 0.65:
                self._foot_down(side, low, (far, far + 0.06), (0.02, 0.16))
            else:
                self._foot_down(side, low, (-0.14, 0.1), (0.05, 0.16))
        self._hands()

    def seated_tucked(self) -> None:
        low = self.low(self._height())
        self._on_seat()
        solid = self.seat.kind in ("sofa", "bed", "block", "ball")
        for side in (0, 1):
            back = side == self.one or self.g.random() < 0.5
            self._foot_down(
                side,
                low + 0.03 * back,
                (-0.12, -0.05) if solid else (-0.3, -0.12) if back else (-0.1, 0.05),
                (0.04, 0.14),
            )
        self._hands()

    def seated_ankles(self) -> None:
        low = self.low(self._height())
        self._on_seat()
        ahead = self.u(-0.08, 0.25)
        for side in (0, 1):
            over = side == self.one
            ankle = self.at(side, -0.03, low + 0.03 * over, self.p.thigh / self.k + ahead + 0.15 * over)
            self.p.leg(side, ankle, UP + FRONT + 0.4 * self.out(side))
        self._hands()

    def seated_elbows(self) -> None:
        """Elbows on the thighs, or on the table."""
        low, apart = self.low(self._height(0.44)), self.u(0.08, 0.24)
        table = self.seat.table is not None
        self._on_seat(self.deg(28, 5) if table else self.deg(42, 5))
        for side in (0, 1):
            self._foot_down(side, low, (-0.14, 0.06), (apart, apart + 0.05))
        joined = self.g.random() < 0.6
        if table:
            self._elbows_on_table(joined)
            return
        for side in (0, 1):
            if side == self.one and self.g.random() < 0.15:
                self.arm(side, "chin", 0.02, False, None)
                continue
            hip, knee = self.p.joint(side, "hip"), self.p.knee(side)
            shoulder = self.p.joint(side, "shoulder")
            share = np.clip((shoulder - hip)[2] / max((knee - hip)[2], 0.1) + self.u(-0.02, 0.15), 0.45, 0.95)
            elbow = hip + share * (knee - hip) + self.k * (0.105 * UP + 0.02 * self.out(side))
            middle = self.p.place("pelvis") + FRONT * ((knee - hip)[2] + self.u(0.02, 0.1))
            middle[1] = elbow[1] + self.u(-0.06, 0.12)
            ahead = elbow + FRONT * 0.25 + UP * self.u(-0.12, 0.05) - 0.1 * self.out(side)
            self.p.elbow_on(side, elbow, middle + 0.035 * self.out(side) if joined else ahead, -self.out(side))

    def _elbows_on_table(self, joined: bool) -> None:
        height = self._table()
        self.seat = Seat(self.seat.kind, height)
        for side in (0, 1):
            shoulder = self.p.joint(side, "shoulder")
            elbow = shoulder + self.k * self.u(-0.02, 0.07) * self.out(side)
            elbow[1] = self.p.place("pelvis")[1] + height + 0.055
            elbow[2] += np.sqrt(max(self.p.arm**2 - (shoulder - elbow)[1] ** 2, 0.0))
            towards = elbow + 0.2 * FRONT - self.u(0.05, 0.2) * self.out(side) + self.u(0, 0.05) * UP
            if joined:
                towards = self.p.place("nose") + 0.16 * FRONT + 0.04 * self.out(side) - self.u(0.05, 0.12) * UP
            self.p.elbow_on(side, elbow, towards, None if joined else DOWN)

    def seated_crossed(self) -> None:
        """One knee over the other: the pelvis turns a little, the lower thigh goes to the middle."""
        low = self.low(self._height(0.46))
        over, under = self.one, 1 - self.one
        self._on_seat(yaw=-SIGNS[over] * np.radians(self.u(6, 12)))
        ankle = self.at(under, -self.u(0.0, 0.08), low, self.p.thigh / self.k + self.u(-0.08, 0.08))
        self.p.leg(under, ankle, UP + FRONT - 0.45 * self.out(under))
        hip, below = self.p.joint(over, "hip"), self.p.knee(under)
        knee = below + self.k * (0.115 * UP + 0.06 * FRONT + self.u(0.05, 0.08) * self.out(under))
        thigh = (knee - hip) / np.linalg.norm(knee - hip)
        shin = DOWN + self.u(0.25, 0.7) * FRONT + self.u(0.1, 0.4) * self.out(under)
        shin /= np.linalg.norm(shin)
        hinge = cross(thigh, shin)
        self.p.bones(over, thigh, shin, hinge / np.linalg.norm(hinge), np.radians(self.u(0, 35)))
        self._hands()

    def seated_figure4(self) -> None:
        low = self.low(self._height())
        self._on_seat()
        over, under = self.one, 1 - self.one
        self._foot_down(under, low, (-0.06, 0.08), (0.08, 0.16))
        hip, below = self.p.joint(under, "hip"), self.p.knee(under)
        ankle = hip + self.u(0.78, 0.92) * (below - hip) + self.k * 0.125 * UP + 0.06 * self.out(under)
        self.p.leg(over, ankle, self.out(over) + self.u(0.1, 0.5) * UP + 0.3 * FRONT, np.radians(self.u(-5, 25)))
        self._hands()

    # Kneeling

    def _shin_back(self, side: int, thigh: np.ndarray, inward: float = 0.0) -> None:
        """A knee on the floor, its shin flat behind it; toes stretched or tucked under."""
        tucked = self.g.random() < 0.35
        rise = (0.165 if tucked else 0.045) * self.k
        shin = -FRONT + rise / self.p.shin * UP - inward * self.out(side)
        shin = shin / np.linalg.norm(shin)
        hinge = cross(thigh, shin)
        self.p.bones(side, thigh, shin, hinge / np.linalg.norm(hinge), np.radians(-26 if tucked else self.u(48, 58)))

    def kneeling_two(self) -> None:
        lean = self.deg(6, 9)
        self.p.trunk(np.eye(3), (0.0, self.deg(4, 6), self.deg(0, 2)), (0.0, lean, 0.0), self.u(0.3, 1.0))
        sway, apart = self.u(-0.12, 0.5), self.u(-0.02, 0.22)
        for side in (0, 1):
            thigh = DOWN + sway * FRONT + apart * self.out(side)
            self._shin_back(side, thigh / np.linalg.norm(thigh))
        self.arms(-0.35, True)

    def kneeling_one(self) -> None:
        lean = self.deg(10, 10)
        self.p.trunk(np.eye(3), (0.0, self.deg(3, 6), self.deg(0, 3)), (0.0, lean, 0.0), self.u(0.3, 1.0))
        back, front = self.one, 1 - self.one
        thigh = DOWN + self.u(-0.12, 0.55) * FRONT + self.u(-0.02, 0.2) * self.out(back)
        thigh /= np.linalg.norm(thigh)
        self._shin_back(back, thigh)
        floor = (self.p.knee(back) - self.p.place("pelvis"))[1] / self.k - 0.067
        ankle = self.at(front, self.u(0.06, 0.22), floor + 0.085, self.p.thigh / self.k + self.u(-0.1, 0.12))
        self.p.leg(front, ankle, FRONT + UP + 0.2 * self.out(front))
        if self.g.random() < 0.35:
            self.arm(front, "knee", -0.3, True, None)
            self.arm(back, "motion", -0.3, True, None)
        else:
            self.arms(-0.35, True)

    def _folded(self, side: int, apart: float) -> None:
        slope = np.radians(self.u(27, 36))
        thigh = np.cos(slope) * (FRONT + apart * self.out(side)) / np.hypot(1, apart) - np.sin(slope) * UP
        shin = -FRONT - (apart + 0.1) * self.out(side) + 0.07 * UP
        shin /= np.linalg.norm(shin)
        hinge = cross(thigh, shin)
        self.p.bones(side, thigh, shin, hinge / np.linalg.norm(hinge), np.radians(self.u(48, 58)))

    def kneeling_heels(self) -> None:
        self.sit_up(self.deg(8, 9))
        apart = self.u(0.05, 0.45)
        for side in (0, 1):
            self._folded(side, apart)
        self.arms(-0.1, True)

    def kneeling_bow(self) -> None:
        """Folded over the thighs, hands ahead on the floor."""
        pitch = self.deg(72, 6)
        self.p.trunk(np.eye(3), (0.0, pitch - np.radians(28), 0.0), (0.0, pitch, 0.0), self.u(0.1, 0.5), 0.4)
        apart = self.u(0.2, 0.5)
        for side in (0, 1):
            self._folded(side, apart)
        floor = min(self.p.knee(0)[1], self.p.knee(1)[1])
        for side in (0, 1):
            target = self.p.joint(side, "shoulder") + self.k * (
                self.u(0.15, 0.45) * FRONT + self.n(0.06, 0.06) * self.out(side)
            )
            target[1] = floor + 0.02
            self.p.reach(side, target, UP + 0.8 * self.out(side), DOWN)

    def kneeling_fours(self) -> None:
        pitch = self.deg(84, 9)
        self.p.trunk(
            np.eye(3),
            (0.0, pitch - self.deg(6, 9), self.deg(0, 3)),
            (self.deg(0, 5), pitch, 0.0),
            self.u(0.1, 0.5),
            0.4,
        )
        for side in (0, 1):
            thigh = DOWN + self.n(0.0, 0.2) * FRONT + self.u(-0.03, 0.14) * self.out(side)
            thigh /= np.linalg.norm(thigh)
            self._shin_back(side, thigh)
        floor = min(self.p.knee(side)[1] for side in (0, 1)) - 0.067 * self.k
        for side in (0, 1):
            target = self.p.joint(side, "shoulder") + self.k * (
                self.n(0.02, 0.09) * FRONT + self.n(0.03, 0.05) * self.out(side)
            )
            target[1] = floor + 0.095
            if side == self.one and self.g.random() < 0.15:
                target += np.array([0.0, self.u(0.2, 0.5), self.u(0.1, 0.4)])
            self.p.reach(side, target, self.out(side) - 0.6 * FRONT, DOWN)

    # On the floor

    def _floor_hands(self, lean: float) -> None:
        if lean < np.radians(-14):
            for side in (0, 1):
                if side == self.one or self.g.random() < 0.75:
                    self.behind(side, self.gap)
                else:
                    self.arm(side, "knee" if self.g.random() < 0.5 else "motion", -self.gap + 0.06, True, None)
        else:
            self.arms(-self.gap + 0.06, True)

    def _floor_trunk(self, back: float) -> float:
        lean = self.deg(-26, 6) if self.g.random() < back else self.deg(10, 10)
        self.sit_up(lean, np.radians(self.u(0, 18)) if lean > 0 else 0.0)
        return lean

    def floor_crosslegged(self) -> None:
        lean = self._floor_trunk(0.15)
        floor = -self.gap / self.k
        for side in (0, 1):
            over = side == self.one
            ankle = self.at(side, self.u(-0.08, -0.02), floor + 0.08 + 0.04 * over, self.u(0.17, 0.21) + 0.12 * over)
            self.p.leg(side, ankle, self.out(side) + self.u(0.05, 0.4) * UP + 0.25 * FRONT, np.radians(self.u(10, 40)))
        self._floor_hands(lean)

    def floor_stretched(self) -> None:
        lean = self._floor_trunk(0.5)
        floor, apart, far = -self.gap / self.k, self.u(0.05, 0.28), self.u(0.9, 0.985)
        length = (self.p.thigh + self.p.shin) / self.k
        for side in (0, 1):
            ankle = self.at(side, apart + self.u(0, 0.04), floor + 0.08, far * length - self.u(0, 0.05))
            self.p.leg(side, ankle, UP + self.n(0.1, 0.2) * self.out(side), np.radians(self.u(-5, 35)))
        self._floor_hands(lean)

    def floor_one_up(self) -> None:
        lean = self._floor_trunk(0.45)
        floor = -self.gap / self.k
        bent, other = self.one, 1 - self.one
        ankle = self.at(bent, self.u(0.04, 0.16), floor + 0.1, self.u(0.42, 0.6))
        self.p.leg(bent, ankle, UP + 0.4 * FRONT + self.n(0.1, 0.2) * self.out(bent))
        if self.g.random() < 0.55:
            ankle = self.at(other, self.u(0.08, 0.22), floor + 0.075, self.u(0.72, 0.82))
            self.p.leg(other, ankle, UP + 0.3 * self.out(other), np.radians(self.u(0, 35)))
        else:
            ankle = self.at(other, -self.u(0.06, 0.16), floor + 0.075, self.u(0.2, 0.3))
            self.p.leg(other, ankle, self.out(other) + 0.05 * UP + 0.2 * FRONT, np.radians(self.u(15, 45)))
        self._floor_hands(lean)

    def floor_hugging(self) -> None:
        self.sit_up(self.deg(12, 5), np.radians(20))
        floor, near = -self.gap / self.k, self.u(0.5, 0.62)
        for side in (0, 1):
            ankle = self.at(side, self.u(0.03, 0.1), floor + 0.085, near)
            self.p.leg(side, ankle, UP + 0.4 * FRONT + self.n(0.05, 0.05) * self.out(side))
        around, share = self.g.random() < 0.5, self.u(0.1, 0.4)
        for side in (0, 1):
            knee, ankle = self.p.knee(side), self.p.ankle(side)
            target = knee + share * (ankle - knee) + self.k * (0.06 * FRONT + 0.09 * self.out(side))
            if around:
                target += self.k * (0.1 + 0.06 * (side == self.one)) * FRONT
                target[0] = self.p.place("pelvis")[0] + self.k * SIGNS[side] * self.u(0.0, 0.06)
            self.p.reach(side, target, self.out(side), -self.out(side))

    def floor_sideways(self) -> None:
        """Both knees to one side, the feet beside the other hip."""
        lean = self.deg(6, 9)
        tilt = SIGNS[self.one] * np.radians(self.u(4, 12))
        self.p.trunk(np.eye(3), (0.0, np.radians(-8), -tilt), (0.0, lean, tilt * 0.3), self.u(0.3, 1.0))
        floor, knees, feet = -self.gap / self.k, self.one, 1 - self.one
        ankle = self.at(feet, self.u(0.0, 0.12), floor + 0.06, self.u(0.18, 0.3))
        self.p.leg(knees, ankle, self.out(knees) + 0.3 * FRONT, np.radians(self.u(25, 50)))
        ankle = self.at(feet, self.u(0.3, 0.42), floor + 0.06, self.u(-0.12, 0.08))
        self.p.leg(feet, ankle, FRONT + 0.55 * self.out(knees), np.radians(self.u(25, 50)))
        self.arms(-self.gap + 0.06, True)
        if self.g.random() < 0.4:
            target = self.at(knees, self.u(0.25, 0.4), 0, self.u(-0.2, 0.1))
            target[1] += -self.gap + 0.05
            self.p.reach(knees, target, self.out(knees) - FRONT, DOWN)

    def floor_squat(self) -> None:
        low = self.u(0.24, 0.46)
        self.p.trunk(np.eye(3), (0.0, self.deg(14, 9), self.deg(0, 3)), (0.0, self.deg(30, 9), 0.0), self.u(0.4, 1.0))
        apart = self.u(0.06, 0.24)
        for side in (0, 1):
            ankle = self.at(side, apart + self.u(0, 0.05), -low + 0.03, self.u(0.06, 0.2))
            self.p.leg(side, ankle, FRONT + 0.5 * UP + self.u(0.1, 0.6) * self.out(side))
        chance = self.g.random()
        if chance < 0.25:
            for side in (0, 1):
                target = self.at(side, self.u(0.02, 0.2), -low + 0.05, self.u(0.4, 0.6))
                self.p.reach(side, target, self.out(side) - FRONT, DOWN)
        elif chance < 0.5:
            for side in (0, 1):
                knee = self.p.knee(side)
                ahead = knee + 0.13 * self.k * FRONT + 0.06 * UP
                ahead[0] = self.p.place("pelvis")[0] + SIGNS[side] * self.u(0.02, 0.12)
                self.p.reach(side, ahead, self.out(side) - 0.3 * UP, DOWN)
        else:
            self.arms(-low + 0.05, True)

    # Lying

    def _down(self, roll: float, bend: float = 0.0, gaze: float = 0.0, pitch: float = 0.0) -> np.ndarray:
        """Lie along -z, head away from the front; `roll` 0 on the back, half a turn on the belly."""
        base = Rotation.from_euler("XY", [-np.pi / 2, roll]).as_matrix()
        self.gap = thickness(self.p.rig)["back" if abs(roll) < np.pi / 2 else "belly"]
        self.p.trunk(base, (0.0, 0.0, 0.0), (0.0, bend, 0.0), gaze, 0.5)
        return base

    def _legs_along(self, side: int, base: np.ndarray, flexion: float, bend: float, out: float, foot: float) -> None:
        """Joint angles of a leg within the lying body."""
        turn = base @ euler(0.0, -flexion, SIGNS[side] * out)
        shin = turn @ euler(0.0, bend, 0.0)
        self.p.bones(side, -turn[:, 1], -shin[:, 1], turn[:, 0], foot)

    def _arms_down(self, floor: float) -> None:
        """Arms as in the motion, but not below the floor (height from the hips)."""
        for side in (0, 1):
            chance = self.g.random()
            shoulder = self.p.joint(side, "shoulder")
            if chance < 0.3:  # along the body
                target = shoulder + self.k * (self.u(0.36, 0.47) * FRONT + self.u(0.06, 0.22) * self.out(side))
                target[1] = self.p.place("pelvis")[1] + floor + 0.04
                self.p.reach(side, target, self.out(side) - 0.5 * UP, DOWN)
            elif chance < 0.5:  # on the belly or chest
                target = self.p.place("spine") + self.k * (self.u(0.15, 0.19) * UP + self.u(-0.16, 0.12) * FRONT)
                target += self.k * self.u(0.0, 0.1) * self.out(side)
                self.p.reach(side, target, self.out(side) - 0.6 * UP, DOWN)
            elif chance < 0.66:  # under or beside the head
                target = self.p.place("nose") + self.k * (
                    self.u(0.12, 0.25) * self.out(side) - self.u(0.0, 0.16) * FRONT
                )
                target[1] = self.p.place("pelvis")[1] + floor + 0.04
                self.p.reach(side, target, self.out(side) - 0.3 * FRONT, UP)
            elif chance < 0.76:  # a phone above the face
                target = self.p.place("nose") + self.k * (self.u(0.28, 0.4) * UP + self.u(0.04, 0.2) * FRONT)
                self.p.reach(side, target + 0.04 * self.out(side), FRONT + 0.6 * self.out(side), -UP)
            elif self.p.joint(side, "wrist")[1] < self.p.place("pelvis")[1] + floor + 0.03 or (
                self.p.joint(side, "elbow")[1] < self.p.place("pelvis")[1] + floor + 0.03
            ):
                target = shoulder + self.k * (self.u(-0.2, 0.3) * FRONT + self.u(0.3, 0.45) * self.out(side))
                target[1] = self.p.place("pelvis")[1] + floor + 0.04
                self.p.reach(side, target, FRONT - 0.2 * UP, UP)

    def lying_back(self) -> None:
        self._down(self.deg(0, 5), self.deg(0, 5))
        floor = -self.gap / self.k
        ups = self.g.random()
        for side in (0, 1):
            if ups < 0.22 or (ups < 0.5 and side == self.one):
                ankle = self.at(side, self.u(0.05, 0.15), floor + 0.085, self.u(0.35, 0.62))
                self.p.leg(side, ankle, UP + 0.3 * FRONT + self.n(0.05, 0.2) * self.out(side))
            else:
                length = (self.p.thigh + self.p.shin) / self.k * self.u(0.93, 0.99)
                ankle = self.at(side, self.u(0.04, 0.24), floor + 0.07, length)
                self.p.leg(side, ankle, UP + self.u(0, 0.8) * self.out(side), np.radians(self.u(10, 45)))
        self._arms_down(floor * self.k)

    def lying_reclined(self) -> None:
        """Half up against cushions: the seat's back rest stands behind."""
        lean = -np.radians(self.u(36, 58))
        self.p.trunk(np.eye(3), (0.0, lean * 0.8 - 0.15, self.deg(0, 3)), (0.0, lean, 0.0), self.u(0.2, 0.6))
        if self.seat.kind in ("floor", "mat"):
            self.seat = Seat("bed")
        self.seat = Seat(self.seat.kind, None, -lean)
        floor = -self.gap / self.k
        for side in (0, 1):
            if side == self.one and self.g.random() < 0.5:
                ankle = self.at(side, self.u(0.05, 0.15), floor + 0.085, self.u(0.38, 0.6))
                self.p.leg(side, ankle, UP + 0.3 * FRONT + self.n(0.05, 0.2) * self.out(side))
            else:
                length = (self.p.thigh + self.p.shin) / self.k * self.u(0.93, 0.985)
                ankle = self.at(side, self.u(0.0, 0.16), floor + 0.07, length)
                self.p.leg(side, ankle, UP + self.u(0, 0.6) * self.out(side), np.radians(self.u(10, 45)))
        self.arms(-self.gap + 0.06, True)

    def _on_side(self, tuck: float, bend: float) -> None:
        """On the side `one`; the other leg and arm lie on top."""
        below, above = self.one, 1 - self.one
        base = self._down(SIGNS[below] * (np.pi / 2 + self.deg(0, 9)), bend)
        extra = self.u(0.0, 35.0)
        self._legs_along(
            below,
            base,
            np.radians(tuck + self.n(0, 8)),
            np.radians(tuck * 0.9 + self.u(8, 35)),
            0.1,
            np.radians(self.u(10, 45)),
        )
        self._legs_along(
            above,
            base,
            np.radians(tuck + extra),
            np.radians(tuck * 0.9 + extra + self.u(8, 30)),
            -self.u(0.25, 0.42) if extra > 18 else -self.u(0.1, 0.18),
            np.radians(self.u(10, 45)),
        )
        chest = self.p.node("Spine1")
        head = chest[:, 1]
        # `ahead` is where the chest looks, `head` where the top of the head is
        ahead = chest[:, 2]
        shoulder = self.p.joint(below, "shoulder")
        target = shoulder + self.k * (self.u(0.2, 0.34) * ahead + self.u(0.05, 0.32) * head)
        target[1] = shoulder[1] - 0.03
        self.p.reach(below, target, ahead - 0.6 * head, UP)
        shoulder = self.p.joint(above, "shoulder")
        if self.g.random() < 0.65:
            target = shoulder + self.k * (self.u(0.22, 0.4) * ahead - self.u(-0.15, 0.25) * head)
            target[1] = self.p.joint(below, "shoulder")[1] + self.u(0.0, 0.1)
            self.p.reach(above, target, -0.8 * head + 0.5 * UP, DOWN)
        else:  # along the upper side
            target = shoulder - self.k * self.u(0.4, 0.47) * head + 0.06 * UP + 0.04 * ahead
            self.p.reach(above, target, UP - 0.5 * ahead, DOWN)

    def lying_side(self) -> None:
        self._on_side(self.u(8, 60), self.deg(6, 8))

    def lying_curled(self) -> None:
        self._on_side(self.u(66, 92), self.deg(24, 6))

    def lying_elbow(self) -> None:
        """On the side, the trunk raised on an elbow."""
        below, above = self.one, 1 - self.one
        up = np.radians(self.u(42, 54))
        base = Rotation.from_euler("XY", [-np.pi / 2, SIGNS[below] * (np.pi / 2 + self.deg(-6, 8))]).as_matrix()
        self.p.trunk(base, (0.0, 0.0, SIGNS[below] * 0.42 * up), (0.0, self.deg(4, 6), SIGNS[below] * up), 0.0, 0.4)
        tuck = self.u(5, 55)
        self._legs_along(
            below, base, np.radians(tuck), np.radians(tuck + self.u(5, 30)), 0.13, np.radians(self.u(10, 45))
        )
        self._legs_along(
            above,
            base,
            np.radians(tuck + self.u(0, 35)),
            np.radians(tuck + self.u(5, 60)),
            -self.u(0.1, 0.22),
            np.radians(self.u(10, 45)),
        )
        ahead, head = self.p.node("Spine1")[:, 2], self.p.node("Spine1")[:, 1]
        shoulder = self.p.joint(below, "shoulder")
        floor = self.p.joint(below, "hip")[1] - 0.1
        if self.g.random() < 0.5:  # the head in the hand
            elbow = shoulder + self.k * (0.1 * ahead + 0.12 * head) + DOWN * 0.3
            self.p.elbow_on(below, elbow, self.p.place("nose") + 0.05 * head + 0.1 * ahead + 0.06 * DOWN)
        else:
            elbow = shoulder + self.k * 0.06 * ahead + DOWN * 0.3
            self.p.elbow_on(
                below, elbow, elbow + self.k * (0.25 * ahead - self.u(-0.1, 0.15) * FRONT) * np.array([1, 0, 1]), DOWN
            )
        shoulder = self.p.joint(above, "shoulder")
        target = self.p.joint(above, "hip") + 0.12 * UP + self.k * self.u(0.0, 0.25) * FRONT
        if self.g.random() < 0.5:
            target = shoulder + self.k * (self.u(0.2, 0.35) * ahead - 0.2 * head)
            target[1] = floor + 0.06
        self.p.reach(above, target, UP - 0.5 * ahead, DOWN)

    def lying_belly(self) -> None:
        propped = self.g.random() < 0.55
        back = np.radians(self.u(24, 38)) if propped else 0.0
        base = self._down(np.pi + self.deg(0, 4), -back, 0.8 if propped else 0.0)
        for side in (0, 1):
            raised = propped and self.g.random() < 0.3
            bend = self.u(60, 105) if raised else self.u(3, 9)
            flexion, out = (5.0, self.u(0.02, 0.2)) if self.g.random() < 0.8 or propped else (self.u(10, 25), 0.7)
            self._legs_along(side, base, np.radians(flexion), np.radians(bend), out, np.radians(self.u(35, 55)))
        floor = self.p.place("pelvis")[1] - self.gap
        for side in (0, 1):
            shoulder = self.p.joint(side, "shoulder")
            away = np.array([-self.out(side)[0], 0.0, 0.0])  # face down, left is on the other side
            if propped:
                elbow = shoulder - self.k * 0.04 * FRONT + 0.03 * away
                elbow[1] = floor + 0.06
                elbow[2] -= np.sqrt(max(self.p.arm**2 - (shoulder - elbow)[1] ** 2, 0.0))
                towards = elbow - 0.24 * FRONT - self.u(0.02, 0.12) * away
                if side == self.one and self.g.random() < 0.3:
                    towards = self.p.place("nose") - 0.12 * FRONT
                self.p.elbow_on(side, elbow, towards, DOWN)
            else:
                along = self.g.random() < 0.4
                target = shoulder + self.k * (
                    (self.u(0.3, 0.45) if along else -self.u(0.05, 0.3)) * FRONT + self.u(0.1, 0.25) * away
                )
                target[1] = floor + 0.05
                self.p.reach(side, target, away + 0.2 * UP, UP if along else DOWN)
        if not propped:
            self._turn_head(self.g.choice([-1.0, 1.0]) * np.radians(self.u(50, 70)))

    def _turn_head(self, yaw: float) -> None:
        head = self.p.node("Head")
        head[:] = self.p.node("Spine1") @ euler(yaw, np.radians(-6), 0.0)

    # Bent over

    def _stand(self, height: float, pelvis: float, chest: float, gaze: float | None = None) -> None:
        """Feet on the floor under a trunk that is bent at the hips; `height` in leg lengths."""
        share = self.u(0.1, 0.8) if gaze is None else gaze
        self.p.trunk(np.eye(3), (0.0, pelvis, self.deg(0, 3)), (self.deg(0, 6), chest, 0.0), share)
        leg = (self.p.thigh + self.p.shin) / self.k
        forward = 0.16 * np.sin(chest) + self.u(-0.04, 0.06)
        apart, stagger = self.u(0.03, 0.2), self.n(0, 0.1)
        for side in (0, 1):
            ankle = self.at(side, apart + self.u(0, 0.04), -height * leg, forward + stagger * SIGNS[side])
            self.p.leg(side, ankle, FRONT + self.n(0.1, 0.12) * self.out(side))
        self.floor = -(height * leg + 0.085) * self.k

    def bent_pick(self) -> None:
        chest = self.deg(80, 12)
        self._stand(self.u(0.74, 0.95), chest - np.radians(self.u(22, 38)), chest)
        for side in (0, 1):
            if side != self.one and self.g.random() < 0.35:
                self.arm(side, "knee", self.floor, True, None)
                continue
            target = self.at(side, self.u(-0.02, 0.16), 0.0, self.u(0.35, 0.55))
            target[1] += self.floor + self.u(0.08, 0.35)
            self.p.reach(side, target, self.out(side) + 0.3 * UP, -self.out(side))

    def bent_over(self) -> None:
        chest = self.deg(62, 9)
        self._stand(self.u(0.9, 0.99), chest - np.radians(self.u(12, 26)), chest)
        if self.seat.kind != "counter":
            self.arms(self.floor + 0.1, True)
            return
        height = self.u(0.75, 0.98) * self.k + self.floor
        for side in (0, 1):
            target = self.p.joint(side, "shoulder") + self.k * (
                self.u(0.1, 0.32) * FRONT + self.u(-0.05, 0.12) * self.out(side)
            )
            low = self.p.joint(side, "shoulder")[1] - 0.93 * (self.p.arm + self.p.forearm)
            target[1] = max(self.p.place("pelvis")[1] + height, low) + 0.05
            self.p.reach(side, target, self.out(side) - 0.4 * FRONT, DOWN)
        self.seat = Seat("counter", height)

    def bent_knees(self) -> None:
        chest = self.deg(56, 7)
        self._stand(self.u(0.82, 0.93), chest - np.radians(self.u(16, 28)), chest)
        for side in (0, 1):
            hip, knee = self.p.joint(side, "hip"), self.p.knee(side)
            target = hip + self.u(0.78, 0.95) * (knee - hip) + self.k * (0.1 * FRONT + 0.03 * UP)
            self.p.reach(side, target, self.out(side) + 0.6 * FRONT, DOWN)

    def bent_crouch(self) -> None:
        chest = self.deg(48, 9)
        self._stand(self.u(0.5, 0.72), chest - np.radians(self.u(14, 26)), chest)
        self.arms(self.floor + 0.12, True)
