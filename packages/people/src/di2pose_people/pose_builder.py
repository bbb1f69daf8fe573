"""What every way of sitting, kneeling, lying or bending starts from: draws, a trunk, and places for the hands."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from di2pose_people.body import model
from di2pose_people.ik_rig import DOWN, FRONT, SIDES, UP, IkRig, euler
from di2pose_people.motion import NODES
from di2pose_people.raster import skin
from di2pose_people.retarget import SIGNS, Rig


@dataclass(frozen=True)
class Seat:
    """What carries a settled person: a seat (`settled.SEATS`); floor, mat, mattress or couch under the whole body; or
    nothing but a counter to lean on."""

    kind: str
    table: float | None = None
    """Metres above the middle of the hips, None for no table."""
    lean: float = 0.0
    """Of a back rest, radians backwards."""


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


def bones_of(*stems: str) -> list[int]:
    """Numbers of the bones whose names begin so."""
    return [number for number, name in enumerate(model().bones) if name.startswith(stems)]


def sitting_bones() -> list[int]:
    """Bones whose flesh rests on a seat."""
    return bones_of("root", "pelvis", "spine05", "upperleg")


class PoseBuilder(IkRig):
    """A body while one of the ways to sit, kneel, lie or bend poses it.

    `u`, `n` and `deg` draw from `rng`: uniform, normal, normal in degrees. Lengths times `size` fit every body; `gap`:
    metres from the hips down to what they rest on; `lead`: the side, 0 left or 1 right, that differs from the other.
    """

    def __init__(
        self, rig: Rig, source: np.ndarray, grip: tuple[float, float], rng: np.random.Generator, seat: Seat, lead: int
    ) -> None:
        super().__init__(rig, source, grip)
        self.rng, self.seat, self.lead = rng, seat, lead
        self.gap, self.floor = thickness(rig)["seat"], 0.0

    def u(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def n(self, mean: float, spread: float) -> float:
        return float(mean + spread * np.clip(self.rng.standard_normal(), -2.2, 2.2))

    def deg(self, mean: float, spread: float) -> float:
        return float(np.radians(self.n(mean, spread)))

    def at(self, side: int, out: float, up: float, front: float) -> np.ndarray:
        """A point from the middle of the hips: `out` to that side, times the body's size."""
        return self.place("pelvis") + self.size * np.array([SIGNS[side] * out, up, front])

    def out(self, side: int) -> np.ndarray:
        return np.array([SIGNS[side], 0.0, 0.0])

    def low(self, height: float) -> float:
        """Height of an ankle on the floor, seen from the hips (in sizes), `height` being that of the seat."""
        return -(self.gap + height) / self.size + 0.085

    def sit_up(self, lean: float, slump: float = 0.0, yaw: float = 0.0) -> None:
        """The trunk of one who sits: the pelvis rolls back a little (by `slump` more), and takes half of the lean."""
        back = np.radians(self.u(4, 18)) + slump
        tilt = float(np.clip(0.5 * lean - back, np.radians(-42), np.radians(40)))
        roll = self.deg(0, 3)
        self.trunk(np.eye(3), (yaw, tilt, roll), (0.0, lean, -roll), self.u(0.3, 1.0))

    def arms(self, floor: float, wide: bool, rest: float | None = None) -> None:
        """Hands in the lap, on the knees, at the head or phone, or as in the motion where that is not below `floor`.

        `floor`: height that wrists stay above, from the hips, metres; `wide`: beside the body too. `rest`: the height
        of arm rests.
        """
        both = self.rng.random() < 0.45
        ways = ["lap", "thigh", "knee", "phone", "chin", "motion", "rest"]
        share = np.array([0.14, 0.16, 0.1, 0.1, 0.06, 0.44, 0.0])
        if rest is not None:
            share = np.array([0.12, 0.1, 0.05, 0.1, 0.05, 0.13, 0.45])
        first = ways[int(self.rng.choice(len(ways), p=share / share.sum()))]
        second = first if both else ways[int(self.rng.choice(len(ways), p=share / share.sum()))]
        for side, way in ((self.lead, first), (1 - self.lead, second)):
            self.arm(side, way, floor, wide, rest)

    def arm(self, side: int, way: str, floor: float, wide: bool, rest: float | None) -> None:
        pelvis = self.place("pelvis")
        hip, knee = self.joint(side, "hip"), self.knee(side)
        along, out = self.u(0.3, 0.75), self.out(side)
        if way == "motion":
            wrist, elbow = self.joint(side, "wrist"), self.joint(side, "elbow")
            beside = abs(wrist[0] - pelvis[0]) > 0.26 and not wide
            if (min(wrist[1], elbow[1]) > pelvis[1] + floor or beside) and rest is None:
                return
            if rest is not None and min(wrist[1], elbow[1]) > pelvis[1] + rest + 0.05:
                return
            way = "thigh"
        if way == "rest" and rest is not None:
            elbow = pelvis + np.array([SIGNS[side] * self.u(0.29, 0.33), rest + 0.02, self.u(-0.02, 0.1)])
            self.elbow_on(side, elbow, elbow + FRONT * 0.25 - out * self.u(-0.03, 0.08) + UP * self.n(0.01, 0.01), DOWN)
        elif way == "phone":
            chest = self.place("thorax")
            ahead = self.node("Spine1")[:, 2]
            target = chest + self.size * (
                self.u(0.26, 0.36) * ahead - self.u(0.02, 0.25) * UP + self.u(0.02, 0.1) * out
            )
            self.reach(side, target, DOWN + 0.5 * out - 0.3 * FRONT, -ahead + 0.5 * UP)
        elif way == "chin":
            face = self.place("nose") + 0.12 * self.node("Head")[:, 2]
            self.reach(side, face - 0.07 * UP + self.u(0.02, 0.1) * out + 0.06 * FRONT, DOWN + 0.4 * out + 0.3 * FRONT)
        elif way == "knee":
            target = knee + self.size * (0.095 * UP - self.u(0, 0.15) * (knee - hip))
            self.reach(side, self.above(target), 0.7 * out - FRONT, DOWN)
        else:
            inward = self.u(0.4, 1.0) if way == "lap" else self.u(-0.3, 0.4)
            target = hip + along * (knee - hip) + self.size * 0.105 * UP - 0.09 * inward * out
            self.reach(side, self.above(target), out - 0.8 * FRONT - 0.4 * UP, DOWN)

    def above(self, point: np.ndarray) -> np.ndarray:
        """The point, or so much higher that it is on top of both thighs."""
        point = point.copy()
        for side in (0, 1):
            hip = self.joint(side, "hip")
            thigh = self.knee(side) - hip
            near = hip + np.clip((point - hip) @ thigh / (thigh @ thigh), 0, 1) * thigh
            away = np.hypot(*(point - near)[[0, 2]])
            if away < 0.1 * self.size:
                point[1] = max(point[1], near[1] + np.sqrt((0.105 * self.size) ** 2 - away**2))
        return point

    def behind(self, side: int, below: float) -> None:
        """Lean on a hand behind the body; the wrist `below` the hips."""
        target = self.at(side, self.u(0.2, 0.38), 0, -self.u(0.18, 0.42))
        target[1] += -below + 0.085
        self.reach(side, target, -FRONT + 0.3 * UP + 0.2 * self.out(side), DOWN)
