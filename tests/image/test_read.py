"""Reading image files, good and bad."""

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.read import decode_image, read_image, read_photo


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


def test_what_is_transparent_is_white(tmp_path, photo):
    layer = photo.copy()
    layer.putalpha(Image.linear_gradient("L").resize(photo.size).point(lambda v: 255 * (v > 127)))
    layer.save(tmp_path / "cut.png")
    pixels = np.asarray(read_image(tmp_path / "cut.png"))
    assert (pixels[:20] == 255).all()
    assert np.array_equal(pixels[20:], np.asarray(photo)[20:])
    layer.convert("P").save(tmp_path / "cut.gif", transparency=0)
    assert read_image(tmp_path / "cut.gif").mode == "RGB"


def test_sixteen_bits_of_tiff_and_floats_keep_their_range(tmp_path):
    ramp = np.linspace(0, 1, 40 * 40, dtype=np.float32).reshape(40, 40)
    Image.fromarray(np.uint16(65535 * ramp)).save(tmp_path / "grey.tif")
    Image.fromarray(ramp).save(tmp_path / "float.tif")
    for name in ("grey.tif", "float.tif"):
        pixels = np.asarray(read_image(tmp_path / name)).astype(int)
        assert (pixels[0, 0, 0], pixels[-1, -1, 0]) == (0, 255)
        assert np.abs(pixels[..., 1] - 255 * ramp).max() < 1.5


def test_a_moving_picture_gives_its_first_frame_and_says_so(tmp_path, photo):
    frames = [photo.rotate(90 * k).convert("P") for k in range(3)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    read = read_photo(tmp_path / "a.gif")
    assert read.note == "first of 3 frames"
    assert np.array_equal(np.asarray(read.picture), np.asarray(frames[0].convert("RGB")))
    assert read_photo(tmp_path / "a.gif").scale == (1.0, 1.0)


def test_a_bomb_is_refused_and_a_large_phone_photo_is_not(tmp_path):
    Image.new("1", (14000, 14000)).save(tmp_path / "bomb.png")
    for read in (read_image, read_photo):
        with pytest.raises(InputError, match="too large: 14000x14000 are 196 megapixels, 178 are allowed"):
            read(tmp_path / "bomb.png")
    Image.new("1", (12000, 9000)).save(tmp_path / "large.png")
    assert read_image(tmp_path / "large.png").size == (12000, 9000)
    small = read_photo(tmp_path / "large.png")
    assert (small.picture.size, small.size, small.scale) == ((6000, 4500), (12000, 9000), (2.0, 2.0))
    assert Image.MAX_IMAGE_PIXELS  # Pillow's own guard is in force again


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads its peak memory from /proc")
def test_a_jpeg_of_any_size_is_shrunk_as_it_is_read_with_its_memory(tmp_path):
    """A child process reads 20,000 x 20,000 pixels that are turned by EXIF; whole they would take 1.6 GB."""
    exif = Image.Exif()
    exif[0x0112] = 8
    dot = Image.new("L", (20000, 19000), 40)
    dot.paste(220, (10000, 0, 20000, 19000))  # the right half is bright: turned by 8, the upper
    dot.save(tmp_path / "huge.jpg", exif=exif, quality=30)
    dot.close()
    script = (
        "import sys; from pathlib import Path; from di2pose.image.read import read_photo\n"
        "photo = read_photo(sys.argv[1]); p = photo.picture\n"
        "print(photo.size, p.size, p.getpixel((100, 100))[0] > 150, p.getpixel((100, p.height - 100))[0] > 150)\n"
        "lines = Path('/proc/self/status').read_text().splitlines()\n"
        "print(next(int(line.split()[1]) // 1024 for line in lines if line.startswith('VmHWM')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "huge.jpg"], capture_output=True, text=True, check=True
    )
    said, megabytes = done.stdout.splitlines()
    assert said == "(19000, 20000) (4750, 5000) True False"
    assert int(megabytes) < 450
    dot = Image.new("L", (8000, 8000))
    dot.save(tmp_path / "progressive.jpg", progressive=True)
    assert read_photo(tmp_path / "progressive.jpg").picture.size == (4000, 4000)
    with pytest.raises(InputError, match="64 megapixels, 60 are allowed"):
        read_photo(tmp_path / "progressive.jpg", most_megapixels=60)


def progressive_jpeg(scans, **options):
    """The last scan of the (first) picture is repeated."""
    data = io.BytesIO()
    Image.linear_gradient("L").resize((64, 48)).convert("RGB").save(data, progressive=True, **options)
    whole = data.getvalue()
    end = whole.index(b"\xff\xd9")
    last = whole.rindex(b"\xff\xda", 0, end)
    return whole[:last] + whole[last:end] * scans + whole[end:]


@pytest.mark.parametrize("options", [{"format": "JPEG"}, {"format": "MPO", "save_all": True}])
def test_a_jpeg_of_very_many_scans_is_refused_before_it_is_decoded(tmp_path, options):
    if options["format"] == "MPO":
        options = options | {"append_images": [Image.new("RGB", (64, 48))]}
    (tmp_path / "a.jpg").write_bytes(progressive_jpeg(120, **options))
    for read in (read_image, read_photo):
        with pytest.raises(InputError, match=r"a\.jpg is a JPEG of more than 100 scans.*not progressive"):
            read(tmp_path / "a.jpg")
    with pytest.raises(InputError, match="more than 100 scans"):
        decode_image((tmp_path / "a.jpg").read_bytes(), ("JPEG",))
    (tmp_path / "a.jpg").write_bytes(progressive_jpeg(60, **options))
    assert read_photo(tmp_path / "a.jpg").picture.size == (64, 48)


def test_only_scans_of_the_picture_itself_are_counted(tmp_path, photo):
    """What stands in a comment, and in the other pictures of an MPO, is none; nor are restart markers."""
    photo.save(tmp_path / "a.jpg", progressive=True, comment=b"\xff\xda\0\x02" * 300, restart_marker_blocks=1)
    assert read_image(tmp_path / "a.jpg").size == photo.size
    photo.save(tmp_path / "b.mpo", save_all=True, append_images=[photo] * 20, progressive=True)
    assert (tmp_path / "b.mpo").read_bytes().count(b"\xff\xda") > 100
    assert read_image(tmp_path / "b.mpo").size == photo.size
