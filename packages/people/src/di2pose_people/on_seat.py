"""Ways to sit on a chair, stool, bench, sofa or bed, at a table or not."""

import numpy as np

from di2pose_people.ik_rig import DOWN, FRONT, UP
from di2pose_people.pose_builder import PoseBuilder, Seat
from di2pose_people.retarget import SIGNS

HEIGHTS = {"chair": (0.42, 0.5), "armchair": (0.38, 0.48), "stool": (0.42, 0.58), "bench": (0.36, 0.48),
           "sofa": (0.34, 0.46), "bed": (0.4, 0.58), "wheelchair": (0.45, 0.52), "ball": (0.45, 0.6),
           "block": (0.22, 0.45)}  # fmt: skip
"""Of a seat above the floor, metres."""
WITH_ARMS = ("armchair", "wheelchair")


def _height(pose: PoseBuilder, most: float = 0.51) -> float:
    """Of the seat; not so high that the feet do not reach the floor."""
    return min(pose.u(*HEIGHTS[pose.seat.kind]), most * pose.size)


def _on_seat(pose: PoseBuilder, lean: float | None = None, yaw: float = 0.0) -> None:
    """Trunk and arms of one who sits on a seat, after which come the legs."""
    backed = pose.seat.kind in ("chair", "armchair", "sofa", "wheelchair")
    if lean is None:
        chance = pose.rng.random()
        lean = pose.deg(3, 7) if chance < 0.5 else pose.deg(20, 8) if chance < 0.75 else pose.deg(-16, 7)
        if lean < np.radians(-8) and not backed:
            lean = abs(lean)
        if pose.seat.table is not None:
            lean = abs(lean)
    pose.sit_up(lean, yaw=yaw)


def _hands(pose: PoseBuilder) -> None:
    lean = float(np.arcsin(np.clip(pose.node("Spine1")[2, 1], -1, 1)))
    rest = pose.u(0.1, 0.14) if pose.seat.kind in WITH_ARMS else None
    height = None if pose.seat.table is None else _table(pose)
    pose.seat = Seat(pose.seat.kind, height, -min(lean, 0.0))
    wide = pose.seat.kind in ("chair", "stool", "ball", "block")
    pose.arms(0.02, wide, rest)
    if height is None:
        return
    for side in (0, 1):
        chance = pose.rng.random()
        ahead, out = pose.u(0.32, 0.5), pose.u(-0.02, 0.24)
        if chance < 0.72:
            target = pose.place("pelvis") + np.array([SIGNS[side] * out, height + 0.05, 0.0])
            target[2] = pose.joint(side, "shoulder")[2] + pose.size * ahead * 0.8
            pose.reach(side, target, 0.8 * pose.out(side) - 0.35 * FRONT - 0.3 * UP, DOWN)


def _table(pose: PoseBuilder) -> float:
    """Height of a table above the hips: over the knees."""
    knees = max(pose.knee(side)[1] for side in (0, 1)) - pose.place("pelvis")[1]
    return max(knees + pose.size * 0.11, 0.12 * pose.size) + pose.u(0.03, 0.12)


def _foot_down(pose: PoseBuilder, side: int, low: float, front: tuple[float, float], out: tuple[float, float]) -> None:
    apart = pose.u(*out)
    ankle = pose.at(side, apart, low, pose.thigh / pose.size * 0.98 + pose.u(*front))
    pose.leg(side, ankle, UP + FRONT + pose.out(side) * pose.n(0.12, 0.18))


def feet(pose: PoseBuilder) -> None:
    low, apart = pose.low(_height(pose)), pose.u(0.03, 0.22)
    _on_seat(pose)
    for side in (0, 1):
        _foot_down(pose, side, low, (-0.12, 0.14), (apart - 0.02, apart + 0.06))
    _hands(pose)


def stretched(pose: PoseBuilder) -> None:
    low = pose.low(_height(pose))
    _on_seat(pose, None if pose.seat.table is not None else pose.deg(-10, 12))
    far = pose.u(0.2, 0.42)
    for side in (0, 1):
        if side == pose.lead or pose.rng.random() < 0.65:
            _foot_down(pose, side, low, (far, far + 0.06), (0.02, 0.16))
        else:
            _foot_down(pose, side, low, (-0.14, 0.1), (0.05, 0.16))
    _hands(pose)


def tucked(pose: PoseBuilder) -> None:
    low = pose.low(_height(pose))
    _on_seat(pose)
    solid = pose.seat.kind in ("sofa", "bed", "block", "ball")
    for side in (0, 1):
        back = side == pose.lead or pose.rng.random() < 0.5
        front = (-0.12, -0.05) if solid else (-0.3, -0.12) if back else (-0.1, 0.05)
        _foot_down(pose, side, low + 0.03 * back, front, (0.04, 0.14))
    _hands(pose)


def ankles(pose: PoseBuilder) -> None:
    low = pose.low(_height(pose))
    _on_seat(pose)
    ahead = pose.u(-0.08, 0.25)
    for side in (0, 1):
        over = side == pose.lead
        ankle = pose.at(side, -0.03, low + 0.03 * over, pose.thigh / pose.size + ahead + 0.15 * over)
        pose.leg(side, ankle, UP + FRONT + 0.4 * pose.out(side))
    _hands(pose)


def elbows(pose: PoseBuilder) -> None:
    """Elbows on the thighs, or on the table."""
    low, apart = pose.low(_height(pose, 0.44)), pose.u(0.08, 0.24)
    table = pose.seat.table is not None
    _on_seat(pose, pose.deg(28, 5) if table else pose.deg(42, 5))
    for side in (0, 1):
        _foot_down(pose, side, low, (-0.14, 0.06), (apart, apart + 0.05))
    joined = pose.rng.random() < 0.6
    if table:
        _elbows_on_table(pose, joined)
        return
    for side in (0, 1):
        if side == pose.lead and pose.rng.random() < 0.15:
            pose.arm(side, "chin", 0.02, False, None)
            continue
        hip, knee = pose.joint(side, "hip"), pose.knee(side)
        shoulder = pose.joint(side, "shoulder")
        share = np.clip((shoulder - hip)[2] / max((knee - hip)[2], 0.1) + pose.u(-0.02, 0.15), 0.45, 0.95)
        elbow = hip + share * (knee - hip) + pose.size * (0.105 * UP + 0.02 * pose.out(side))
        middle = pose.place("pelvis") + FRONT * ((knee - hip)[2] + pose.u(0.02, 0.1))
        middle[1] = elbow[1] + pose.u(-0.06, 0.12)
        ahead = elbow + FRONT * 0.25 + UP * pose.u(-0.12, 0.05) - 0.1 * pose.out(side)
        pose.elbow_on(side, elbow, middle + 0.035 * pose.out(side) if joined else ahead, -pose.out(side))


def _elbows_on_table(pose: PoseBuilder, joined: bool) -> None:
    height = _table(pose)
    pose.seat = Seat(pose.seat.kind, height)
    for side in (0, 1):
        shoulder = pose.joint(side, "shoulder")
        elbow = shoulder + pose.size * pose.u(-0.02, 0.07) * pose.out(side)
        elbow[1] = pose.place("pelvis")[1] + height + 0.055
        elbow[2] += np.sqrt(max(pose.upper_arm**2 - (shoulder - elbow)[1] ** 2, 0.0))
        towards = elbow + 0.2 * FRONT - pose.u(0.05, 0.2) * pose.out(side) + pose.u(0, 0.05) * UP
        if joined:
            towards = pose.place("nose") + 0.16 * FRONT + 0.04 * pose.out(side) - pose.u(0.05, 0.12) * UP
        pose.elbow_on(side, elbow, towards, None if joined else DOWN)


def crossed(pose: PoseBuilder) -> None:
    """One knee over the other: the pelvis turns a little, the lower thigh goes to the middle."""
    low = pose.low(_height(pose, 0.46))
    over, under = pose.lead, 1 - pose.lead
    _on_seat(pose, yaw=-SIGNS[over] * np.radians(pose.u(6, 12)))
    ankle = pose.at(under, -pose.u(0.0, 0.08), low, pose.thigh / pose.size + pose.u(-0.08, 0.08))
    pose.leg(under, ankle, UP + FRONT - 0.45 * pose.out(under))
    hip, below = pose.joint(over, "hip"), pose.knee(under)
    knee = below + pose.size * (0.115 * UP + 0.06 * FRONT + pose.u(0.05, 0.08) * pose.out(under))
    thigh = (knee - hip) / np.linalg.norm(knee - hip)
    shin = DOWN + pose.u(0.25, 0.7) * FRONT + pose.u(0.1, 0.4) * pose.out(under)
    shin /= np.linalg.norm(shin)
    pose.fold(over, thigh, shin, np.radians(pose.u(0, 35)))
    _hands(pose)


def figure4(pose: PoseBuilder) -> None:
    low = pose.low(_height(pose))
    _on_seat(pose)
    over, under = pose.lead, 1 - pose.lead
    _foot_down(pose, under, low, (-0.06, 0.08), (0.08, 0.16))
    hip, below = pose.joint(under, "hip"), pose.knee(under)
    ankle = hip + pose.u(0.78, 0.92) * (below - hip) + pose.size * 0.125 * UP + 0.06 * pose.out(under)
    pose.leg(over, ankle, pose.out(over) + pose.u(0.1, 0.5) * UP + 0.3 * FRONT, np.radians(pose.u(-5, 25)))
    _hands(pose)
