"""Draw docs/images/angles.png: a puppet for each joint angle, with the number that the program gives it.

python experiments/angles_picture.py docs/images/angles.png
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.spatial.transform import Rotation

from di2pose.output.overlay import Pen, side_colour
from di2pose.pose.angles import joint_angles
from di2pose.pose.skeleton import H36M_21

X, Y, Z = np.eye(3)  # camera axes; the puppet looks into the camera: its left is +x, up -y, front -z
OFFSETS = {
    "pelvis": (0, 0, 0), "right_hip": (-110, 0, 0), "left_hip": (110, 0, 0), "spine": (0, -235, 0),
    "thorax": (0, -255, 0), "nose": (0, -120, 0), "head": (0, -125, 0),
    "left_shoulder": (165, 25, 0), "right_shoulder": (-165, 25, 0),
    **{f"{side}_{joint}": (0, length, 0) for side in ("left", "right") for joint, length in
       (("knee", 420), ("ankle", 410), ("elbow", 275), ("wrist", 245))},
    **{f"{side}_{joint}": (0, 60, z) for side in ("left", "right") for joint, z in (("heel", 55), ("toe", -200))},
}  # fmt: skip
RIGHT, FRONT, ABOVE = "from its right", "from the front", "from above"
VIEWS = {RIGHT: ((0, 0, -1), (0, 1, 0)), FRONT: ((1, 0, 0), (0, 1, 0)), ABOVE: ((-1, 0, 0), (0, 0, 1))}
"""Directions to the right and down of a view."""
WIDE, HIGH, COLUMNS, SCALE = 250, 330, 6, 0.155
INK, SOFT, MARK, WHITE = (28, 32, 39), (120, 128, 140), (214, 40, 120), (255, 255, 255)
TOP = ("left_shoulder", "right_shoulder", "left_elbow", "right_elbow", "left_wrist", "right_wrist")
UPPER = ("spine", "thorax", "nose", "head", *TOP)


@dataclass(frozen=True)
class Panel:
    """An angle, what is turned to show it, and its two legs: from `at`, the rest direction and the bone that moved."""

    name: str
    view: str
    turns: Sequence[tuple[str, Sequence[str], np.ndarray, float]]
    at: str
    rest: np.ndarray
    towards: str


FOOT = ("right_heel", "right_toe")
LEG, SHIN = ("right_knee", "right_ankle", *FOOT), ("right_ankle", *FOOT)
ARM, FOREARM, OTHER_ARM = ("right_elbow", "right_wrist"), ("right_wrist",), ("left_elbow", "left_wrist")
HANGING = (("left_shoulder", OTHER_ARM, X, -40), ("right_shoulder", ARM, X, -40))
PANELS = (
    Panel("right_ankle_flexion", RIGHT, [("right_ankle", FOOT, X, -25)], "right_heel", -Z, "right_toe"),
    Panel("right_knee_flexion", RIGHT, [("right_knee", SHIN, X, 70)], "right_knee", Y, "right_ankle"),
    Panel("right_hip_flexion", RIGHT, [("right_hip", LEG, X, -80), ("right_knee", SHIN, X, 80)], "right_hip", Y,
          "right_knee"),
    Panel("right_hip_abduction", FRONT, [("right_hip", LEG, Z, 35)], "right_hip", Y, "right_knee"),
    Panel("right_elbow_flexion", RIGHT, [("right_elbow", FOREARM, X, -95)], "right_elbow", Y, "right_wrist"),
    Panel("right_shoulder_flexion", RIGHT, [("right_shoulder", ARM, X, -120)], "right_shoulder", Y, "right_elbow"),
    Panel("right_shoulder_abduction", FRONT, [("right_shoulder", ARM, Z, 100)], "right_shoulder", Y, "right_elbow"),
    Panel("trunk_forward_lean", RIGHT, [("pelvis", UPPER, X, 40), *HANGING], "pelvis", -Y, "thorax"),
    Panel("trunk_side_lean", FRONT, [("pelvis", UPPER, Z, 25)], "pelvis", -Y, "thorax"),
    Panel("trunk_rotation", ABOVE, [("thorax", TOP, Y, -35)], "thorax", X, "left_shoulder"),
    Panel("neck_flexion", RIGHT, [("thorax", ("nose", "head"), X, 35)], "thorax", -Y, "head"),
)  # fmt: skip


def posed(panel: Panel) -> np.ndarray:
    joints = np.zeros((H36M_21.count, 3))
    for child, parent in H36M_21.bones:
        joints[child] = joints[parent] + OFFSETS[H36M_21.joints[child]]
    for pivot, moving, axis, degrees in panel.turns:
        rows, about = list(H36M_21.indices(*moving)), joints[H36M_21.index(pivot)].copy()
        joints[rows] = Rotation.from_rotvec(np.radians(degrees) * axis).apply(joints[rows] - about) + about
    return joints


def draw(panel: Panel) -> Image.Image:
    joints = posed(panel)
    right, down = (np.array(axis, float) for axis in VIEWS[panel.view])
    scale = SCALE * (2.4 if panel.view == ABOVE else 1)
    middle = joints[0] + (0 if panel.view == ABOVE else 1) * np.array([0, 60, 0])

    def at(point: np.ndarray) -> tuple[float, float]:
        off = (point - middle) * scale
        return float(WIDE / 2 + off @ right), float(HIGH / 2 + 18 + off @ down)

    pen = Pen((WIDE, HIGH))
    depth = np.cross(right, down)
    order = sorted(H36M_21.bones, key=lambda bone: -float((joints[bone[0]] + joints[bone[1]]) @ depth))
    for child, parent in order:
        pen.line(at(joints[child]), at(joints[parent]), 5, side_colour(H36M_21, child, parent), INK)
    top, skull = joints[H36M_21.index("head")], joints[H36M_21.index("nose")]
    face = np.cross(X, top - skull) / np.linalg.norm(top - skull)  # where it looks
    centre = 0.5 * top + 0.5 * skull
    pen.line(at(centre), at(centre + 95 * face), 4, INK)
    pen.disc(at(centre), 60 * SCALE, INK)
    start = joints[H36M_21.index(panel.at)]
    bone = joints[H36M_21.index(panel.towards)] - start
    bone = bone / np.linalg.norm(bone)
    if panel.name == "trunk_rotation":  # in the plane across the trunk
        bone = bone * (1, 0, 1) / np.linalg.norm(bone * (1, 0, 1))
    reach = 330 if panel.view != ABOVE else 210
    pen.dashes(at(start), at(start + panel.rest * reach), 2.4, SOFT)
    turn = np.arccos(np.clip(panel.rest @ bone, -1, 1))
    arc = [
        start + 0.62 * reach * (np.sin((1 - t) * turn) * panel.rest + np.sin(t * turn) * bone) / np.sin(turn)
        for t in np.linspace(0, 1, 30)
    ]
    for a, b in pairwise(arc):
        pen.line(at(a), at(b), 3.2, MARK)
    tip, before = np.array(at(arc[-1])), np.array(at(arc[-6]))
    along = (tip - before) / np.linalg.norm(tip - before)
    for turned in (0.5, -0.5):
        wing = Rotation.from_euler("z", turned).as_matrix()[:2, :2] @ along * 9
        pen.line(tuple(tip), tuple(tip - wing), 3.2, MARK)
    degrees = float(joint_angles(joints, H36M_21)[panel.name])
    pen.text((WIDE / 2, 14), panel.name.removeprefix("right_").replace("_", " "), 16, INK, "mm")
    pen.text((WIDE / 2, 33), f"+{degrees:.0f}\u00b0, {panel.view}", 13, MARK, "mm")
    return pen.over(Image.new("RGB", (WIDE, HIGH), WHITE))


def main(path: Path) -> None:
    rows = -(-len(PANELS) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * WIDE, rows * HIGH), WHITE)
    for k, panel in enumerate(PANELS):
        sheet.paste(draw(panel), (k % COLUMNS * WIDE, k // COLUMNS * HIGH))
    sheet.quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
