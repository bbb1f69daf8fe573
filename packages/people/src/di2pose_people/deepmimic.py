"""The default motion: DeepMimic's humanoid clips, out of the pybullet wheel, as BVH files like CMU's.

A clip is JSON. A row of its "Frames" is a duration (s), the root's place (m) and the turns of JOINTS: quaternions
(w, x, y, z) of ball joints, angles (rad) about z of hinges. DeepMimic's body (humanoid.urdf, one unit is 0.25 m) has
x to its front, y up, z to its right and hanging arms; a BVH body has x to its left, y up, z to its front, arms aside.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from di2pose.assets import extract
from di2pose.data.bvh import CMU_UNIT_MM
from di2pose.errors import InputError
from di2pose_people.store import built

# fmt: off
CLIPS = {
    "humanoid3d_walk": 201, "walker/0walk_forward": 202, "walker/turn_left0": 203, "walker/turn_left1": 204,
    "walker/turn_right0": 205, "walker/turn_right1": 206, "humanoid3d_backflip": 207, "humanoid3d_cartwheel": 208,
    "humanoid3d_crawl": 209, "humanoid3d_jump": 210, "humanoid3d_roll": 211, "humanoid3d_dance_a": 212,
    "humanoid3d_dance_b": 213, "humanoid3d_punch": 214, "humanoid3d_spin": 215, "humanoid3d_spinkick": 216,
    "humanoid3d_getup_faceup": 217, "humanoid3d_kick": 220, "humanoid3d_run": 230, "humanoid3d_getup_facedown": 240,
}
"""Clip -> number of its subject, beyond CMU's. Who performed is not known, so each clip is a subject of its own; the
numbers that end in 0 are held out for the test split (`data.bvh.split_of`), and their kind of motion with them."""
JOINTS = {"root": 4, "chest": 4, "neck": 4, "right_hip": 4, "right_knee": 1, "right_ankle": 4, "right_shoulder": 4,
          "right_elbow": 1, "left_hip": 4, "left_knee": 1, "left_ankle": 4, "left_shoulder": 4, "left_elbow": 1}
"""Joint -> how many numbers its turn takes, in the order of a row."""

# (node, its parent, its place there in mm, DeepMimic's joint that turns it). An end site has no name. "*" is Left or
# Right, "+" L or R. The joints' places are humanoid.urdf's; it has no toes, fingers or top of the head: those are ours.
LEG = (
    ("+HipJoint", "Hips", (0, 0, 0), ""), ("*UpLeg", "+HipJoint", (84.887, 0, 0), "hip"),
    ("*Leg", "*UpLeg", (0, -421.546, 0), "knee"), ("*Foot", "*Leg", (0, -409.87, 0), "ankle"),
    ("*ToeBase", "*Foot", (0, -40, 93.5), ""), ("", "*ToeBase", (0, 0, 40), ""),
)
TRUNK = (
    ("LowerBack", "Hips", (0, 0, 0), ""), ("Spine", "LowerBack", (0, 236.151, 0), "chest"),
    ("Spine1", "Spine", (0, 111.947, 0), ""), ("Neck", "Spine1", (0, 0, 0), ""),
    ("Neck1", "Neck", (0, 111.947, 0), "neck"), ("Head", "Neck1", (0, 130, 0), ""), ("", "Head", (0, 147.5, 0), ""),
)
ARM = (
    ("*Shoulder", "Spine1", (0, 0, 0), ""), ("*Arm", "*Shoulder", (183.11, 131.553, -24.05), "shoulder"),
    ("*ForeArm", "*Arm", (274.788, 0, 0), "elbow"), ("*Hand", "*ForeArm", (258.947, 0, 0), ""),
    ("*FingerBase", "*Hand", (0, 0, 0), ""), ("*HandIndex1", "*FingerBase", (40, 0, 0), ""),
    ("", "*HandIndex1", (40, 0, 0), ""), ("+Thumb", "*Hand", (0, 0, 0), ""), ("", "+Thumb", (40, 0, 40), ""),
)
# fmt: on
AXES = np.array([[0.0, 0, -1], [0, 1, 0], [1, 0, 0]])
"""DeepMimic's axes -> BVH axes."""
RATE = 30.0
"""Frames a second that are kept at most."""
Node = tuple[str, str, tuple[float, float, float], str]


def motion_folder(motion: Path | None) -> Path:
    """The user's own folder of BVH clips; without one DeepMimic's, fetched and converted into the cache once."""
    return built("deepmimic-bvh-1", _build) if motion is None else motion.resolve()


def _build(folder: Path) -> None:
    try:
        source = extract("pybullet-motion", "pybullet_data/data/motions/") / "pybullet_data" / "data" / "motions"
    except InputError as error:
        raise InputError(f"no --motion DIR (a folder of BVH clips), so open motion is wanted: {error}") from None
    for clip, subject in CLIPS.items():
        path = source / f"{clip}.txt"
        (folder / f"{subject}_{path.stem.removeprefix('humanoid3d_')}.bvh").write_text(to_bvh(path))


def to_bvh(clip: Path) -> str:
    """A clip as the text of a BVH file with CMU's nodes, order of angles and unit of length, thinned to RATE."""
    rows = np.array(json.loads(clip.read_text())["Frames"])
    seconds = float(np.median(rows[:, 0]))  # all frames last equally long, but the last one of a clip often 0
    step = max(round(1 / (RATE * seconds)), 1)
    rows = rows[::step]
    turns, nodes = _turns(rows), _nodes()
    columns = [rows[:, 1:4] @ AXES.T * (1000 / CMU_UNIT_MM)]
    still = Rotation.from_rotvec(np.zeros((len(rows), 3)))
    columns += [turns.get(joint, still).as_euler("ZYX", degrees=True) for name, _, _, joint in nodes if name]
    table = np.concatenate(columns, axis=1).round(4) + 0.0  # no "-0.0000": a folder's fingerprint is its files' sizes
    lines = [*_hierarchy(nodes), "MOTION", f"Frames: {len(table)}", f"Frame Time: {seconds * step:.6f}"]
    return "\n".join([*lines, *(" ".join(f"{value:.4f}" for value in row) for row in table), ""])


def _turns(rows: np.ndarray) -> dict[str, Rotation]:
    """Each joint's turn against its parent, for a body in BVH axes whose zero pose has its arms out sideways."""
    out, column, axes = {}, 4, Rotation.from_matrix(AXES)
    for joint, width in JOINTS.items():
        values = rows[:, column : column + width]
        turn = Rotation.from_euler("z", values) if width == 1 else Rotation.from_quat(values[:, [1, 2, 3, 0]])
        turn = axes * turn * axes.inv()
        sideways = Rotation.from_euler("z", 90 if joint.startswith("right") else -90, degrees=True)
        if joint.endswith("shoulder"):
            turn = turn * sideways  # a rest arm is first let down, thumb in front, then turned as a hanging one
        elif joint.endswith("elbow"):
            turn = sideways.inv() * turn * sideways
        out[joint] = turn
        column += width
    return out


def _nodes() -> list[Node]:
    """All nodes, each followed by its whole branch."""

    def both(limb: Sequence[Node]) -> Iterator[Node]:
        for side, sign in (("Left", 1), ("Right", -1)):
            for name, parent, (x, y, z), joint in limb:
                name, parent = (word.replace("*", side).replace("+", side[0]) for word in (name, parent))
                yield name, parent, (sign * x, y, z), joint and f"{side.lower()}_{joint}"

    return [("Hips", "", (0, 0, 0), "root"), *both(LEG), *TRUNK, *both(ARM)]


def _hierarchy(nodes: list[Node]) -> list[str]:
    lines, branch = ["HIERARCHY"], [""]
    for name, parent, offset, _ in nodes:
        while branch[-1] != parent:
            branch.pop()
            lines.append("}")
        lines += [f"{'JOINT' if parent else 'ROOT'} {name}" if name else "End Site", "{"]
        lines.append("OFFSET " + " ".join(f"{mm / CMU_UNIT_MM:.5f}" for mm in offset))
        if name:
            places = "" if parent else "Xposition Yposition Zposition "
            lines.append(f"CHANNELS {3 if parent else 6} {places}Zrotation Yrotation Xrotation")
        branch.append(name)
    return lines + ["}"] * (len(branch) - 1)
