"""2D keypoints in the place of image features, for models that see no pixels.  B people, COCO's 17 keypoints.

A model sees the keypoints of one picture (`keypoints`), or of a window of T frames at RATE frames a second round the
one that it is asked for (`keypoints:27`); frames may be missing, and in a photo all others are.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.crop import Roi, crop_rotation
from di2pose.image.detect import Detection
from di2pose.image.encoder import EncoderOutput, FeatureLayout, TokenBlock
from di2pose.pose.camera import Camera
from di2pose.pose.keypoints import body_frame, by_body
from di2pose.pose.skeleton import COCO_17

CHANNELS = 4
"""Of a keypoint's token: x and y as `by_body` has them, score, 1 where it is there; all 0 where it is missing."""
LAYOUT = FeatureLayout(tuple(TokenBlock(name, 1, CHANNELS, CHANNELS * j) for j, name in enumerate(COCO_17.joints)))
"""A block of channels for each keypoint, so that attention can tell the tokens apart."""
RATE, WINDOW_BLOCK = 24.0, "frames"
"""Of windows: frames a second, and the name of their tokens in a cache."""
FAR = 4.0
"""Largest coordinate of a keypoint in a window, in body sizes."""
CROP = 256
MOST_SIDE = 100_000


class BlankPicture(Image.Image):
    """A picture of which only the size is known."""

    def __init__(self, size: Any) -> None:
        """size: the user's (width, height)"""
        super().__init__()
        try:
            width, height = (int(side) for side in size)
        except (TypeError, ValueError):
            width = height = 0
        if not (1 <= width <= MOST_SIDE and 1 <= height <= MOST_SIDE):
            raise InputError(f"size must be the picture's (width, height) in pixels, as (1920, 1080); got {size!r}")
        self._mode, self._size = "RGB", (width, height)


class KeypointEncoder:
    """The encoder of a model of keypoints. Its features come from the user's keypoints (`pipeline.given`)."""

    size, reads_pixels = (CROP, CROP), False

    def __init__(self, frames: int = 1) -> None:
        """frames: of the window; 1: the picture alone, in LAYOUT."""
        self.frames, self.name = frames, "keypoints" if frames == 1 else f"keypoints:{frames}"
        window = TokenBlock(WINDOW_BLOCK, frames, CHANNELS * COCO_17.count, 0)  # a token a frame, with all keypoints
        self.layout = LAYOUT if frames == 1 else FeatureLayout((window,))

    def region(self, detection: Detection) -> Roi:
        return detection.roi

    def matrix(self, region: Roi) -> Float[np.ndarray, "2 3"]:
        return region.matrix(CROP)

    def rotation(self, region: Roi, camera: Camera) -> Float[np.ndarray, "3 3"]:
        return crop_rotation(camera, region)

    def encode(self, crops: np.ndarray) -> EncoderOutput:
        """Features in which every keypoint is missing."""
        return EncoderOutput(np.zeros((len(crops), self.layout.length, self.layout.width), np.float32))

    def cache_parts(self, crops: np.ndarray) -> dict[str, np.ndarray]:
        """Of `crop_keypoints` of pictures or windows."""
        if crops.shape[-2:] != (COCO_17.count, CHANNELS):
            raise InputError("features of keypoints are made by `di2pose data lift`, not from pictures")
        return {name: tokens.astype(np.float16) for name, tokens in keypoint_tokens(crops).items()}

    def mirrored(self, crops: Float[np.ndarray, "*rows 17 4"]) -> Float[np.ndarray, "*rows 17 4"]:
        """`crop_keypoints` of the mirror images."""
        return crops[..., list(COCO_17.mirror_order), :] * np.array([-1, 1, 1, 1], crops.dtype)

    def features(self, keypoints: Float[np.ndarray, "B *T 17 3"]) -> Float[np.ndarray, "B L F"]:
        """Of x, y in pixels of the crop and score; missing ones are NaN or have score 0. A picture's other frames are
        missing."""
        seen = crop_keypoints(keypoints)
        return self.layout.assemble(keypoint_tokens(as_window(seen, self.frames) if seen.ndim == 3 else seen))


def crop_keypoints(keypoints: Float[np.ndarray, "*rows 17 3"]) -> Float[np.ndarray, "*rows 17 4"]:
    """Places in [-1, 1]^2 of the crop, score, and 1 where a keypoint is there; all 0 where it is missing."""
    there = np.isfinite(keypoints).all(-1) & (keypoints[..., 2] > 0)
    seen = np.concatenate([2 * keypoints[..., :2] / CROP - 1, keypoints[..., 2:], np.ones((*there.shape, 1))], -1)
    return np.where(there[..., None], seen, 0.0)


def as_window(seen: Float[np.ndarray, "B 17 4"], frames: int) -> np.ndarray:
    """The middle of windows (B, T, 17, 4) whose other frames are missing; of one frame the same."""
    if frames == 1:
        return seen
    window = np.zeros((len(seen), frames, *seen.shape[1:]), seen.dtype)
    window[:, frames // 2] = seen
    return window


def keypoint_tokens(seen: Float[np.ndarray, "B *T 17 4"]) -> dict[str, np.ndarray]:
    """The blocks of the layout; a window's keypoints are relative to the body of its middle frame."""
    places, score, there = seen[..., :2], seen[..., 2:3], seen[..., 3:]
    if seen.ndim == 3:
        tokens = np.concatenate([by_body(places, there), score, there], -1)
        return {joint: tokens[:, j : j + 1] for j, joint in enumerate(COCO_17.joints)}
    middle = seen.shape[1] // 2
    centre, size = body_frame(places[:, middle], there[:, middle])                      # B 1 2, B 1 1
    relative = np.clip((places - centre[:, None]) / size[:, None], -FAR, FAR) * there
    tokens = np.concatenate([relative, score * there, there], -1).reshape(*seen.shape[:2], -1)
    return {WINDOW_BLOCK: tokens.astype(np.float32)}


def load(name: str, device: Any) -> KeypointEncoder:
    """For `encoder.ENCODERS`."""
    frames = name.partition(":")[2] or "1"
    if not frames.isdecimal() or not 1 <= int(frames) <= 999 or int(frames) % 2 == 0:
        raise InputError(f"an encoder of keypoints is 'keypoints' or 'keypoints:FRAMES', an odd number; got '{name}'")
    return KeypointEncoder(int(frames))
