"""Ways to sit on a chair, stool, bench, sofa or bed, at a table or not."""

import numpy as np

from di2pose_people.draft import Draft, Seat
from di2pose_people.puppet import DOWN, FRONT, UP, cross
from di2pose_people.retarget import SIGNS

HEIGHTS = {"chair": (0.42, 0.5), "armchair": (0.38, 0.48), "stool": (0.42, 0.58), "bench": (0.36, 0.48),
           "sofa": (0.34, 0.46), "bed": (0.4, 0.58), "wheelchair": (0.45, 0.52), "ball": (0.45, 0.6),
           "block": (0.22, 0.45)}  # fmt: skip
"""Of a seat above the floor, metres."""
WITH_ARMS = ("armchair", "wheelchair")


def _height(draft: Draft, most: float = 0.51) -> float:
    """Of the seat; not so high that the feet do not reach the floor."""
    return min(draft.u(*HEIGHTS[draft.seat.kind]), most * draft.k)


def _on_seat(draft: Draft, lean: float | None = None, yaw: float = 0.0) -> None:
    """Trunk and arms of one who sits on a seat, after which come the legs."""
    backed = draft.seat.kind in ("chair", "armchair", "sofa", "wheelchair")
    if lean is None:
        chance = draft.g.random()
        lean = draft.deg(3, 7) if chance < 0.5 else draft.deg(20, 8) if chance < 0.75 else draft.deg(-16, 7)
        if lean < np.radians(-8) and not backed:
            lean = abs(lean)
        if draft.seat.table is not None:
            lean = abs(lean)
    draft.sit_up(lean, yaw=yaw)


def _hands(draft: Draft) -> None:
    lean = float(np.arcsin(np.clip(draft.p.node("Spine1")[2, 1], -1, 1)))
    rest = draft.u(0.1, 0.14) if draft.seat.kind in WITH_ARMS else None
    height = None if draft.seat.table is None else _table(draft)
    draft.seat = Seat(draft.seat.kind, height, -min(lean, 0.0))
    wide = draft.seat.kind in ("chair", "stool", "ball", "block")
    draft.arms(0.02, wide, rest)
    if height is None:
        return
    for side in (0, 1):
        chance = draft.g.random()
        ahead, out = draft.u(0.32, 0.5), draft.u(-0.02, 0.24)
        if chance < 0.72:
            target = draft.p.place("pelvis") + np.array([SIGNS[side] * out, height + 0.05, 0.0])
            target[2] = draft.p.joint(side, "shoulder")[2] + draft.k * ahead * 0.8
            draft.p.reach(side, target, 0.8 * draft.out(side) - 0.35 * FRONT - 0.3 * UP, DOWN)


def _table(draft: Draft) -> float:
    """Height of a table above the hips: over the knees."""
    knees = max(draft.p.knee(side)[1] for side in (0, 1)) - draft.p.place("pelvis")[1]
    return max(knees + draft.k * 0.11, 0.12 * draft.k) + draft.u(0.03, 0.12)


def _foot_down(draft: Draft, side: int, low: float, front: tuple[float, float], out: tuple[float, float]) -> None:
    apart = draft.u(*out)
    ankle = draft.at(side, apart, low, draft.p.thigh / draft.k * 0.98 + draft.u(*front))
    draft.p.leg(side, ankle, UP + FRONT + draft.out(side) * draft.n(0.12, 0.18))


def feet(draft: Draft) -> None:
    low, apart = draft.low(_height(draft)), draft.u(0.03, 0.22)
    _on_seat(draft)
    for side in (0, 1):
        _foot_down(draft, side, low, (-0.12, 0.14), (apart - 0.02, apart + 0.06))
    _hands(draft)


def stretched(draft: Draft) -> None:
    low = draft.low(_height(draft))
    _on_seat(draft, None if draft.seat.table is not None else draft.deg(-10, 12))
    far = draft.u(0.2, 0.42)
    for side in (0, 1):
        if side == draft.one or draft.g.random() < 0.65:
            _foot_down(draft, side, low, (far, far + 0.06), (0.02, 0.16))
        else:
            _foot_down(draft, side, low, (-0.14, 0.1), (0.05, 0.16))
    _hands(draft)


def tucked(draft: Draft) -> None:
    low = draft.low(_height(draft))
    _on_seat(draft)
    solid = draft.seat.kind in ("sofa", "bed", "block", "ball")
    for side in (0, 1):
        back = side == draft.one or draft.g.random() < 0.5
        _foot_down(
            draft,
            side,
            low + 0.03 * back,
            (-0.12, -0.05) if solid else (-0.3, -0.12) if back else (-0.1, 0.05),
            (0.04, 0.14),
        )
    _hands(draft)


def ankles(draft: Draft) -> None:
    low = draft.low(_height(draft))
    _on_seat(draft)
    ahead = draft.u(-0.08, 0.25)
    for side in (0, 1):
        over = side == draft.one
        ankle = draft.at(side, -0.03, low + 0.03 * over, draft.p.thigh / draft.k + ahead + 0.15 * over)
        draft.p.leg(side, ankle, UP + FRONT + 0.4 * draft.out(side))
    _hands(draft)


def elbows(draft: Draft) -> None:
    """Elbows on the thighs, or on the table."""
    low, apart = draft.low(_height(draft, 0.44)), draft.u(0.08, 0.24)
    table = draft.seat.table is not None
    _on_seat(draft, draft.deg(28, 5) if table else draft.deg(42, 5))
    for side in (0, 1):
        _foot_down(draft, side, low, (-0.14, 0.06), (apart, apart + 0.05))
    joined = draft.g.random() < 0.6
    if table:
        _elbows_on_table(draft, joined)
        return
    for side in (0, 1):
        if side == draft.one and draft.g.random() < 0.15:
            draft.arm(side, "chin", 0.02, False, None)
            continue
        hip, knee = draft.p.joint(side, "hip"), draft.p.knee(side)
        shoulder = draft.p.joint(side, "shoulder")
        share = np.clip((shoulder - hip)[2] / max((knee - hip)[2], 0.1) + draft.u(-0.02, 0.15), 0.45, 0.95)
        elbow = hip + share * (knee - hip) + draft.k * (0.105 * UP + 0.02 * draft.out(side))
        middle = draft.p.place("pelvis") + FRONT * ((knee - hip)[2] + draft.u(0.02, 0.1))
        middle[1] = elbow[1] + draft.u(-0.06, 0.12)
        ahead = elbow + FRONT * 0.25 + UP * draft.u(-0.12, 0.05) - 0.1 * draft.out(side)
        draft.p.elbow_on(side, elbow, middle + 0.035 * draft.out(side) if joined else ahead, -draft.out(side))


def _elbows_on_table(draft: Draft, joined: bool) -> None:
    height = _table(draft)
    draft.seat = Seat(draft.seat.kind, height)
    for side in (0, 1):
        shoulder = draft.p.joint(side, "shoulder")
        elbow = shoulder + draft.k * draft.u(-0.02, 0.07) * draft.out(side)
        elbow[1] = draft.p.place("pelvis")[1] + height + 0.055
        elbow[2] += np.sqrt(max(draft.p.arm**2 - (shoulder - elbow)[1] ** 2, 0.0))
        towards = elbow + 0.2 * FRONT - draft.u(0.05, 0.2) * draft.out(side) + draft.u(0, 0.05) * UP
        if joined:
            towards = draft.p.place("nose") + 0.16 * FRONT + 0.04 * draft.out(side) - draft.u(0.05, 0.12) * UP
        draft.p.elbow_on(side, elbow, towards, None if joined else DOWN)


def crossed(draft: Draft) -> None:
    """One knee over the other: the pelvis turns a little, the lower thigh goes to the middle."""
    low = draft.low(_height(draft, 0.46))
    over, under = draft.one, 1 - draft.one
    _on_seat(draft, yaw=-SIGNS[over] * np.radians(draft.u(6, 12)))
    ankle = draft.at(under, -draft.u(0.0, 0.08), low, draft.p.thigh / draft.k + draft.u(-0.08, 0.08))
    draft.p.leg(under, ankle, UP + FRONT - 0.45 * draft.out(under))
    hip, below = draft.p.joint(over, "hip"), draft.p.knee(under)
    knee = below + draft.k * (0.115 * UP + 0.06 * FRONT + draft.u(0.05, 0.08) * draft.out(under))
    thigh = (knee - hip) / np.linalg.norm(knee - hip)
    shin = DOWN + draft.u(0.25, 0.7) * FRONT + draft.u(0.1, 0.4) * draft.out(under)
    shin /= np.linalg.norm(shin)
    hinge = cross(thigh, shin)
    draft.p.bones(over, thigh, shin, hinge / np.linalg.norm(hinge), np.radians(draft.u(0, 35)))
    _hands(draft)


def figure4(draft: Draft) -> None:
    low = draft.low(_height(draft))
    _on_seat(draft)
    over, under = draft.one, 1 - draft.one
    _foot_down(draft, under, low, (-0.06, 0.08), (0.08, 0.16))
    hip, below = draft.p.joint(under, "hip"), draft.p.knee(under)
    ankle = hip + draft.u(0.78, 0.92) * (below - hip) + draft.k * 0.125 * UP + 0.06 * draft.out(under)
    draft.p.leg(over, ankle, draft.out(over) + draft.u(0.1, 0.5) * UP + 0.3 * FRONT, np.radians(draft.u(-5, 25)))
    _hands(draft)
