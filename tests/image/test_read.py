"""Reading image files, good and bad."""

import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.read import read_image


@pytest.fixture
def photo():
    ramp = np.linspace(0, 255, 40 * 60).reshape(40, 60).astype(np.uint8)
    return Image.fromarray(np.stack([ramp, ramp[::-1], ramp[:, ::-1]], -1))


def test_exif_orientation_is_applied(tmp_path, photo):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to show
    photo.save(tmp_path / "a.png", exif=exif)
    turned = read_image(tmp_path / "a.png")
    assert turned.size == (40, 60)
    assert np.array_equal(np.asarray(turned), np.rot90(np.asarray(photo), -1))


@pytest.mark.parametrize(
    ("mode", "suffix"), [("CMYK", "jpg"), ("L", "png"), ("P", "png"), ("RGBA", "png"), ("1", "png")]
)
def test_other_colour_modes_become_rgb(tmp_path, photo, mode, suffix):
    photo.convert(mode).save(tmp_path / f"a.{suffix}")
    assert read_image(tmp_path / f"a.{suffix}").mode == "RGB"


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    ramp = np.linspace(0, 65535, 40 * 40).reshape(40, 40).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "a.png")
    pixels = np.asarray(read_image(tmp_path / "a.png"))
    assert np.array_equal(pixels[..., 0], (ramp // 257).astype(np.uint8))


def test_damaged_or_foreign_files_are_named(tmp_path, photo):
    photo.resize((600, 400)).save(tmp_path / "whole.jpg")
    data = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(data[: len(data) // 2])
    (tmp_path / "text.jpg").write_text("not a picture")
    (tmp_path / "empty.png").write_bytes(b"")
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    for name, words in {
        "cut.jpg": "damaged",
        "text.jpg": "not an image",
        "empty.png": "not an image",
        "dot.png": "1x1",
        "nowhere.png": "no image file",
    }.items():
        with pytest.raises(InputError, match=words) as caught:
            read_image(tmp_path / name)
        assert name in str(caught.value)


def test_a_bomb_is_refused_and_a_large_phone_photo_is_not(tmp_path):
    Image.new("1", (14000, 14000)).save(tmp_path / "bomb.png")
    with pytest.raises(InputError, match="too large"):
        read_image(tmp_path / "bomb.png")
    Image.new("1", (12000, 9000)).save(tmp_path / "large.png")
    assert read_image(tmp_path / "large.png").size == (12000, 9000)
