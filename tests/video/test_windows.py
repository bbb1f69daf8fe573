"""Windows of 2D keypoints round a frame of a track."""

import numpy as np
import pytest

from di2pose.errors import InputError
from di2pose.image.crop import Roi
from di2pose.image.detect import Detection
from di2pose.image.encoder import EncoderOutput, load_encoder
from di2pose.image.keypoint_encoder import BlankPicture, KeypointEncoder
from di2pose.pipeline.crops import EncodedCrops, PersonCrop
from di2pose.pose.camera import Camera
from di2pose.video.stream import Frame
from di2pose.video.windows import TrackedFrame, at_times, windowed

PICTURE, CAMERA = BlankPicture((256, 256)), Camera((300.0, 300.0), (128.0, 128.0))
BODY = np.random.default_rng(0).uniform(20, 200, (17, 2))


def keypoints(shift=0.0):
    return np.column_stack([BODY + np.array([shift, 0]), np.ones(17)])


def test_keypoints_between_two_frames_are_interpolated_and_far_from_all_missing():
    times, seen = np.array([0.0, 0.04, 0.5]), np.stack([keypoints(0), keypoints(8), keypoints(100)])
    seen[1, 3] = np.nan
    found = at_times(times, seen, np.array([0.0, 0.01, 0.05, 0.2, 0.49, 0.5, 0.6]))
    np.testing.assert_array_equal(found[0], seen[0])
    np.testing.assert_allclose(found[1, 0], keypoints(2)[0])
    assert np.isnan(found[1, 3]).all()  # seen in one of the two frames alone
    np.testing.assert_array_equal(found[2], seen[1])  # 0.5 s is too far to go on to
    assert np.isnan(found[[3, 6]]).all()
    np.testing.assert_array_equal(found[4], seen[2])
    np.testing.assert_array_equal(found[5], seen[2])


def tracked(time_s, shifts, numbers):
    """People with keypoints in a crop whose pixels are the picture's, moved by 10 px."""
    region = Roi((138.0, 128.0), 256.0, 0.0)
    crops = [PersonCrop(PICTURE, Detection((0, 0, 256, 256), 1.0, region), CAMERA, region) for _ in numbers]
    marks = np.stack([keypoints(shift) - (10, 0, 0) for shift in shifts])
    output = EncoderOutput(np.zeros((len(numbers), 27, 68), np.float32), keypoints=marks)
    return TrackedFrame(Frame(round(time_s * 24), time_s, PICTURE), EncodedCrops(crops, output), numbers)


def test_a_window_follows_its_track_at_any_frame_rate():
    encoder = KeypointEncoder(27)
    frames = [tracked(k / 48, [k, -k], [0, 1] if k % 2 else [1, 0]) for k in range(80)]
    frames.insert(30, TrackedFrame(Frame(0, 29.5 / 48, PICTURE), None, []))
    found = list(windowed(iter(frames), encoder, 27))
    assert [each.frame.time_s for each in found] == [each.frame.time_s for each in frames]
    at = 41  # frame 40: people 1 and 0
    assert found[at].numbers == [1, 0]
    # person 0 moves by k in odd frames and by -k in even ones: the windows take both numbers by track
    own = [(each.frame.time_s, shift) for each in frames if each.encoded is not None
           for number, shift in zip(each.numbers, each.encoded.output.keypoints[:, 0, 0], strict=True) if number == 0]
    times, places = (np.array(each) for each in zip(*own, strict=True))
    wanted = 40 / 48 + (np.arange(27) - 13) / 24
    expected = np.full((1, 27, 17, 3), np.nan)
    for t, when in enumerate(wanted):
        near = np.flatnonzero(np.abs(times - when) < 1e-6)
        if len(near):
            expected[0, t] = keypoints(places[near[0]] - BODY[0, 0])
    np.testing.assert_allclose(found[at].encoded.output.features[1], encoder.features(expected)[0], atol=1e-5)
    short = list(windowed(iter(frames), encoder, 27, 9))[at].encoded.output.features[1].reshape(27, 17, 4)
    assert np.flatnonzero(short[..., 3].any(1)).tolist() == list(range(9, 18))
    np.testing.assert_allclose(short[9:18].reshape(9, 68), encoder.features(expected)[0, 9:18], atol=1e-5)


def test_of_a_photo_only_the_middle_frame_is_there_and_places_are_relative_to_its_body():
    encoder = load_encoder("keypoints:27", "cpu")
    one = encoder.features(np.stack([keypoints(), 2 * keypoints() + (7, 9, -1)]) * (1, 1, 0.5) + (0, 0, 0.5))
    assert one.shape == (2, 27, 68)
    assert np.flatnonzero(one[0].any(1)).tolist() == [13]
    np.testing.assert_allclose(one[0, :, 0:2], one[1, :, 0:2], atol=1e-5)  # another place and size, the same body
    plain = load_encoder("keypoints", "cpu").features(keypoints()[None])[0].reshape(17, 17, 4)
    middle = encoder.features(keypoints()[None])[0, 13].reshape(17, 4)
    np.testing.assert_allclose(plain[np.arange(17), np.arange(17)], middle, atol=1e-5)
    for wrong in ("keypoints:26", "keypoints:x", "keypoints:0"):
        with pytest.raises(InputError, match="an odd number"):
            load_encoder(wrong, "cpu")
