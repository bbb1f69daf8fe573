"""The camera of a picture: the user's, the file's, or an assumed one; and it is said which."""

import math

import numpy as np
import pytest
from PIL import Image
from PIL.ExifTags import IFD, Base

from di2pose.image.read import FILM_DIAGONAL_MM, exif_focal, read_image, read_photo
from di2pose.pipeline.request import ImageRequest, open_query
from di2pose.pose.camera import Camera

PHONE = {Base.FocalLengthIn35mmFilm: 26, Base.ExifImageWidth: 4000, Base.ExifImageHeight: 3000}


def exif(tags, orientation=1):
    block = Image.Exif()
    block[Base.Orientation] = orientation
    block.get_ifd(IFD.Exif).update(tags)
    return block


def query(image, camera=None, field_of_view=None):
    return open_query(ImageRequest(image, None, ()), camera, field_of_view)


def write(path, tags, size=(400, 300), orientation=1):
    Image.new("RGB", size, "grey").save(path, exif=exif(tags, orientation).tobytes())
    return path


@pytest.mark.parametrize("ending", ["jpg", "png", "tiff", "webp"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_the_35_mm_equivalent_is_read_and_scaled_to_the_pixels(tmp_path, ending, orientation):
    path = write(tmp_path / f"a.{ending}", PHONE, orientation=orientation)
    with Image.open(path) as opened:
        queries = [query(image) for image in (path, str(path), opened, read_image(path), read_photo(path).picture)]
    for found in queries:
        assert found.picture.size == ((400, 300) if orientation == 1 else (300, 400))
        assert found.camera.focal == pytest.approx((26 / FILM_DIAGONAL_MM * 500,) * 2)
        assert found.camera.centre == (found.picture.width / 2, found.picture.height / 2)
        assert found.camera_source == "EXIF focal length (26 mm equivalent)"


def test_the_focal_length_and_the_sensor_s_own_pixels_are_as_good(tmp_path):
    """A full frame camera: 36 mm across 6000 pixels; the file was shrunk to 600."""
    tags = {Base.FocalLength: 50.0, Base.FocalPlaneXResolution: 6000 / 3.6, Base.FocalPlaneResolutionUnit: 3,
            Base.ExifImageWidth: 6000, Base.ExifImageHeight: 4000}  # fmt: skip
    found = query(write(tmp_path / "a.jpg", tags, (600, 400)))
    assert found.camera.focal[0] == pytest.approx(50 / 36 * 600, rel=1e-4)
    assert found.camera_source == "EXIF focal length (50 mm equivalent)"
    inches = {**tags, Base.FocalPlaneXResolution: 6000 / 36 * 25.4, Base.FocalPlaneResolutionUnit: 2}
    found = query(write(tmp_path / "b.jpg", inches, (600, 400)))
    assert found.camera.focal[0] == pytest.approx(50 / 36 * 600, rel=1e-4)


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {Base.FocalLengthIn35mmFilm: 0},
        {Base.FocalLengthIn35mmFilm: 1},
        {Base.FocalLengthIn35mmFilm: 5000},
        {Base.FocalLength: 4.2},
        {Base.FocalLength: 4.2, Base.FocalPlaneXResolution: 0.0, Base.ExifImageWidth: 400, Base.ExifImageHeight: 300},
        {Base.FocalLength: 4.2, Base.FocalPlaneXResolution: 900.0, Base.FocalPlaneResolutionUnit: 77,
         Base.ExifImageWidth: 400, Base.ExifImageHeight: 300},
    ],
)  # fmt: skip
def test_nonsense_in_the_tags_is_no_focal_length(tmp_path, tags):
    found = query(write(tmp_path / "a.jpg", tags))
    assert found.camera_source == "assumed 60 degrees"
    assert found.camera.focal[0] == pytest.approx(200 / math.tan(math.radians(30)))


@pytest.mark.parametrize(
    ("size", "in_file"), [((200, 300), (4000, 3000)), ((300, 300), (300, 300)), ((900, 300), (900, 300))]
)
def test_a_cut_or_stitched_picture_does_not_use_it_and_says_so(tmp_path, size, in_file):
    tags = {**PHONE, Base.ExifImageWidth: in_file[0], Base.ExifImageHeight: in_file[1]}
    source = query(write(tmp_path / "a.jpg", tags, size)).camera_source
    assert source == "assumed 60 degrees (EXIF focal length not used: the picture was cut or stitched)"


def test_a_picture_cut_after_reading_does_not_use_it(tmp_path):
    picture = read_image(write(tmp_path / "a.jpg", PHONE))
    assert "not used" in query(picture.crop((0, 0, 200, 290))).camera_source
    assert query(picture.resize((200, 150))).camera_source == "EXIF focal length (26 mm equivalent)"


def test_what_the_user_says_comes_first_and_arrays_tell_nothing(tmp_path):
    path = write(tmp_path / "a.jpg", PHONE)
    camera = Camera((500.0, 500.0), (200.0, 150.0), (400, 300))
    assert (query(path, camera).camera, query(path, camera).camera_source) == (camera, "given")
    by_angle = query(path, field_of_view=90)
    assert by_angle.camera.focal[0] == pytest.approx(200)
    assert by_angle.camera_source == "field of view given"
    assert query(np.zeros((300, 400, 3), np.uint8)).camera_source == "assumed 60 degrees"


def test_a_damaged_exif_block_is_no_reason_to_refuse_a_photo(tmp_path):
    path = write(tmp_path / "a.jpg", PHONE)
    data = bytearray(path.read_bytes())
    start = data.index(b"Exif\0\0") + 6
    end = start - 8 + int.from_bytes(data[start - 8 : start - 6], "big")
    for seed in range(20):
        damaged = bytearray(data)
        for at in np.random.default_rng(seed).integers(start, end, 6):
            damaged[at] = seed * 37 % 256
        path.write_bytes(damaged)
        assert query(path).camera_source


def test_a_photo_of_many_megapixels_keeps_its_focal_length(tmp_path, monkeypatch):
    monkeypatch.setattr("di2pose.image.read.SHRINK_FROM", 0.05)
    photo = read_photo(write(tmp_path / "a.jpg", PHONE))
    assert photo.picture.width < 400
    assert exif_focal(photo.picture).pixels(photo.picture.size) == pytest.approx(
        26 / FILM_DIAGONAL_MM * math.hypot(*photo.picture.size)
    )
