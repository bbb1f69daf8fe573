"""BlazePose as an encoder: agreement with Google's runtime, the layout of the features, the peer."""

import numpy as np
import pytest
import torch

from di2pose.assets import fetch
from di2pose.errors import InputError
from di2pose.image.blazepose import BlazePose, find_taps, landmark_tokens
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.image.tflite_file import TfliteFile
from di2pose.pose.skeleton import BLAZEPOSE_33

TAPS = {"heavy": [614, 644, 669, 694], "full": [251, 300, 316, 335], "lite": [236, 285, 295, 308]}


@pytest.fixture(scope="module")
def lite():
    return BlazePose("lite")


@pytest.mark.parametrize("variant", TAPS)
def test_agrees_with_the_tflite_runtime(crops, variant):
    """Features to 1e-3 of their range, landmarks to 0.01 px, world landmarks to 0.1 mm."""
    images = torch.from_numpy(crops)
    ours = BlazePose(variant, runtime="torch")(images)
    theirs = BlazePose(variant)(images)
    for name, theirs_map in theirs.maps.items():
        assert (ours.maps[name] - theirs_map).abs().max() < 1e-3 * theirs_map.abs().max(), name
    assert (ours.landmarks_2d - theirs.landmarks_2d).abs().max() < 0.01
    assert (ours.world_mm - theirs.world_mm).abs().max() < 0.1
    assert (ours.features - theirs.features).abs().max() < 1e-3 * theirs.features.abs().max()


@pytest.mark.parametrize("variant", TAPS)
def test_taps_are_found_by_the_structure_of_the_graph(variant):
    file = TfliteFile(fetch(f"blazepose-{variant}"))
    assert find_taps(file, (16, 8, 4, 2)) == TAPS[variant]
    with pytest.raises(InputError, match="no 3x3 map"):
        find_taps(file, (8, 3))


def test_the_walker_is_seen_where_she_is(crops, lite):
    """Head above hips above ankles in the crop, the hips in its middle, somebody is there, and turning turns."""
    seen = lite(torch.from_numpy(crops))
    nose, hip, ankle = (seen.landmarks_2d[0, BLAZEPOSE_33.index(name)] for name in ("nose", "left_hip", "left_ankle"))
    assert nose[1] < hip[1] - 40 < ankle[1] - 80
    assert (hip - 128).abs().max() < 25
    assert seen.person.min() > 0.9
    assert seen.visibility.shape == (3, 33)
    assert abs(float(seen.landmarks_2d[1, BLAZEPOSE_33.index("nose"), 0] - 128)) > 20


def test_sequence_holds_every_block_in_its_own_place(crops, lite):
    seen = lite(torch.from_numpy(crops))
    features, layout = seen.features, seen.layout
    assert (layout.length, layout.width) == (64 + 16 + 4 + 33, 192 + 8)
    assert tuple(features.shape) == (3, 117, 200)
    assert torch.equal(features[:, layout.tokens("map4"), :192], seen.maps["map4"])
    tokens = features[:, layout.tokens("landmarks")]
    assert torch.equal(tokens[..., 192:], landmark_tokens(seen.landmarks, seen.world_mm))
    assert (tokens[..., :192] == 0).all()
    assert (features[:, : layout.tokens("landmarks").start, 192:] == 0).all()
    with pytest.raises(InputError, match="no block 'map16'"):
        layout.tokens("map16")


def test_map_tokens_run_row_by_row(crops, lite):
    (whole,) = lite.graph(torch.from_numpy(crops[:1]).float() / 255)[:1]
    assert torch.equal(lite(torch.from_numpy(crops[:1])).maps["map8"][0, 8 * 3 + 5], whole[0, 3, 5])


def test_cached_parts_give_the_same_sequence(crops, lite):
    parts = lite.cache_parts(crops)
    assert {name: (x.dtype.name, x.shape[1:]) for name, x in parts.items()} == {
        "map8": ("float16", (64, 192)),
        "map4": ("float16", (16, 192)),
        "map2": ("float16", (4, 192)),
        "landmarks": ("float32", (33, 8)),
        "landmarks_2d": ("float32", (33, 2)),
        "world_mm": ("float32", (33, 3)),
    }
    again = lite.layout.assemble({name: torch.from_numpy(x) for name, x in parts.items()})
    fresh = lite(torch.from_numpy(crops)).features
    assert (again - fresh).abs().max() < 1e-3 * fresh.abs().max()


def test_encoding_twice_is_bit_identical(crops, lite):
    for first, second in zip(lite.cache_parts(crops).values(), lite.cache_parts(crops).values(), strict=True):
        assert np.array_equal(first, second)


def test_blocks_may_share_channels_or_have_their_own():
    layout = FeatureLayout((TokenBlock("wide", 2, 3, 0), TokenBlock("narrow", 1, 2, 0), TokenBlock("other", 1, 2, 3)))
    parts = {"wide": torch.ones(1, 2, 3), "narrow": 2 * torch.ones(1, 1, 2), "other": 3 * torch.ones(1, 1, 2)}
    expected = [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [2, 2, 0, 0, 0], [0, 0, 0, 3, 3]]
    assert layout.assemble(parts)[0].tolist() == expected


def test_the_peer_stands_upright_in_crop_axes(crops, lite):
    """y points down: ankles far below the hips, shoulders above; a grown person's size."""
    joints = lite(torch.from_numpy(crops[:1])).world_mm[0]
    joints = joints - joints[list(BLAZEPOSE_33.indices("left_hip", "right_hip"))].mean(0)
    assert joints[BLAZEPOSE_33.index("left_ankle"), 1] > 500
    assert -700 < joints[BLAZEPOSE_33.index("left_shoulder"), 1] < -300


def test_unknown_variant_is_refused(as_user):
    with pytest.raises(InputError, match="heavy, full or lite"):
        BlazePose("huge")
