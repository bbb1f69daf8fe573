"""Ways to bend over: to pick something up, over a counter, hands on the knees, crouching."""

import numpy as np

from di2pose_people.draft import Draft, Seat
from di2pose_people.puppet import DOWN, FRONT, UP
from di2pose_people.retarget import SIGNS


def _stand(draft: Draft, height: float, pelvis: float, chest: float, gaze: float | None = None) -> None:
    """Feet on the floor under a trunk that is bent at the hips; `height` in leg lengths."""
    share = draft.u(0.1, 0.8) if gaze is None else gaze
    draft.p.trunk(np.eye(3), (0.0, pelvis, draft.deg(0, 3)), (draft.deg(0, 6), chest, 0.0), share)
    leg = (draft.p.thigh + draft.p.shin) / draft.k
    forward = 0.16 * np.sin(chest) + draft.u(-0.04, 0.06)
    apart, stagger = draft.u(0.03, 0.2), draft.n(0, 0.1)
    for side in (0, 1):
        ankle = draft.at(side, apart + draft.u(0, 0.04), -height * leg, forward + stagger * SIGNS[side])
        draft.p.leg(side, ankle, FRONT + draft.n(0.1, 0.12) * draft.out(side))
    draft.floor = -(height * leg + 0.085) * draft.k


def pick(draft: Draft) -> None:
    chest = draft.deg(80, 12)
    _stand(draft, draft.u(0.74, 0.95), chest - np.radians(draft.u(22, 38)), chest)
    for side in (0, 1):
        if side != draft.one and draft.g.random() < 0.35:
            draft.arm(side, "knee", draft.floor, True, None)
            continue
        target = draft.at(side, draft.u(-0.02, 0.16), 0.0, draft.u(0.35, 0.55))
        target[1] += draft.floor + draft.u(0.08, 0.35)
        draft.p.reach(side, target, draft.out(side) + 0.3 * UP, -draft.out(side))


def over(draft: Draft) -> None:
    chest = draft.deg(62, 9)
    _stand(draft, draft.u(0.9, 0.99), chest - np.radians(draft.u(12, 26)), chest)
    if draft.seat.kind != "counter":
        draft.arms(draft.floor + 0.1, True)
        return
    height = draft.u(0.75, 0.98) * draft.k + draft.floor
    for side in (0, 1):
        target = draft.p.joint(side, "shoulder") + draft.k * (
            draft.u(0.1, 0.32) * FRONT + draft.u(-0.05, 0.12) * draft.out(side)
        )
        low = draft.p.joint(side, "shoulder")[1] - 0.93 * (draft.p.arm + draft.p.forearm)
        target[1] = max(draft.p.place("pelvis")[1] + height, low) + 0.05
        draft.p.reach(side, target, draft.out(side) - 0.4 * FRONT, DOWN)
    draft.seat = Seat("counter", height)


def knees(draft: Draft) -> None:
    chest = draft.deg(56, 7)
    _stand(draft, draft.u(0.82, 0.93), chest - np.radians(draft.u(16, 28)), chest)
    for side in (0, 1):
        hip, knee = draft.p.joint(side, "hip"), draft.p.knee(side)
        target = hip + draft.u(0.78, 0.95) * (knee - hip) + draft.k * (0.1 * FRONT + 0.03 * UP)
        draft.p.reach(side, target, draft.out(side) + 0.6 * FRONT, DOWN)


def crouch(draft: Draft) -> None:
    chest = draft.deg(48, 9)
    _stand(draft, draft.u(0.5, 0.72), chest - np.radians(draft.u(14, 26)), chest)
    draft.arms(draft.floor + 0.12, True)
