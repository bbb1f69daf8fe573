"""BlazePose's person detector in real pictures."""

import numpy as np
import pytest
import torch
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.blazepose import BlazePose
from di2pose.image.blazepose_detector import INPUT, BlazePoseDetector, _tiles
from di2pose.image.crop import crop


@pytest.fixture(scope="module")
def detector():
    return BlazePoseDetector()


def test_the_walker_and_the_one_on_the_roof_are_found(detector, walker):
    people = detector.detect(walker)
    hips = np.array([person.hip for person in people])
    assert len(people) == 2
    assert np.abs(hips - [[1030, 735], [640, 263]]).max() < 25
    assert people[0].score > people[1].score > 0.7
    assert detector.detect(walker, max_people=1) == people[:1]


def test_whole_picture_alone_finds_the_prominent_one(detector, walker):
    (person,) = detector.detect(walker, tiles=())
    assert np.abs(np.array(person.hip) - (1000, 740)).max() < 40


def test_a_portrait_with_hips_outside_the_picture_is_found(detector, astronaut):
    (person,) = detector.detect(astronaut)
    assert person.hip[1] > 440
    assert abs(person.roi.angle) < 0.4


def test_region_follows_a_turned_picture(detector, walker):
    """The picture lying on its side gives the same person with the region turned by a quarter."""
    part = walker.crop((730, 430, 1330, 994))
    upright, lying = detector.detect(part, tiles=())[0], detector.detect(part.rotate(-90, expand=True), tiles=())[0]
    turn = (lying.roi.angle - upright.roi.angle + np.pi) % (2 * np.pi) - np.pi
    assert abs(turn - np.pi / 2) < 0.3
    x, y = upright.hip
    assert np.abs(np.array(lying.hip) - (part.height - y, x)).max() < 40


def test_the_region_is_good_for_the_encoder(detector, walker):
    person = detector.detect(walker)[1]
    seen = BlazePose("lite")(torch.from_numpy(crop(walker, person.roi))[None])
    assert seen.person[0] > 0.9


def test_nobody_gives_an_empty_list(detector):
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 256, (300, 500, 3), dtype=np.uint8))
    for picture in (noise, Image.new("RGB", (640, 480), (90, 120, 60)), Image.new("RGB", (20, 900))):
        assert detector.detect(picture) == []


@pytest.mark.parametrize("size", [(1768, 994), (1000, 1000), (500, 2000), (301, 300)])
@pytest.mark.parametrize("division", [1, 2, 4])
def test_tiles_cover_the_picture_and_overlap_by_half(size, division):
    tiles = _tiles(size, division)
    side = max(size) / division
    for axis in (0, 1):
        lines = sorted({tile.centre[axis] for tile in tiles})
        assert lines[0] - side / 2 <= 1e-6
        assert lines[-1] + side / 2 >= size[axis] - 1e-6
        assert np.diff(lines).max(initial=0) <= side / 2 + 1e-6
    assert {tile.side for tile in tiles} == {side}


def test_anchors_lie_on_the_network_s_grids(detector):
    assert tuple(detector.centres.shape) == (2254, 2)
    assert detector.centres[0].tolist() == [4, 4]
    assert detector.centres[2].tolist() == [12, 4]
    assert detector.centres[-1].tolist() == [INPUT - 16, INPUT - 16]


def test_at_least_one_person_must_be_asked(detector, astronaut):
    with pytest.raises(InputError, match="at least 1"):
        detector.detect(astronaut, max_people=0)
