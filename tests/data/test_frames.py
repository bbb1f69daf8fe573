"""Pictures by reference: upright photos and exact video frames."""

import struct

import av
import numpy as np
import pytest
from PIL import Image

from di2pose.data.frames import Frames
from di2pose.errors import InputError

FRAMES = 130


@pytest.fixture(scope="module")
def footage(tmp_path_factory):
    """Videos whose frame number stands in the picture as eight black or white stripes; key frames are far apart."""
    folder = tmp_path_factory.mktemp("footage")
    for name in "abcdef":
        with av.open(str(folder / f"{name}.mp4"), "w") as container:
            stream = container.add_stream("mpeg4", rate=50, options={"g": "60"})
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            for number in range(FRAMES if name == "a" else 3):
                stripes = np.repeat([255 * (number >> bit & 1) for bit in range(8)], 8).astype(np.uint8)
                picture = np.broadcast_to(stripes[None, :, None], (48, 64, 3)).copy()
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
    return folder


def number_in(image: Image.Image) -> int:
    stripes = np.asarray(image)[..., 1].reshape(48, 8, 8).mean((0, 2)) > 128
    return int((stripes * 2 ** np.arange(8)).sum())


def test_frames_in_any_order_are_the_right_ones(footage):
    frames = Frames(footage)
    order = [0, 1, 2, 2, 30, 129, 3, 128, 75, 74, 0, *np.random.default_rng(0).integers(0, FRAMES, 8).tolist()]
    assert [number_in(frames.read(f"a.mp4#{number}")) for number in order] == order
    with pytest.raises(InputError, match=f"no frame {FRAMES}: it has {FRAMES} frames"):
        frames.read(f"a.mp4#{FRAMES}")
    frames.read("a.mp4#4").paste((255, 0, 0), (0, 0, 64, 48))
    assert number_in(frames.read("a.mp4#4")) == 4  # not the picture that was changed


def test_many_videos_in_turn(footage):
    frames = Frames(footage)
    for number in range(3):
        for name in "abcdef":
            image = frames.read(f"{name}.mp4#{number}")
            assert image.size == (64, 48)
            assert number_in(image) == number


def test_photos_are_turned_upright_and_made_rgb_and_a_hash_may_be_part_of_their_name(tmp_path):
    stored = Image.new("L", (40, 20), 10)
    stored.paste(200, (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to see it upright
    stored.save(tmp_path / "take#a.jpg", exif=exif, quality=95)
    image = Frames(tmp_path).read("take#a.jpg")
    assert (image.size, image.mode) == ((20, 40), "RGB")
    assert image.getpixel((10, 5))[0] > 150 > image.getpixel((10, 35))[0]


def test_a_video_that_a_phone_held_upright_is_turned(footage, tmp_path):
    """Phones store 'turn clockwise by 90 degrees' in the track header's matrix: the stored left edge belongs on top."""
    data = bytearray((footage / "a.mp4").read_bytes())
    at = data.index(b"tkhd") + 44
    data[at : at + 36] = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 48 << 16, 0, 1 << 30)
    (tmp_path / "phone.mp4").write_bytes(data)
    image = Frames(tmp_path).read("phone.mp4#5")
    assert image.size == (48, 64)
    stripes = np.asarray(image)[..., 1].reshape(8, 8, 48).mean((1, 2)) > 128
    assert stripes.tolist() == [bool(5 >> bit & 1) for bit in range(8)]


@pytest.mark.parametrize("reference", ["gone.jpg", "gone.mp4#3", "text.jpg", "text.mp4#0"])
def test_what_cannot_be_read_is_named(tmp_path, reference):
    for name in ("text.jpg", "text.mp4"):
        (tmp_path / name).write_text("not a picture")
    with pytest.raises(InputError, match=reference.partition("#")[0]):
        Frames(tmp_path).read(reference)
