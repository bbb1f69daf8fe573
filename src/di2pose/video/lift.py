"""2D keypoints of the frames of a video -> a motion, without pictures; tracks, smoothing and bodies as of videos."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.detect import Detection
from di2pose.image.keypoint_encoder import BlankPicture, KeypointEncoder
from di2pose.image.keypoints import parse_keypoints
from di2pose.pipeline.given import detections_of
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Motion
from di2pose.video.estimate import estimate_video
from di2pose.video.stream import CLOSE_S, Frame, Stream, check_part

LEAST_KEYPOINTS = 3
"""Of a person in a frame; fewer say nothing of a body."""
LEAST_INSIDE = 0.5
"""Share of the keypoints in the picture; less is another picture's size."""


class KeypointStream(Stream):
    """Frames of which only the size and the people's keypoints are known; and the detector that finds these."""

    def __init__(self, people: Mapping[int, Float[np.ndarray, "_ 17 3"]], fps: float, size: tuple[int, int]) -> None:
        """people: of the frames, by number"""
        self.people, self.fps, self.picture, self.now = people, fps, BlankPicture(size), 0

    @property
    def name(self) -> None:
        return None

    def __iter__(self) -> Iterator[Frame]:
        for number in self.people:
            self.now = number
            yield Frame(number, number / self.fps, self.picture)

    def detect(self, image: Image.Image, max_people: int = 8) -> list[Detection]:
        """The people of the frame that came last."""
        return detections_of(self.people[self.now])[:max_people]


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
    check_part(start_s, end_s, fps)
    if not len(keypoints):
        raise InputError("a motion needs the keypoints of one frame or more, got none")
    frames = {k: parse_keypoints(people, f"keypoints of frame {k}") if len(people) else np.zeros((0, 17, 3))
              for k, people in enumerate(keypoints)}  # fmt: skip
    first, end = (start_s or 0.0) - CLOSE_S, (math.inf if end_s is None else end_s) - CLOSE_S
    enough = {k: (people[..., 2] > 0).sum(-1) >= LEAST_KEYPOINTS for k, people in frames.items()}
    chosen = {k: people[enough[k]] for k, people in frames.items() if first <= k / fps < end}
    if not chosen:
        lasts = f"the motion lasts {len(frames) / fps:g} s"
        raise InputError(f"the start at {start_s or 0:g} s is after the end: {lasts}")
    stream = KeypointStream(chosen, fps, size)
    points = np.concatenate([people[people[..., 2] > 0][:, :2] for people in chosen.values()])
    inside = ((points >= 0) & (points <= stream.picture.size)).all(-1)
    if len(points) and inside.mean() < LEAST_INSIDE:
        raise InputError(
            f"{inside.mean():.0%} of the keypoints lie in pictures of {size[0]}x{size[1]} pixels, most should: "
            "give the size of the pictures in which they were found"
        )
    seeing = Di2Pose(model.model, model.encoder, stream, model.calibration)
    most = max(1, *map(len, chosen.values()))
    return estimate_video(seeing, stream, **{"least_s": 0.0, "max_people": most} | options)
