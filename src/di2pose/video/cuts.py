"""Scene cuts: where a video goes on with another picture.

Neighbouring frames are compared as thumbnails of equal brightness and contrast: exposure and fades hardly count.
A cut is a jump that stands alone: much larger than the steps before and after it, as they are in fast motion and pans,
and without a way back within LOOK_S, as there is after a flash or a person close to the lens.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise, product

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.image.keypoint_encoder import BlankPicture
from di2pose.video.stream import Frame

SIDE = 32
"""Of a thumbnail, pixels."""
JUMP, ALONE = 0.4, 2.5
"""Least distance of the thumbnails at a cut, and its least ratio to the steps before and after. Unrelated pictures are
about 1 apart, two cameras round one scene 0.55, steps of a walker close to the lens up to 0.06."""
LOOK_S, LOOK_FRAMES = 0.15, 3
"""A cut is known after as long and as many frames; other frames are not delayed."""
LEAST_CONTRAST = 4.0
"""Standard deviation of a picture that is taken for plain, grey levels."""
SHIFTS = tuple(product(range(-6, 7, 2), repeat=2))
"""Pixels of the thumbnail by which the camera may have turned at once."""

Thumbnail = Float[np.ndarray, "S S 3"]


def scenes(frames: Iterable[Frame]) -> Iterator[tuple[Frame, bool]]:
    """Every frame, and whether it is the first one after a cut."""
    rest = ((frame, thumbnail(frame.picture)) for frame in frames)
    ahead: deque[tuple[Frame, Thumbnail]] = deque()
    before: Thumbnail | None = None
    steps: deque[float] = deque(maxlen=LOOK_FRAMES + 1)
    while one := ahead.popleft() if ahead else next(rest, None):
        frame, here = one
        step = 0.0 if before is None else distance(before, here)
        cut = back = False
        if before is not None and step > JUMP:
            while len(ahead) < LOOK_FRAMES or ahead[-1][0].time_s < frame.time_s + LOOK_S:
                if (following := next(rest, None)) is None:
                    break
                ahead.append(following)
            later = [each for _, each in ahead]
            back = any(distance(before, each) < step / 2 for each in later)
            after = [distance(a, b) for a, b in pairwise([here, *later])]
            cut = not back and step > ALONE * max(float(np.median(each)) for each in (list(steps), after) if each)
        if cut:
            steps.clear()
        elif not back and before is not None:
            steps.append(step)
        before = before if back else here
        yield frame, cut


def thumbnail(picture: Image.Image) -> Thumbnail:
    """Mean 0 and standard deviation 1, or less where the picture is plain."""
    if isinstance(picture, BlankPicture):
        return np.zeros((SIDE, SIDE, 3))
    small = np.asarray(picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX, reducing_gap=1.0), np.float64)
    small = small - small.mean((0, 1))
    return np.asarray(small / max(float(small.std()), LEAST_CONTRAST))


def distance(a: Thumbnail, b: Thumbnail) -> float:
    """Half of the mean squared difference; where that is a jump, the least of all shifts of the camera."""
    plain = float(((a - b) ** 2).mean() / 2)
    return plain if plain <= JUMP else min(_shifted(a, b, *shift) for shift in SHIFTS)


def _shifted(a: Thumbnail, b: Thumbnail, down: int, across: int) -> float:
    def part(of: Thumbnail, sign: int) -> Float[np.ndarray, "H W 3"]:
        rows, columns = (slice(max(0, sign * by), SIDE + min(0, sign * by)) for by in (down, across))
        return of[rows, columns]

    return float(((part(a, 1) - part(b, -1)) ** 2).mean() / 2)
