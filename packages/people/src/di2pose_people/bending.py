"""Ways to bend over: to pick something up, over a counter, hands on the knees, crouching."""

import numpy as np

from di2pose_people.ik_rig import DOWN, FRONT, UP
from di2pose_people.pose_builder import PoseBuilder, Seat
from di2pose_people.retarget import SIGNS


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
