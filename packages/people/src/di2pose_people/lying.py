"""Ways to lie: on the back, on a side, on the belly, curled, raised on an elbow, reclined."""

import numpy as np
from scipy.spatial.transform import Rotation

from di2pose_people.draft import Draft, Seat, thickness
from di2pose_people.puppet import DOWN, FRONT, UP, euler
from di2pose_people.retarget import SIGNS


def _down(draft: Draft, roll: float, bend: float = 0.0, gaze: float = 0.0, pitch: float = 0.0) -> np.ndarray:
    """Lie along -z, head away from the front; `roll` 0 on the back, half a turn on the belly."""
    base = Rotation.from_euler("XY", [-np.pi / 2, roll]).as_matrix()
    draft.gap = thickness(draft.p.rig)["back" if abs(roll) < np.pi / 2 else "belly"]
    draft.p.trunk(base, (0.0, 0.0, 0.0), (0.0, bend, 0.0), gaze, 0.5)
    return base


def _leg_along(draft: Draft, side: int, base: np.ndarray, flexion: float, bend: float, out: float, foot: float) -> None:
    """Joint angles of a leg within the lying body."""
    turn = base @ euler(0.0, -flexion, SIGNS[side] * out)
    shin = turn @ euler(0.0, bend, 0.0)
    draft.p.bones(side, -turn[:, 1], -shin[:, 1], turn[:, 0], foot)


def _arms_down(draft: Draft, floor: float) -> None:
    """Arms as in the motion, but not below the floor (height from the hips)."""
    for side in (0, 1):
        chance = draft.g.random()
        shoulder = draft.p.joint(side, "shoulder")
        if chance < 0.3:  # along the body
            target = shoulder + draft.k * (draft.u(0.36, 0.47) * FRONT + draft.u(0.06, 0.22) * draft.out(side))
            target[1] = draft.p.place("pelvis")[1] + floor + 0.04
            draft.p.reach(side, target, draft.out(side) - 0.5 * UP, DOWN)
        elif chance < 0.5:  # on the belly or chest
            target = draft.p.place("spine") + draft.k * (draft.u(0.15, 0.19) * UP + draft.u(-0.16, 0.12) * FRONT)
            target += draft.k * draft.u(0.0, 0.1) * draft.out(side)
            draft.p.reach(side, target, draft.out(side) - 0.6 * UP, DOWN)
        elif chance < 0.66:  # under or beside the head
            target = draft.p.place("nose") + draft.k * (
                draft.u(0.12, 0.25) * draft.out(side) - draft.u(0.0, 0.16) * FRONT
            )
            target[1] = draft.p.place("pelvis")[1] + floor + 0.04
            draft.p.reach(side, target, draft.out(side) - 0.3 * FRONT, UP)
        elif chance < 0.76:  # a phone above the face
            target = draft.p.place("nose") + draft.k * (draft.u(0.28, 0.4) * UP + draft.u(0.04, 0.2) * FRONT)
            draft.p.reach(side, target + 0.04 * draft.out(side), FRONT + 0.6 * draft.out(side), -UP)
        elif draft.p.joint(side, "wrist")[1] < draft.p.place("pelvis")[1] + floor + 0.03 or (
            draft.p.joint(side, "elbow")[1] < draft.p.place("pelvis")[1] + floor + 0.03
        ):
            target = shoulder + draft.k * (draft.u(-0.2, 0.3) * FRONT + draft.u(0.3, 0.45) * draft.out(side))
            target[1] = draft.p.place("pelvis")[1] + floor + 0.04
            draft.p.reach(side, target, FRONT - 0.2 * UP, UP)


def back(draft: Draft) -> None:
    _down(draft, draft.deg(0, 5), draft.deg(0, 5))
    floor = -draft.gap / draft.k
    ups = draft.g.random()
    for side in (0, 1):
        if ups < 0.22 or (ups < 0.5 and side == draft.one):
            ankle = draft.at(side, draft.u(0.05, 0.15), floor + 0.085, draft.u(0.35, 0.62))
            draft.p.leg(side, ankle, UP + 0.3 * FRONT + draft.n(0.05, 0.2) * draft.out(side))
        else:
            length = (draft.p.thigh + draft.p.shin) / draft.k * draft.u(0.93, 0.99)
            ankle = draft.at(side, draft.u(0.04, 0.24), floor + 0.07, length)
            draft.p.leg(side, ankle, UP + draft.u(0, 0.8) * draft.out(side), np.radians(draft.u(10, 45)))
    _arms_down(draft, floor * draft.k)


def reclined(draft: Draft) -> None:
    """Half up against cushions: the seat's back rest stands behind."""
    lean = -np.radians(draft.u(36, 58))
    draft.p.trunk(np.eye(3), (0.0, lean * 0.8 - 0.15, draft.deg(0, 3)), (0.0, lean, 0.0), draft.u(0.2, 0.6))
    if draft.seat.kind in ("floor", "mat"):
        draft.seat = Seat("mattress")
    draft.seat = Seat(draft.seat.kind, None, -lean)
    floor = -draft.gap / draft.k
    for side in (0, 1):
        if side == draft.one and draft.g.random() < 0.5:
            ankle = draft.at(side, draft.u(0.05, 0.15), floor + 0.085, draft.u(0.38, 0.6))
            draft.p.leg(side, ankle, UP + 0.3 * FRONT + draft.n(0.05, 0.2) * draft.out(side))
        else:
            length = (draft.p.thigh + draft.p.shin) / draft.k * draft.u(0.93, 0.985)
            ankle = draft.at(side, draft.u(0.0, 0.16), floor + 0.07, length)
            draft.p.leg(side, ankle, UP + draft.u(0, 0.6) * draft.out(side), np.radians(draft.u(10, 45)))
    draft.arms(-draft.gap + 0.06, True)


def _on_side(draft: Draft, tuck: float, bend: float) -> None:
    """On the side `one`; the other leg and arm lie on top."""
    below, above = draft.one, 1 - draft.one
    base = _down(draft, SIGNS[below] * (np.pi / 2 + draft.deg(0, 9)), bend)
    extra = draft.u(0.0, 35.0)
    _leg_along(
        draft,
        below,
        base,
        np.radians(tuck + draft.n(0, 8)),
        np.radians(tuck * 0.9 + draft.u(8, 35)),
        0.1,
        np.radians(draft.u(10, 45)),
    )
    _leg_along(
        draft,
        above,
        base,
        np.radians(tuck + extra),
        np.radians(tuck * 0.9 + extra + draft.u(8, 30)),
        -draft.u(0.25, 0.42) if extra > 18 else -draft.u(0.1, 0.18),
        np.radians(draft.u(10, 45)),
    )
    chest = draft.p.node("Spine1")
    head = chest[:, 1]
    # `ahead` is where the chest looks, `head` where the top of the head is
    ahead = chest[:, 2]
    shoulder = draft.p.joint(below, "shoulder")
    target = shoulder + draft.k * (draft.u(0.2, 0.34) * ahead + draft.u(0.05, 0.32) * head)
    target[1] = shoulder[1] - 0.03
    draft.p.reach(below, target, ahead - 0.6 * head, UP)
    shoulder = draft.p.joint(above, "shoulder")
    if draft.g.random() < 0.65:
        target = shoulder + draft.k * (draft.u(0.22, 0.4) * ahead - draft.u(-0.15, 0.25) * head)
        target[1] = draft.p.joint(below, "shoulder")[1] + draft.u(0.0, 0.1)
        draft.p.reach(above, target, -0.8 * head + 0.5 * UP, DOWN)
    else:  # along the upper side
        target = shoulder - draft.k * draft.u(0.4, 0.47) * head + 0.06 * UP + 0.04 * ahead
        draft.p.reach(above, target, UP - 0.5 * ahead, DOWN)


def side(draft: Draft) -> None:
    _on_side(draft, draft.u(8, 60), draft.deg(6, 8))


def curled(draft: Draft) -> None:
    _on_side(draft, draft.u(66, 92), draft.deg(24, 6))


def elbow(draft: Draft) -> None:
    """On the side, the trunk raised on an elbow."""
    below, above = draft.one, 1 - draft.one
    up = np.radians(draft.u(42, 54))
    base = Rotation.from_euler("XY", [-np.pi / 2, SIGNS[below] * (np.pi / 2 + draft.deg(-6, 8))]).as_matrix()
    draft.p.trunk(base, (0.0, 0.0, SIGNS[below] * 0.42 * up), (0.0, draft.deg(4, 6), SIGNS[below] * up), 0.0, 0.4)
    tuck = draft.u(5, 55)
    _leg_along(
        draft, below, base, np.radians(tuck), np.radians(tuck + draft.u(5, 30)), 0.13, np.radians(draft.u(10, 45))
    )
    _leg_along(
        draft,
        above,
        base,
        np.radians(tuck + draft.u(0, 35)),
        np.radians(tuck + draft.u(5, 60)),
        -draft.u(0.1, 0.22),
        np.radians(draft.u(10, 45)),
    )
    ahead, head = draft.p.node("Spine1")[:, 2], draft.p.node("Spine1")[:, 1]
    shoulder = draft.p.joint(below, "shoulder")
    floor = draft.p.joint(below, "hip")[1] - 0.1
    if draft.g.random() < 0.5:  # the head in the hand
        elbow = shoulder + draft.k * 0.06 * ahead + DOWN * 0.3
        draft.p.elbow_on(below, elbow, draft.p.place("nose") + 0.05 * head + 0.1 * ahead + 0.06 * DOWN)
    else:
        elbow = shoulder + draft.k * 0.06 * ahead + DOWN * 0.3
        draft.p.elbow_on(
            below, elbow, elbow + draft.k * (0.25 * ahead - draft.u(-0.1, 0.15) * FRONT) * np.array([1, 0, 1]), DOWN
        )
    shoulder = draft.p.joint(above, "shoulder")
    target = draft.p.joint(above, "hip") + 0.12 * UP + draft.k * draft.u(0.0, 0.25) * FRONT
    if draft.g.random() < 0.5:
        target = shoulder + draft.k * (draft.u(0.2, 0.35) * ahead - 0.2 * head)
        target[1] = floor + 0.06
    draft.p.reach(above, target, UP - 0.5 * ahead, DOWN)


def belly(draft: Draft) -> None:
    propped = draft.g.random() < 0.55
    back = np.radians(draft.u(24, 38)) if propped else 0.0
    base = _down(draft, np.pi + draft.deg(0, 4), -back, 0.8 if propped else 0.0)
    for side in (0, 1):
        raised = propped and draft.g.random() < 0.3
        bend = draft.u(60, 105) if raised else draft.u(3, 9)
        flexion, out = (5.0, draft.u(0.02, 0.2)) if draft.g.random() < 0.8 or propped else (draft.u(10, 25), 0.7)
        _leg_along(draft, side, base, np.radians(flexion), np.radians(bend), out, np.radians(draft.u(35, 55)))
    floor = draft.p.place("pelvis")[1] - draft.gap
    for side in (0, 1):
        shoulder = draft.p.joint(side, "shoulder")
        away = np.array([-draft.out(side)[0], 0.0, 0.0])  # face down, left is on the other side
        if propped:
            elbow = shoulder - draft.k * 0.04 * FRONT + 0.03 * away
            elbow[1] = floor + 0.06
            elbow[2] -= np.sqrt(max(draft.p.arm**2 - (shoulder - elbow)[1] ** 2, 0.0))
            towards = elbow - 0.24 * FRONT - draft.u(0.02, 0.12) * away
            if side == draft.one and draft.g.random() < 0.3:
                towards = draft.p.place("nose") - 0.12 * FRONT
            draft.p.elbow_on(side, elbow, towards, DOWN)
        else:
            along = draft.g.random() < 0.4
            target = shoulder + draft.k * (
                (draft.u(0.3, 0.45) if along else -draft.u(0.05, 0.3)) * FRONT + draft.u(0.1, 0.25) * away
            )
            target[1] = floor + 0.05
            draft.p.reach(side, target, away + 0.2 * UP, UP if along else DOWN)
    if not propped:
        _turn_head(draft, draft.g.choice([-1.0, 1.0]) * np.radians(draft.u(50, 70)))


def _turn_head(draft: Draft, yaw: float) -> None:
    head = draft.p.node("Head")
    head[:] = draft.p.node("Spine1") @ euler(yaw, np.radians(-6), 0.0)
