"""A made-up street for the tests of the tracker: walkers at their own depth, the nearer one hides the farther one."""

from typing import NamedTuple

import numpy as np

from di2pose.image.crop import roi_from_keypoints
from di2pose.image.detect import Detection
from di2pose.pose.skeleton import BLAZEPOSE_33
from di2pose.video.track import Observation

FOCAL, CENTRE = 1000.0, np.array([960.0, 540.0])
PARTS = {  # mm from the hips: across the shoulders, down
    "hip": (100, 0), "knee": (110, 430), "ankle": (110, 850), "heel": (110, 900), "foot_index": (110, 920),
    "shoulder": (170, -480), "elbow": (250, -220), "wrist": (260, 30), "thumb": (260, 80), "index": (265, 110),
    "pinky": (255, 110), "ear": (70, -650), "eye": (30, -680), "eye_inner": (20, -680), "eye_outer": (40, -680),
    "mouth": (20, -610),
}  # fmt: skip


def _rest(name):
    side = 1 if name.startswith("left") or "left" in name else -1
    part = name.replace("left_", "").replace("right_", "").replace("_left", "").replace("_right", "")
    x, y = PARTS.get(part, (0, -650))
    return side * x, y


BODY = np.array([_rest(name) for name in BLAZEPOSE_33.joints], dtype=np.float64)
SWINGS = np.array([any(word in name for word in ("knee", "ankle", "heel", "foot", "wrist", "elbow"))
                   for name in BLAZEPOSE_33.joints])  # fmt: skip


class Walker(NamedTuple):
    x_mm: float
    depth_mm: float
    speed_mm_s: float
    height: float = 1.0

    def points(self, time_s):
        """Landmarks in pixels; limbs swing once a second."""
        body = BODY * self.height
        sign = np.array([1 if "left" in name else -1 for name in BLAZEPOSE_33.joints])
        swing = 200 * np.sin(2 * np.pi * time_s + self.x_mm) * SWINGS * sign
        flat = body + np.stack([swing + self.x_mm + self.speed_mm_s * time_s, np.zeros(33)], axis=1)
        return CENTRE + FOCAL * flat / self.depth_mm


LEGS = np.array([any(word in name for word in ("knee", "ankle", "heel", "foot")) for name in BLAZEPOSE_33.joints])
ARMS = np.array([any(word in name for word in ("elbow", "wrist", "thumb", "index", "pinky")) and "foot" not in name
                 for name in BLAZEPOSE_33.joints])  # fmt: skip


class Jumper(NamedTuple):
    """Crouches, jumps half a metre high with the arms thrown up, and lands in a crouch, again and again."""

    x_mm: float
    depth_mm: float
    speed_mm_s: float

    def points(self, time_s):
        phase = time_s % 1.5
        crouch = float(np.interp(phase, [0, 0.3, 0.5, 1.1, 1.3, 1.5], [0, 1, 0, 0, 1, 0]))
        arms = float(np.interp(phase, [0, 0.3, 0.5, 1.1, 1.3, 1.5], [0, 0, 1, 1, 0, 0]))
        flight = float(np.clip(phase - 0.5, 0, 0.6))
        body = BODY.copy()
        body[LEGS] *= (1.0, 1 - 0.5 * crouch)
        shoulder = np.array([0.0, PARTS["shoulder"][1]])
        body[ARMS] = shoulder + (body[ARMS] - shoulder) * (1.0, 1 - 2 * arms)  # from hanging to straight up
        hips = np.array([self.x_mm + self.speed_mm_s * time_s, 400 * crouch - (3000 * flight - 4905 * flight**2)])
        return CENTRE + FOCAL * (body + hips) / self.depth_mm


class Street:
    """What the detector and the encoder would say at a time: exact landmarks plus `noise` pixels."""

    def __init__(self, *walkers, noise=2.0, seed=0):
        self.walkers, self.noise, self.rng = walkers, noise, np.random.default_rng(seed)

    def visible(self, time_s):
        """Walkers whose hips are not within a body's half width of a nearer walker's."""
        order = sorted(range(len(self.walkers)), key=lambda k: self.walkers[k].depth_mm)
        shown = []
        for k in order:
            x = self.walkers[k].points(time_s)[[23, 24], 0].mean()
            if all(abs(x - self.walkers[n].points(time_s)[[23, 24], 0].mean()) > 0.25 * self.tall(n) for n in shown):
                shown.append(k)
        return shown

    def tall(self, k):
        return FOCAL * 1700 / self.walkers[k].depth_mm

    def find(self, time_s):
        found = []
        for k in self.visible(time_s):
            hip = self.walkers[k].points(time_s)[[23, 24]].mean(0)
            radius = 0.6 * self.tall(k)
            box = (hip[0] - radius, hip[1] - radius, hip[0] + radius, hip[1] + radius)
            found.append(Detection(box, 0.9, roi_from_keypoints(hip.tolist(), (hip - (0, radius)).tolist())))
        return found

    def look(self, detection, fresh, time_s):
        """The encoder sees the visible body nearest to the crop's middle, nobody where that lies outside the crop."""
        shown = self.visible(time_s)
        centre = np.array(detection.roi.centre)
        hips = [self.walkers[k].points(time_s)[[23, 24]].mean(0) for k in shown]
        apart = [np.linalg.norm(hip - centre) for hip in hips]
        k = int(np.argmin(apart)) if apart else -1
        there = k >= 0 and apart[k] < detection.roi.side / 2
        points = self.walkers[shown[k]].points(time_s) if there else centre + np.zeros((33, 2))
        scale = self.walkers[shown[k]].depth_mm / FOCAL if there else 1.0
        pose = np.concatenate([points - points[[23, 24]].mean(0), np.zeros((33, 1))], axis=1) * scale
        pose = pose * self.rng.normal(1, 0.05) + self.rng.normal(0, 20, (33, 3))  # the encoder errs about the size
        points = points + self.rng.normal(0, self.noise, (33, 2))
        return Observation(points, 0.99 if there else 0.1, detection, fresh, pose), shown[k] if there else None


def run(street, tracker, times, calls=None):
    """[{walker: track number}] of each time."""
    story = []
    for time_s in times:
        search = tracker.search
        if calls is not None:
            calls.append(search)
        found = street.find(time_s) if search != "none" else []
        looked = [street.look(detection, fresh, time_s) for detection, fresh in tracker.regions(time_s, found)]
        given = tracker.update(time_s, [look for look, _ in looked])
        story.append({looked[place][1]: number for place, number in given.items()})
    return story
