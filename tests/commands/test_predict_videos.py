"""`di2pose predict` on videos: files, the film with its overlay, and videos that are not whole."""

import sys

import av
import numpy as np
import pytest
import tyro
from commands.running import RATE, part_of, written
from output.people import person, result
from PIL import Image

from di2pose.commands import videos as videos_module
from di2pose.commands.predict import PredictOptions
from di2pose.errors import InputError
from di2pose.output import media
from di2pose.output.media import Thumbnails
from di2pose.output.viewer import FRAME_SIDE
from di2pose.pose.bones import stature_mm
from di2pose.pose.skeleton import H36M_17, bone_lengths
from di2pose.result import Motion
from di2pose.video import stream as stream_module

FRAMES = 6


@pytest.fixture(scope="module")
def film(clip, tmp_path_factory):
    return part_of(clip, tmp_path_factory.mktemp("film") / "walk.mp4", (324, 264), FRAMES)


def frames_of(path):
    with av.open(str(path)) as container:
        return [frame.to_image() for frame in container.decode(video=0)]


def bones_in(motion, track=0):
    people = [one for one in motion.track(track) if one is not None]
    return np.stack([bone_lengths(np.asarray(one.joints_mm, dtype=np.float64), H36M_17) for one in people])


def test_a_video_gives_its_motion_of_one_body_its_page_and_its_film(run, film):
    code, said, _, out = run(film, format="json,csv,bvh,html,overlay,png", height=1.7)
    assert code == 0
    assert written(out) == ["walk.bvh", "walk.csv", "walk.html", "walk.json", "walk.overlay.mp4"]
    motion = Motion.load(out / "walk.json")
    assert np.ptp(bones_in(motion), axis=0).max() < 1
    assert float(stature_mm(motion.track(0)[0].joints_mm)) == pytest.approx(1700, abs=1)
    assert (out / "walk.bvh").read_text().count("Xposition") == 1
    assert (len(motion), motion.fps, motion.tracks) == (FRAMES, RATE, (0,))
    assert [round(each.time_s * RATE) for each in motion] == list(range(FRAMES))
    assert motion[0].image == str(film)
    line = said.splitlines()[0]
    assert line.startswith(f"walk.mp4  {FRAMES} frames, 1 person, ")
    assert "no png of a video · wrote walk.overlay.mp4 .json .csv .bvh .html" in line
    assert "1 video done, 1 person" in said
    drawn, plain = frames_of(out / "walk.overlay.mp4"), frames_of(film)
    assert len(drawn) == FRAMES
    assert drawn[0].size == plain[0].size
    different = np.abs(np.asarray(drawn[3], dtype=int) - np.asarray(plain[3])).max(-1) > 60
    assert 0.001 < different.mean() < 0.4
    assert (out / "walk.html").read_text().count("data:image/jpeg") == FRAMES


def test_a_gif_is_a_video_with_its_own_times(run, film, tmp_path):
    pictures = frames_of(film)
    shown_ms = [40, 40, 80, 40, 40, 40]
    pictures[0].save(tmp_path / "walk.gif", save_all=True, append_images=pictures[1:], duration=shown_ms)
    code, said, _, out = run(tmp_path / "walk.gif", format="json,overlay,glb,mot")
    assert code == 0
    assert written(out) == ["walk.glb", "walk.json", "walk.mot", "walk.overlay.mp4"]
    motion = Motion.load(out / "walk.json")
    assert [each.time_s for each in motion] == pytest.approx([0, 0.04, 0.08, 0.16, 0.2, 0.24])
    assert motion.tracks == (0,)
    assert motion[0].smoothing.startswith("cubic spline")
    assert "1 video done, 1 person" in said


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
    words = (tmp_path / "z.png", tmp_path / "text.mp4", film, tmp_path / "a.png")
    code, said, problems, out = run(*words, same_body=False)
    assert (code, written(out)) == (1, ["a.json", "walk.json", "z.json"])
    assert np.ptp(bones_in(Motion.load(out / "walk.json")), axis=0).max() > 5  # each frame has bones of its own
    assert [line.split()[0] for line in said.splitlines()[:3]] == ["z.png", "walk.mp4", "a.png"]
    assert "text.mp4" in problems
    assert "it is no video" in problems
    assert "failed, wholly or in part: text.mp4" in said


def test_a_camera_that_is_not_there_and_an_unknown_detector_fail_by_name(run, film):
    code, _, problems, _ = run("97", film, detector="yolo")
    assert code == 2
    assert "camera 97  failed: " in problems
    assert "walk.mp4   failed: " in problems
    assert "'rtdetr:FOLDER'" in problems


def test_a_camera_is_recorded_until_it_ends_and_keeps_its_pictures(run, monkeypatch):
    """FFmpeg's test pattern in place of a device."""
    pattern = ("lavfi", "testsrc=duration=0.4:size=320x240:rate=10")
    monkeypatch.setitem(stream_module.CAMERAS, sys.platform, pattern)
    code, said, _, out = run("0", format="json,html,overlay")
    assert code == 0
    assert "camera 0: recording, Ctrl-C ends it" in said
    assert written(out) == ["camera0.html", "camera0.json", "camera0.overlay.mp4"]
    motion = Motion.load(out / "camera0.json")
    assert (len(motion), motion[0].image) == (4, None)
    assert (out / "camera0.html").read_text().count("data:image/jpeg") == 4


def test_tracks_that_are_dropped_or_joined_are_said(run, film, monkeypatch):
    """Of three tracks one is a glimpse, and the third goes on where the first ended."""

    def drawn(*arguments, **options):
        for k in range(16):
            people = [person(1, track=0 if k < 7 else 2)] if k not in (7, 8) else []
            people += [person(2, track=1, root_mm=(2000.0, 0.0, 3500.0))] if k in (3, 4) else []
            yield result(people, frame_index=k, time_s=k / RATE)

    monkeypatch.setattr(videos_module, "video_results", drawn)
    _, said, _, out = run(film)
    assert Motion.load(out / "walk.json").tracks == (0,)
    line = said.splitlines()[0]
    assert line.startswith("walk.mp4  16 frames, 1 person, ")
    assert "1 stray track dropped (2 sightings), 1 fragment joined" in line


@pytest.mark.parametrize("frames", [1, 9, 15])
def test_the_pictures_of_a_page_are_few_however_long_the_video(frames, monkeypatch):
    monkeypatch.setattr(media, "MOST_FRAMES", 4)
    stills = Thumbnails()
    for k in range(frames):
        stills.add(k, Image.new("RGB", (FRAME_SIDE, 4), (16 * k, 0, 0)))
        assert len(stills._kept) <= 8
    motion = Motion([result([], frame_index=k, time_s=k / 30) for k in range(frames)], 30.0)
    shown = stills.on(motion)
    assert min(frames, 2) <= len(shown) <= 4
    every = shown[1].frame_index if len(shown) > 1 else 1
    assert shown.fps == pytest.approx(30 / every)
    for each in shown:
        assert each.picture.getpixel((5, 2))[0] == pytest.approx(16 * each.frame_index, abs=3)


def test_a_part_of_a_video_and_one_of_its_people_are_in_all_files(run, film, tmp_path):
    part = {"start_s": 0.05, "end_s": 0.19, "fps": 15.0}
    code, _, problems, out = run(film, format="json,bvh,overlay,html", person="largest", **part)
    assert (code, problems) == (0, "")
    motion = Motion.load(out / "walk.json")
    assert (motion.fps, len(motion.tracks)) == (15.0, 1)
    np.testing.assert_allclose([each.time_s for each in motion], [2 / RATE, 4 / RATE], atol=1e-6)
    assert [each.frame_index for each in motion] == [2, 4]
    drawn, plain = frames_of(out / "walk.overlay.mp4"), [frames_of(film)[k] for k in (2, 4)]
    assert len(drawn) == len(plain)
    for one, other in zip(drawn, plain, strict=True):
        assert 0.001 < (np.abs(np.asarray(one, dtype=int) - np.asarray(other)).max(-1) > 60).mean() < 0.4
    code, _, problems, out = run(film, format="json,overlay", person=(7,), out=tmp_path / "none", **part)
    assert (code, written(out)) == (2, [])
    assert "no person 7 in the video; there are 0" in problems


def test_parts_that_cannot_be_are_refused(run, film, portrait, tmp_path):
    code, _, problems, _ = run(film, start_s=3.0)
    assert code == 2
    assert "the start at 3 s is after the end of" in problems
    for wrong, words in (
        ({"start_s": 2.0, "end_s": 1.0}, "--end must be after the start at 2 s, got 1"),
        ({"fps": 0.5}, "--fps must be from 1 to 1000"),
    ):
        with pytest.raises(InputError, match=words):
            run(film, **wrong)
    portrait.save(tmp_path / "a.png")
    with pytest.raises(InputError, match="--start, --end, --fps and --person are of videos"):
        run(tmp_path / "a.png", person="largest")
    with pytest.raises(InputError, match="--person is of video files"):
        run("0", person=(0,))


def test_heights_by_person_are_checked_against_those_who_are_there(run, film, tmp_path):
    code, _, _, out = run(film, height={0: 1.6})
    assert code == 0
    assert float(stature_mm(Motion.load(out / "walk.json").track(0)[0].joints_mm)) == pytest.approx(1600, abs=1)
    code, _, problems, out = run(film, height={0: 1.6, 3: 1.2}, format="json,overlay", out=tmp_path / "more")
    assert (code, written(out)) == (1, ["walk.json", "walk.overlay.mp4"])
    assert "no person 3 in the video; there are 0" in problems


def test_words_of_the_flags_are_read(capsys):
    def read(*words):
        return tyro.cli(PredictOptions, args=list(words))

    read_all = read("--start", "1:30", "--end", "0:01:31.5", "--person", "0,2,0", "--height", "0=1.78,1=1.20")
    assert (read_all.start_s, read_all.end_s, read_all.person) == (90.0, 91.5, (0, 2))
    assert read_all.height_m == {0: 1.78, 1: 1.2}
    assert (read("--height", "1.78").height_m, read("--person", "largest").person) == (1.78, "largest")
    for *wrong, words in (
        ("--start", "soon", "seconds or MM:SS"), ("--height", "0=1.7,0=1.8", "each once"), ("--person", "0;1", "'0;1'"),
        ("--height", "a=1.7", "a height is in metres"), ("--height", "1=178", "--height must be from 0.3 to 3"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            read(*wrong)
        assert words in " ".join(capsys.readouterr().err.replace("│", " ").split())
