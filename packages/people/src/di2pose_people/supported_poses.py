"""People who sit, kneel, squat, lie or bend: upper bodies from real motion, legs and arms on what carries them.

Every kind of pose is a few ways to do it. A way draws pelvis, chest and legs, and lets hands rest somewhere or do what
they did in the motion; a pose that no body can take, or with a limb inside another, is drawn anew.
"""

from dataclasses import dataclass

import numpy as np

from di2pose_people import low_poses, lying, on_seat
from di2pose_people.ik_rig import clear, euler, within_limits
from di2pose_people.motion import CLASSES, SHARES, Library, classify
from di2pose_people.on_seat import WITH_ARMS
from di2pose_people.pose_builder import PoseBuilder, Seat
from di2pose_people.retarget import Pose, node_turns, perturb
from di2pose_people.wardrobe import DressedPerson

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
MODULES = {"seated": on_seat, "kneeling": low_poses, "floor": low_poses, "lying": lying, "bent": low_poses}
"""Where each kind's ways are functions."""
SEATS = {"chair": 0.3, "armchair": 0.12, "stool": 0.12, "bench": 0.1, "sofa": 0.16, "bed": 0.08, "wheelchair": 0.05,
         "ball": 0.03, "block": 0.04}  # fmt: skip
TABLE = 0.47
"""Share of those on a chair, stool, bench or wheelchair who sit at a table or desk: a third of all who sit."""
FOUND = 0.22
"""Share that keeps a whole pose of the motion of that kind, furniture put under it."""
UPPER_BODIES = {"upright": 0.42, "stride": 0.12, "arms_up": 0.12, "seated": 0.2, "bent": 0.08, "kick": 0.06}
"""Classes of the motion that trunk, arms and head are taken from."""
TRIES = 10


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
    """A settled person, facing -y of the body axes."""
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
        builder = PoseBuilder(person.rig, source, grip, generator, seat, int(flipped))
        getattr(MODULES[kind], way)(builder)
        pose = builder.finished()
        if within_limits(builder.turns) and clear(pose.joints):
            break
    return Settled(pose, frame, kind, way, builder.seat, mirrored)


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
        return Seat("mattress" if chance < 0.4 else "couch" if chance < 0.55 else "mat" if chance < 0.75 else "floor")
    if kind == "floor" and way != "squat":
        return Seat("mattress" if chance < 0.15 else "mat" if chance < 0.4 else "floor")
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
