"""`di2pose predict` on videos: files, the film with its overlay, and videos that are not whole."""

import sys

import av
import numpy as np
import pytest
from commands.test_predict import written
from output.people import person, result
from PIL import Image

from di2pose.commands import videos as videos_module
from di2pose.errors import InputError
from di2pose.output.media import OverlayVideo, Thumbnails
from di2pose.output.viewer import FRAME_SIDE, MOST_FRAMES
from di2pose.pose.bones import stature_mm
from di2pose.pose.skeleton import H36M_17, bone_lengths
from di2pose.result import Motion
from di2pose.video import stream as stream_module

FRAMES = 6
RATE = 30


@pytest.fixture(scope="module")
def film(clip, tmp_path_factory):
    """Six frames of the walker, small; the index stands at the front, as in videos for the web."""
    return part_of(clip, tmp_path_factory.mktemp("film") / "walk.mp4", (324, 264))


def part_of(clip, path, size, count=FRAMES):
    with av.open(str(clip)) as source, av.open(str(path), "w", options={"movflags": "faststart"}) as sink:
        stream = sink.add_stream("mpeg4", rate=RATE, options={"g": "2"})
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = *size, "yuv420p", 2_000_000
        for index, frame in enumerate(source.decode(video=0)):
            if 120 <= index < 120 + count:
                picture = frame.to_image().crop((510, 464, 1160, 994)).resize(size)
                sink.mux(stream.encode(av.VideoFrame.from_image(picture)))
        sink.mux(stream.encode())
    return path


def frames_of(path):
    with av.open(str(path)) as container:
        return [frame.to_image() for frame in container.decode(video=0)]


def test_a_video_gives_its_motion_its_page_and_its_film(run, film):
    code, said, _, out = run(film, format="json,csv,trc,html,overlay,png")
    assert code == 0
    assert written(out) == ["walk.csv", "walk.html", "walk.json", "walk.overlay.mp4", "walk.trc"]
    motion = Motion.load(out / "walk.json")
    assert (len(motion), motion.fps, motion.tracks) == (FRAMES, RATE, (0,))
    assert [round(each.time_s * RATE) for each in motion] == list(range(FRAMES))
    assert motion[0].image == str(film)
    line = said.splitlines()[0]
    assert line.startswith(f"walk.mp4  {FRAMES} frames, 1 person, ")
    assert "no png of a video · wrote walk.overlay.mp4 .json .csv .trc .html" in line
    assert "1 video done, 1 person" in said
    drawn, plain = frames_of(out / "walk.overlay.mp4"), frames_of(film)
    assert len(drawn) == FRAMES
    assert drawn[0].size == plain[0].size
    different = np.abs(np.asarray(drawn[3], dtype=int) - np.asarray(plain[3])).max(-1) > 60
    assert 0.001 < different.mean() < 0.4
    assert (out / "walk.html").read_text().count("data:image/jpeg") == FRAMES


def test_a_video_that_breaks_off_keeps_what_was_seen(run, film, tmp_path):
    data = film.read_bytes()
    (tmp_path / "half.mp4").write_bytes(data[: int(len(data) * 0.6)])
    code, said, problems, out = run(tmp_path / "half.mp4", format="json,overlay")
    assert code == 1
    assert written(out) == ["half.json", "half.overlay.mp4"]
    assert 1 <= len(Motion.load(out / "half.json")) < FRAMES
    assert "half.mp4" in said.splitlines()[0]
    assert "half.mp4  failed: " in problems
    assert "is not whole" in problems


def test_photos_and_videos_are_done_in_order_and_one_that_fails_stops_no_other(run, film, walker, tmp_path):
    (tmp_path / "text.mp4").write_text("this is no video")
    for name in ("z.png", "a.png"):
        walker.resize((325, 265)).save(tmp_path / name)
    code, said, problems, out = run(tmp_path / "z.png", tmp_path / "text.mp4", film, tmp_path / "a.png")
    assert (code, written(out)) == (1, ["a.json", "walk.json", "z.json"])
    assert [line.split()[0] for line in said.splitlines()[:3]] == ["z.png", "walk.mp4", "a.png"]
    assert "text.mp4" in problems
    assert "it is no video" in problems
    assert "failed, wholly or in part: text.mp4" in said


def test_a_camera_that_is_not_there_fails_by_name(run):
    code, _, problems, _ = run("97")
    assert code == 2
    assert "camera 97  failed: " in problems


def test_a_camera_is_recorded_until_it_ends_and_keeps_its_pictures(run, monkeypatch):
    """FFmpeg's test pattern in place of a device: the road from a camera's number to the files is the real one."""
    pattern = ("lavfi", "testsrc=duration=0.4:size=320x240:rate=10")
    monkeypatch.setitem(stream_module.CAMERAS, sys.platform, pattern)
    code, said, _, out = run("0", format="json,html,overlay")
    assert code == 0
    assert "camera 0: recording, Ctrl-C ends it" in said
    assert written(out) == ["camera0.html", "camera0.json", "camera0.overlay.mp4"]
    motion = Motion.load(out / "camera0.json")
    assert (len(motion), motion[0].image) == (4, None)
    assert (out / "camera0.html").read_text().count("data:image/jpeg") == 4


def bones_in(motion, track=0):
    people = [one for one in motion.track(track) if one is not None]
    return np.stack([bone_lengths(np.asarray(one.joints_mm, dtype=np.float64), H36M_17) for one in people])


def test_everybody_in_a_video_has_one_body_unless_it_is_not_wanted(run, film, tmp_path):
    _, _, _, out = run(film, format="json,bvh", height=1.7)
    motion = Motion.load(out / "walk.json")
    assert np.ptp(bones_in(motion), axis=0).max() < 1
    assert float(stature_mm(motion.track(0)[0].joints_mm)) == pytest.approx(1700, abs=1)
    assert (out / "walk.bvh").read_text().count("Xposition") == 1
    _, _, _, out = run(film, same_body=False, out=tmp_path / "plain")
    assert np.ptp(bones_in(Motion.load(out / "walk.json")), axis=0).max() > 5


def test_tracks_that_are_dropped_or_joined_are_said(run, film, monkeypatch):
    """Of three tracks one is a glimpse, and the third goes on where the first ended."""

    def drawn(*arguments, **options):
        for k in range(40):
            people = [person(1, track=0 if k < 20 else 2)] if k not in range(20, 24) else []
            people += [person(2, track=1, root_mm=(2000.0, 0.0, 3500.0))] if k in (7, 8) else []
            yield result(people, frame_index=k, time_s=k / RATE)

    monkeypatch.setattr(videos_module, "video_results", drawn)
    _, said, _, out = run(film)
    assert Motion.load(out / "walk.json").tracks == (0,)
    line = said.splitlines()[0]
    assert line.startswith("walk.mp4  40 frames, 1 person, ")
    assert "1 stray track dropped (2 sightings), 1 fragment joined" in line


def test_faces_in_a_film_are_hidden(run, film, tmp_path):
    _, _, _, out = run(film, format="html,overlay", blur_faces=True)
    _, _, _, plain = run(film, format="html,overlay", out=tmp_path / "plain")
    head = (slice(20, 45), slice(145, 175))
    hidden, shown = (np.asarray(frames_of(folder / "walk.overlay.mp4")[2], dtype=float) for folder in (out, plain))
    assert np.abs(hidden[head] - shown[head]).mean() > 8
    feet = (slice(200, 240), slice(20, 90))
    assert np.abs(hidden[feet] - shown[feet]).mean() < 4


def test_another_detector_is_asked_in_a_video_too(run, film):
    code, _, errors, _ = run(film, detector="yolo")
    assert code == 2
    assert "'blazepose'" in errors


def test_a_film_leaves_nothing_behind_on_a_full_disk(small_disk):
    film = OverlayVideo(small_disk / "a.mp4", 30.0)
    noise = np.random.default_rng(0)
    pictures = [Image.fromarray(noise.integers(0, 256, (480, 640, 3), dtype=np.uint8)) for _ in range(4)]

    def play():
        for k in range(60):
            film.add(result([person(0)]), pictures[k % 4])

    with pytest.raises(InputError, match="No space left on device; make room"):
        play()
    assert list(small_disk.iterdir()) == []
    (small_disk / "numbers.json").write_bytes(bytes(60_000))  # the room is free again


def test_a_film_that_finds_no_room_does_not_take_the_numbers_with_it(run, clip, tmp_path, small_disk):
    large = part_of(clip, tmp_path / "walk.mp4", (1284, 1048))
    code, said, problems, out = run(large, out=small_disk, format="json,overlay")
    assert code == 1
    assert written(out) == ["walk.json"]
    assert len(Motion.load(out / "walk.json")) == FRAMES
    assert "walk.overlay.mp4: No space left on device" in problems
    assert "given up: the disk is full" in said


@pytest.mark.parametrize("frames", [1, MOST_FRAMES, 2 * MOST_FRAMES + 1, 3 * MOST_FRAMES + 7])
def test_the_pictures_of_a_page_are_few_however_long_the_video(frames):
    stills = Thumbnails()
    for k in range(frames):
        stills.add(k, Image.new("RGB", (FRAME_SIDE, 4), (k % 256, k // 256, 0)))
        assert len(stills._kept) <= 2 * MOST_FRAMES
    motion = Motion([result([], frame_index=k, time_s=k / 30) for k in range(frames)], 30.0)
    shown = stills.on(motion)
    assert min(frames, MOST_FRAMES / 4) <= len(shown) <= MOST_FRAMES
    every = shown[1].frame_index if len(shown) > 1 else 1
    assert shown.fps == pytest.approx(30 / every)
    for each in shown:
        red, green, _ = each.picture.getpixel((5, 2))
        assert abs(red + 256 * green - each.frame_index) <= 3 + 256 * 2
