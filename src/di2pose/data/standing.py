"""Legs of motion capture, corrected to stand straight.  F frames, N nodes; angles in degrees, left and right.

CMU's subjects stand with bent knees (median 21 degrees, people have 0 to 8) and with their ankles 89 mm behind the
hips: for the most part constants of each subject, from the fit of its skeleton to the markers. `standing_legs` measures
them where a subject stands; `straighten` takes them out of all its frames. Feet keep their direction.
"""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

STRAIGHT = np.array([[4.0, 4.0], [-2.0, -2.0]])
"""Of a straight leg that stands, left and right: flexion of the knee; direction from hip to ankle, forwards of down."""
UNCHANGED_KNEE, UNCHANGED_LEG = 100.0, 60.0
"""A knee that is bent so far keeps its flexion, and a leg so far from where it stands its direction."""
MOST_LEG = 20.0
"""Largest turn of a leg."""
STILL_MM, FEW = 25.0, 30
"""Farthest way of a node from one frame to the next at 6 a second; frames that make a median."""


def leg_angles(nodes: Float[np.ndarray, "F 2 3 3"]) -> Float[np.ndarray, "F 2 2"]:
    """Of hip, knee and ankle of both legs, y up: flexion of the knees, direction of the legs (first axis after F)."""
    thigh, shin, leg = (nodes[:, :, b] - nodes[:, :, a] for a, b in ((0, 1), (1, 2), (0, 2)))
    lengths = np.linalg.norm(thigh, axis=-1) * np.linalg.norm(shin, axis=-1)
    knee = np.arccos(((thigh * shin).sum(-1) / lengths).clip(-1, 1))
    front = np.cross(_left(nodes), (0.0, 1.0, 0.0))
    return np.degrees(np.stack([knee, np.arctan2((leg * front[:, None]).sum(-1), -leg[..., 1])], axis=1))


def standing_legs(clips: Iterable[np.ndarray]) -> Float[np.ndarray, "2 2"]:
    """Of a subject's clips, each (F, 2, 3, 3) as for `leg_angles`: median angles of its legs where it stands
    still on both feet. Where it hardly ever does: of the third with the straightest knees of all frames with both legs
    below the body; STRAIGHT where these are few, too."""
    below, still = [np.zeros((0, 2, 2))], [np.zeros((0, 2, 2))]
    for nodes in clips:
        angles = leg_angles(nodes)
        down = (angles[:, 0] < 60).all(1) & (np.abs(angles[:, 1]) < 25).all(1)
        apart = nodes[:, 0, 2] - nodes[:, 1, 2]
        on_both = (np.abs(apart[:, 1]) < 60) & (np.linalg.norm(apart, axis=1) < 450)
        relative = nodes - nodes[:, :, :1].mean(1, keepdims=True)
        moved = np.linalg.norm(np.diff(relative, axis=0, prepend=np.nan), axis=-1).max((1, 2))
        below.append(angles[down])
        still.append(angles[down & on_both & (moved < STILL_MM)])
    chosen, others = np.concatenate(still), np.concatenate(below)
    if len(chosen) < FEW:
        chosen = others[others[:, 0].sum(1).argsort()[: len(others) // 3]]
    return STRAIGHT if len(chosen) < FEW else np.asarray(np.median(chosen, axis=0))


def straighten(
    nodes: Float[np.ndarray, "F 2 3 3"], standing: Float[np.ndarray, "2 2"]
) -> Float[np.ndarray, "2 F 2 3 3"]:
    """The turns, in the world, of thighs and of shins by which legs of the `standing` angles become STRAIGHT.

    The knee bends less while the ankle stays on its line from the hip; then the leg turns about the axis of the hips.
    """
    (knee, leg), (bent, direction) = leg_angles(nodes).swapaxes(0, 1), standing
    ends = [np.interp(knee[:, side], (0, max(bent[side], STRAIGHT[0, side]), UNCHANGED_KNEE),
                      (0, STRAIGHT[0, side], UNCHANGED_KNEE)) for side in (0, 1)]  # fmt: skip
    less = np.where(knee < UNCHANGED_KNEE, knee - np.stack(ends, axis=1), 0)
    thigh, shin = (nodes[:, :, j + 1] - nodes[:, :, j] for j in (0, 1))
    hinge = np.cross(thigh, shin)
    hinge /= np.linalg.norm(hinge, axis=-1, keepdims=True).clip(1e-6)
    back = _thigh_before_leg(thigh, shin, knee) - _thigh_before_leg(thigh, shin, knee - less)
    share = (1 - np.abs(leg - direction) / UNCHANGED_LEG).clip(0, 1)
    forwards = share * (STRAIGHT[1] - direction).clip(-MOST_LEG, MOST_LEG)
    whole = _turns(-forwards[..., None] * _left(nodes)[:, None])
    return np.stack([whole @ _turns(turn[..., None] * hinge) for turn in (back, back - less)])


def _thigh_before_leg(thigh: np.ndarray, shin: np.ndarray, knee: np.ndarray) -> np.ndarray:
    """Angle between a thigh and the line from its hip to its ankle, with this flexion of the knee."""
    upper, lower = np.linalg.norm(thigh, axis=-1), np.linalg.norm(shin, axis=-1)
    flexion = np.radians(knee)
    return np.degrees(np.arctan2(lower * np.sin(flexion), upper + lower * np.cos(flexion)))


def _left(nodes: np.ndarray) -> np.ndarray:
    """Unit vectors (F, 3) from the right to the left hip."""
    across = nodes[:, 0, 0] - nodes[:, 1, 0]
    return across / np.linalg.norm(across, axis=-1, keepdims=True).clip(1e-6)


def _turns(degrees: np.ndarray) -> np.ndarray:
    return Rotation.from_rotvec(degrees.reshape(-1, 3), degrees=True).as_matrix().reshape(*degrees.shape, 3)
