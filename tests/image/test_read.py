"""Reading image files, good and bad."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.read import count_frames, decode_image, exif_focal, header_size, read_image, read_photo


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


@pytest.mark.parametrize(("name", "factor"), [("grey.png", 65535), ("grey.tif", 65535), ("float.tif", 1)])
def test_sixteen_bits_and_floats_keep_their_range(tmp_path, name, factor):
    ramp = np.linspace(0, 1, 40 * 40, dtype=np.float32).reshape(40, 40)
    Image.fromarray(np.uint16(factor * ramp) if factor > 1 else ramp).save(tmp_path / name)
    pixels = np.asarray(read_image(tmp_path / name)).astype(int)
    assert (pixels[0, 0, 0], pixels[-1, -1, 0]) == (0, 255)
    assert np.abs(pixels[..., 1] - 255 * ramp).max() < 1.5


@pytest.fixture
def heic(tmp_path):
    """A ramp of 240x320 as a phone stores it: lying, with the turn beside it, and a lens of 26 mm."""
    pillow_heif = pytest.importorskip("pillow_heif", reason="HEIC: pip install pillow-heif")
    exif, ramp = Image.Exif(), np.linspace(0, 255, 240 * 320).reshape(240, 320).astype(np.uint8)
    exif[0x0112], exif.get_ifd(0x8769)[0xA405] = 6, 26
    file = pillow_heif.from_pillow(Image.fromarray(np.stack([ramp, ramp[::-1], ramp[:, ::-1]], -1)))
    file.info["exif"] = exif.tobytes()
    file.save(tmp_path / "IMG_1.HEIC", quality=95)
    return tmp_path / "IMG_1.HEIC"


def test_heic_keeps_its_turn_its_lens_and_the_limits(tmp_path, heic):
    photo = read_photo(heic)
    assert (photo.size, photo.picture.size, photo.note) == ((240, 320), (240, 320), "")
    assert exif_focal(photo.picture).mm_35 == 26
    ramp = np.linspace(0, 255, 240 * 320).reshape(240, 320)
    assert np.abs(np.asarray(photo.picture)[..., 0] - np.rot90(ramp, -1)).mean() < 4
    content = heic.read_bytes()
    assert header_size(content, ("JPEG",)) == decode_image(content, ("JPEG",)).size == (240, 320)
    with pytest.raises(InputError, match=r"240x320 are 0 megapixels, 0\.05 are allowed"):
        read_photo(heic, most_megapixels=0.05)
    (tmp_path / "cut.jpg").write_bytes(content[: len(content) // 2])  # by its content, not its name
    with pytest.raises(InputError, match=r"cut\.jpg is not an image that can be read"):
        read_photo(tmp_path / "cut.jpg")


def test_heic_without_its_package_names_the_extra(heic, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(InputError, match=r"IMG_1.HEIC is HEIC, .* pip install 'di2pose\[heic\]', or .* as JPEG"):
        read_photo(heic)


def test_a_moving_picture_gives_its_first_frame_and_says_so(tmp_path, photo):
    frames = [photo.rotate(90 * k).convert("P") for k in range(3)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    read = read_photo(tmp_path / "a.gif")
    assert read.note == "first of 3 frames"
    (tmp_path / "text.gif").write_text("no picture")
    assert [count_frames(tmp_path / name) for name in ("a.gif", "text.gif")] == [3, 1]
    assert np.array_equal(np.asarray(read.picture), np.asarray(frames[0].convert("RGB")))
    assert read_photo(tmp_path / "a.gif").scale == (1.0, 1.0)


@pytest.fixture
def half_a_megapixel(monkeypatch):
    """Pictures of more pixels are shrunk."""
    monkeypatch.setattr("di2pose.image.read.SHRINK_FROM", 0.5)


def test_a_bomb_is_refused_and_a_large_phone_photo_is_not(tmp_path, half_a_megapixel):
    Image.new("1", (14000, 14000)).save(tmp_path / "bomb.png")
    for read in (read_image, read_photo):
        with pytest.raises(InputError, match=r"bomb\.png is too large to be unpacked .*196000000 pixels"):
            read(tmp_path / "bomb.png")
    Image.new("1", (900, 600)).save(tmp_path / "large.png")
    assert read_image(tmp_path / "large.png").size == (900, 600)
    small = read_photo(tmp_path / "large.png")
    assert (small.picture.size, small.size, small.scale) == ((450, 300), (900, 600), (2.0, 2.0))
    with pytest.raises(InputError, match=r"900x600 are 1 megapixels, 0\.4 are allowed"):
        read_photo(tmp_path / "large.png", most_megapixels=0.4)


@pytest.mark.parametrize("progressive", [False, True])
def test_a_large_jpeg_is_shrunk_as_it_is_read_and_turned(tmp_path, progressive, half_a_megapixel):
    exif = Image.Exif()
    exif[0x0112] = 8
    dot = Image.new("L", (900, 600), 40)
    dot.paste(220, (450, 0, 900, 600))  # the right half is bright: turned by 8, the upper
    dot.save(tmp_path / "huge.jpg", exif=exif, quality=30, progressive=progressive)
    photo = read_photo(tmp_path / "huge.jpg")
    assert (photo.size, photo.picture.size, photo.note) == ((600, 900), (300, 450), "600x900 shrunk to 300x450")
    assert photo.picture.getpixel((10, 10))[0] > 150 > photo.picture.getpixel((10, 440))[0]


def progressive_jpeg(scans, **options):
    """The last scan of the (first) picture is repeated."""
    data = io.BytesIO()
    Image.linear_gradient("L").resize((64, 48)).convert("RGB").save(data, progressive=True, **options)
    whole = data.getvalue()
    end = whole.index(b"\xff\xd9")
    last = whole.rindex(b"\xff\xda", 0, end)
    return whole[:last] + whole[last:end] * scans + whole[end:]


@pytest.mark.parametrize("options", [{"format": "JPEG"}, {"format": "MPO", "save_all": True}])
def test_an_upload_of_very_many_scans_is_refused_before_it_is_decoded(options):
    if options["format"] == "MPO":
        options = options | {"append_images": [Image.new("RGB", (64, 48))]}
    with pytest.raises(InputError, match="more than 100 scans"):
        decode_image(progressive_jpeg(120, **options), ("JPEG", "MPO"))
    assert decode_image(progressive_jpeg(60, **options), ("JPEG", "MPO")).size == (64, 48)


def test_only_scans_of_the_picture_itself_are_counted(photo):
    """What stands in a comment, and in the other pictures of an MPO, is none; nor are restart markers."""
    one, several = io.BytesIO(), io.BytesIO()
    photo.save(one, "JPEG", progressive=True, comment=b"\xff\xda\0\x02" * 300, restart_marker_blocks=1)
    photo.save(several, "MPO", save_all=True, append_images=[photo] * 20, progressive=True)
    for content in (one.getvalue(), several.getvalue()):
        assert content.count(b"\xff\xda") > 100
        assert decode_image(content, ("JPEG", "MPO")).size == photo.size
