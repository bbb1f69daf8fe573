"""Frames of a video: all of them, upright, at their true times; and what happens to videos that are not whole."""

import gc
import struct
import subprocess
import sys
import warnings
import weakref

import av
import numpy as np
import pytest
from PIL import Image
from video.films import HEIGHT, WIDTH, grey_jpeg, number_in, striped, write_film, write_jpegs, write_latin_1

from di2pose.data.frames import Video, video_frames
from di2pose.errors import InputError
from di2pose.video.stream import BrokenVideoWarning, Stream, TimeStampWarning

FRAMES = 60


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    folder = tmp_path_factory.mktemp("film")
    return write_film(folder / "film.mp4", [striped(k) for k in range(FRAMES)], movflags="faststart")


def test_every_frame_comes_once_with_its_time(film):
    stream = Stream(film)
    frames = list(stream)
    assert [frame.index for frame in frames] == list(range(FRAMES))
    assert [number_in(frame.picture) for frame in frames] == list(range(FRAMES))
    np.testing.assert_allclose([frame.time_s for frame in frames], np.arange(FRAMES) / 30, atol=1e-6)
    assert (stream.fps, stream.expected, stream.broken) == (30.0, FRAMES, None)
    assert [frame.index for frame in stream] == list(range(FRAMES)), "a second run starts again"


def test_every_start_and_stop(film):
    stream = Stream(film, every=4, start=0.5, stop=1.5)
    frames = list(stream)
    assert [number_in(frame.picture) for frame in frames] == [frame.index for frame in frames] == [*range(15, 45, 4)]
    assert frames[0].time_s == pytest.approx(0.5)
    assert stream.fps == 7.5
    assert stream.expected == len(frames)
    assert stream.broken is None


def test_a_variable_frame_rate_keeps_its_true_times_and_its_pictures_are_found_again(tmp_path):
    steps = np.random.default_rng(0).choice([8, 16, 33, 120], 40)
    times = np.concatenate([[0], np.cumsum(steps)]).tolist()
    path = write_film(tmp_path / "phone.mp4", [striped(k) for k in range(len(times))], times_ms=times)
    frames = list(Stream(path))
    np.testing.assert_allclose([frame.time_s for frame in frames], np.array(times) / 1000, atol=1e-3)
    again = Video(path)
    for number in (0, 1, 2, 30, 40, 7, 39):
        assert number_in(again.frame(number)) == number == frames[number].index


def test_time_stamps_that_stand_still_are_moved_on(tmp_path):
    path = write_film(tmp_path / "odd.ts", [striped(k) for k in range(30)])
    data = bytearray(path.read_bytes())
    times = [frame.time_s for frame in Stream(path)]
    assert np.diff(times).min() > 0.03
    stamp = None
    for at in range(0, len(data), 188):  # repeat the first time stamp in every picture's header
        start = data.find(b"\x00\x00\x01\xe0", at, at + 188)
        if start >= 0 and data[at + 1] & 0x40:
            stamp = stamp or data[start + 9 : start + 14]
            data[start + 9 : start + 14] = stamp
    path.write_bytes(data)
    with pytest.warns(TimeStampWarning, match="30 frames a second, as its codec says"):
        frames = list(Stream(path))
    assert len(frames) == 30
    np.testing.assert_allclose([frame.time_s for frame in frames], np.arange(30) / 30, atol=1e-6)


def write_still_stamps(path, frames):
    """A video in which every frame has the time 0."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        pictures = [av.VideoFrame.from_ndarray(striped(k), format="rgb24") for k in range(frames)]
        for packet in [packet for picture in (*pictures, None) for packet in stream.encode(picture)]:
            packet.pts = packet.dts = packet.duration = 0
            container.mux(packet)
    return path


@pytest.mark.parametrize("ending", ["mp4", "mkv", "ts"])
def test_a_clip_whose_time_stamps_are_all_0_has_the_rate_of_its_codec_and_not_1200(tmp_path, ending):
    path = write_still_stamps(tmp_path / f"zero.{ending}", 40)
    stream = Stream(path)
    assert stream.fps == 30
    with pytest.warns(TimeStampWarning, match="stand still: taken as 30 frames a second, as its codec says"):
        frames = list(stream)
    assert [number_in(frame.picture) for frame in frames] == list(range(40))
    np.testing.assert_allclose([frame.time_s for frame in frames], np.arange(40) / 30, atol=1e-6)
    again = Video(path)
    assert [number_in(again.frame(number)) for number in (0, 1, 30, 7, 39)] == [0, 1, 30, 7, 39]


def test_the_rotation_tag_of_a_phone_is_obeyed(film, tmp_path):
    data = bytearray(film.read_bytes())
    at = data.index(b"tkhd") + 44
    data[at : at + 36] = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 48 << 16, 0, 1 << 30)
    (tmp_path / "phone.mp4").write_bytes(data)
    frame = list(Stream(tmp_path / "phone.mp4"))[5]
    assert frame.picture.size == (48, 64)
    stripes = np.asarray(frame.picture)[..., 1].reshape(8, 8, 48).mean((1, 2)) > 128
    assert stripes.tolist() == [bool(5 >> bit & 1) for bit in range(8)], "the stored left edge belongs on top"


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """Videos of noise, which does not compress: their bytes are spread evenly over time."""
    folder = tmp_path_factory.mktemp("noisy")
    pictures = np.random.default_rng(0).integers(0, 255, (FRAMES, 96, 128, 3), dtype=np.uint8)
    for name in ("a.mp4", "a.mkv", "a.ts", "a.avi"):
        write_film(folder / name, pictures, **({"movflags": "faststart"} if name == "a.mp4" else {}))
    return folder


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts", "a.avi"])
def test_a_video_that_breaks_off_gives_what_there_is_and_says_so(noisy, tmp_path, name):
    data = (noisy / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) * 6 // 10])
    stream = Stream(tmp_path / name)
    with pytest.warns(BrokenVideoWarning, match=f"{name} is not whole"):
        frames = list(stream)
    assert 25 < len(frames) < 40
    assert [frame.index for frame in frames] == list(range(len(frames)))
    assert stream.broken is not None
    assert stream.broken.frames == len(frames)
    assert "Copy or export it again" in str(stream.broken)


def test_a_video_with_a_hole_goes_on_after_it(noisy, tmp_path):
    data = bytearray((noisy / "a.mp4").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8000] = bytes(8000)
    (tmp_path / "hole.mp4").write_bytes(data)
    stream = Stream(tmp_path / "hole.mp4")
    with pytest.warns(BrokenVideoWarning):
        frames = list(stream)
    assert stream.broken is not None
    assert stream.broken.damaged >= 1
    assert frames[-1].index == FRAMES - 1
    assert frames[-1].time_s == pytest.approx((FRAMES - 1) / 30, abs=0.01)
    assert len(frames) + stream.broken.damaged == FRAMES


def test_a_break_behind_the_wanted_part_does_not_matter(noisy, tmp_path):
    data = (noisy / "a.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(data[: len(data) * 6 // 10])
    stream = Stream(tmp_path / "cut.mp4", stop=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(stream)) == 15
    assert stream.broken is None


def test_a_file_without_its_index_is_refused_with_a_reason(tmp_path):
    path = write_film(tmp_path / "late.mp4", [striped(k) for k in range(30)])
    path.write_bytes(path.read_bytes()[:-200])  # here the index stands at the end
    with pytest.raises(InputError, match=r"late\.mp4.*Copy or export it again"):
        Stream(path)


def test_what_is_no_video_is_refused(tmp_path):
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(InputError, match=r"cannot read .*text\.mp4"):
        Stream(tmp_path / "text.mp4")
    with pytest.raises(InputError, match="no video file at"):
        Stream(tmp_path / "gone.mp4")
    with av.open(str(tmp_path / "sound.wav"), "w") as container:
        sound = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), dtype=np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(sound.encode(frame))
        container.mux(sound.encode())
    with pytest.raises(InputError, match="no video stream"):
        Stream(tmp_path / "sound.wav")


def test_wrong_options_and_a_missing_camera_are_refused(film):
    with pytest.raises(InputError, match=r"ends after 2\.00 s, before start = 5"):
        list(Stream(film, start=5.0))
    for options in ({"every": 0}, {"start": -1.0}, {"start": 2.0, "stop": 1.0}):
        with pytest.raises(InputError, match="every >= 1"):
            Stream(film, **options)
    with pytest.raises(InputError, match="camera 87 there"):
        Stream(87)


def test_frames_are_not_kept(film):
    """However long the video: only the frame in hand and the next one are alive."""
    given: list[weakref.ref[Image.Image]] = []
    most = 0
    for frame in Stream(film):
        given.append(weakref.ref(frame.picture))
        gc.collect(0)
        most = max(most, sum(picture() is not None for picture in given))
    assert most <= 2


@pytest.mark.parametrize("ending", ["mp4", "mkv", "avi"])
def test_a_title_that_is_not_utf_8_does_not_matter(tmp_path, ending):
    path = write_latin_1(tmp_path / f"a.{ending}")
    assert [number_in(frame.picture) for frame in Stream(path)] == [0, 1, 2]
    assert number_in(Video(path).frame(2)) == 2
    assert video_frames(path) in (3, None)


def test_a_frame_that_is_too_large_counts_as_damaged(tmp_path):
    path = write_jpegs(tmp_path / "a.avi", [grey_jpeg(*size) for size in ((64, 32), (64, 32), (640, 320), (64, 32))])
    stream = Stream(path, most_pixels=64 * 32)
    with pytest.warns(BrokenVideoWarning, match="3 frames could be read, 1 damaged ones were left out"):
        assert [(frame.index, frame.picture.size) for frame in stream] == [(k, (64, 32)) for k in (0, 1, 3)]
    assert stream.oversized
    assert [frame.picture.width for frame in Stream(path)] == [64, 64, 640, 64]
    with pytest.warns(BrokenVideoWarning), pytest.raises(InputError, match="more than 100 pixels: export it smaller"):
        list(Stream(path, most_pixels=100))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads its peak memory from /proc")
def test_a_frame_that_is_too_large_is_not_unpacked(tmp_path):
    """A child process reads a video whose third frame has 16,000 x 16,000 pixels, 768 MB as RGB."""
    small = grey_jpeg(64, 32)
    path = write_jpegs(tmp_path / "a.avi", [small, small, grey_jpeg(16_000, 16_000), small])
    script = (
        "import sys, warnings; from pathlib import Path; from di2pose.video.stream import Stream\n"
        "from di2pose.data.frames import Video; from di2pose.errors import InputError\n"
        "warnings.simplefilter('ignore'); path = Path(sys.argv[1])\n"
        "print([frame.index for frame in Stream(path)])\n"
        "try: Video(path).frame(2)\n"
        "except InputError as error: print(error)\n"
        "lines = Path('/proc/self/status').read_text().splitlines()\n"
        "print(next(int(line.split()[1]) // 1024 for line in lines if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    frames, error, megabytes = done.stdout.splitlines()
    assert frames == "[0, 1, 3]"
    assert "frame 2 of" in error
    assert int(megabytes) < 250
