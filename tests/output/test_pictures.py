"""The picture behind a result: from pixels, from a photo's file, from a video."""

import base64
import io

import av
import numpy as np
import pytest
from output.people import SIZE, person, result
from PIL import Image

from di2pose.errors import InputError
from di2pose.output.overlay import data_uri, photo_of, photos_of
from di2pose.result import Motion


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """Frame k is grey 20 k."""
    path = tmp_path_factory.mktemp("video") / "v.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for k in range(10):
            picture = np.full((SIZE[1], SIZE[0], 3), 20 * k, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def test_frames_of_a_video_are_decoded_where_they_belong(video):
    frames = [result([], image=str(video), frame_index=k) for k in (2, 3, 7)]
    means = [np.asarray(photo).mean() for photo in photos_of(frames)]
    np.testing.assert_allclose(means, [40, 60, 140], atol=4)


def test_the_page_of_a_video_holds_its_frames(video, tmp_path):
    frames = [result([person(k, track=0)], image=str(video), frame_index=k) for k in range(10)]
    Motion(frames, fps=25.0).save(tmp_path / "v.html")
    text = (tmp_path / "v.html").read_text(encoding="utf-8")
    assert "<title>v.mp4</title>" in text
    photos = text.split('"photo":"data:image/jpeg;base64,')[1:]
    means = [np.asarray(Image.open(io.BytesIO(base64.b64decode(p.split('"')[0])))).mean() for p in photos]
    np.testing.assert_allclose(means, 20 * np.arange(10), atol=4)


def test_a_phone_photo_is_upright(tmp_path):
    lying = Image.new("RGB", (480, 640))
    exif = lying.getexif()
    exif[0x0112] = 6
    lying.save(tmp_path / "p.jpg", exif=exif)
    photo = photo_of(result([], image=str(tmp_path / "p.jpg")))
    assert photo.size == SIZE


def test_pixels_that_came_along_go_before_the_file():
    shown = Image.new("RGB", SIZE, (1, 2, 3))
    assert photo_of(result([], image="gone.jpg", picture=shown)) is shown
    assert photo_of(result([])) is None


def test_a_photo_that_was_exchanged_is_refused(tmp_path):
    Image.new("RGB", (100, 100)).save(tmp_path / "p.png")
    with pytest.raises(InputError, match="it is another picture now"):
        photo_of(result([], image=str(tmp_path / "p.png")))


def test_an_embedded_photo_is_shrunk_and_the_original_is_not():
    photo = Image.new("RGB", (3000, 1500), (200, 10, 10))
    head, _, code = data_uri(photo, 1280, 85).partition(",")
    assert head == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(code))).size == (1280, 640)
    assert photo.size == (3000, 1500)
