"""Small real videos for the tests: the frame's number stands in the picture as eight black or white stripes."""

from fractions import Fraction

import av
import numpy as np

WIDTH, HEIGHT = 64, 48


def striped(number):
    stripes = np.repeat([255 * (number >> bit & 1) for bit in range(8)], 8).astype(np.uint8)
    return np.broadcast_to(stripes[None, :, None], (HEIGHT, WIDTH, 3)).copy()


def number_in(picture):
    stripes = np.asarray(picture)[..., 1].reshape(HEIGHT, 8, 8).mean((0, 2)) > 128
    return int((stripes * 2 ** np.arange(8)).sum())


def write_film(path, pictures, rate=30, times_ms=None, codec="mpeg4", **options):
    """A video of RGB arrays; `times_ms` gives each frame its own time stamp. Browsers do not play mpeg4, but libvpx."""
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream(codec, rate=1000 if times_ms is not None else rate, options={"g": "12"})
        for k, picture in enumerate(pictures):
            if k == 0:
                stream.width, stream.height, stream.pix_fmt = picture.shape[1], picture.shape[0], "yuv420p"
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            if times_ms is not None:
                frame.pts, frame.time_base = times_ms[k], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path
