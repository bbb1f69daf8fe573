"""The default detector in real pictures: groups, close-ups, cut bodies, nobody."""

import numpy as np
import pytest
from PIL import Image

from di2pose.image.blazepose import BlazePose
from di2pose.image.boxes import iou
from di2pose.image.crop import crop
from di2pose.image.merge import Candidate
from di2pose.image.movenet import MultiPose
from di2pose.image.people_detector import MANY, PeopleDetector, has_unexplained_box, squares, tiling

WALKER, ROOF = (914, 513, 1155, 934), (591, 72, 719, 457)


@pytest.fixture(scope="module")
def detector():
    return PeopleDetector()


@pytest.fixture(scope="module")
def group(astronaut, walker):
    """Three people of different size side by side, two of them cut at the hips."""
    portrait, man = astronaut.crop((0, 0, 400, 512)), walker.crop((830, 430, 1230, 994))
    picture = Image.new("RGB", (1000, 512), (90, 120, 60))
    picture.paste(portrait, (0, 0))
    picture.paste(man.resize((363, 512)), (400, 0))
    picture.paste(portrait.resize((237, 300)), (763, 212))
    return picture


def test_everybody_in_a_group_is_found_once_largest_first(detector, group):
    """The largest, not the surest."""
    people = detector.detect(group)
    assert people[1].score > people[0].score
    assert len(people) == 3
    for person, box in zip(people, ((18, 8, 374, 512), (461, 70, 689, 454), (762, 219, 979, 512)), strict=True):
        assert iou(person.box, box) > 0.75
        assert person.score > 0.75
        assert person.keypoints.shape == (17, 3)


@pytest.fixture(scope="module")
def crowd(group):
    """The three people nine times: 27."""
    small = group.resize((400, 205))
    picture = Image.new("RGB", (1200, 615), (90, 120, 60))
    for place in range(9):
        picture.paste(small, (place % 3 * 400, place // 3 * 205))
    return picture


def test_a_crowd_is_searched_in_squares_and_each_is_found_once(detector, crowd):
    whole = detector.detect(crowd, 50, tiles=())
    people = detector.detect(crowd, 50)
    assert MANY <= len(whole) < 20
    assert 25 <= len(people) <= 27
    middles = np.array([[(x0 + x1) / 2, (y0 + y1) / 2] for x0, y0, x1, y1 in (person.box for person in people)])
    apart = np.linalg.norm(middles[:, None] - middles, axis=-1) + 1e3 * np.eye(len(people))
    assert apart.min() > 40
    assert sum((person.keypoints[:, 2] > 0.3).sum() >= 5 for person in people) >= 22


def test_only_crowds_cost_further_passes(walker, group, crowd):
    class Counted(MultiPose):
        passes = 0

        def begin(self, image, least=0.0):
            self.passes += 1
            return super().begin(image, least)

    detector = PeopleDetector()
    detector.poses = Counted()
    for picture, most, passes in ((walker, 8, 1), (group, 8, 1), (crowd, MANY, 1)):
        detector.poses.passes = 0
        detector.detect(picture, most)
        assert detector.poses.passes == passes
    detector.detect(crowd, 50)
    assert detector.poses.passes > 4


@pytest.mark.parametrize("part", [(0, 0, 1200, 462), (50, 20, 450, 450), (700, 0, 1000, 300), (3, 5, 20, 400)])
def test_squares_cover_their_part_and_overlap(part):
    size = (1200, 462)
    found = squares(part, size)
    seen = np.zeros(size[::-1], int)
    for x0, y0, x1, y1 in found:
        assert 0 <= x0 < x1 <= size[0]
        assert 0 <= y0 < y1 <= size[1]
        assert max(x1 - x0, y1 - y0) <= round(0.6 * max(part[2] - part[0], part[3] - part[1]))
        seen[y0:y1, x0:x1] += 1
    assert seen[part[1] : part[3], part[0] : part[2]].min() == 1
    assert (seen > 1).any()


def test_a_small_box_outside_of_all_people_is_unexplained():
    people = [Candidate((100.0, 100.0, 300.0, 700.0), 1.0)]
    part, same, other, large = (120, 120, 200, 300), (90, 110, 310, 690), (500, 400, 530, 460), (400, 0, 900, 800)
    for boxes, expected in (([], False), ([part, same], False), ([large], False), ([part, other], True)):
        assert has_unexplained_box(np.array(boxes, float).reshape(-1, 4), people, 400) == expected


def test_tiles_find_the_one_on_the_roof(detector, walker):
    near, far = detector.detect(walker)
    assert iou(near.box, WALKER) > 0.8
    assert iou(far.box, ROOF) > 0.8
    assert detector.detect(walker, tiles=()) == [near]


def test_a_close_up_gets_the_region_of_the_whole_body(detector, astronaut):
    """The upright crop of the face alone shows the landmark network nobody; the region that the face implies does."""
    face = astronaut.crop((130, 0, 330, 220))
    (person,) = detector.detect(face)
    assert person.roi.centre[1] > 400
    assert person.roi.side > 800
    assert BlazePose("full").encode(crop(face, person.roi)[None]).person[0] > 0.5


def test_keypoints_give_a_turned_region(detector, walker):
    part = walker.crop((730, 430, 1330, 994))
    (upright,), (lying,) = detector.detect(part), detector.detect(part.rotate(-90, expand=True))
    turn = (lying.roi.angle - upright.roi.angle + np.pi) % (2 * np.pi) - np.pi
    assert abs(turn - np.pi / 2) < 0.3
    x, y = upright.roi.centre
    assert np.abs(np.array(lying.roi.centre) - (part.height - y, x)).max() < 40


def test_a_person_behind_a_large_patch_is_found_still(detector, walker):
    """80 of the 256 pixels of the crop, over the head and over the legs."""
    part = np.array(walker.crop((730, 430, 1330, 994)))
    for y in (130, 400):
        patched = part.copy()
        patched[y - 80 : y + 80, 220:380] = (40, 160, 90)
        (person,) = detector.detect(Image.fromarray(patched))
        assert iou(person.box, (185, 91, 416, 510)) > 0.5


def test_nobody_gives_an_empty_list(detector):
    noise = np.random.default_rng(0).integers(0, 256, (300, 500, 3), dtype=np.uint8)
    flat = [Image.new("RGB", size, (90, 120, 60)) for size in ((1600, 1200), (3, 2000), (1, 1))]
    for picture in (Image.fromarray(noise), *flat):
        assert detector.detect(picture) == []


@pytest.mark.parametrize("size", [(1768, 994), (1000, 1000), (500, 2000), (301, 300)])
def test_tiles_cover_the_picture_and_overlap(size):
    tiles = tiling(size, 2)
    assert len(tiles) == 4
    for axis in (0, 1):
        spans = sorted({(tile[axis], tile[axis + 2]) for tile in tiles})
        assert (spans[0][0], spans[-1][1]) == (0, size[axis])
        assert spans[0][1] - spans[1][0] > 0.15 * size[axis]


def test_a_large_picture_is_shrunk_once_and_gives_the_same_people(detector, walker):
    """Also those whom only a tile shows, and of any size: whole pixels of the small one or not."""
    before = detector.detect(walker)
    scale = 4001 / walker.width
    large = detector.detect(walker.resize((4001, round(walker.height * scale))))
    assert len(large) == len(before) >= 2
    for one, other in zip(large, before, strict=True):
        assert iou(tuple(value / scale for value in one.box), other.box) > 0.9
        apart = np.linalg.norm(one.keypoints[:, :2] / scale - other.keypoints[:, :2], axis=-1)
        assert np.median(apart) < 0.02 * (other.box[3] - other.box[1])
