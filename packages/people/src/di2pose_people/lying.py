"""Ways to lie: on the back, on a side, on the belly, curled, raised on an elbow, reclined."""

import numpy as np
from scipy.spatial.transform import Rotation

from di2pose_people.ik_rig import DOWN, FRONT, UP, euler
from di2pose_people.pose_builder import PoseBuilder, Seat, thickness
from di2pose_people.retarget import SIGNS


def _down(pose: PoseBuilder, roll: float, bend: float = 0.0, gaze: float = 0.0, pitch: float = 0.0) -> np.ndarray:
    """Lie along -z, head away from the front; `roll` 0 on the back, half a turn on the belly."""
    base = Rotation.from_euler("XY", [-np.pi / 2, roll]).as_matrix()
    pose.gap = thickness(pose.rig)["back" if abs(roll) < np.pi / 2 else "belly"]
    pose.trunk(base, (0.0, 0.0, 0.0), (0.0, bend, 0.0), gaze, 0.5)
    return base


def _leg_along(
    pose: PoseBuilder, side: int, base: np.ndarray, flexion: float, bend: float, out: float, foot: float
) -> None:
    """Joint angles of a leg within the lying body: degrees, `out` radians."""
    turn = base @ euler(0.0, -np.radians(flexion), SIGNS[side] * out)
    shin = turn @ euler(0.0, np.radians(bend), 0.0)
    pose.bones(side, -turn[:, 1], -shin[:, 1], turn[:, 0], np.radians(foot))


def _arms_down(pose: PoseBuilder, floor: float) -> None:
    """Arms as in the motion, but not below the floor (height from the hips)."""
    for side in (0, 1):
        chance = pose.rng.random()
        shoulder = pose.joint(side, "shoulder")
        if chance < 0.3:  # along the body
            target = shoulder + pose.size * (pose.u(0.36, 0.47) * FRONT + pose.u(0.06, 0.22) * pose.out(side))
            target[1] = pose.place("pelvis")[1] + floor + 0.04
            pose.reach(side, target, pose.out(side) - 0.5 * UP, DOWN)
        elif chance < 0.5:  # on the belly or chest
            target = pose.place("spine") + pose.size * (pose.u(0.15, 0.19) * UP + pose.u(-0.16, 0.12) * FRONT)
            target += pose.size * pose.u(0.0, 0.1) * pose.out(side)
            pose.reach(side, target, pose.out(side) - 0.6 * UP, DOWN)
        elif chance < 0.66:  # under or beside the head
            target = pose.place("nose") + pose.size * (pose.u(0.12, 0.25) * pose.out(side) - pose.u(0.0, 0.16) * FRONT)
            target[1] = pose.place("pelvis")[1] + floor + 0.04
            pose.reach(side, target, pose.out(side) - 0.3 * FRONT, UP)
        elif chance < 0.76:  # a phone above the face
            target = pose.place("nose") + pose.size * (pose.u(0.28, 0.4) * UP + pose.u(0.04, 0.2) * FRONT)
            pose.reach(side, target + 0.04 * pose.out(side), FRONT + 0.6 * pose.out(side), -UP)
        elif pose.joint(side, "wrist")[1] < pose.place("pelvis")[1] + floor + 0.03 or (
            pose.joint(side, "elbow")[1] < pose.place("pelvis")[1] + floor + 0.03
        ):
            target = shoulder + pose.size * (pose.u(-0.2, 0.3) * FRONT + pose.u(0.3, 0.45) * pose.out(side))
            target[1] = pose.place("pelvis")[1] + floor + 0.04
            pose.reach(side, target, FRONT - 0.2 * UP, UP)


def back(pose: PoseBuilder) -> None:
    _down(pose, pose.deg(0, 5), pose.deg(0, 5))
    floor = -pose.gap / pose.size
    ups = pose.rng.random()
    for side in (0, 1):
        if ups < 0.22 or (ups < 0.5 and side == pose.lead):
            ankle = pose.at(side, pose.u(0.05, 0.15), floor + 0.085, pose.u(0.35, 0.62))
            pose.leg(side, ankle, UP + 0.3 * FRONT + pose.n(0.05, 0.2) * pose.out(side))
        else:
            length = (pose.thigh + pose.shin) / pose.size * pose.u(0.93, 0.99)
            ankle = pose.at(side, pose.u(0.04, 0.24), floor + 0.07, length)
            pose.leg(side, ankle, UP + pose.u(0, 0.8) * pose.out(side), np.radians(pose.u(10, 45)))
    _arms_down(pose, floor * pose.size)


def reclined(pose: PoseBuilder) -> None:
    """Half up against cushions: the seat's back rest stands behind."""
    lean = -np.radians(pose.u(36, 58))
    pose.trunk(np.eye(3), (0.0, lean * 0.8 - 0.15, pose.deg(0, 3)), (0.0, lean, 0.0), pose.u(0.2, 0.6))
    if pose.seat.kind in ("floor", "mat"):
        pose.seat = Seat("mattress")
    pose.seat = Seat(pose.seat.kind, None, -lean)
    floor = -pose.gap / pose.size
    for side in (0, 1):
        if side == pose.lead and pose.rng.random() < 0.5:
            ankle = pose.at(side, pose.u(0.05, 0.15), floor + 0.085, pose.u(0.38, 0.6))
            pose.leg(side, ankle, UP + 0.3 * FRONT + pose.n(0.05, 0.2) * pose.out(side))
        else:
            length = (pose.thigh + pose.shin) / pose.size * pose.u(0.93, 0.985)
            ankle = pose.at(side, pose.u(0.0, 0.16), floor + 0.07, length)
            pose.leg(side, ankle, UP + pose.u(0, 0.6) * pose.out(side), np.radians(pose.u(10, 45)))
    pose.arms(-pose.gap + 0.06, True)


def _on_side(pose: PoseBuilder, tuck: float, bend: float) -> None:
    """On the side `one`; the other leg and arm lie on top."""
    below, above = pose.lead, 1 - pose.lead
    base = _down(pose, SIGNS[below] * (np.pi / 2 + pose.deg(0, 9)), bend)
    extra = pose.u(0.0, 35.0)
    _leg_along(pose, below, base, tuck + pose.n(0, 8), tuck * 0.9 + pose.u(8, 35), 0.1, pose.u(10, 45))
    flexion, bend = tuck + extra, tuck * 0.9 + extra + pose.u(8, 30)
    out = pose.u(0.25, 0.42) if extra > 18 else pose.u(0.1, 0.18)
    _leg_along(pose, above, base, flexion, bend, -out, pose.u(10, 45))
    chest = pose.node("Spine1")
    head = chest[:, 1]
    # `ahead` is where the chest looks, `head` where the top of the head is
    ahead = chest[:, 2]
    shoulder = pose.joint(below, "shoulder")
    target = shoulder + pose.size * (pose.u(0.2, 0.34) * ahead + pose.u(0.05, 0.32) * head)
    target[1] = shoulder[1] - 0.03
    pose.reach(below, target, ahead - 0.6 * head, UP)
    shoulder = pose.joint(above, "shoulder")
    if pose.rng.random() < 0.65:
        target = shoulder + pose.size * (pose.u(0.22, 0.4) * ahead - pose.u(-0.15, 0.25) * head)
        target[1] = pose.joint(below, "shoulder")[1] + pose.u(0.0, 0.1)
        pose.reach(above, target, -0.8 * head + 0.5 * UP, DOWN)
    else:  # along the upper side
        target = shoulder - pose.size * pose.u(0.4, 0.47) * head + 0.06 * UP + 0.04 * ahead
        pose.reach(above, target, UP - 0.5 * ahead, DOWN)


def side(pose: PoseBuilder) -> None:
    _on_side(pose, pose.u(8, 60), pose.deg(6, 8))


def curled(pose: PoseBuilder) -> None:
    _on_side(pose, pose.u(66, 92), pose.deg(24, 6))


def elbow(pose: PoseBuilder) -> None:
    """On the side, the trunk raised on an elbow."""
    below, above = pose.lead, 1 - pose.lead
    up = np.radians(pose.u(42, 54))
    base = Rotation.from_euler("XY", [-np.pi / 2, SIGNS[below] * (np.pi / 2 + pose.deg(-6, 8))]).as_matrix()
    pose.trunk(base, (0.0, 0.0, SIGNS[below] * 0.42 * up), (0.0, pose.deg(4, 6), SIGNS[below] * up), 0.0, 0.4)
    tuck = pose.u(5, 55)
    _leg_along(pose, below, base, tuck, tuck + pose.u(5, 30), 0.13, pose.u(10, 45))
    _leg_along(pose, above, base, tuck + pose.u(0, 35), tuck + pose.u(5, 60), -pose.u(0.1, 0.22), pose.u(10, 45))
    ahead, head = pose.node("Spine1")[:, 2], pose.node("Spine1")[:, 1]
    shoulder = pose.joint(below, "shoulder")
    floor = pose.joint(below, "hip")[1] - 0.1
    elbow = shoulder + pose.size * 0.06 * ahead + DOWN * 0.3
    if pose.rng.random() < 0.5:  # the head in the hand
        pose.elbow_on(below, elbow, pose.place("nose") + 0.05 * head + 0.1 * ahead + 0.06 * DOWN)
    else:
        pose.elbow_on(
            below, elbow, elbow + pose.size * (0.25 * ahead - pose.u(-0.1, 0.15) * FRONT) * np.array([1, 0, 1]), DOWN
        )
    shoulder = pose.joint(above, "shoulder")
    target = pose.joint(above, "hip") + 0.12 * UP + pose.size * pose.u(0.0, 0.25) * FRONT
    if pose.rng.random() < 0.5:
        target = shoulder + pose.size * (pose.u(0.2, 0.35) * ahead - 0.2 * head)
        target[1] = floor + 0.06
    pose.reach(above, target, UP - 0.5 * ahead, DOWN)


def belly(pose: PoseBuilder) -> None:
    propped = pose.rng.random() < 0.55
    back = np.radians(pose.u(24, 38)) if propped else 0.0
    base = _down(pose, np.pi + pose.deg(0, 4), -back, 0.8 if propped else 0.0)
    for side in (0, 1):
        raised = propped and pose.rng.random() < 0.3
        bend = pose.u(60, 105) if raised else pose.u(3, 9)
        flexion, out = (5.0, pose.u(0.02, 0.2)) if pose.rng.random() < 0.8 or propped else (pose.u(10, 25), 0.7)
        _leg_along(pose, side, base, flexion, bend, out, pose.u(35, 55))
    floor = pose.place("pelvis")[1] - pose.gap
    for side in (0, 1):
        shoulder = pose.joint(side, "shoulder")
        away = np.array([-pose.out(side)[0], 0.0, 0.0])  # face down, left is on the other side
        if propped:
            elbow = shoulder - pose.size * 0.04 * FRONT + 0.03 * away
            elbow[1] = floor + 0.06
            elbow[2] -= np.sqrt(max(pose.upper_arm**2 - (shoulder - elbow)[1] ** 2, 0.0))
            towards = elbow - 0.24 * FRONT - pose.u(0.02, 0.12) * away
            if side == pose.lead and pose.rng.random() < 0.3:
                towards = pose.place("nose") - 0.12 * FRONT
            pose.elbow_on(side, elbow, towards, DOWN)
        else:
            along = pose.rng.random() < 0.4
            target = shoulder + pose.size * (
                (pose.u(0.3, 0.45) if along else -pose.u(0.05, 0.3)) * FRONT + pose.u(0.1, 0.25) * away
            )
            target[1] = floor + 0.05
            pose.reach(side, target, away + 0.2 * UP, UP if along else DOWN)
    if not propped:
        _turn_head(pose, pose.rng.choice([-1.0, 1.0]) * np.radians(pose.u(50, 70)))


def _turn_head(pose: PoseBuilder, yaw: float) -> None:
    head = pose.node("Head")
    head[:] = pose.node("Spine1") @ euler(yaw, np.radians(-6), 0.0)
