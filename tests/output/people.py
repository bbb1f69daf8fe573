"""Synthetic people for tests: bones of constant length, joints turned at random."""

import numpy as np

from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, Skeleton
from di2pose.result import Motion, Person, Result

SIZE = (640, 480)
CAMERA = Camera(focal=(600.0, 600.0), centre=(320.0, 240.0), size=SIZE)
REST = {  # offset from the parent, mm: x right, y down, z away, the person faces the camera (their left is x > 0)
    "pelvis": (0, 0, 0), "right_hip": (-130, 0, 0), "right_knee": (0, 450, 0), "right_ankle": (0, 440, 0),
    "left_hip": (130, 0, 0), "left_knee": (0, 450, 0), "left_ankle": (0, 440, 0), "spine": (0, -235, 0),
    "thorax": (0, -255, 0), "nose": (0, -120, -30), "head": (0, -115, 20), "left_shoulder": (150, 30, 0),
    "left_elbow": (20, 280, 0), "left_wrist": (0, 250, -20), "right_shoulder": (-150, 30, 0),
    "right_elbow": (-20, 280, 0), "right_wrist": (0, 250, -20), "left_heel": (0, 60, 40), "left_toe": (0, 70, -180),
    "right_heel": (0, 60, 40), "right_toe": (0, 70, -180),
}  # fmt: skip
OFFSETS = np.array([REST[name] for name in H36M_17.joints], dtype=np.float64)
H36M_19 = Skeleton("h36m_19", (*H36M_17.joints, "left_heel", "left_toe"), (*H36M_17.parents, 6, 6))
"""H36M_17 and two joints of a foot."""


def rotation(vector):
    """Rodrigues: by the vector's length in radians about it."""
    angle = float(np.linalg.norm(vector))
    x, y, z = vector / max(angle, 1e-12)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def standing(scale=(1.0, 1.0, 1.0)):
    """Root-relative joints (17, 3) of the rest pose."""
    joints = np.zeros((17, 3))
    for child, parent in H36M_17.bones:
        joints[child] = joints[parent] + OFFSETS[child] * scale
    return joints


def pose(rng, bend=0.6, skeleton=H36M_17):
    """Root-relative joints (J, 3): every bone turned by about `bend` radians against the one before."""
    joints, turns = np.zeros((skeleton.count, 3)), np.zeros((skeleton.count, 3, 3))
    turns[0] = rotation(np.array([0.0, rng.uniform(-np.pi, np.pi), 0.0])) @ rotation(rng.normal(0, 0.2, 3))
    for child, parent in skeleton.bones:
        turns[child] = turns[parent] @ rotation(rng.normal(0, bend, 3))
        joints[child] = joints[parent] + turns[child] @ np.array(REST[skeleton.joints[child]], dtype=np.float64)
    return joints


def person(
    seed=0, track=None, hypotheses=4, root_mm=(100.0, 50.0, 3500.0), state=None, joints_mm=None, skeleton=H36M_17
):
    rng, count = np.random.default_rng(seed), skeleton.count
    joints = pose(rng, skeleton=skeleton) if joints_mm is None else joints_mm
    spread = rng.uniform(10, 60, count)
    samples = joints + rng.normal(size=(hypotheses, count, 3)) * spread[:, None] * (np.arange(count) > 0)[:, None]
    root = np.array(root_mm)
    px = CAMERA.project(joints + root)
    if state is None:
        state = np.array(["visible"] * count, dtype="U12")
        state[[3, 13]] = "occluded"
        state[6] = "out_of_frame"
    half = rng.normal(size=(count, 3, 3)) * spread[:, None, None] / 2
    return Person(
        joints_mm=joints,
        samples_mm=samples,
        covariance_mm2=half @ half.transpose(0, 2, 1) + np.eye(3) * spread[:, None, None] ** 2,
        r90_mm=spread * 2.5,
        state=state,
        joints_2d=px,
        box=(*(px.min(0) - 10).tolist(), *(px.max(0) + 10).tolist()),
        root_mm=root,
        score=0.875,
        track=track,
        skeleton=skeleton,
    )


def result(people, **changes):
    run = {"seed": 7, "steps": 10, "hypotheses": 4, "model": "tiny", "version": "0.1"}
    return Result(**({"image": None, "size": SIZE, "camera": CAMERA, "people": people} | run | changes))


def video(people, fps=30.0, **changes):
    """A Motion with the given people (a list, one person or None) in each frame."""
    lists = [[] if each is None else each if isinstance(each, list) else [each] for each in people]
    return Motion([result(each, frame_index=k, time_s=k / fps, **changes) for k, each in enumerate(lists)], fps)
