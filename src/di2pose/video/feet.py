"""Feet that stand are held in their place.  n frames, F feet joints, C contacts; mm.

First the root moves, then each foot with its leg. A correction d of a path x of points is the least of

    sum_k d_k' noise_k^-1 d_k  +  1/density * integral of |(x + d)''|^2
    + sum_contacts sum_k ramp_k |p_k + d_k - a|^2 / HELD_MM^2  +  (height of a / HEIGHT_MM)^2

over d and the place a of every contact: a smoothing spline, as in `video.smooth`, that rests where a foot does. Bones
keep their lengths; the knee bends in its own plane.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse
from scipy.sparse.linalg import spsolve

from di2pose.pose.floor import ANKLES, HEIGHT_MM, Floor, Walk, contacts, find_floor, runs
from di2pose.pose.skeleton import Skeleton
from di2pose.result import Person, Result, walks_of
from di2pose.video.smooth import DENSITY, ROOT_DENSITY, root_noise

HELD_MM = 2.0
"""Standard deviation of a foot in contact round its place."""
RAMP_S = 0.15
"""Time in which a contact takes hold and lets go."""
FOOT_MM = 25.0
"""Standard deviation of a foot's joint against the root."""
STRAIGHT_MM = 60.0
"""A knee nearer than this to the line from hip to ankle lets the leg become longer or shorter only in proportion."""


def held_feet(results: Sequence[Result]) -> list[Result]:
    """The results of a video with everybody's feet held where they touch the floor; joints_mm, root_mm and joints_2d
    change. Unchanged where no floor is found."""
    walks = walks_of(results)
    floor, _ = find_floor(list(walks.values()))
    if floor is None:
        return list(results)
    changed: dict[int, list[Person]] = {}
    for track, walk in walks.items():
        frames = [(result, one) for result in results for one in result.people if one.track == track]
        root = np.stack([person.root_mm for _, person in frames]).astype(np.float64)
        moved_root, joints = held(walk, root, floor)
        changed[track] = [
            replace(person, joints_mm=own - to, root_mm=to, joints_2d=result.camera.project(own))
            for (result, person), to, own in zip(frames, moved_root, joints, strict=True)
        ]
    each = {track: iter(people) for track, people in changed.items()}
    return [
        replace(result, people=[p if p.track not in each else next(each[p.track]) for p in result.people])
        for result in results
    ]


def held(walk: Walk, root_mm: Float[np.ndarray, "n 3"], floor: Floor) -> tuple[np.ndarray, Float[np.ndarray, "n J 3"]]:
    """Root and placed joints, corrected."""
    joints, skeleton, times = walk.joints_mm.astype(np.float64), walk.skeleton, walk.times_s
    touching = contacts(walk, floor)
    if len(times) < 3 or not touching.any():
        return root_mm, joints
    feet = list(skeleton.indices(*walk.feet))
    drop = float(-np.median(((walk.soles(floor.up) - walk.steady) @ floor.up)))  # from a foot's joint to its sole
    level = replace(floor, offset_mm=floor.offset_mm - drop)
    noise = np.stack([root_noise(each) for each in root_mm])
    step = correction(times, root_mm, noise, ROOT_DENSITY, joints[:, feet], touching, level)
    joints += step[:, None]
    noise = np.tile(FOOT_MM**2 * np.eye(3), (len(times), 1, 1))
    moves = np.stack([
        correction(times, joints[:, joint], noise, DENSITY, joints[:, [joint]], touching[:, [k]], level)
        for k, joint in enumerate(feet)
    ], axis=1)  # fmt: skip
    for ankle in ANKLES:
        own = [k for k, name in enumerate(walk.feet) if name.split("_")[0] == ankle.split("_")[0]]
        move_leg(joints, skeleton, ankle, [feet[k] for k in own], moves[:, own])
    return root_mm + step, joints


def correction(
    times_s: Float[np.ndarray, " n"],
    path_mm: Float[np.ndarray, "n 3"],
    noise_mm2: Float[np.ndarray, "n 3 3"],
    density: float,
    points_mm: Float[np.ndarray, "n F 3"],
    touching: Bool[np.ndarray, "n F"],
    floor: Floor,
) -> Float[np.ndarray, "n 3"]:
    """d of the path; the points move with it."""
    spots = [(foot, begin, end) for foot in range(touching.shape[1]) for begin, end in runs(touching[:, foot])]
    count, size, three = len(times_s), len(times_s) + len(spots), np.eye(3)
    ties = _roughness(times_s, size) / density  # of frames with each other, and of frames with the places of contacts
    upright = np.outer(floor.up, floor.up) / HEIGHT_MM**2
    own = np.concatenate([np.linalg.inv(noise_mm2), np.tile(upright, (len(spots), 1, 1))])
    aims = np.zeros((size, 3))
    aims[count:] = -floor.offset_mm * floor.up / HEIGHT_MM**2
    aims[:count] -= ties[:count, :count] @ path_mm
    for spot, (foot, begin, end) in enumerate(spots, start=count):
        inside, points = times_s[begin:end], points_mm[begin:end, foot]
        from_edge = np.minimum(inside - times_s[max(begin - 1, 0)], times_s[min(end, count - 1)] - inside)
        whole = np.clip(from_edge / RAMP_S, 1e-3, 1)
        weight = (whole**2 * (3 - 2 * whole) / HELD_MM) ** 2
        own[begin:end] += weight[:, None, None] * three
        own[spot] += weight.sum() * three
        aims[begin:end] -= weight[:, None] * points
        aims[spot] += weight @ points
        ties[begin:end, spot] = -weight[:, None]
        ties[spot, begin:end] = -weight[None]
    system = sparse.block_diag(own) + sparse.kron(ties, three)
    solved: np.ndarray = spsolve(system.tocsc(), aims.ravel())
    return solved[: 3 * count].reshape(-1, 3)


def move_leg(
    joints_mm: Float[np.ndarray, "n J 3"], skeleton: Skeleton, ankle: str, feet: list[int], moves: np.ndarray
) -> None:
    """Move a foot's joints (n, f, 3), and the ankle and the knee so that all bones keep their lengths, in place. Where
    the leg does not reach so far, the foot stays behind."""
    hip, knee, low = skeleton.indices(ankle.replace("ankle", "hip"), ankle.replace("ankle", "knee"), ankle)
    top, middle, end = (joints_mm[:, joint].copy() for joint in (hip, knee, low))
    goal = end + moves.mean(1)
    if feet != [low]:
        heel, toe = (joints_mm[:, joint] for joint in feet)
        lengths = np.linalg.norm(end - heel, axis=-1), np.linalg.norm(end - toe, axis=-1)
        joints_mm[:, feet] += moves
        goal = _between(joints_mm[:, feet[0]], joints_mm[:, feet[1]], *lengths, goal)
    thigh, shin = np.linalg.norm(middle - top, axis=-1), np.linalg.norm(end - middle, axis=-1)
    before, far = np.linalg.norm(end - top, axis=-1), np.linalg.norm(goal - top, axis=-1)
    bend = np.linalg.norm(np.cross(middle - top, end - top), axis=-1) / np.maximum(before, 1e-6)
    reach = before + (far - before) * np.minimum(1.0, bend / STRAIGHT_MM)
    reach = np.clip(reach, np.abs(thigh - shin) + 1e-6, thigh + shin)
    reached = top + (goal - top) * (reach / np.maximum(far, 1e-6))[:, None]
    joints_mm[:, knee] = _between(top, reached, thigh, shin, middle)
    joints_mm[:, low] = reached
    if feet != [low]:
        joints_mm[:, feet] += (reached - goal)[:, None]


def _between(
    a: np.ndarray, b: np.ndarray, from_a: np.ndarray, from_b: np.ndarray, near: np.ndarray
) -> Float[np.ndarray, "n 3"]:
    """The points (n, 3) at these distances from a and b that are nearest to `near`."""
    far = np.maximum(np.linalg.norm(b - a, axis=-1), 1e-6)
    unit = (b - a) / far[:, None]
    along = (from_a**2 - from_b**2 + far**2) / (2 * far)
    aside = (near - a) - ((near - a) * unit).sum(-1, keepdims=True) * unit
    aside /= np.maximum(np.linalg.norm(aside, axis=-1, keepdims=True), 1e-9)
    return np.asarray(a + along[:, None] * unit + np.sqrt(np.maximum(from_a**2 - along**2, 0.0))[:, None] * aside)


def _roughness(times_s: Float[np.ndarray, " n"], size: int) -> sparse.lil_matrix:
    """K (size, size): x' K x is about the integral of |x''|^2 of the first n points of x, by second differences."""
    step = np.diff(times_s)
    mean = (step[:-1] + step[1:]) / 2
    rows = np.stack([1 / step[:-1], -1 / step[:-1] - 1 / step[1:], 1 / step[1:]]) / np.sqrt(mean)
    second = sparse.diags(list(rows), [0, 1, 2], (len(mean), size), "csc")
    return (second.T @ second).tolil()
