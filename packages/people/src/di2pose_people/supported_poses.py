"""People who stand, sit, kneel, lie or bend: trunks, arms and heads from real motion, limbs on what carries them.

`pose_table.WAYS` says how a body does each of these. A pose that no body can take, or with a limb inside another, is
drawn anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.spatial.transform import Rotation

from di2pose_people.furniture import SEATS, Seat
from di2pose_people.ik_rig import IkRig, clear, euler, within_limits
from di2pose_people.motion import CLASSES, SHARES, Library, classify
from di2pose_people.pose_table import HANDS, KINDS, LIMB_FLESH, ON, WAYS, Fold, Foot, Range, Way
from di2pose_people.retarget import SIGNS, Pose, node_turns, perturb
from di2pose_people.wardrobe import DressedPerson

T = TypeVar("T")
TABLE = 0.47
"""Share of those on a seat that fits under a table or desk who sit at one."""
FOUND = 0.22
"""Share that keeps a whole pose of the motion of that kind, furniture put under it."""
UPPER_BODIES = {"upright": 0.42, "stride": 0.12, "arms_up": 0.12, "seated": 0.2, "bent": 0.08, "kick": 0.06}
"""Classes of the motion that trunk, arms and head are taken from."""
TRIES = 12
ARM_REST = 0.13
"""Above the middle of the hips."""


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


def draw_settled(
    person: DressedPerson, poses: Library, generator: np.random.Generator, standing: bool = False
) -> Settled:
    """A person who stands, or in a supported pose; facing -y of the body axes."""
    kind = "standing" if standing else _pick(KINDS, generator)
    left, right = generator.beta(1.5, 2.5, 2).tolist()
    if generator.random() < FOUND and (found := _found(person, poses, kind, (left, right), generator)) is not None:
        return found
    name = _pick({name: way.share for name, way in WAYS[kind].items()}, generator)
    upper = UPPER_BODIES if UPPER_BODIES.keys() & poses.members.keys() else SHARES
    for _ in range(TRIES):
        frame = poses.draw(generator, shares=upper)
        mirrored = bool(generator.random() < 0.5)
        body = IkRig(person.rig, node_turns(poses.rotations[frame], mirrored), (left, right))
        drawn = _Draft(body, WAYS[kind][name], _draw_seat(kind, WAYS[kind][name], generator), generator)
        pose = drawn.pose()
        if within_limits(body.turns) and clear(pose.joints):
            break
    return Settled(pose, frame, kind, name, drawn.seat, mirrored)


def _pick(shares: Mapping[str, float], generator: np.random.Generator) -> str:
    share = np.array(list(shares.values()))
    return list(shares)[int(generator.choice(len(share), p=share / share.sum()))]


def _draw_seat(kind: str, way: Way | None, generator: np.random.Generator) -> Seat:
    """What carries: drawn before the pose, which fits it; `way` None: a pose that is there already."""
    if kind != "seated":
        return Seat(str(generator.choice((way and way.on) or ON[kind])))
    seats = {name: row.share for name, row in SEATS.items() if way is not None or not (row.arms or row.ends)}
    name = _pick(seats, generator)
    at_table = way is not None and SEATS[name].at_table and generator.random() < TABLE
    return Seat(name, 0.0 if at_table else None)


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
        hips, ankles = pose.joints[0], pose.joints[[3, 6]]
        if kind == "seated" and ((hips[1] - ankles[:, 1]).min() < 0.2 or np.ptp(ankles[:, 2]) > 0.25):
            continue  # a squat, a kick
        return Settled(pose, frame, kind, "found", _draw_seat(kind, None, generator), mirrored)
    return None


class _Draft:
    """A body while one of the `WAYS` poses it: trunk, legs, hands."""

    def __init__(self, body: IkRig, way: Way, seat: Seat, rng: np.random.Generator) -> None:
        self.body, self.way, self.seat, self.rng = body, way, seat, rng
        self.lead = int(rng.integers(2))
        """The side, 0 left or 1 right, that `legs` and `hands` are of, and that a body lies on."""
        self.base = np.eye(3)
        if way.roll is not None:  # along -z, head away from the front
            roll = SIGNS[self.lead] * self.drawn(way.roll)
            self.base = Rotation.from_euler("XY", [-90, roll], degrees=True).as_matrix()

    def drawn(self, range_: Range) -> float:
        return float(self.rng.uniform(*range_))

    def chosen(self, ways: Sequence[T]) -> T:
        return ways[int(self.rng.integers(len(ways)))]

    def pose(self) -> Pose:
        body, way, sides = self.body, self.way, (1 - self.lead, self.lead)
        self._trunk()
        self.pelvis = body.place("pelvis")
        height = self.drawn(way.height) * body.size
        if self.seat.kind in SEATS:
            height += min(self.drawn(SEATS[self.seat.kind].height), 0.51 * body.size)
        self.floor = float(self.pelvis[1]) - height
        for side in sides:
            self._leg(side, self.chosen((side != self.lead and way.other_leg) or way.legs))
        body.settle()
        if self.seat.table is not None:  # over the knees
            knees = max(body.joint(side, "knee")[1] for side in sides) - self.pelvis[1]
            table = max(knees + 0.11 * body.size, 0.12 * body.size) + self.drawn((0.03, 0.12))
            self.seat = Seat(self.seat.kind, float(table), self.seat.lean)
        elif self.seat.kind == "counter":
            self.seat = Seat("counter", self.drawn((0.75, 0.95)) * body.size - height)
        for side in sides:
            self._hand(side, self._hand_way((side != self.lead and way.other_hand) or way.hands))
        return body.finished()

    def _trunk(self) -> None:
        way, sign = self.way, SIGNS[self.lead]
        lean = self.drawn(way.chest)
        backed = self.seat.kind not in SEATS or SEATS[self.seat.kind].back is not None
        if not backed or self.seat.table is not None:
            lean = abs(lean)
        share, more = way.pelvis
        tilt = sign * np.radians(self.drawn(way.tilt))
        angles = np.radians([np.clip(share * lean + self.drawn(more), -50, 90), lean])
        swing = 1.0 if way.roll is None and lean < 60 else 0.5
        pelvis, chest = (0.0, angles[0], 0.4 * tilt), (0.0, angles[1], tilt)
        self.body.trunk(self.base, pelvis, chest, self.drawn(way.gaze), swing)
        if way.head != (0, 0):
            turn = self.rng.choice([-1.0, 1.0]) * np.radians(self.drawn(way.head))
            self.body.node("Head")[:] = self.body.node("Spine1") @ euler(turn, np.radians(-6), 0.0)
        if self.seat.kind in (*SEATS, "mattress", "couch"):
            self.seat = Seat(self.seat.kind, self.seat.table, max(-angles[1], 0.0) if way.roll is None else 0.0)

    def _leg(self, side: int, leg: Foot | Fold) -> None:
        body, sign = self.body, SIGNS[side]
        if isinstance(leg, Fold):
            lift, lower, out, toes = np.radians([self.drawn(r) for r in (leg.thigh, leg.shin, leg.out, leg.toes)])
            thigh = self.base @ euler(0.0, -lift, sign * out)
            shin = thigh @ euler(0.0, lift - lower, 0.0)
            body.bones(side, -thigh[:, 1], -shin[:, 1], thigh[:, 0], toes)
            if self.way.roll is None:  # the knee is on the floor
                self.floor = float(body.knee(side)[1]) - LIMB_FLESH * body.size
            return
        start = np.array([self.pelvis[0], self.floor, self.pelvis[2]])
        if leg.on_knee:
            start = body.knee(1 - side)
        offset = self.drawn(leg.out), self.drawn(leg.above), self.drawn(leg.front)
        ankle = start + body.size * np.array(offset) * (sign, 1, 1)
        toes = None if leg.toes is None else np.radians(self.drawn(leg.toes))
        pole = (np.array(leg.knee) + self.rng.uniform(-0.15, 0.15, 3)) * (sign, 1, 1)
        body.leg(side, ankle, pole, toes)

    def _hand_way(self, ways: Sequence[str]) -> str:
        at_seat = SEATS.get(self.seat.kind)
        if self.seat.table is not None and self.rng.random() < 0.72:
            return "table"
        if at_seat is not None and at_seat.arms and self.rng.random() < 0.5:
            return "rest"
        return self.chosen(ways)

    def _hand(self, side: int, name: str) -> None:
        body, sign = self.body, SIGNS[side]
        if name == "motion":
            lowest = self.floor + 0.05 if self.seat.kind not in SEATS else self.pelvis[1] + ARM_REST
            if min(body.joint(side, joint)[1] for joint in ("wrist", "elbow")) > lowest:
                return
            name = "thigh" if self.way.roll is None else "along"
        hand = HANDS[name]
        if hand.start in ("thigh", "shin"):
            first, last, along = ("hip", "knee", (0.3, 0.7)) if hand.start == "thigh" else ("knee", "ankle", (0.1, 0.4))
            start = body.joint(side, first)
            start = start + self.drawn(along) * (body.joint(side, last) - start)
        elif hand.start in ("shoulder", "knee"):
            start = body.joint(side, hand.start)
        else:
            start = body.place(hand.start)
        axes = (body.node("Spine1") if hand.in_chest else np.eye(3)) * (sign, 1, 1)
        target = start + body.size * axes @ [self.drawn(hand.out), self.drawn(hand.up), self.drawn(hand.front)]
        if hand.on:
            above = {"floor": self.floor - self.pelvis[1], "table": self.seat.table or 0.0, "rest": ARM_REST}[hand.on]
            target[1] = self.pelvis[1] + above + self.drawn(hand.up) * body.size
        palm = None if hand.palm is None else axes @ np.array(hand.palm, float)
        body.reach(side, target, axes @ np.array(hand.elbow, float), palm)
