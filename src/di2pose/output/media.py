"""Pictures made while a video or photo is processed: the overlay video, thumbnails for the page, blurred faces."""

import dataclasses
import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from PIL import Image, ImageDraw

from di2pose.errors import InputError, require
from di2pose.files import replacing
from di2pose.image.detect import from_boxes
from di2pose.image.encoder import PERSON, to_picture
from di2pose.output.overlay import draw_overlay, moved
from di2pose.output.viewer import FRAME_SIDE, MOST_FRAMES
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.skeleton import BLAZEPOSE_33
from di2pose.result import Motion, Person, Result

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

MOST_SIDE = 1280
"""Pixels of the overlay video's longer side: every joint is visible, and it is drawn twice as fast as full HD."""
CODECS = ("libx264", "libopenh264", "mpeg4")
"""The first that this build of FFmpeg can write is used; every browser plays the first two."""
TICKS = 16
"""Steps of the overlay video's clock a frame: frames have their own times, which may be uneven."""
FACE = BLAZEPOSE_33.joints[: BLAZEPOSE_33.index("right_mouth") + 1]
"""BlazePose's landmarks of the face come first: nose, eyes, ears, mouth."""
HEAD = ("nose", "head", "head_top", "left_ear", "right_ear")
"""Joints of skeletons that lie in the head."""
FACE_MM = 170.0
"""Radius of the disc that hides a face: a head is about 230 mm high, and the estimate may be some cm off."""
HEAD_MM = 140.0
"""Least radius round the landmarks of a face: hair and chin lie outside of them."""


class OverlayVideo:
    """An MP4 with the overlay on every frame, at the frame's own time: `add` frames, then `finish`. After an error no
    file is left."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self._av = require("av", extra="video")
        codecs = [name for name in CODECS if name in self._av.codecs_available]
        if not codecs:
            raise InputError(f"this PyAV writes none of {', '.join(CODECS)}: leave 'overlay' out of --format")
        self._codec = codecs[0]
        self._rate = Fraction(fps).limit_denominator(100_000)
        self._temporary = ExitStack()
        self._start_s, self._last = 0.0, -1
        """Time of the first frame, and the last one's time stamp in TICKS of a frame."""
        self._open: "tuple[OutputContainer, VideoStream] | None" = None

    def add(self, result: Result, picture: Image.Image) -> None:
        """Append a frame: the result's people on the picture."""
        scale = min(1.0, MOST_SIDE / max(picture.size))
        width, height = (max(2, 2 * round(side * scale / 2)) for side in picture.size)  # codecs need even sides
        small = picture.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
        drawn = draw_overlay(small, [moved(person, 0, 0, scale) for person in result.people])
        with self._aborting():
            if self._open is None:
                temporary = self._temporary.enter_context(replacing(self.path, lambda: self.path))
                container: OutputContainer = self._av.open(str(temporary), "w", format="mp4")
                stream = cast("VideoStream", container.add_stream(self._codec, rate=self._rate))
                self._open = container, stream
                stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
                stream.codec_context.time_base = 1 / (self._rate * TICKS)
                self._start_s = result.time_s or 0.0
            container, stream = self._open
            if drawn.size != (stream.width, stream.height):  # the frame size of a video may change
                drawn = drawn.resize((stream.width, stream.height))
            frame = self._av.VideoFrame.from_image(drawn)
            ticks = round(((result.time_s or 0.0) - self._start_s) * self._rate * TICKS)
            self._last = max(self._last + 1, ticks)
            frame.pts, frame.time_base = self._last, 1 / (self._rate * TICKS)
            container.mux(stream.encode(frame))

    def finish(self, path: Path) -> list[Path]:
        """Close the file under this name in the same folder; empty where no frame came."""
        if self._open is None:
            return []
        self.path = path
        container, stream = self._open
        with self._aborting():
            container.mux(stream.encode(None))
            container.close()
        self._temporary.close()
        return [path]

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        """On an OSError remove the temporary file; `replacing` turns the error into an InputError."""
        try:
            yield
        except OSError as error:
            if self._open is not None:
                with suppress(OSError):  # closing writes the index, which may fail, too
                    self._open[0].close()
                self._open = None
            self._temporary.__exit__(type(error), error, error.__traceback__)
            raise


class Thumbnails:
    """JPEGs of every `every`-th frame: at most twice as many as a page shows, however long the video is."""

    def __init__(self) -> None:
        self.every = 1
        self._kept: dict[int, bytes] = {}

    def add(self, k: int, picture: Image.Image) -> None:
        """Keep the picture of result k, unless it is not needed."""
        if k % self.every:
            return
        small = picture.copy()
        small.thumbnail((FRAME_SIDE, FRAME_SIDE))
        data = io.BytesIO()
        small.save(data, "JPEG", quality=90)
        self._kept[k] = data.getvalue()
        if len(self._kept) > 2 * MOST_FRAMES:
            self.every *= 2
            self._kept = {at: still for at, still in self._kept.items() if at % self.every == 0}

    def on(self, motion: Motion) -> Motion:
        """The frames that a page can show, with their pictures."""
        every = self.every * -(-len(motion) // (MOST_FRAMES * self.every))
        results = [
            dataclasses.replace(motion[k], picture=Image.open(io.BytesIO(self._kept[k])))
            for k in range(0, len(motion), every)
        ]
        return Motion(results, motion.fps / every)


def without_faces(model: Di2Pose, result: Result) -> Result:
    """The result with coarse blocks over everybody's head in its picture, if it has one.

    Heads are hidden both where the pose projects them and where the encoder finds the landmarks of a face in each
    person's box: the pose may be wrong about a head in full view.
    """
    if result.picture is None:
        return result
    crops = [model.crop(result.picture, from_boxes([person.box])[0], result.camera) for person in result.people]
    output, hidden = model.encode(crops).output, result.picture
    for row, (person, crop) in enumerate(zip(result.people, crops, strict=True)):
        names = [name for name in HEAD if name in person.skeleton.joints]
        head = np.nanmean(person.joints_2d[list(person.skeleton.indices(*names))], 0)
        scale = pixels_a_mm(person)
        hidden = pixelated(hidden, head, FACE_MM * scale)
        if output.landmarks_2d is None or output.skeleton is None or output.person is None:
            continue
        if float(output.person[row]) >= PERSON:
            face = output.landmarks_2d[row][list(output.skeleton.indices(*FACE))]
            face = to_picture(model.encoder, crop.region, face)
            reach = float(np.linalg.norm(face - face.mean(0), axis=1).max())
            hidden = pixelated(hidden, face.mean(0), max(1.6 * reach, HEAD_MM * scale))
    return dataclasses.replace(result, picture=hidden)


def pixelated(image: Image.Image, centre: np.ndarray, radius: float) -> Image.Image:
    """A copy of the picture with coarse blocks, six across, in place of a disc, in pixels."""
    x0, y0, x1, y1 = (int(np.floor(v)) for v in (*(centre - radius), *(centre + radius + 1)))
    box = (max(0, x0), max(0, y0), min(image.width, x1), min(image.height, y1))
    if box[2] <= box[0] or box[3] <= box[1]:
        return image
    part = image.crop(box)
    block = max(2.0, radius / 3)
    coarse = part.resize([max(1, round(side / block)) for side in part.size], Image.Resampling.BOX)
    disc = Image.new("L", part.size, 0)
    x, y = centre - box[:2]
    ImageDraw.Draw(disc).ellipse([x - radius, y - radius, x + radius, y + radius], fill=255)
    hidden = image.copy()
    hidden.paste(coarse.resize(part.size, Image.Resampling.NEAREST), box[:2], disc)
    return hidden


def pixels_a_mm(person: Person) -> float:
    """The person's scale in the picture: over all bones, ignoring perspective."""
    children, parents = (list(side) for side in zip(*person.skeleton.bones, strict=True))
    flat = person.joints_2d[children] - person.joints_2d[parents]
    real = (person.joints_mm[children] - person.joints_mm[parents])[:, :2]
    return float(np.sqrt(np.nansum(flat**2) / np.nansum(real**2)))
