"""Simulated videos of held-out motion, lifted: error, acceleration, jitter, sliding feet and up, over the window.

    python experiments/motion.py lift --data prepared/cmu-24hz --windows 1,9,27

Clips of `di2pose data prepare bvh` (24 Hz), one still camera a clip, keypoints by a simulated observer.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import tyro
from scipy.spatial.transform import Rotation
from tabulate import tabulate

from di2pose import Di2Pose
from di2pose.data.lift import FACE, KEYPOINTS, OBSERVERS, face_points, observe
from di2pose.data.sample import Dataset
from di2pose.noise import seed_of
from di2pose.pose.camera import Camera
from di2pose.pose.metrics import similarity
from di2pose.pose.skeleton import COCO_17, H36M_17, H36M_21
from di2pose.result import Motion
from di2pose.video.lift import lift_video

SIZE, RATE = (1920, 1080), 24.0
CAMERA = Camera((1600.0, 1600.0), (960.0, 540.0), size=SIZE)
FEET = list(H36M_21.indices("left_heel", "left_toe", "right_heel", "right_toe"))
STILL_MM_S, CONTACT_MM_S = 50.0, 150.0
"""Largest speed of a joint that counts as still, and of a foot that stands."""


class Clip(NamedTuple):
    name: str
    truth_mm: np.ndarray
    """(n, 21, 3) root-relative, camera axes."""
    root_mm: np.ndarray
    keypoints: np.ndarray
    """(n, 17, 3) pixels and score; score 0 where missing."""
    up: np.ndarray
    """(3,) in camera axes."""


def clips(data: Path, count: int, frames: int, observer: str) -> Iterator[Clip]:
    """The middle of the longest clips of held-out subjects, at most two of a subject, before a drawn camera."""
    dataset = Dataset(data)
    rows = dataset.select(split="test")
    names, subjects = dataset.column("sequence")[rows], dataset.column("subject")[rows]
    sizes = {name: int((names == name).sum()) for name in dict.fromkeys(names.tolist())}
    taken: dict[str, int] = {}
    for name in sorted(sizes, key=lambda each: -sizes[each]):
        mine = rows[names == name]
        subject = str(subjects[names == name][0])
        if len(mine) < frames or taken.get(subject, 0) == 2 or sum(taken.values()) == count:
            continue
        taken[subject] = taken.get(subject, 0) + 1
        start = (len(mine) - frames) // 2
        mine = mine[start : start + frames]
        extra = [dataset.index[row]["extra"] for row in mine.tolist()]
        world = dataset.joints_mm[mine] @ np.array([each["rotation"] for each in extra])
        root = np.array([each["root_mm"] for each in extra])
        random = np.random.default_rng(seed_of("motion", name))
        turn = Rotation.from_euler("XY", [180 + random.uniform(0, 20), random.uniform(0, 360)], degrees=True)
        pose, place = world @ turn.as_matrix().T, (root - root.mean(0)) @ turn.as_matrix().T
        place = place + np.array([0, 0, 4500 + max(0.0, float(-place[:, 2].min()))])
        limbs = pose[:, H36M_17.indices(*COCO_17.joints[FACE:])]
        points = np.concatenate([face_points(pose, random, frames), limbs], 1) + place[:, None]
        flat = CAMERA.project(points) / (SIZE[0] / 2)
        body = np.linalg.norm(flat - flat.mean(1, keepdims=True), axis=-1).max(1)
        nothing = np.zeros((frames, KEYPOINTS), bool)
        seen = observe(flat, nothing, nothing, body, OBSERVERS[observer], random, frames)
        seen = np.concatenate([seen[..., :2] * (SIZE[0] / 2), seen[..., 2:3] * seen[..., 3:]], -1)
        yield Clip(name, pose, place, seen, turn.as_matrix()[:, 1])


def measure(clip: Clip, motion: Motion) -> dict[str, float]:
    """Of the person's estimate; frames in which they were not found are left out."""
    tracks = [[person for person in motion.track(number) if person is not None] for number in motion.tracks]
    people = max(tracks, key=len)
    if len(people) < len(clip.truth_mm):
        return {}
    found = np.stack([person.joints_mm for person in people]).astype(np.float64)
    placed = found + np.stack([person.root_mm for person in people])[:, None]
    truth, there = clip.truth_mm.astype(np.float64), clip.truth_mm + clip.root_mm[:, None]
    body = slice(H36M_17.count)
    step, true_step = (np.linalg.norm(np.diff(each, axis=0), axis=-1) for each in (found, truth))
    still = true_step < STILL_MM_S / RATE
    foot_step, true_foot = (np.linalg.norm(np.diff(each[:, FEET], axis=0), axis=-1) for each in (placed, there))
    stands = true_foot < CONTACT_MM_S / RATE
    bend = np.diff(found, 2, axis=0) - np.diff(truth, 2, axis=0)
    floor = motion.floor
    off = np.nan if floor is None else float(np.degrees(np.arccos(np.clip(floor.up @ clip.up, -1, 1))))
    stated = np.nan if floor is None else floor.up_std_degrees
    return {
        "MPJPE": float(np.linalg.norm(found - truth, axis=-1)[:, body].mean()),
        "PA": float(np.mean([_aligned(a[body], b[body]) for a, b in zip(found, truth, strict=True)])),
        "acceleration error": float(np.linalg.norm(bend, axis=-1)[:, body].mean()),
        "jitter of still joints": float(step[still].mean()) if still.any() else np.nan,
        "feet slide": float(foot_step[stands].mean()) if stands.any() else np.nan,
        "pixels off": float(np.linalg.norm(CAMERA.project(placed) - CAMERA.project(there), axis=-1).mean()),
        "up off": off,
        "up stated": stated,
        "up off / stated, squared": (off / stated) ** 2,
    }


def _aligned(found: np.ndarray, truth: np.ndarray) -> float:
    import torch

    here, there = (torch.from_numpy(each - each.mean(0))[None].float() for each in (found, truth))
    turn, scale = similarity(here, there)
    return float((scale[:, None, None] * here @ turn - there).norm(dim=-1).mean())


def main(
    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")],
    data: Path,
    windows: str = "1,9,27",
    count: int = 12,
    frames: int = 72,
    observer: str = "clear",
    hypotheses: int = 8,
    raw: bool = True,
) -> None:
    """MODEL is a model of keypoints alone.

    Args:
        windows: numbers of frames that the model may see
        raw: also without smoothing, body and held feet
    """
    loaded = Di2Pose.from_pretrained(model)
    made = list(clips(data, count, frames, observer))
    plain = {"smoothed": False, "same_body": False, "held_feet": False}
    smoothed = [("smoothed, one body", {"held_feet": False}), ("held feet", {})]
    table = []
    for window in [int(word) for word in windows.split(",")]:
        for name, options in ([("alone", plain)] if raw else []) + smoothed:
            found = []
            for clip in made:
                motion = lift_video(loaded, list(clip.keypoints[:, None]), RATE, SIZE, camera=CAMERA,
                                    hypotheses=hypotheses, most_frames=window, **options)  # fmt: skip
                found.append(measure(clip, motion))
            whole = [each for each in found if each]
            means = {key: float(np.nanmean([each[key] for each in whole])) for key in whole[0]}
            table.append({"window": window, "": name, "clips": len(whole)} | means)
    print(tabulate(table, headers="keys", tablefmt="pipe", floatfmt=".1f"))


if __name__ == "__main__":
    tyro.cli(main)
