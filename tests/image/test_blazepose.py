"""BlazePose: the layout of the features, its own 3D pose, and its person detector in real pictures."""

import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.blazepose import BlazePose, BlazePoseDetector, _tiles
from di2pose.image.crop import crop
from di2pose.image.encoder import FeatureLayout, TokenBlock, load_encoder
from di2pose.pose.skeleton import BLAZEPOSE_33


@pytest.fixture(scope="module")
def lite():
    return BlazePose("lite")


def test_the_walker_is_seen_where_she_is(crops, lite):
    """Head above hips above ankles, in 2D and 3D, the hips in the middle, somebody is there, and turning turns."""
    seen = lite.encode(crops)
    nose, hip, ankle = (seen.landmarks_2d[0, BLAZEPOSE_33.index(name)] for name in ("nose", "left_hip", "left_ankle"))
    assert nose[1] < hip[1] - 40 < ankle[1] - 80
    assert np.abs(hip - 128).max() < 25
    assert seen.person.min() > 0.9
    assert seen.landmark_visibility.shape == (3, 33)
    assert abs(float(seen.landmarks_2d[1, BLAZEPOSE_33.index("nose"), 0] - 128)) > 20
    shoulder, hip, ankle = seen.world_mm[0, list(BLAZEPOSE_33.indices("left_shoulder", "left_hip", "left_ankle")), 1]
    assert shoulder + 300 < hip < ankle - 500


def test_sequence_holds_every_block_in_its_own_place(crops, lite):
    """Rows of a map first; cached maps are in fp16."""
    features, layout, parts = lite.encode(crops).features, lite.layout, lite.cache_parts(crops)
    assert (layout.length, layout.width) == (64 + 16 + 4 + 33, 192 + 8)
    assert features.shape == (3, 117, 200)
    (whole, *_) = lite.network(crops[:1].astype(np.float32) / 255)
    assert np.array_equal(features[0, 8 * 3 + 5, :192], whole[0, 3, 5])
    assert np.array_equal(features[:, layout.tokens("map4"), :192].astype(np.float16), parts["map4"])
    tokens = features[:, layout.tokens("landmarks")]
    assert np.array_equal(tokens[..., 192:], parts["landmarks"])
    assert (tokens[..., :192] == 0).all()
    assert (features[:, : layout.tokens("landmarks").start, 192:] == 0).all()
    assert {name: (x.dtype.name, x.shape[1:]) for name, x in parts.items()} == {
        "map8": ("float16", (64, 192)),
        "map4": ("float16", (16, 192)),
        "map2": ("float16", (4, 192)),
        "landmarks": ("float32", (33, 8)),
        "landmarks_2d": ("float32", (33, 2)),
        "world_mm": ("float32", (33, 3)),
    }
    assert np.abs(layout.assemble(parts) - features).max() < 1e-3 * np.abs(features).max()


def test_unknown_names_are_refused(as_user, lite):
    with pytest.raises(InputError, match="no block 'map16'"):
        lite.layout.tokens("map16")
    with pytest.raises(InputError, match="heavy, full or lite"):
        BlazePose("huge")
    with pytest.raises(InputError, match=r"no tokens called map16: \+movenet can be added"):
        load_encoder("blazepose-lite+map16")


def test_blocks_may_share_channels_or_have_their_own():
    layout = FeatureLayout((TokenBlock("wide", 2, 3, 0), TokenBlock("narrow", 1, 2, 0), TokenBlock("other", 1, 2, 3)))
    parts = {"wide": np.ones((1, 2, 3)), "narrow": 2 * np.ones((1, 1, 2)), "other": 3 * np.ones((1, 1, 2))}
    expected = [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [2, 2, 0, 0, 0], [0, 0, 0, 3, 3]]
    assert layout.assemble(parts)[0].tolist() == expected


@pytest.fixture(scope="module")
def detector():
    return BlazePoseDetector()


def test_the_walker_and_the_one_on_the_roof_are_found(detector, lite, walker):
    people = detector.detect(walker)
    hips = np.array([person.hip for person in people])
    assert len(people) == 2
    assert np.abs(hips - [[1030, 735], [640, 263]]).max() < 25
    assert people[0].score > people[1].score > 0.7
    assert lite.encode(crop(walker, people[1].roi)[None]).person[0] > 0.9
    (prominent,) = detector.detect(walker, tiles=())
    assert np.abs(np.array(prominent.hip) - (1000, 740)).max() < 40
    with pytest.raises(InputError, match="at least 1"):
        detector.detect(walker, max_people=0)


def test_a_portrait_with_hips_outside_the_picture_is_found(detector, astronaut):
    (person,) = detector.detect(astronaut)
    assert person.hip[1] > 440
    assert abs(person.roi.angle) < 0.4


def test_nobody_gives_an_empty_list(detector):
    noise = np.random.default_rng(0).integers(0, 256, (300, 500, 3), dtype=np.uint8)
    for picture in (Image.fromarray(noise), Image.new("RGB", (20, 900))):
        assert detector.detect(picture) == []


@pytest.mark.parametrize(("size", "division"), [((1768, 994), 4), ((500, 2000), 2), ((301, 300), 1)])
def test_tiles_cover_the_picture_and_overlap_by_half(size, division):
    tiles = _tiles(size, division)
    side = max(size) / division
    for axis in (0, 1):
        lines = sorted({tile.centre[axis] for tile in tiles})
        assert lines[0] - side / 2 <= 1e-6
        assert lines[-1] + side / 2 >= size[axis] - 1e-6
        assert np.diff(lines).max(initial=0) <= side / 2 + 1e-6
    assert {tile.side for tile in tiles} == {side}
