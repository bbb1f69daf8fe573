from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.image.crop import Roi
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import (
    LIMB_12,
    OCC_3DPW_SEQUENCES,
    Placement,
    advocc_image,
    advocc_placements,
    advocc_visible,
    in_3dpw_occ,
    occlude_limb,
    person_crop,
)
from di2pose.pose.skeleton import H36M_17

GREY = (128, 128, 128)


def sample(**fields):
    points = np.stack([np.linspace(20, 180, 17), np.linspace(30, 260, 17)], axis=-1).astype(np.float32)
    whole = Sample("r1", np.zeros((17, 3), np.float32), joints_2d=points, box=(20.0, 30.0, 180.0, 260.0))
    return replace(whole, **fields)


@pytest.mark.parametrize(("size", "grid", "count"), [(40, (23, 17), 391), (80, (19, 13), 247)])
def test_the_search_has_the_papers_placements_of_which_only_the_last_are_clipped(size, grid, count):
    crop, placements = Rectangle(0, 0, 192, 256), advocc_placements(size)
    rows, columns = sorted({p.y for p in placements}), sorted({p.x for p in placements})
    assert (len(rows), len(columns)) == grid
    assert len(placements) == count == len({(p.x, p.y) for p in placements})
    assert [p.index for p in placements] == list(range(count))
    patches = [p.patch(crop) for p in placements]
    assert (max(p.x1 for p in patches), max(p.y1 for p in patches)) == (192, 256)
    clipped = [p for p in placements if p.square(crop) != p.patch(crop)]
    assert clipped
    assert all(p.x == columns[-1] or p.y == rows[-1] for p in clipped)
    with pytest.raises(InputError, match=r"\(40, 80\)"):
        advocc_placements(size + 20)


@pytest.mark.parametrize("box", [(10.0, 20.0, 110.0, 300.0), (10.0, 20.0, 310.0, 60.0)])
def test_the_person_crop_is_the_box_extended_to_3_by_4_and_enlarged_by_a_quarter(box):
    crop = person_crop(box)
    width, height = crop.x1 - crop.x0, crop.y1 - crop.y0
    assert width / height == pytest.approx(0.75)
    assert min(width / (box[2] - box[0]), height / (box[3] - box[1])) == pytest.approx(1.25)
    assert ((crop.x0 + crop.x1) / 2, (crop.y0 + crop.y1) / 2) == ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)


def test_a_placement_is_mapped_into_the_picture_with_a_texture_by_seed_record_and_placement():
    crop = Rectangle(100, 50, 100 + 384, 50 + 512)  # two picture pixels per crop pixel
    image = Image.new("RGB", (300, 300), GREY)

    def patched(seed, record, index):
        return np.asarray(advocc_image(image, record, crop, Placement(index, 30, 50, 40), seed))

    rows, columns = np.nonzero((patched(0, "a", 5) != GREY).any(-1))
    assert (columns.min(), columns.max() + 1, rows.min(), rows.max() + 1) == (160, 240, 150, 230)
    keys = ((0, "a", 5), (0, "a", 5), (1, "a", 5), (0, "b", 5), (0, "a", 6))
    assert len({patched(*key).tobytes() for key in keys}) == 4


def test_joints_in_the_patch_or_outside_of_the_crop_are_not_counted():
    crop, placement = Rectangle(0, 0, 192, 256), Placement(0, 100, 100, 40)
    points = np.array([[120, 120], [100, 120], [50, 50], [193, 50], [np.nan, 3]], float)
    assert advocc_visible(points, crop, placement).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("size", [40, 80])
def test_the_occ_patch_is_a_share_of_the_regions_side_and_sits_on_a_limb_joint(size):
    image = Image.new("RGB", (220, 300), GREY)
    found = occlude_limb(image, sample(), H36M_17, size, seed=3, roi=Roi((0.0, 0.0), 256.0, 0.4))
    x, y = sample().joints_2d[H36M_17.index(found.joint)].tolist()
    assert found.joint in LIMB_12
    assert found.patch == Rectangle(x - size / 2, y - size / 2, x + size / 2, y + size / 2)
    assert found.hidden[H36M_17.index(found.joint)]
    assert found.hidden.tolist() == found.patch.strictly_contains(sample().joints_2d).tolist()
    assert (np.asarray(found.image) != GREY).any()


def test_the_occ_joint_is_drawn_by_seed_and_record_alone_among_those_in_the_picture():
    def flat(pixels, extent, generator):
        return np.zeros((pixels, pixels, 3), np.uint8)

    def joint(size=40, seed=0, width=220, **fields):
        return occlude_limb(Image.new("RGB", (width, 300), GREY), sample(**fields), H36M_17, size, seed, flat).joint

    assert joint(40) == joint(80)
    assert {joint(seed=seed) for seed in range(80)} == set(LIMB_12)
    assert len({joint(id=f"r{i}") for i in range(20)}) > 4
    first = {"right_hip", "right_knee", "right_ankle", "left_hip"}
    assert {joint(seed=seed, width=60) for seed in range(40)} == first
    image = Image.new("RGB", (220, 300), GREY)
    found, again = (occlude_limb(image, sample(), H36M_17, 80, seed=0) for _ in range(2))
    assert found.image.tobytes() == again.image.tobytes()
    assert found.patch.x1 - found.patch.x0 == pytest.approx(1.25 * 230 * 80 / 256)  # by the box, without a region


@pytest.mark.parametrize(
    ("fields", "picture", "message"),
    [
        ({"joints_2d": None}, (220, 300), "r1 has no 2D joints"),
        ({"box": None}, (220, 300), "r1 has no box"),
        ({}, (5, 5), "none of its 12 limb joints lies in the picture"),
    ],
)
def test_records_that_cannot_be_occluded_say_why(fields, picture, message):
    with pytest.raises(InputError, match=message):
        occlude_limb(Image.new("RGB", picture), sample(**fields), H36M_17, 40, seed=0)


def test_3dpw_occ_has_17_sequences_matched_without_their_number():
    assert len(set(OCC_3DPW_SEQUENCES)) == 17
    assert in_3dpw_occ("courtyard_basketball_01")
    assert in_3dpw_occ("outdoors_slalom")
    assert not in_3dpw_occ("courtyard_basketballs_01")
    assert not in_3dpw_occ("downtown_walking_00")
