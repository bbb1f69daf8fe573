"""Frames of a video: all of them, upright, at their true times; and what happens to videos that are not whole."""

import struct
import subprocess
import sys
import weakref

import av
import numpy as np
import pytest
from PIL import Image
from video.films import HEIGHT, WIDTH, grey_jpeg, number_in, striped, write_film, write_jpegs, write_latin_1

from di2pose.data import frames as frames_module
from di2pose.data.frames import Video, video_frames
from di2pose.errors import InputError
from di2pose.video import stream as stream_module
from di2pose.video.stream import BrokenVideoWarning, Stream, VideoBytes

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
    assert (stream.fps, stream.expected, stream.broken) == (30.0, FRAMES, "")
    alive, most = weakref.WeakSet(), 0
    for k, frame in enumerate(stream):  # a second run starts again; frames are not kept
        assert frame.index == k
        alive.add(frame)
        most = max(most, len(alive))
    assert most <= 2


def test_a_variable_frame_rate_keeps_its_true_times_and_its_pictures_are_found_again(tmp_path):
    steps = np.random.default_rng(0).choice([8, 16, 33, 120], 40)
    times = np.concatenate([[0], np.cumsum(steps)]).tolist()
    path = write_film(tmp_path / "phone.mp4", [striped(k) for k in range(len(times))], times_ms=times)
    frames = list(Stream(path))
    np.testing.assert_allclose([frame.time_s for frame in frames], np.array(times) / 1000, atol=1e-3)
    again = Video(path)
    for number in (0, 1, 2, 30, 40, 7, 39):
        assert number_in(again.frame(number)) == number == frames[number].index


@pytest.mark.parametrize("name", ["a.gif", "a.webp"])
def test_an_animation_has_the_times_of_its_frames(tmp_path, name):
    shown_ms = [100, 50, 200, 120, 100, 900]  # that the last one stays is not a video that breaks off
    frames = [Image.fromarray(striped(k + 1)) for k in range(6)]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], duration=shown_ms, lossless=True)
    stream = Stream(tmp_path / name)
    found = list(stream)
    assert [number_in(frame.picture) for frame in found] == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose([frame.time_s for frame in found], np.cumsum([0, *shown_ms[:-1]]) / 1000, atol=1e-6)
    assert (stream.name, stream.broken) == (str(tmp_path / name), "")
    assert stream.duration_s == pytest.approx(1.47)
    assert stream.fps == pytest.approx(6 / 1.47, rel=0.05)
    again = Video(tmp_path / name)
    assert [number_in(again.frame(k)) for k in (4, 1)] == [5, 2]
    again.close()


def test_a_damaged_or_huge_webp_is_refused(tmp_path, monkeypatch):
    frames = [Image.fromarray(striped(k)) for k in range(3)]
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:], duration=[0, 0, 0])
    assert [round(frame.time_s, 6) for frame in Stream(tmp_path / "a.webp")] == [0.0, 0.1, 0.2]  # as browsers do
    content = (tmp_path / "a.webp").read_bytes()
    (tmp_path / "b.webp").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"b\.webp is damaged and cannot be decoded"):
        Stream(tmp_path / "b.webp")
    monkeypatch.setattr(frames_module, "MOST_FRAME_PIXELS", 1000)
    with pytest.raises(InputError, match=r"a\.webp has frames of more than 1000 pixels"):
        Stream(tmp_path / "a.webp")


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
    frames = list(stream)
    assert [number_in(frame.picture) for frame in frames] == list(range(40))
    np.testing.assert_allclose([frame.time_s for frame in frames], np.arange(40) / 30, atol=1e-6)
    again = Video(path)
    assert [number_in(again.frame(number)) for number in (0, 30, 7)] == [0, 30, 7]


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
    for name in ("a.mp4", "a.mkv", "a.avi"):
        write_film(folder / name, pictures, **({"movflags": "faststart"} if name == "a.mp4" else {}))
    return folder


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.avi"])
def test_a_video_that_breaks_off_gives_what_there_is_and_says_so(noisy, tmp_path, name):
    data = (noisy / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) * 6 // 10])
    stream = Stream(tmp_path / name)
    with pytest.warns(BrokenVideoWarning, match=f"{name} is not whole"):
        frames = list(stream)
    assert 25 < len(frames) < 40
    assert [frame.index for frame in frames] == list(range(len(frames)))
    assert f"{len(frames)} frames could be read" in stream.broken
    assert "Copy or export it again" in stream.broken


def test_an_animation_that_breaks_off_says_so(tmp_path):
    pictures = np.random.default_rng(0).integers(0, 255, (6, 48, 64, 3), dtype=np.uint8)
    frames = [Image.fromarray(picture) for picture in pictures]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:], duration=100)
    data = (tmp_path / "a.gif").read_bytes()
    (tmp_path / "a.gif").write_bytes(data[: len(data) // 2])
    for source in (tmp_path / "a.gif", VideoBytes(data[: len(data) // 2], "gif")):
        stream = Stream(source)
        with pytest.warns(BrokenVideoWarning, match="is not whole: [23] frames could be read"):
            assert 2 <= len(list(stream)) <= 3


def test_a_video_with_a_hole_goes_on_after_it(noisy, tmp_path):
    data = bytearray((noisy / "a.mp4").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8000] = bytes(8000)
    (tmp_path / "hole.mp4").write_bytes(data)
    stream = Stream(tmp_path / "hole.mp4")
    with pytest.warns(BrokenVideoWarning):
        frames = list(stream)
    assert frames[-1].index == FRAMES - 1
    assert frames[-1].time_s == pytest.approx((FRAMES - 1) / 30, abs=0.01)
    assert len(frames) < FRAMES
    assert f", {FRAMES - len(frames)} damaged ones were left out" in stream.broken


def test_what_is_no_video_and_a_missing_camera_are_refused(tmp_path):
    path = write_film(tmp_path / "late.mp4", [striped(k) for k in range(30)])
    path.write_bytes(path.read_bytes()[:-200])  # here the index stands at the end
    with pytest.raises(InputError, match=r"late\.mp4.*Copy or export it again"):
        Stream(path)
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(InputError, match=r"cannot read .*text\.mp4"):
        Stream(tmp_path / "text.mp4")
    with pytest.raises(InputError, match="no video file at"):
        Stream(tmp_path / "gone.mp4")
    with pytest.raises(InputError, match="camera 87 there"):
        Stream(87)
    with av.open(str(tmp_path / "sound.wav"), "w") as container:
        sound = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), dtype=np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(sound.encode(frame))
        container.mux(sound.encode())
    with pytest.raises(InputError, match="no video stream"):
        Stream(tmp_path / "sound.wav")


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


@pytest.mark.parametrize(
    ("part", "numbers"),
    [
        ({"start_s": 1.5}, range(45, 60)),
        ({"end_s": 0.5}, range(15)),
        ({"start_s": 0.5, "end_s": 1.0}, range(15, 30)),
        ({"fps": 10}, range(0, 60, 3)),
        ({"fps": 20, "end_s": 0.2}, (0, 1, 3, 4)),
        ({"fps": 60, "start_s": 1.9}, (57, 58, 59)),
    ],
)
def test_a_part_has_the_numbers_and_times_of_the_whole(film, part, numbers):
    stream = Stream(film, **part)
    frames = list(stream)
    assert [number_in(frame.picture) for frame in frames] == [frame.index for frame in frames] == list(numbers)
    np.testing.assert_allclose([frame.time_s for frame in frames], np.array(numbers) / 30, atol=1e-6)
    assert (stream.fps, stream.broken) == (min(30, part.get("fps", 30)), "")
    assert stream.expected == pytest.approx(len(numbers), abs=1)


def test_what_is_before_the_key_frame_is_not_decoded(film, monkeypatch):
    seen = []
    real = stream_module.decoded
    monkeypatch.setattr(stream_module, "decoded", lambda *way: (seen.append(each) or each for each in real(*way)))
    assert [frame.index for frame in Stream(film, start_s=1.8, end_s=1.9)] == [54, 55, 56]
    assert len(seen) <= 12  # key frames are 12 apart


def test_a_part_of_a_variable_rate_is_numbered_by_its_place_and_one_without_stamps_is_counted(tmp_path):
    times = [0, 100, 130, 400, 420, 440, 900, 1000, 1010, 1500, 1510, 1520, 1530, 2000]
    path = write_film(tmp_path / "phone.mp4", [striped(k) for k in range(len(times))], times_ms=times)
    frames = list(Stream(path, start_s=1.0, end_s=1.6))
    assert [number_in(frame.picture) for frame in frames] == [frame.index for frame in frames] == list(range(7, 13))
    write_still_stamps(tmp_path / "still.mp4", 6)
    with pytest.raises(InputError, match=r"the start at 5 s is after the end of .*still.mp4"):
        list(Stream(tmp_path / "still.mp4", start_s=5))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"start_s": 2.0}, r"the start at 2 s is after the end of .*: it lasts 2.00 s"),
        ({"start_s": 1.0, "end_s": 1.0}, "end_s must be after the start at 1 s, got 1"),
        ({"start_s": -1.0}, "start_s must be 0 or more seconds, got -1"),
        ({"end_s": float("nan")}, "end_s must be 0 or more seconds, got nan"),
        ({"fps": 0}, "fps must be from 1 to 1000 frames a second, got 0"),
    ],
)
def test_a_part_that_cannot_be_is_refused(film, part, message):
    with pytest.raises(InputError, match=message):
        Stream(film, **part)
