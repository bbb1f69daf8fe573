"""Windows of a track: the 2D keypoints of the frames round each one, for models that see several frames.

A window has a fixed rate (`keypoint_encoder.RATE`), whatever the video's: keypoints are interpolated between frames
that are close in time; where there are none, a frame of the window is missing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from di2pose.image.crop import apply, invert
from di2pose.image.encoder import Encoder, EncoderOutput, to_picture
from di2pose.image.keypoint_encoder import RATE, WINDOW_BLOCK, KeypointEncoder, crop_keypoints, keypoint_tokens
from di2pose.pipeline.crops import EncodedCrops
from di2pose.pose.skeleton import COCO_17
from di2pose.video.stream import Frame

CLOSE_S = 0.1
"""Longest time between two frames between which keypoints are interpolated."""


SeenPeople = dict[int, Float[np.ndarray, "17 3"]]
"""Track number -> 2D keypoints in one frame."""


class TrackedFrame(NamedTuple):
    """One frame with its people."""

    frame: Frame
    encoded: EncodedCrops | None
    """The people in the order of `numbers`; None where there are none."""
    numbers: list[int]


def windowed(
    frames: Iterable[TrackedFrame], encoder: Encoder, count: int, most: int | None = None
) -> Iterator[TrackedFrame]:
    """The frames with features of windows of `count` frames, each when the last frame of its window has come: instead
    of the features of a model of keypoints, behind those of an image. Frames outside the `most` middle ones are
    missing."""
    if count == 1:
        yield from frames
        return
    used = (count if most is None else min(count, most)) // 2
    reach, waiting, at = used / RATE + CLOSE_S, list[tuple[TrackedFrame, SeenPeople]](), 0
    for each in frames:
        waiting.append((each, _keypoints(each, encoder)))
        while waiting[at][0].frame.time_s + reach < each.frame.time_s:
            yield _with_windows(waiting, at, encoder, count, used)
            at += 1
        old = sum(other.frame.time_s < waiting[at][0].frame.time_s - reach for other, _ in waiting[:at])
        del waiting[:old]
        at -= old
    for place in range(at, len(waiting)):
        yield _with_windows(waiting, place, encoder, count, used)


def _with_windows(
    frames: Sequence[tuple[TrackedFrame, SeenPeople]], at: int, encoder: Encoder, count: int, used: int
) -> TrackedFrame:
    frame, encoded, numbers = middle = frames[at][0]
    if encoded is None:
        return middle
    wanted = frame.time_s + (np.arange(count) - count // 2) / RATE
    windows = []
    for crop, number in zip(encoded.crops, numbers, strict=True):
        seen = [(each.frame.time_s, people[number]) for each, people in frames if number in people]
        window = at_times(np.array([time for time, _ in seen]), np.stack([points for _, points in seen]), wanted)
        window[np.abs(np.arange(count) - count // 2) > used] = np.nan
        window[..., :2] = apply(invert(encoder.matrix(crop.region)), window[..., :2])
        windows.append(window)
    here = np.stack(windows)
    there = here[:, :, list(COCO_17.mirror_order)] * (-1, 1, 1) + (encoder.size[0], 0, 0)
    flipped = None if encoded.flipped is None else _with_features(encoded.flipped, there, encoder)
    encoded = replace(encoded, output=_with_features(encoded.output, here, encoder), flipped=flipped)
    return TrackedFrame(frame, encoded, numbers)


def _keypoints(tracked: TrackedFrame, encoder: Encoder) -> SeenPeople:
    """In the picture's pixels; NaN where missing."""
    found, encoded = {}, tracked.encoded
    for row, number in enumerate(tracked.numbers):
        assert encoded is not None
        found[number] = np.full((COCO_17.count, 3), np.nan)
        if encoded.output.keypoints is not None:
            points = encoded.output.keypoints[row].astype(np.float64)
            points[:, :2] = to_picture(encoder, encoded.crops[row].region, points[:, :2])
            found[number] = np.where(points[:, 2:] > 0, points, np.nan)
    return found


def _with_features(output: EncoderOutput, windows: Float[np.ndarray, "B T 17 3"], encoder: Encoder) -> EncoderOutput:
    tokens = keypoint_tokens(crop_keypoints(windows))[WINDOW_BLOCK]                     # B T 68
    if isinstance(encoder, KeypointEncoder):
        return replace(output, features=tokens)
    wide = np.zeros((*tokens.shape[:2], output.features.shape[2]), np.float32)
    wide[..., : tokens.shape[2]] = tokens
    return replace(output, features=np.concatenate([output.features, wide], axis=1))


def at_times(
    times_s: Float[np.ndarray, " n"], keypoints: Float[np.ndarray, "n 17 3"], wanted_s: Float[np.ndarray, " T"]
) -> Float[np.ndarray, "T 17 3"]:
    """Keypoints at other times: interpolated between two frames at most CLOSE_S apart, else those of a frame not
    farther than half a frame of the window, else NaN. A keypoint of one of the two frames alone is missing."""
    after = np.clip(np.searchsorted(times_s, wanted_s), 0, len(times_s) - 1)
    before = np.maximum(after - 1, 0)
    gap = times_s[after] - times_s[before]
    share = np.clip((wanted_s - times_s[before]) / np.maximum(gap, 1e-9), 0, 1)
    nearest = np.where(share < 0.5, before, after)
    between = (gap > 0) & (gap <= CLOSE_S) & (wanted_s >= times_s[0]) & (wanted_s <= times_s[-1])
    exact = np.abs(times_s[nearest] - wanted_s) < 1e-6
    weight = share[:, None, None]
    with np.errstate(invalid="ignore"):
        mixed = (1 - weight) * keypoints[before] + weight * keypoints[after]
    found = np.where((between & ~exact)[:, None, None], mixed, keypoints[nearest])
    near = between | (np.abs(times_s[nearest] - wanted_s) <= 0.5 / RATE)
    return np.where(near[:, None, None], found, np.nan)
