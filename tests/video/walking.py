"""People who walk on a level floor before a still or a moving camera, with known up, bones and contacts."""

from dataclasses import replace

import numpy as np
from output.people import person, result
from scipy.spatial.transform import Rotation

from di2pose.pose.bones import rebuild
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_21, bone_lengths
from di2pose.result import Motion

FPS, SIZE = 24.0, (1920, 1080)
CAMERA = Camera((1600.0, 1600.0), (960.0, 540.0), size=SIZE)
CYCLE_S, STANCE, STRIDE_MM, LIFT_MM = 1.25, 0.6, 1100.0, 140.0
HIP_MM, THIGH_MM, SHIN_MM, ANKLE_MM = 840.0, 430.0, 420.0, 70.0
AT = {"pelvis": 0, "spine": 230, "thorax": 480, "nose": 600, "head": 710, "shoulder": 450, "elbow": 170, "wrist": -80}
"""Height over the hips."""
LEG = ("hip", "knee", "ankle", "heel", "toe")
FEET = list(H36M_21.indices("left_heel", "left_toe", "right_heel", "right_toe"))


def walking(times_s, jump=(), still=False):
    """World joints (n, 21, 3), y up, along x; and which feet joints stand (n, 4). `jump`: seconds in the air."""
    n = len(times_s)
    air = np.zeros(n)
    if jump:
        share = np.clip((times_s - jump[0]) / (jump[1] - jump[0]), 0, 1)
        air = 4 * 350 * share * (1 - share)
    speed = 0.0 if still else STRIDE_MM / CYCLE_S
    hips = np.stack([speed * times_s, HIP_MM + air, 0 * times_s], -1)
    joints, stands = np.zeros((n, 21, 3)), np.zeros((n, 4), bool)
    for k, name in enumerate(H36M_21.joints):
        side, _, part = name.rpartition("_")
        across = {"left": -1, "right": 1}.get(side, 0) * {"hip": 110, "shoulder": 170, "elbow": 190}.get(part, 200)
        joints[:, k] = hips + np.array([0.0, AT.get(part, 0), across])
    for place, side in enumerate(("left", "right")):
        cycle = times_s / CYCLE_S + place / 2
        whole, part = np.floor(cycle), cycle % 1
        swing = np.clip((part - STANCE) / (1 - STANCE), 0, 1) * (not still)
        ahead = (whole - place / 2 + STANCE / 2 + swing**2 * (3 - 2 * swing)) * STRIDE_MM if not still else 0 * part
        lift = LIFT_MM * np.sin(np.pi * swing) ** 2 + air
        hip, knee, ankle, heel, toe = H36M_21.indices(*(f"{side}_{each}" for each in LEG))
        joints[:, ankle] = np.stack([ahead, ANKLE_MM + lift, joints[:, hip, 2]], -1)
        joints[:, heel] = joints[:, ankle] + (-50, -ANKLE_MM, 0)
        joints[:, toe] = joints[:, ankle] + (150, -ANKLE_MM, 0)
        way = joints[:, ankle] - joints[:, hip]
        far = np.linalg.norm(way, axis=-1, keepdims=True)
        along = (THIGH_MM**2 - SHIN_MM**2 + far**2) / (2 * far)
        front = np.cross(np.array([0.0, 0.0, 1.0]), way / far)
        joints[:, knee] = joints[:, hip] + along * way / far + np.sqrt(THIGH_MM**2 - along**2) * front
        stands[:, 2 * place : 2 * place + 2] = ((swing == 0) & (air == 0))[:, None]
    return joints, stands


def film(walkers, pitch=0.0, roll=0.0, rng=None, moved=None, skeleton=H36M_21, depth_mm=40.0, foot_mm=12.0):
    """A motion of world joints (n, 21, 3) of several people, seen from 1.5 m above the floor, and its up.

    rng: noise of the distance and of the feet, bones kept; moved: degrees by which the camera has tilted in each frame
    """
    count = len(walkers[0])
    moved = np.zeros(count) if moved is None else moved
    results = []
    for k in range(count):
        turn = Rotation.from_euler("ZX", [roll, 180 + pitch], degrees=True).as_matrix()
        tilt = Rotation.from_euler("X", moved[k], degrees=True).as_matrix()
        people = []
        for track, world in enumerate(walkers):
            middle = np.array([world[:, 0, 0].mean(), 1500, 0])
            placed = ((world[k] - middle) @ turn.T + (0, 0, 5000)) @ tilt.T
            root, joints = placed[0], placed - placed[0]
            if rng is not None:
                lengths = bone_lengths(joints, H36M_21)
                noisy = joints + rng.normal(0, foot_mm, (21, 3)) * np.isin(np.arange(21), [3, 6, *FEET])[:, None]
                joints, root = rebuild(noisy, lengths, H36M_21), root * (1 + rng.normal(0, depth_mm / 5000))
            one = person(track=track, joints_mm=joints, root_mm=root, skeleton=H36M_21)
            seen = CAMERA.project(joints + root)
            one = replace(one, joints_2d=seen, covariance_mm2=np.tile(25.0**2 * np.eye(3), (21, 1, 1)))
            people.append(one.convert(skeleton))
        results.append(result(people, size=SIZE, camera=CAMERA, frame_index=k, time_s=k / FPS))
    return Motion(results, FPS), Rotation.from_euler("ZX", [roll, 180 + pitch], degrees=True).as_matrix()[:, 1]


def angle_degrees(a, b):
    return float(np.degrees(np.arccos(np.clip(a @ b, -1, 1))))


def placed_feet(motion, track=0):
    people = motion.track(track)
    return np.stack([each.joints_mm[FEET] + each.root_mm for each in people])
