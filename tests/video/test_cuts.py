"""Scene cuts: found between clips of real footage, and nowhere in a clip."""

from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from video.films import write_film

from di2pose.assets import extract
from di2pose.video.cuts import scenes
from di2pose.video.stream import Frame, Stream

CLIPS = ("Sports2D/Demo/demo.mp4", *(f"Pose2Sim/Demo_SinglePerson/videos/cam0{k}.mp4" for k in (1, 2, 3, 4)))


def opened(clip, **part):
    return Stream(extract("sports2d-demo" if clip == CLIPS[0] else "pose2sim-videos", clip) / clip, **part)


@pytest.fixture(scope="module")
def clips():
    """Every frame of each clip, small."""
    return {clip: [np.asarray(frame.picture.resize((96, 64))) for frame in opened(clip)] for clip in CLIPS}


def cuts(pictures, rate=30):
    frames = [Frame(k, k / rate, Image.fromarray(picture)) for k, picture in enumerate(pictures)]
    found = list(scenes(frames))
    assert [frame for frame, _ in found] == frames
    return [frame.index for frame, cut in found if cut]


@pytest.mark.parametrize("every", [1, 8])
def test_no_clip_has_a_cut(clips, every):
    assert [cuts(pictures[::every], 30 / every) for pictures in clips.values()] == [[]] * len(CLIPS)


def test_each_change_of_the_clip_is_a_cut_also_between_cameras_of_one_room(clips, tmp_path):
    demo, *rooms = clips.values()
    film = write_film(tmp_path / "cuts.mp4", [*demo[:20], *rooms[0][:20], *demo[20:40]])
    assert [frame.index for frame, cut in scenes(Stream(film)) if cut] == [20, 40]
    for one, other in pairwise(rooms):
        assert cuts([*one[:6], *other[:6]]) == [6]


def brightened(picture, gain, more=0):
    return np.clip(picture * float(gain) + more, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("frames", [1, 2, 4])
def test_a_flash_is_no_cut(clips, frames):
    film = list(clips[CLIPS[0]][60:90])
    for gain, more in ((2, 120), (0, 255)):
        flash = [brightened(picture, gain, more) for picture in film[12 : 12 + frames]]
        assert cuts([*film[:12], *flash, *film[12 + frames :]]) == []


def test_exposure_fades_and_a_slow_change_to_another_clip_are_no_cuts(clips):
    film, other = clips[CLIPS[0]][:40], clips[CLIPS[1]][:40]
    for gain in (0.35, 2):
        assert cuts([*film[:10], *(brightened(picture, gain) for picture in film[10:20])]) == []
    black = [brightened(picture, max(0.0, 1 - k / 12)) for k, picture in enumerate(film)]
    assert cuts(black) == cuts(black[::-1]) == []
    mixed = [brightened(a, 1 - min(1, k / 12)) + brightened(b, min(1, k / 12))
             for k, (a, b) in enumerate(zip(film, other, strict=True))]  # fmt: skip
    assert cuts(mixed) == []


def test_pans_shaking_zoom_and_somebody_close_to_the_lens_are_no_cuts(clips):
    frames = [frame.picture for frame in opened(CLIPS[0], start_s=2, end_s=3.2)]

    def camera(boxes):
        return [np.asarray(picture.crop(box)) for picture, box in zip(frames, boxes, strict=False)]

    for speed in (20, 60, 120, 200):  # pixels of a picture of 480
        ways = [*[0] * 6, *range(0, 1280, speed), *[1279] * 6]
        assert cuts(camera([(x, 300, x + 480, 780) for x in ways])) == []
    shaken = np.random.default_rng(0).integers(-60, 61, (36, 2)) + np.array([600, 300])
    assert cuts(camera([(x, y, x + 480, y + 480) for x, y in shaken.tolist()])) == []
    halves = [450 / 1.1**k for k in range(18)]
    assert cuts(camera([(960 - half, 500 - half, 960 + half, 500 + half) for half in halves])) == []
    close = [picture.copy() for picture in clips[CLIPS[0]][:30]]
    for k, picture in enumerate(close):
        picture[:, max(0, 20 * k - 300) : max(0, 20 * k - 230)] = (40, 30, 60)
    assert cuts(close) == []
