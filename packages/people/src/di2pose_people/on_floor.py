"""Ways to sit on the floor, and to squat."""

import numpy as np

from di2pose_people.draft import Draft
from di2pose_people.puppet import DOWN, FRONT, UP
from di2pose_people.retarget import SIGNS


def _hands(draft: Draft, lean: float) -> None:
    if lean < np.radians(-14):
        for side in (0, 1):
            if side == draft.one or draft.g.random() < 0.75:
                draft.behind(side, draft.gap)
            else:
                draft.arm(side, "knee" if draft.g.random() < 0.5 else "motion", -draft.gap + 0.06, True, None)
    else:
        draft.arms(-draft.gap + 0.06, True)


def _trunk(draft: Draft, back: float) -> float:
    lean = draft.deg(-26, 6) if draft.g.random() < back else draft.deg(10, 10)
    draft.sit_up(lean, np.radians(draft.u(0, 18)) if lean > 0 else 0.0)
    return lean


def crosslegged(draft: Draft) -> None:
    lean = _trunk(draft, 0.15)
    floor = -draft.gap / draft.k
    for side in (0, 1):
        over = side == draft.one
        ankle = draft.at(side, draft.u(-0.08, -0.02), floor + 0.08 + 0.04 * over, draft.u(0.17, 0.21) + 0.12 * over)
        draft.p.leg(side, ankle, draft.out(side) + draft.u(0.05, 0.4) * UP + 0.25 * FRONT, np.radians(draft.u(10, 40)))
    _hands(draft, lean)


def stretched(draft: Draft) -> None:
    lean = _trunk(draft, 0.5)
    floor, apart, far = -draft.gap / draft.k, draft.u(0.05, 0.28), draft.u(0.9, 0.985)
    length = (draft.p.thigh + draft.p.shin) / draft.k
    for side in (0, 1):
        ankle = draft.at(side, apart + draft.u(0, 0.04), floor + 0.08, far * length - draft.u(0, 0.05))
        draft.p.leg(side, ankle, UP + draft.n(0.1, 0.2) * draft.out(side), np.radians(draft.u(-5, 35)))
    _hands(draft, lean)


def one_up(draft: Draft) -> None:
    lean = _trunk(draft, 0.45)
    floor = -draft.gap / draft.k
    bent, other = draft.one, 1 - draft.one
    ankle = draft.at(bent, draft.u(0.04, 0.16), floor + 0.1, draft.u(0.42, 0.6))
    draft.p.leg(bent, ankle, UP + 0.4 * FRONT + draft.n(0.1, 0.2) * draft.out(bent))
    if draft.g.random() < 0.55:
        ankle = draft.at(other, draft.u(0.08, 0.22), floor + 0.075, draft.u(0.72, 0.82))
        draft.p.leg(other, ankle, UP + 0.3 * draft.out(other), np.radians(draft.u(0, 35)))
    else:
        ankle = draft.at(other, -draft.u(0.06, 0.16), floor + 0.075, draft.u(0.2, 0.3))
        draft.p.leg(other, ankle, draft.out(other) + 0.05 * UP + 0.2 * FRONT, np.radians(draft.u(15, 45)))
    _hands(draft, lean)


def hugging(draft: Draft) -> None:
    draft.sit_up(draft.deg(12, 5), np.radians(20))
    floor, near = -draft.gap / draft.k, draft.u(0.5, 0.62)
    for side in (0, 1):
        ankle = draft.at(side, draft.u(0.03, 0.1), floor + 0.085, near)
        draft.p.leg(side, ankle, UP + 0.4 * FRONT + draft.n(0.05, 0.05) * draft.out(side))
    around, share = draft.g.random() < 0.5, draft.u(0.1, 0.4)
    for side in (0, 1):
        knee, ankle = draft.p.knee(side), draft.p.ankle(side)
        target = knee + share * (ankle - knee) + draft.k * (0.06 * FRONT + 0.09 * draft.out(side))
        if around:
            target += draft.k * (0.1 + 0.06 * (side == draft.one)) * FRONT
            target[0] = draft.p.place("pelvis")[0] + draft.k * SIGNS[side] * draft.u(0.0, 0.06)
        draft.p.reach(side, target, draft.out(side), -draft.out(side))


def sideways(draft: Draft) -> None:
    """Both knees to one side, the feet beside the other hip."""
    lean = draft.deg(6, 9)
    tilt = SIGNS[draft.one] * np.radians(draft.u(4, 12))
    draft.p.trunk(np.eye(3), (0.0, np.radians(-8), -tilt), (0.0, lean, tilt * 0.3), draft.u(0.3, 1.0))
    floor, knees, feet = -draft.gap / draft.k, draft.one, 1 - draft.one
    ankle = draft.at(feet, draft.u(0.0, 0.12), floor + 0.06, draft.u(0.18, 0.3))
    draft.p.leg(knees, ankle, draft.out(knees) + 0.3 * FRONT, np.radians(draft.u(25, 50)))
    ankle = draft.at(feet, draft.u(0.3, 0.42), floor + 0.06, draft.u(-0.12, 0.08))
    draft.p.leg(feet, ankle, FRONT + 0.55 * draft.out(knees), np.radians(draft.u(25, 50)))
    draft.arms(-draft.gap + 0.06, True)
    if draft.g.random() < 0.4:
        target = draft.at(knees, draft.u(0.25, 0.4), 0, draft.u(-0.2, 0.1))
        target[1] += -draft.gap + 0.05
        draft.p.reach(knees, target, draft.out(knees) - FRONT, DOWN)


def squat(draft: Draft) -> None:
    low = draft.u(0.24, 0.46)
    draft.p.trunk(np.eye(3), (0.0, draft.deg(14, 9), draft.deg(0, 3)), (0.0, draft.deg(30, 9), 0.0), draft.u(0.4, 1.0))
    apart = draft.u(0.06, 0.24)
    for side in (0, 1):
        ankle = draft.at(side, apart + draft.u(0, 0.05), -low + 0.03, draft.u(0.06, 0.2))
        draft.p.leg(side, ankle, FRONT + 0.5 * UP + draft.u(0.1, 0.6) * draft.out(side))
    chance = draft.g.random()
    if chance < 0.25:
        for side in (0, 1):
            target = draft.at(side, draft.u(0.02, 0.2), -low + 0.05, draft.u(0.4, 0.6))
            draft.p.reach(side, target, draft.out(side) - FRONT, DOWN)
    elif chance < 0.5:
        for side in (0, 1):
            knee = draft.p.knee(side)
            ahead = knee + 0.13 * draft.k * FRONT + 0.06 * UP
            ahead[0] = draft.p.place("pelvis")[0] + SIGNS[side] * draft.u(0.02, 0.12)
            draft.p.reach(side, ahead, draft.out(side) - 0.3 * UP, DOWN)
    else:
        draft.arms(-low + 0.05, True)
