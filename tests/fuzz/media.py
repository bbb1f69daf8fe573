"""Pictures and videos."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz.corpus import add
from PIL import Image


def picture(folder: Path, name: str, mode: str = "RGB", **options: Any) -> None:
    rng = np.random.default_rng(0)
    shape = (40, 48, len(mode)) if len(mode) > 1 and mode != "I;16" else (40, 48)
    pixels = rng.integers(0, 256, shape).astype(np.uint16 if mode == "I;16" else np.uint8)
    image = Image.fromarray(pixels, None if mode == "I;16" else mode)
    if name.endswith((".jpg", ".webp")):
        exif = Image.Exif()
        exif[0x0112] = 6
        exif.get_ifd(0x8769)[0xA405] = 28
        options["exif"] = exif
    image.save(folder / name, **options)


def _readpicture(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from di2pose.image.read import read_image, read_photo

        read_image(folder / name).tobytes()
        return read_photo(folder / name).picture.tobytes()

    return read


for _name, _mode, _options in (
    ("a.jpg", "RGB", {}), ("p.jpg", "RGB", {"progressive": True}), ("a.png", "RGBA", {}), ("g.png", "I;16", {}),
    ("a.webp", "RGB", {}), ("a.gif", "L", {}), ("a.tif", "RGB", {"compression": "tiff_lzw"}), ("a.bmp", "RGB", {}),
):  # fmt: skip
    add(
        f"picture {_name}", _name,
        lambda folder, name=_name, mode=_mode, options=_options: picture(folder, name, mode, **options),
        _readpicture(_name),
    )  # fmt: skip


def _make_video(folder: Path, name: str, codec: str) -> None:
    import av

    rng = np.random.default_rng(0)
    with av.open(str(folder / name), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height = 64, 48
        stream.codec_context.gop_size = 4
        for _ in range(8):
            picture = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((64, 48))
            container.mux(stream.encode(av.VideoFrame.from_image(picture)))
        container.mux(stream.encode())


def _read_video(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from di2pose.data.frames import Video, video_frames
        from di2pose.errors import InputError
        from di2pose.video.stream import Stream

        seen = 0
        try:
            stream = Stream(folder / name)
            assert stream.expected is None or stream.expected >= 1
            assert 0 < stream.fps < float("inf")
            for frame in stream:
                seen += frame.picture.width > 0
                if seen == 40:
                    break
        except InputError:
            pass
        video_frames(folder / name)
        video = Video(folder / name)
        try:
            for number in (0, 5, 2):
                video.frame(number)
        finally:
            video.close()
        return seen

    return read


for _name, _codec in (("a.mp4", "mpeg4"), ("a.avi", "mpeg4"), ("a.mkv", "mpeg4")):
    add(
        f"video {_name}",
        _name,
        lambda folder, n=_name, c=_codec: _make_video(folder, n, c),
        _read_video(_name),
        count=40,
    )
