"""Whole videos: real footage, the real detector and encoder, a tiny untrained model."""

import gc
import weakref
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFilter
from video.films import write_film

import di2pose
from di2pose import Di2Pose, recipes
from di2pose.assets import extract
from di2pose.errors import InputError
from di2pose.image.crop import assumed_camera
from di2pose.image.detect import overlap
from di2pose.image.encoder import load_encoder
from di2pose.pose.bones import even, stature_mm
from di2pose.pose.skeleton import H36M_17, bone_lengths
from di2pose.video import estimate
from di2pose.video.estimate import estimate_video, video_results
from di2pose.video.fragments import TrackNotes
from di2pose.video.stream import Stream
from di2pose.video.track import Tracker

FRAMES = 5
FEW = {"hypotheses": 2, "steps": 2, "max_people": 1}
PLAIN = {"smoothed": False, "same_body": False, "least_s": 0}
LITE_WIDTH = 200
"""Channels of the features of BlazePose lite."""


@pytest.fixture(scope="module")
def footage(tmp_path_factory):
    """Every sixth frame of a balancing person, small, 10 a second; and the same twice side by side, out of step."""
    folder = tmp_path_factory.mktemp("footage")
    whole = extract("pose2sim-videos", "Pose2Sim/Demo_SinglePerson/videos/cam01.mp4")
    pictures = [
        np.asarray(frame.picture.resize((324, 576), Image.Resampling.BOX))
        for frame in islice(Stream(whole / "Pose2Sim/Demo_SinglePerson/videos/cam01.mp4"), 0, 6 * FRAMES, 6)
    ]
    write_film(folder / "one.mp4", pictures, rate=10, movflags="faststart")
    twice = [
        np.concatenate([left, right[:, ::-1]], axis=1) for left, right in zip(pictures, pictures[::-1], strict=True)
    ]
    write_film(folder / "two.mp4", twice[:3], rate=10)
    write_film(folder / "nobody.mp4", [np.full((240, 320, 3), 90, dtype=np.uint8)] * 2, rate=10)
    return folder


class CountedEncoder:
    """Counts the crops that it sees."""

    def __init__(self, real, counter):
        self.real, self.counter = real, counter

    def __getattr__(self, name):
        return getattr(self.real, name)

    def encode(self, crops):
        self.counter.looks += len(crops)
        return self.real.encode(crops)


class Counting(Di2Pose):
    """Counts the detector's searches and the encoder's looks."""

    def reset(self):
        self.searches, self.looks = [], 0
        return self

    def find(self, picture, max_people=8, quick=False):
        self.searches.append("quick" if quick else "all")
        return super().find(picture, max_people, quick)

    @property
    def encoder(self):
        return CountedEncoder(super().encoder, self)


class Watched(Stream):
    """Counts the pictures that are alive."""

    def __iter__(self):
        self.given, self.most = [], 0
        for frame in super().__iter__():
            self.given.append(weakref.ref(frame.picture))
            gc.collect(0)
            self.most = max(self.most, sum(picture() is not None for picture in self.given))
            yield frame


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    made = Counting(replace(recipes.tiny(LITE_WIDTH), encoder="blazepose-lite")).eval()
    with torch.no_grad():  # untrained poses are giants, and all bones are cut to the longest that a body may have
        made.model.tokenizer.to_joints.weight.mul_(0.3)
    return made


@pytest.fixture
def model(network):
    return network.reset()


@pytest.fixture(scope="module")
def streamed(network, footage):
    """Results of a stream, searches of the detector, crops encoded."""
    results = list(video_results(network.reset(), footage / "one.mp4", **FEW))
    return results, len(network.searches), network.looks


@pytest.fixture(scope="module")
def plain(network, footage):
    """Results of frames on their own, with pictures."""
    return list(video_results(network.reset(), footage / "one.mp4", pictures=True, **PLAIN, **FEW))


@pytest.fixture(scope="module")
def motion(network, footage):
    return estimate_video(network.reset(), footage / "one.mp4", height_m=1.83, **FEW)


def joints_of(results):
    return np.stack([result.people[0].joints_mm for result in results])


def bones_of(results):
    return bone_lengths(joints_of(results).astype(np.float64), H36M_17)


def test_a_result_for_every_frame_with_its_time_and_the_same_person(streamed, footage):
    results, searches, looks = streamed
    assert [result.frame_index for result in results] == list(range(FRAMES))
    np.testing.assert_allclose([result.time_s for result in results], np.arange(FRAMES) / 10, atol=1e-6)
    for result in results:
        [person] = result.people
        assert (person.track, person.samples_mm.shape) == (0, (2, 17, 3))
        assert (result.image, result.picture) == (str(footage / "one.mp4"), None)
        assert (result.size, result.hypotheses, result.steps) == ((324, 576), 2, 2)
        assert (result.model, result.version) == ("tiny", di2pose.__version__)
        projected = result.camera.project(person.joints_mm + person.root_mm)
        np.testing.assert_allclose(person.joints_2d, projected, atol=1e-3)
    assert searches == 1, "the person is found once, then followed"
    assert looks == 2 * FRAMES, "each frame and its mirror image; no second look"
    lengths = bones_of(results)
    np.testing.assert_allclose(lengths, even(lengths), atol=0.01)


def test_the_crop_stays_on_the_person(model, plain):
    """The followed region against a detection in the same frame."""
    for result in plain[::2]:
        fresh = model.find(result.picture, max_people=1, quick=True)[0]
        x0, y0, x1, y1 = box = result.people[0].box
        assert overlap(box, fresh.box) > 0.7
        assert 0.7 < max(x1 - x0, y1 - y0) / max(fresh.box[2] - fresh.box[0], fresh.box[3] - fresh.box[1]) < 1.4


def test_frames_alone_give_the_same_as_in_batches_and_come_while_the_video_is_read(model, footage, plain, monkeypatch):
    monkeypatch.setattr(estimate, "BATCH", 1)
    stream = Watched(footage / "one.mp4")
    results = video_results(model, stream, **PLAIN, **FEW)
    first = next(results)
    assert (first.frame_index, len(stream.given)) == (0, 1)
    np.testing.assert_allclose(joints_of(plain), joints_of([first, *results]), atol=0.5)
    assert stream.most <= 2
    other = joints_of(islice(video_results(model, footage / "one.mp4", seed=4, **PLAIN, **FEW), 1))
    assert np.abs(joints_of(plain[:1]) - other).mean() > 1


def test_two_people_are_drawn_together_and_keep_their_numbers(model, footage):
    results = list(video_results(model, footage / "two.mp4", **FEW | {"max_people": 2}))
    for result in results:
        assert {person.track for person in result.people} == {0, 1}
    sides = [min(result.people, key=lambda person: person.box[0]).track for result in results]
    assert len(set(sides)) == 1


def test_nobody_is_a_result_without_people_and_the_detector_keeps_looking(model, footage):
    results = list(video_results(model, footage / "nobody.mp4", **FEW))
    assert [len(result.people) for result in results] == [0] * 2
    assert model.searches == ["all", "quick"]


def test_a_motion_has_one_body_of_the_given_height_and_comes_back(motion, tmp_path):
    assert (len(motion), motion.fps, motion.tracks) == (FRAMES, 10.0, (0,))
    for one in motion.track(0):
        assert float(stature_mm(one.joints_mm)) == pytest.approx(1830, abs=1)
    motion.save(tmp_path / "a.json")
    again = di2pose.result.Motion.load(tmp_path / "a.json")
    np.testing.assert_allclose(joints_of(again), joints_of(motion), atol=0.01)
    assert again[3].time_s == pytest.approx(0.3)
    assert np.ptp(bones_of(again), axis=0).max() < 1


def test_a_seed_gives_the_same_again_and_frames_on_their_own_have_bones_of_their_own(model, footage, plain):
    whole = estimate_video(model, footage / "one.mp4", held_feet=False, **PLAIN, **FEW)
    np.testing.assert_array_equal(joints_of(whole), joints_of(plain))
    assert np.ptp(bones_of(plain), axis=0).max() > 5


@pytest.mark.parametrize("wrong", [{"hypotheses": 0}, {"detect_every": 0}, {"max_people": 0}])
def test_senseless_options_are_refused_at_once(model, footage, wrong):
    with pytest.raises(InputError, match="must be 1 or more"):
        video_results(model, footage / "one.mp4", **wrong)


CLIPS = ("Sports2D/Demo/demo.mp4", "Pose2Sim/Demo_SinglePerson/videos/cam01.mp4")


def pictures_of(clip, box, size, **part):
    stream = Stream(extract("sports2d-demo" if clip == CLIPS[0] else "pose2sim-videos", clip) / clip, **part)
    return [frame.picture.crop(box).resize(size, Image.Resampling.BOX) for frame in stream]


def test_no_track_passes_a_cut_and_the_first_frame_after_it_has_people_of_its_own(model, tmp_path):
    """The balancing man is where the walker was: without the cut their tracks are one."""
    walk = pictures_of(CLIPS[0], (510, 464, 1160, 994), (324, 264), start_s=4, end_s=4.5)
    man = pictures_of(CLIPS[1], (0, 250, 1080, 1130), (324, 264), end_s=0.2, fps=30)
    film = [*walk[:7], *man[:6], *walk[7:14]]
    write_film(tmp_path / "cuts.mp4", [np.asarray(picture) for picture in film])
    notes = TrackNotes()
    motion = estimate_video(model, tmp_path / "cuts.mp4", notes=notes, **FEW)
    assert (len(motion), str(notes).split(", ")[0]) == (20, "2 scene cuts")
    np.testing.assert_allclose(notes.cuts_s, [7 / 30, 13 / 30], atol=1e-6)
    seen = [[k for k, person in enumerate(motion.track(track)) if person is not None] for track in motion.tracks]
    for each, (first, last) in zip(seen, ((0, 6), (7, 12), (13, 19)), strict=True):
        assert first <= each[0] <= first + 1
        assert each[-1] == last
    streamed = list(video_results(model, tmp_path / "cuts.mp4", **FEW))
    tracks = [{person.track for person in result.people} for result in streamed]
    assert not set().union(*tracks[:7]) & set().union(*tracks[7:13])
    assert not set().union(*tracks[7:13]) & set().union(*tracks[13:])


@pytest.fixture(scope="module")
def leaving():
    """A woman who walks out of the picture on the left, and the same place without her; 15 a second."""
    seen = pictures_of(CLIPS[0], (0, 430, 640, 990), (640, 560), start_s=5.6, end_s=7.2, fps=15)
    return seen[:22], seen[-1]


def entering(empty):
    """The man of the other clip comes in on the left."""
    film = []
    for k, man in enumerate(pictures_of(CLIPS[1], (220, 270, 640, 1200), (152, 338), fps=15, end_s=1)):
        film.append(empty.copy())
        mask = Image.new("L", man.size, 0)
        ImageDraw.Draw(mask).ellipse([0, 0, *man.size], fill=255)
        film[-1].paste(man, (16 * k - man.width, 200), mask.filter(ImageFilter.GaussianBlur(4)))
    return film


def test_somebody_who_leaves_and_another_who_enters_there_are_two(model, leaving, tmp_path):
    out, empty = leaving
    film = [*out, empty, empty, *entering(empty)]
    write_film(tmp_path / "two.mp4", [np.asarray(picture) for picture in film], rate=15)
    notes = TrackNotes()
    motion = estimate_video(model, tmp_path / "two.mp4", notes=notes, **FEW)
    woman, man = ([k for k, person in enumerate(motion.track(track)) if person is not None] for track in motion.tracks)
    assert woman[-1] < len(out) + 2 <= man[0]
    assert notes.cuts_s == []


def test_somebody_behind_a_board_is_one_before_and_after_it(model, leaving, tmp_path):
    out, _ = leaving
    film = [picture.copy() for picture in out[:14]]
    for picture in film[4:9]:
        ImageDraw.Draw(picture).rectangle((90, 0, 560, 560), fill=(90, 90, 90))
    write_film(tmp_path / "board.mp4", [np.asarray(picture) for picture in film], rate=15)
    motion = estimate_video(model, tmp_path / "board.mp4", **FEW)
    [seen] = ([k for k, person in enumerate(motion.track(track)) if person is not None] for track in motion.tracks)
    assert (seen[0], seen[-1]) == (0, 13)
    assert len(seen) < 14


def test_a_part_of_a_video_has_the_times_of_the_whole_and_a_stream_has_its_own(model, footage):
    part = list(video_results(model, footage / "one.mp4", start_s=0.1, end_s=0.4, fps=5, **PLAIN, **FEW))
    np.testing.assert_allclose([result.time_s for result in part], [0.1, 0.3], atol=1e-6)
    with pytest.raises(InputError, match="give start_s, end_s, fps to the Stream"):
        video_results(model, Stream(footage / "one.mp4"), fps=5)


def test_heights_are_by_track_and_the_picture_stays(model, footage):
    two = {**FEW, "max_people": 2}
    plain = list(video_results(model, footage / "two.mp4", **PLAIN, **two))
    tall = list(video_results(model, footage / "two.mp4", height_m={1: 1.2}, **PLAIN, **two))
    for before, after in zip(plain, tall, strict=True):
        same, other = sorted(after.people, key=lambda person: person.track)
        was, free = sorted(before.people, key=lambda person: person.track)
        np.testing.assert_array_equal(same.joints_mm, was.joints_mm)
        assert float(stature_mm(other.joints_mm)) == pytest.approx(1200, abs=0.1)
        np.testing.assert_allclose(other.joints_2d, free.joints_2d)
    motion = estimate_video(model, footage / "two.mp4", height_m={0: 1.9, 1: 1.2}, **two)
    for track, height in ((0, 1900), (1, 1200)):
        assert float(stature_mm(motion.track(track)[0].joints_mm)) == pytest.approx(height, abs=1)
    with pytest.raises(InputError, match="no person 7 in the video; there are 0"):
        estimate_video(model, footage / "one.mp4", height_m={7: 1.9}, **FEW)


def test_the_flip_test_is_of_new_people_and_of_frames_whose_observers_disagree(footage):
    encoder = load_encoder("blazepose-lite+movenet")
    made = Counting(replace(recipes.tiny(encoder.layout.width), encoder=encoder.name)).eval().reset()
    frames = list(Stream(footage / "one.mp4"))
    board = frames[3].picture.copy()
    ImageDraw.Draw(board).rectangle((60, 300, 324, 576), fill=(120, 90, 60))
    frames[3] = replace(frames[3], picture=board)
    camera = assumed_camera(board.size)
    tracked = list(estimate.tracked_frames(made, frames, Tracker(max_people=1), lambda frame: camera))
    mirrored = [each.encoded.flipped is not None for each in tracked]
    assert mirrored[0]
    assert mirrored[3]
    assert not all(mirrored)
    drawn = list(estimate.drawn_people(made, tracked, 2, 2, seed=0))
    assert [each for each, _ in drawn] == tracked
    for each, people in drawn:
        assert [person.track for person in people] == each.numbers
        assert [person.box for person in people] == [crop.detection.box for crop in each.encoded.crops]
