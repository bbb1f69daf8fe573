"""Smoothing through time, each joint weighted by its own certainty.  J joints, n frames of a window.

A joint moves as an integrated Wiener process: constant velocity, disturbed by white acceleration of density q
(mm^2/s^3), and is measured in each frame with covariance R_k. The best estimate is the weighted cubic smoothing spline,
equal to a Kalman filter with its backward (Rauch-Tung-Striebel) pass:

    x = argmin  sum_k (x_k - z_k)' R_k^-1 (x_k - z_k)  +  1/q * integral of |x''|^2

The spline's roughness is x' K x, K = Q T^-1 Q' (Reinsch 1967). One frame's estimate is a weighted sum over the window,
x_c = sum_k W_k z_k with sum_k W_k = 1; a line in time is kept as it is, so there is no lag.

Most of an estimate's error is the same in the next frame. Only a share w of the calibrated covariance C_k is fresh
noise, R_k = w C_k; the rest is common to all frames and not lessened. The result's covariance is
w sum_k W_k C_k W_k' + (1 - w) sum_k a_k C_k, where a_k >= 0 is the mean of W_k over the axes.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError
from di2pose.pose.camera import Camera
from di2pose.result import Person, Result
from di2pose.video.fragments import time_of, track_of

DENSITY, ROOT_DENSITY = 5.0e6, 1.0e6
"""q of the joints round the pelvis and of the pelvis, mm^2/s^3. Measured in 0.1 s: joints 5e5 in walking, 3e6 to 2e7 in
dancing, 1.5e7 in running (DeepMimic's clips), 2e6 in Pose2Sim's balancing; pelvis a fifth."""
FRESH = 0.1
"""w, the share of the calibrated squared error that is new in each frame; measured by benchmarks/smoothing.py."""
ROOT_ACROSS, ROOT_ALONG = 0.003, 0.02
"""Fresh noise (standard deviation) of the pelvis over its distance: across the line of sight and along it."""
WINDOW_S, MOST_FRAMES = 0.25, 12
"""Reach of the window to either side, which is the delay of a result."""
LEAST_MM2 = 1e-4
"""Added to every measured variance: the pelvis has none."""


def smooth(results: Iterable[Result], window_s: float = WINDOW_S, most_frames: int = MOST_FRAMES) -> Iterator[Result]:
    """The results with everybody's joints and root smoothed along their track, some frames late, in constant memory.

    `joints_mm`, `root_mm`, `joints_2d`, `covariance_mm2` and `r90_mm` change; hypotheses and states stay. Frames in
    which a track is missing are not filled.
    """
    window: deque[Result] = deque()
    centre = 0
    for result in results:
        if not all(np.isfinite(person.joints_mm).all() for person in result.people):
            raise InputError("smoothing needs people with all joints: convert them afterwards")
        window.append(result)
        while time_of(result) - time_of(window[centre]) >= window_s or len(window) - 1 - centre >= most_frames:
            yield _smoothed(window, centre, window_s)
            centre += 1
            oldest = time_of(window[centre]) - window_s
            while centre and (centre > most_frames or time_of(window[0]) < oldest):
                window.popleft()
                centre -= 1
    for place in range(centre, len(window)):
        yield _smoothed(window, place, window_s)


def spline_weights(
    times_s: Float[np.ndarray, " n"], noise_mm2: Float[np.ndarray, "n J 3 3"], centre: int, density: float
) -> Float[np.ndarray, "n J 3 3"]:
    """W_k of frame `centre`: the smoothed point is sum_k W_k z_k."""
    frames, joints = noise_mm2.shape[:2]
    precision = np.linalg.inv(noise_mm2 + LEAST_MM2 * np.eye(3))
    system = np.zeros((joints, frames, 3, frames, 3))
    system += (_roughness(times_s) / density)[:, None, :, None] * np.eye(3)[None, :, None, :]
    place = np.arange(frames)
    system[:, place, :, place, :] += precision
    unit = np.zeros((frames, 3, 3))
    unit[centre] = np.eye(3)
    solved = np.linalg.solve(system.reshape(joints, 3 * frames, 3 * frames), unit.reshape(3 * frames, 3))
    influence = solved.reshape(joints, frames, 3, 3).transpose(1, 0, 3, 2)  # the system is symmetric
    return influence @ precision


def pelvis_noise(root_mm: Float[np.ndarray, " 3"]) -> Float[np.ndarray, "3 3"]:
    """Covariance of the fresh noise of a pelvis."""
    distance = float(np.linalg.norm(root_mm))
    along = np.outer(root_mm, root_mm) / max(distance, 1.0) ** 2
    return distance**2 * (ROOT_ALONG**2 * along + ROOT_ACROSS**2 * (np.eye(3) - along))


def _smoothed(window: deque[Result], centre: int, window_s: float) -> Result:
    tracks = [{track_of(person): person for person in result.people} for result in window]
    people = []
    for number in tracks[centre]:
        there = [k for k, each in enumerate(tracks) if number in each]
        times = np.array([time_of(window[k]) for k in there])
        track = [tracks[k][number] for k in there]
        people.append(_smoothed_person(times, track, there.index(centre), window[centre].camera))
    words = f"cubic spline weighted by certainty, over {window_s:g} s to either side"
    return replace(window[centre], people=people, smoothing=words)


def _smoothed_person(times: np.ndarray, track: list[Person], centre: int, camera: Camera) -> Person:
    person = track[centre]
    covariance = np.stack([each.covariance_mm2 for each in track]).astype(np.float64)
    weights = spline_weights(times, FRESH * covariance, centre, DENSITY)
    joints = np.einsum("njab,njb->ja", weights, np.stack([each.joints_mm for each in track]).astype(np.float64))
    fresh = np.einsum("njab,njbc,njdc->jad", weights, covariance, weights)
    shares = np.clip(np.trace(weights, axis1=2, axis2=3), 0, None)
    common = np.einsum("nj,njab->jab", shares / shares.sum(0), covariance)
    spread = FRESH * fresh + (1 - FRESH) * common
    before = np.trace(person.covariance_mm2, axis1=1, axis2=2)
    shrunk = np.sqrt(np.trace(spread, axis1=1, axis2=2) / np.where(before > 0, before, np.inf))
    root_noise = np.stack([pelvis_noise(each.root_mm)[None] for each in track])
    root_weights = spline_weights(times, root_noise, centre, ROOT_DENSITY)
    root = np.einsum("nab,nb->a", root_weights[:, 0], np.stack([each.root_mm for each in track]))
    return replace(
        person,
        joints_mm=joints.astype(person.joints_mm.dtype),
        root_mm=root,
        joints_2d=camera.project(joints + root).astype(person.joints_2d.dtype),
        covariance_mm2=spread.astype(person.covariance_mm2.dtype),
        r90_mm=(person.r90_mm * shrunk).astype(person.r90_mm.dtype),
    )


def _roughness(times_s: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n n"]:
    """K: x' K x is the least integral of |x''|^2 of a curve through x. 0 for two frames: a line passes through both."""
    count = len(times_s)
    if count < 3:
        return np.zeros((count, count))
    step = np.diff(times_s)
    if not (step > 0).all():
        raise InputError(f"the times of a video's frames must increase, got steps of {step.min()} s")
    second = np.zeros((count, count - 2))
    inner = np.arange(count - 2)
    second[inner, inner] = 1 / step[:-1]
    second[inner + 1, inner] = -1 / step[:-1] - 1 / step[1:]
    second[inner + 2, inner] = 1 / step[1:]
    tri = np.diag((step[:-1] + step[1:]) / 3) + np.diag(step[1:-1] / 6, 1) + np.diag(step[1:-1] / 6, -1)
    rough: np.ndarray = second @ np.linalg.solve(tri, second.T)
    return rough
