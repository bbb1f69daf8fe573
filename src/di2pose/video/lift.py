"""2D keypoints of the frames of a video -> a motion, without pictures; tracks, smoothing and bodies as of videos."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.detect import Detection
from di2pose.image.keypoint_encoder import KeypointEncoder, blank_picture
from di2pose.image.keypoints import parse_keypoints
from di2pose.pipeline.given import detections_of
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Motion
from di2pose.video.estimate import estimate_video
from di2pose.video.stream import RATES, Frame, Stream, check_part

LEAST_INSIDE = 0.5
"""Share of the keypoints in the picture; less is another picture's size."""


class KeypointStream(Stream):
    """Frames of which only the size and the people's keypoints are known; and the detector that finds these."""

    def __init__(
        self, frames: Sequence[Float[np.ndarray, "_ 17 3"]], fps: float, size: tuple[int, int],
        start_s: float | None = None, end_s: float | None = None,
    ) -> None:  # fmt: skip
        check_part(start_s, end_s, None)
        if not RATES[0] <= fps <= RATES[1]:
            raise InputError(f"fps must be from {RATES[0]:g} to {RATES[1]:g} frames a second, got {fps}")
        if not len(frames):
            raise InputError("a motion needs the keypoints of one frame or more, got none")
        self.source, self.fps, self.broken, self.oversized = "", fps, "", False
        self.duration_s = len(frames) / fps
        self._picture = blank_picture(size)
        self._frames_of_people = [people[(people[..., 2] > 0).any(-1)] for people in frames]
        points = np.concatenate([each[each[..., 2] > 0][:, :2] for each in self._frames_of_people])
        inside = ((points >= 0) & (points <= size)).all(-1)
        if len(points) and inside.mean() < LEAST_INSIDE:
            raise InputError(
                f"{inside.mean():.0%} of the keypoints lie in pictures of {size[0]}x{size[1]} pixels, most should: "
                "give the size of the pictures in which they were found"
            )
        self._now = 0
        ends = [0.0 if start_s is None else start_s, self.duration_s if end_s is None else end_s]
        self._first, self._end = (min(len(frames), math.ceil(at * fps - 1e-6)) for at in ends)
        if self._first >= self._end:
            raise InputError(f"the start at {ends[0]:g} s is after the end: the motion lasts {self.duration_s:g} s")

    @property
    def name(self) -> None:
        return None

    @property
    def most_people(self) -> int:
        """In one frame; 1 or more."""
        return max(1, *(len(people) for people in self._frames_of_people))

    def __iter__(self) -> Iterator[Frame]:
        for index in range(self._first, self._end):
            self._now = index
            yield Frame(index, index / self.fps, self._picture)

    def detect(self, image: Image.Image, max_people: int = 8) -> list[Detection]:
        """The people of the frame that came last."""
        return detections_of(self._frames_of_people[self._now])[:max_people]


def lift_video(
    model: Di2Pose, keypoints: Sequence[Any], fps: float, size: tuple[int, int], *, start_s: float | None = None,
    end_s: float | None = None, **options: Any,
) -> Motion:  # fmt: skip
    """The motion of 2D keypoints: an array (people, 17, 3) for each frame, as for a photo; people in any order.

    model: of keypoints alone, `Di2Pose.from_pretrained("lift")`
    size: width and height of the frames in pixels
    start_s, end_s: only the frames from one time to before the other
    options: of `video_results`, hypotheses, steps, seed, smoothed, same_body, held_feet, camera, ...
    """
    if not isinstance(model.encoder, KeypointEncoder):
        name = model.config.name
        raise InputError(f"{name} looks at pictures: keypoints alone are for Di2Pose.from_pretrained('lift')")
    frames = [parse_keypoints(people, f"keypoints of frame {k}") if len(people) else np.zeros((0, 17, 3))
              for k, people in enumerate(keypoints)]  # fmt: skip
    stream = KeypointStream(frames, fps, size, start_s, end_s)
    seeing = Di2Pose(model.model, model.encoder, stream, model.calibration)
    return estimate_video(seeing, stream, **{"least_s": 0.0, "max_people": stream.most_people} | options)
