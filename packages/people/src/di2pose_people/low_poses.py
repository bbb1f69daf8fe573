"""Ways to kneel, to sit on the floor, to squat, and to bend over."""

import numpy as np

from di2pose_people.ik_rig import DOWN, FRONT, UP
from di2pose_people.pose_builder import PoseBuilder, Seat
from di2pose_people.retarget import SIGNS


def _shin_back(pose: PoseBuilder, side: int, thigh: np.ndarray, inward: float = 0.0) -> None:
    """A knee on the floor, its shin flat behind it; toes stretched or tucked under."""
    tucked = pose.rng.random() < 0.35
    rise = (0.165 if tucked else 0.045) * pose.size
    shin = -FRONT + rise / pose.shin * UP - inward * pose.out(side)
    shin = shin / np.linalg.norm(shin)
    pose.fold(side, thigh, shin, np.radians(-26 if tucked else pose.u(48, 58)))


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
    pose.fold(side, thigh, shin, np.radians(pose.u(48, 58)))


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


def _stand(pose: PoseBuilder, height: float, pelvis: float, chest: float, gaze: float | None = None) -> None:
    """Feet on the floor under a trunk that is bent at the hips; `height` in leg lengths."""
    share = pose.u(0.1, 0.8) if gaze is None else gaze
    pose.trunk(np.eye(3), (0.0, pelvis, pose.deg(0, 3)), (pose.deg(0, 6), chest, 0.0), share)
    leg = (pose.thigh + pose.shin) / pose.size
    forward = 0.16 * np.sin(chest) + pose.u(-0.04, 0.06)
    apart, stagger = pose.u(0.03, 0.2), pose.n(0, 0.1)
    for side in (0, 1):
        ankle = pose.at(side, apart + pose.u(0, 0.04), -height * leg, forward + stagger * SIGNS[side])
        pose.leg(side, ankle, FRONT + pose.n(0.1, 0.12) * pose.out(side))
    pose.floor = -(height * leg + 0.085) * pose.size


def pick(pose: PoseBuilder) -> None:
    chest = pose.deg(80, 12)
    _stand(pose, pose.u(0.74, 0.95), chest - np.radians(pose.u(22, 38)), chest)
    for side in (0, 1):
        if side != pose.lead and pose.rng.random() < 0.35:
            pose.arm(side, "knee", pose.floor, True, None)
            continue
        target = pose.at(side, pose.u(-0.02, 0.16), 0.0, pose.u(0.35, 0.55))
        target[1] += pose.floor + pose.u(0.08, 0.35)
        pose.reach(side, target, pose.out(side) + 0.3 * UP, -pose.out(side))


def over(pose: PoseBuilder) -> None:
    chest = pose.deg(62, 9)
    _stand(pose, pose.u(0.9, 0.99), chest - np.radians(pose.u(12, 26)), chest)
    if pose.seat.kind != "counter":
        pose.arms(pose.floor + 0.1, True)
        return
    height = pose.u(0.75, 0.98) * pose.size + pose.floor
    for side in (0, 1):
        target = pose.joint(side, "shoulder") + pose.size * (
            pose.u(0.1, 0.32) * FRONT + pose.u(-0.05, 0.12) * pose.out(side)
        )
        low = pose.joint(side, "shoulder")[1] - 0.93 * (pose.upper_arm + pose.forearm)
        target[1] = max(pose.place("pelvis")[1] + height, low) + 0.05
        pose.reach(side, target, pose.out(side) - 0.4 * FRONT, DOWN)
    pose.seat = Seat("counter", height)


def knees(pose: PoseBuilder) -> None:
    chest = pose.deg(56, 7)
    _stand(pose, pose.u(0.82, 0.93), chest - np.radians(pose.u(16, 28)), chest)
    for side in (0, 1):
        hip, knee = pose.joint(side, "hip"), pose.knee(side)
        target = hip + pose.u(0.78, 0.95) * (knee - hip) + pose.size * (0.1 * FRONT + 0.03 * UP)
        pose.reach(side, target, pose.out(side) + 0.6 * FRONT, DOWN)


def crouch(pose: PoseBuilder) -> None:
    chest = pose.deg(48, 9)
    _stand(pose, pose.u(0.5, 0.72), chest - np.radians(pose.u(14, 26)), chest)
    pose.arms(pose.floor + 0.12, True)
