"""Feet that stand are held in their place.  n frames, F feet joints, C contacts; mm.

First the root moves, then each foot with its leg. A correction d of a path x of points is the least of

    sum_k d_k' noise_k^-1 d_k  +  1/density * integral of |(x + d)''|^2
    + sum_contacts sum_k ramp_k |p_k + d_k - a|^2 / HELD_MM^2  +  (height of a / HEIGHT_MM)^2

over d and the place a of every contact: a smoothing spline, as in `video.smooth`, that rests where a foot does. Bones
keep their lengths; the knee bends in its own plane.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse
from scipy.sparse.linalg import spsolve

from di2pose.pose.floor import ANKLES, HEIGHT_MM, Floor, Walk, contacts, find_floor, runs
from di2pose.pose.skeleton import Skeleton
from di2pose.result import Person, Result, walks_of
from di2pose.video.fragments import track_of
from di2pose.video.smooth import DENSITY, ROOT_DENSITY, pelvis_noise

HELD_MM = 2.0
"""Standard deviation of a foot in contact round its place."""
RAMP_S = 0.15
"""Time in which a contact takes hold and lets go."""
FOOT_MM = 25.0
"""Standard deviation of a foot's joint against the root."""
ROUNDS = 2
STRAIGHT_MM = 100.0
"""A knee nearer than this to the line from hip to ankle lets the leg become longer or shorter only in proportion."""


def hold_feet(results: Sequence[Result]) -> list[Result]:
    """The results of a video with everybody's root smoothed, and with their feet held where they touch the floor;
    joints_mm, root_mm and joints_2d change. Without a floor only the root does."""
    walks = walks_of(results)
    for _ in range(ROUNDS):  # contacts of a steady motion are easier to find
        floor, _ = find_floor(list(walks.values()))
        walks = {track: held(walk, floor) for track, walk in walks.items()}
    placed = {track: iter(walk.joints_mm) for track, walk in walks.items()}
    return [replace(result, people=[_moved(each, result, placed) for each in result.people]) for result in results]


def _moved(person: Person, result: Result, placed: dict[int, Iterator[np.ndarray]]) -> Person:
    joints = next(placed[track_of(person)])
    root = joints[person.skeleton.root]
    return replace(person, joints_mm=joints - root, root_mm=root, joints_2d=result.camera.project(joints))


def held(walk: Walk, floor: Floor | None) -> Walk:
    """The same person with the corrections."""
    joints, skeleton, times = walk.joints_mm.astype(np.float64), walk.skeleton, walk.times_s
    if len(times) < 3:
        return walk
    feet, root = list(skeleton.indices(*walk.feet)), joints[:, skeleton.root]
    touching = np.zeros((len(times), len(feet)), bool) if floor is None else contacts(walk, floor)
    level = None if floor is None else replace(floor, offset_mm=floor.offset_mm - walk.sole_mm)
    noise = np.stack([pelvis_noise(each) for each in root])
    joints += correction(times, root, noise, ROOT_DENSITY, joints[:, feet], touching, level)[:, None]
    if touching.any():
        noise = np.tile(FOOT_MM**2 * np.eye(3), (len(times), 1, 1))
        moves = np.stack([
            correction(times, joints[:, joint], noise, DENSITY, joints[:, [joint]], touching[:, [k]], level)
            for k, joint in enumerate(feet)
        ], axis=1)  # fmt: skip
        for ankle in ANKLES:
            own = [k for k, name in enumerate(walk.feet) if name.split("_")[0] == ankle.split("_")[0]]
            move_leg(joints, skeleton, ankle, [feet[k] for k in own], moves[:, own])
    return replace(walk, joints_mm=joints)


def correction(
    times_s: Float[np.ndarray, " n"],
    path_mm: Float[np.ndarray, "n 3"],
    noise_mm2: Float[np.ndarray, "n 3 3"],
    density: float,
    points_mm: Float[np.ndarray, "n F 3"],
    touching: Bool[np.ndarray, "n F"],
    floor: Floor | None,
) -> Float[np.ndarray, "n 3"]:
    """d of the path; the points move with it."""
    spots = [(foot, begin, end) for foot in range(touching.shape[1]) for begin, end in runs(touching[:, foot])]
    count, size, three = len(times_s), len(times_s) + len(spots), np.eye(3)
    ties = _roughness(times_s, size) / density  # of frames with each other, and of frames with the places of contacts
    own, aims = np.zeros((size, 3, 3)), np.zeros((size, 3))
    own[:count] = np.linalg.inv(noise_mm2)
    if floor is not None:
        own[count:] = np.outer(floor.up, floor.up) / HEIGHT_MM**2
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
