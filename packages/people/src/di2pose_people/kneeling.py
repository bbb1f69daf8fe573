"""Ways to kneel: on one knee, on two, on the heels, on all fours."""

import numpy as np

from di2pose_people.draft import Draft
from di2pose_people.puppet import DOWN, FRONT, UP, cross


def _shin_back(draft: Draft, side: int, thigh: np.ndarray, inward: float = 0.0) -> None:
    """A knee on the floor, its shin flat behind it; toes stretched or tucked under."""
    tucked = draft.g.random() < 0.35
    rise = (0.165 if tucked else 0.045) * draft.k
    shin = -FRONT + rise / draft.p.shin * UP - inward * draft.out(side)
    shin = shin / np.linalg.norm(shin)
    hinge = cross(thigh, shin)
    draft.p.bones(side, thigh, shin, hinge / np.linalg.norm(hinge), np.radians(-26 if tucked else draft.u(48, 58)))


def two(draft: Draft) -> None:
    lean = draft.deg(6, 9)
    draft.p.trunk(np.eye(3), (0.0, draft.deg(4, 6), draft.deg(0, 2)), (0.0, lean, 0.0), draft.u(0.3, 1.0))
    sway, apart = draft.u(-0.12, 0.5), draft.u(-0.02, 0.22)
    for side in (0, 1):
        thigh = DOWN + sway * FRONT + apart * draft.out(side)
        _shin_back(draft, side, thigh / np.linalg.norm(thigh))
    draft.arms(-0.35, True)


def one(draft: Draft) -> None:
    lean = draft.deg(10, 10)
    draft.p.trunk(np.eye(3), (0.0, draft.deg(3, 6), draft.deg(0, 3)), (0.0, lean, 0.0), draft.u(0.3, 1.0))
    back, front = draft.one, 1 - draft.one
    thigh = DOWN + draft.u(-0.12, 0.55) * FRONT + draft.u(-0.02, 0.2) * draft.out(back)
    thigh /= np.linalg.norm(thigh)
    _shin_back(draft, back, thigh)
    floor = (draft.p.knee(back) - draft.p.place("pelvis"))[1] / draft.k - 0.067
    ankle = draft.at(front, draft.u(0.06, 0.22), floor + 0.085, draft.p.thigh / draft.k + draft.u(-0.1, 0.12))
    draft.p.leg(front, ankle, FRONT + UP + 0.2 * draft.out(front))
    if draft.g.random() < 0.35:
        draft.arm(front, "knee", -0.3, True, None)
        draft.arm(back, "motion", -0.3, True, None)
    else:
        draft.arms(-0.35, True)


def _folded(draft: Draft, side: int, apart: float) -> None:
    slope = np.radians(draft.u(27, 36))
    thigh = np.cos(slope) * (FRONT + apart * draft.out(side)) / np.hypot(1, apart) - np.sin(slope) * UP
    shin = -FRONT - (apart + 0.1) * draft.out(side) + 0.07 * UP
    shin /= np.linalg.norm(shin)
    hinge = cross(thigh, shin)
    draft.p.bones(side, thigh, shin, hinge / np.linalg.norm(hinge), np.radians(draft.u(48, 58)))


def heels(draft: Draft) -> None:
    draft.sit_up(draft.deg(8, 9))
    apart = draft.u(0.05, 0.45)
    for side in (0, 1):
        _folded(draft, side, apart)
    draft.arms(-0.1, True)


def bow(draft: Draft) -> None:
    """Folded over the thighs, hands ahead on the floor."""
    pitch = draft.deg(72, 6)
    draft.p.trunk(np.eye(3), (0.0, pitch - np.radians(28), 0.0), (0.0, pitch, 0.0), draft.u(0.1, 0.5), 0.4)
    apart = draft.u(0.2, 0.5)
    for side in (0, 1):
        _folded(draft, side, apart)
    floor = min(draft.p.knee(0)[1], draft.p.knee(1)[1])
    for side in (0, 1):
        target = draft.p.joint(side, "shoulder") + draft.k * (
            draft.u(0.15, 0.45) * FRONT + draft.n(0.06, 0.06) * draft.out(side)
        )
        target[1] = floor + 0.02
        draft.p.reach(side, target, UP + 0.8 * draft.out(side), DOWN)


def fours(draft: Draft) -> None:
    pitch = draft.deg(84, 9)
    draft.p.trunk(
        np.eye(3),
        (0.0, pitch - draft.deg(6, 9), draft.deg(0, 3)),
        (draft.deg(0, 5), pitch, 0.0),
        draft.u(0.1, 0.5),
        0.4,
    )
    for side in (0, 1):
        thigh = DOWN + draft.n(0.0, 0.2) * FRONT + draft.u(-0.03, 0.14) * draft.out(side)
        thigh /= np.linalg.norm(thigh)
        _shin_back(draft, side, thigh)
    floor = min(draft.p.knee(side)[1] for side in (0, 1)) - 0.067 * draft.k
    for side in (0, 1):
        target = draft.p.joint(side, "shoulder") + draft.k * (
            draft.n(0.02, 0.09) * FRONT + draft.n(0.03, 0.05) * draft.out(side)
        )
        target[1] = floor + 0.095
        if side == draft.one and draft.g.random() < 0.15:
            target += np.array([0.0, draft.u(0.2, 0.5), draft.u(0.1, 0.4)])
        draft.p.reach(side, target, draft.out(side) - 0.6 * FRONT, DOWN)
