"""Ways to kneel: on one knee, on two, on the heels, on all fours."""

import numpy as np

from di2pose_people.ik_rig import DOWN, FRONT, UP, cross
from di2pose_people.pose_builder import PoseBuilder


def _shin_back(pose: PoseBuilder, side: int, thigh: np.ndarray, inward: float = 0.0) -> None:
    """A knee on the floor, its shin flat behind it; toes stretched or tucked under."""
    tucked = pose.rng.random() < 0.35
    rise = (0.165 if tucked else 0.045) * pose.size
    shin = -FRONT + rise / pose.shin * UP - inward * pose.out(side)
    shin = shin / np.linalg.norm(shin)
    hinge = cross(thigh, shin)
    pose.bones(side, thigh, shin, hinge / np.linalg.norm(hinge), np.radians(-26 if tucked else pose.u(48, 58)))


def two(pose: PoseBuilder) -> None:
    lean = pose.deg(6, 9)
    pose.trunk(np.eye(3), (0.0, pose.deg(4, 6), pose.deg(0, 2)), (0.0, lean, 0.0), pose.u(0.3, 1.0))
    sway, apart = pose.u(-0.12, 0.5), pose.u(-0.02, 0.22)
    for side in (0, 1):
        thigh = DOWN + sway * FRONT + apart * pose.out(side)
        _shin_back(pose, side, thigh / np.linalg.norm(thigh))
    pose.arms(-0.35, True)


def one(pose: PoseBuilder) -> None:
    lean = pose.deg(10, 10)
    pose.trunk(np.eye(3), (0.0, pose.deg(3, 6), pose.deg(0, 3)), (0.0, lean, 0.0), pose.u(0.3, 1.0))
    back, front = pose.lead, 1 - pose.lead
    thigh = DOWN + pose.u(-0.12, 0.55) * FRONT + pose.u(-0.02, 0.2) * pose.out(back)
    thigh /= np.linalg.norm(thigh)
    _shin_back(pose, back, thigh)
    floor = (pose.knee(back) - pose.place("pelvis"))[1] / pose.size - 0.067
    ankle = pose.at(front, pose.u(0.06, 0.22), floor + 0.085, pose.thigh / pose.size + pose.u(-0.1, 0.12))
    pose.leg(front, ankle, FRONT + UP + 0.2 * pose.out(front))
    if pose.rng.random() < 0.35:
        pose.arm(front, "knee", -0.3, True, None)
        pose.arm(back, "motion", -0.3, True, None)
    else:
        pose.arms(-0.35, True)


def _folded(pose: PoseBuilder, side: int, apart: float) -> None:
    slope = np.radians(pose.u(27, 36))
    thigh = np.cos(slope) * (FRONT + apart * pose.out(side)) / np.hypot(1, apart) - np.sin(slope) * UP
    shin = -FRONT - (apart + 0.1) * pose.out(side) + 0.07 * UP
    shin /= np.linalg.norm(shin)
    hinge = cross(thigh, shin)
    pose.bones(side, thigh, shin, hinge / np.linalg.norm(hinge), np.radians(pose.u(48, 58)))


def heels(pose: PoseBuilder) -> None:
    pose.sit_up(pose.deg(8, 9))
    apart = pose.u(0.05, 0.45)
    for side in (0, 1):
        _folded(pose, side, apart)
    pose.arms(-0.1, True)


def bow(pose: PoseBuilder) -> None:
    """Folded over the thighs, hands ahead on the floor."""
    pitch = pose.deg(72, 6)
    pose.trunk(np.eye(3), (0.0, pitch - np.radians(28), 0.0), (0.0, pitch, 0.0), pose.u(0.1, 0.5), 0.4)
    apart = pose.u(0.2, 0.5)
    for side in (0, 1):
        _folded(pose, side, apart)
    floor = min(pose.knee(0)[1], pose.knee(1)[1])
    for side in (0, 1):
        target = pose.joint(side, "shoulder") + pose.size * (
            pose.u(0.15, 0.45) * FRONT + pose.n(0.06, 0.06) * pose.out(side)
        )
        target[1] = floor + 0.02
        pose.reach(side, target, UP + 0.8 * pose.out(side), DOWN)


def fours(pose: PoseBuilder) -> None:
    pitch = pose.deg(84, 9)
    pose.trunk(
        np.eye(3), (0.0, pitch - pose.deg(6, 9), pose.deg(0, 3)), (pose.deg(0, 5), pitch, 0.0), pose.u(0.1, 0.5), 0.4
    )
    for side in (0, 1):
        thigh = DOWN + pose.n(0.0, 0.2) * FRONT + pose.u(-0.03, 0.14) * pose.out(side)
        thigh /= np.linalg.norm(thigh)
        _shin_back(pose, side, thigh)
    floor = min(pose.knee(side)[1] for side in (0, 1)) - 0.067 * pose.size
    for side in (0, 1):
        target = pose.joint(side, "shoulder") + pose.size * (
            pose.n(0.02, 0.09) * FRONT + pose.n(0.03, 0.05) * pose.out(side)
        )
        target[1] = floor + 0.095
        if side == pose.lead and pose.rng.random() < 0.15:
            target += np.array([0.0, pose.u(0.2, 0.5), pose.u(0.1, 0.4)])
        pose.reach(side, target, pose.out(side) - 0.6 * FRONT, DOWN)
