"""The picture that a result is about."""

import base64
import io
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from di2pose.data.frames import Video
from di2pose.errors import InputError
from di2pose.image.read import read_image
from di2pose.result import Result


def photo_of(result: Result) -> Image.Image | None:
    """Upright RGB: the pixels that came with the result, else its file; None where it has neither."""
    return next(photos_of([result]))


def photos_of(results: list[Result]) -> Iterator[Image.Image | None]:
    """The picture of each result in turn; a video is opened once and decoded as it goes."""
    videos: dict[str, Video] = {}
    try:
        for result in results:
            if result.picture is not None:
                yield result.picture
            elif result.image is None:
                yield None
            elif result.frame_index is None:
                yield _checked(read_image(result.image), result)
            else:
                if result.image not in videos:
                    videos[result.image] = Video(Path(result.image))
                yield _checked(videos[result.image].frame(result.frame_index), result)
    finally:
        for video in videos.values():
            video.close()


def data_uri(picture: Image.Image, most: int, quality: int) -> str:
    """The picture as JPEG inside a URI, shrunk so that its longer side has at most `most` pixels."""
    small = picture.copy()
    small.thumbnail((most, most), Image.Resampling.LANCZOS)
    data = io.BytesIO()
    small.save(data, "JPEG", quality=quality, optimize=True, progressive=True)
    return "data:image/jpeg;base64," + base64.b64encode(data.getvalue()).decode()


def _checked(picture: Image.Image, result: Result) -> Image.Image:
    if picture.size != tuple(result.size):
        raise InputError(
            f"{result.image} has {picture.size[0]}x{picture.size[1]} pixels, the result was made from "
            f"{result.size[0]}x{result.size[1]}: it is another picture now"
        )
    return picture
