"""Small pictures of a video for its page, kept while it plays."""

import dataclasses
import io

from PIL import Image

from di2pose.output.viewer import FRAME_SIDE, MOST_FRAMES
from di2pose.result import Motion


class Thumbnails:
    """JPEGs of every so many frames: never more than twice as many as a page shows, however long the video is."""

    def __init__(self) -> None:
        self.every = 1
        self._kept: dict[int, bytes] = {}

    def add(self, k: int, picture: Image.Image) -> None:
        """The picture of result k."""
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
