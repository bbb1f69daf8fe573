"""Ways to sit on the floor, and to squat."""

import numpy as np

from di2pose_people.ik_rig import DOWN, FRONT, UP
from di2pose_people.pose_builder import PoseBuilder
from di2pose_people.retarget import SIGNS


def _hands(pose: PoseBuilder, lean: float) -> None:
    if lean < np.radians(-14):
        for side in (0, 1):
            if side == pose.lead or pose.rng.random() < 0.75:
                pose.behind(side, pose.gap)
            else:
                pose.arm(side, "knee" if pose.rng.random() < 0.5 else "motion", -pose.gap + 0.06, True, None)
    else:
        pose.arms(-pose.gap + 0.06, True)


def _trunk(pose: PoseBuilder, back: float) -> float:
    lean = pose.deg(-26, 6) if pose.rng.random() < back else pose.deg(10, 10)
    pose.sit_up(lean, np.radians(pose.u(0, 18)) if lean > 0 else 0.0)
    return lean


def crosslegged(pose: PoseBuilder) -> None:
    lean = _trunk(pose, 0.15)
    floor = -pose.gap / pose.size
    for side in (0, 1):
        over = side == pose.lead
        ankle = pose.at(side, pose.u(-0.08, -0.02), floor + 0.08 + 0.04 * over, pose.u(0.17, 0.21) + 0.12 * over)
        pose.leg(side, ankle, pose.out(side) + pose.u(0.05, 0.4) * UP + 0.25 * FRONT, np.radians(pose.u(10, 40)))
    _hands(pose, lean)


def stretched(pose: PoseBuilder) -> None:
    lean = _trunk(pose, 0.5)
    floor, apart, far = -pose.gap / pose.size, pose.u(0.05, 0.28), pose.u(0.9, 0.985)
    length = (pose.thigh + pose.shin) / pose.size
    for side in (0, 1):
        ankle = pose.at(side, apart + pose.u(0, 0.04), floor + 0.08, far * length - pose.u(0, 0.05))
        pose.leg(side, ankle, UP + pose.n(0.1, 0.2) * pose.out(side), np.radians(pose.u(-5, 35)))
    _hands(pose, lean)


def one_up(pose: PoseBuilder) -> None:
    lean = _trunk(pose, 0.45)
    floor = -pose.gap / pose.size
    bent, other = pose.lead, 1 - pose.lead
    ankle = pose.at(bent, pose.u(0.04, 0.16), floor + 0.1, pose.u(0.42, 0.6))
    pose.leg(bent, ankle, UP + 0.4 * FRONT + pose.n(0.1, 0.2) * pose.out(bent))
    if pose.rng.random() < 0.55:
        ankle = pose.at(other, pose.u(0.08, 0.22), floor + 0.075, pose.u(0.72, 0.82))
        pose.leg(other, ankle, UP + 0.3 * pose.out(other), np.radians(pose.u(0, 35)))
    else:
        ankle = pose.at(other, -pose.u(0.06, 0.16), floor + 0.075, pose.u(0.2, 0.3))
        pose.leg(other, ankle, pose.out(other) + 0.05 * UP + 0.2 * FRONT, np.radians(pose.u(15, 45)))
    _hands(pose, lean)


def hugging(pose: PoseBuilder) -> None:
    pose.sit_up(pose.deg(12, 5), np.radians(20))
    floor, near = -pose.gap / pose.size, pose.u(0.5, 0.62)
    for side in (0, 1):
        ankle = pose.at(side, pose.u(0.03, 0.1), floor + 0.085, near)
        pose.leg(side, ankle, UP + 0.4 * FRONT + pose.n(0.05, 0.05) * pose.out(side))
    around, share = pose.rng.random() < 0.5, pose.u(0.1, 0.4)
    for side in (0, 1):
        knee, ankle = pose.knee(side), pose.ankle(side)
        target = knee + share * (ankle - knee) + pose.size * (0.06 * FRONT + 0.09 * pose.out(side))
        if around:
            target += pose.size * (0.1 + 0.06 * (side == pose.lead)) * FRONT
            target[0] = pose.place("pelvis")[0] + pose.size * SIGNS[side] * pose.u(0.0, 0.06)
        pose.reach(side, target, pose.out(side), -pose.out(side))


def sideways(pose: PoseBuilder) -> None:
    """Both knees to one side, the feet beside the other hip."""
    lean = pose.deg(6, 9)
    tilt = SIGNS[pose.lead] * np.radians(pose.u(4, 12))
    pose.trunk(np.eye(3), (0.0, np.radians(-8), -tilt), (0.0, lean, tilt * 0.3), pose.u(0.3, 1.0))
    floor, knees, feet = -pose.gap / pose.size, pose.lead, 1 - pose.lead
    ankle = pose.at(feet, pose.u(0.0, 0.12), floor + 0.06, pose.u(0.18, 0.3))
    pose.leg(knees, ankle, pose.out(knees) + 0.3 * FRONT, np.radians(pose.u(25, 50)))
    ankle = pose.at(feet, pose.u(0.3, 0.42), floor + 0.06, pose.u(-0.12, 0.08))
    pose.leg(feet, ankle, FRONT + 0.55 * pose.out(knees), np.radians(pose.u(25, 50)))
    pose.arms(-pose.gap + 0.06, True)
    if pose.rng.random() < 0.4:
        target = pose.at(knees, pose.u(0.25, 0.4), 0, pose.u(-0.2, 0.1))
        target[1] += -pose.gap + 0.05
        pose.reach(knees, target, pose.out(knees) - FRONT, DOWN)


def squat(pose: PoseBuilder) -> None:
    low = pose.u(0.24, 0.46)
    pose.trunk(np.eye(3), (0.0, pose.deg(14, 9), pose.deg(0, 3)), (0.0, pose.deg(30, 9), 0.0), pose.u(0.4, 1.0))
    apart = pose.u(0.06, 0.24)
    for side in (0, 1):
        ankle = pose.at(side, apart + pose.u(0, 0.05), -low + 0.03, pose.u(0.06, 0.2))
        pose.leg(side, ankle, FRONT + 0.5 * UP + pose.u(0.1, 0.6) * pose.out(side))
    chance = pose.rng.random()
    if chance < 0.25:
        for side in (0, 1):
            target = pose.at(side, pose.u(0.02, 0.2), -low + 0.05, pose.u(0.4, 0.6))
            pose.reach(side, target, pose.out(side) - FRONT, DOWN)
    elif chance < 0.5:
        for side in (0, 1):
            knee = pose.knee(side)
            ahead = knee + 0.13 * pose.size * FRONT + 0.06 * UP
            ahead[0] = pose.place("pelvis")[0] + SIGNS[side] * pose.u(0.02, 0.12)
            pose.reach(side, ahead, pose.out(side) - 0.3 * UP, DOWN)
    else:
        pose.arms(-low + 0.05, True)
