"""Small real videos for the tests: the frame's number stands in the picture as eight black or white stripes."""

import io
import struct
from fractions import Fraction

import av
import numpy as np
from PIL import Image

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


def grey_jpeg(width, height):
    """Of any size, a multiple of 32 each, quickly: every block is the same six bits."""
    data = io.BytesIO()
    Image.new("L", (32, 32), 128).save(data, "JPEG")
    whole = data.getvalue()
    size, scan = whole.index(b"\xff\xc0") + 5, whole.index(b"\xff\xda") + 10
    head = whole[:size] + struct.pack(">HH", height, width) + whole[size + 4 : scan]
    return head + b"\x28\xa2\x8a" * (width * height // 256) + b"\xff\xd9"


def write_jpegs(path, jpegs):
    """A video (AVI) of the files of its frames, which may differ in size."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 32, "yuvj420p"
        for k, jpeg in enumerate(jpegs):
            packet = av.Packet(jpeg)
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, 10), True
            packet.pts = packet.dts = k
            container.mux(packet)
    return path


def write_latin_1(path):
    """A video of three frames whose title is not UTF-8."""
    with av.open(str(path), "w") as container:
        container.metadata["title"] = "Andr#"
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for k in range(3):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(striped(k), format="rgb24")))
        container.mux(stream.encode())
    data = path.read_bytes()
    assert data.count(b"Andr#") == 1
    path.write_bytes(data.replace(b"Andr#", b"Andr\xe9"))
    return path
