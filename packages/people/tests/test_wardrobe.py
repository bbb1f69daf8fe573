"""Nobody is ever undressed, and test people wear what no training picture shows."""

import numpy as np
import pytest
from di2pose_people import raster
from di2pose_people.body import draw_shape, model
from di2pose_people.wardrobe import FEMALE_ONLY, HELD_OUT, NOT_WORN, SUITS, draw_outfit, dress, item

NEVER = ("bikini", "_bra", "frenchbra", "panties", "string", "swim", "teddy", "babydoll", "slip", "lingerie")


def outfits(split, count):
    for seed in range(count):
        generator = np.random.default_rng(seed)
        shape = draw_shape(generator)
        yield shape, draw_outfit(shape, split, generator)


@pytest.mark.parametrize("split", ["train", "test"])
def test_everybody_wears_a_top_a_bottom_that_meets_it_and_shoes(split):
    for shape, outfit in outfits(split, 150):
        assert outfit.shoes
        assert outfit.top in SUITS or outfit.bottom
        assert not set(outfit.items) & set(NOT_WORN)
        assert not any(word in name.lower() for name in outfit.items for word in NEVER)
        if outfit.bottom:
            assert item(outfit.bottom).span_m[1] > item(outfit.top).span_m[0]
        if shape["gender"] <= 0.5:
            assert not set(outfit.items) & set(FEMALE_ONLY)


def test_splits_share_no_garment_shoe_hair_or_skin():
    worn = {
        split: {name for _, o in outfits(split, 150) for name in (o.skin, *o.items) if not name.startswith("eyebrow")}
        for split in ("train", "test")
    }
    assert not worn["train"] & worn["test"]
    assert worn["test"] <= HELD_OUT
    assert len(worn["train"]) > 25


@pytest.mark.parametrize("split", ["train", "test"])
def test_no_skin_is_seen_on_trunk_or_hips(split):
    base = model()
    trunk = np.array([base.bone(b) for b in ("root", "pelvis.L", "pelvis.R", "spine05", "spine04", "spine03")])
    for number, (shape, outfit) in enumerate(outfits(split, 4)):
        person = dress(base.body(shape), outfit, np.random.default_rng(number))
        mesh = person.mesh
        for turn in (1.0, -1.0):  # from the front, from behind
            camera = mesh.vertices[:, [0, 2, 1]] * np.float32([turn, -1, turn]) + np.float32([0, 0, 4])
            screen = raster.to_screen(camera, mesh.bias, 512, 256)
            nearest, drawn = np.zeros((512, 512), np.float32), np.full((512, 512), -1, np.int32)
            raster.draw(screen, mesh, 0, nearest, drawn)
            hit = drawn[drawn >= 0]
            on_trunk = np.isin(person.face_bone[hit], trunk)
            assert on_trunk.sum() > 1000
            bare = on_trunk & (mesh.face_kind[hit] >> 2 == 0)
            assert bare.sum() < 0.02 * on_trunk.sum(), outfit
