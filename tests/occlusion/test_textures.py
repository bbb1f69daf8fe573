import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.occlusion.textures import DTD_TEST_CLASSES, KINDS, DtdTextures, ProceduralTextures, paint


def generator(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_paints_a_pattern_that_is_not_flat(kind):
    square = paint(kind, 60, 40, generator())
    assert square.shape == (60, 60, 3)
    assert square.dtype == np.uint8
    assert square.astype(float).std(axis=(0, 1)).max() > 5


def test_a_seed_gives_the_same_texture_and_another_seed_another():
    source = ProceduralTextures()
    first, again, other = (source(50, 40, generator(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_seeds_reach_all_kinds():
    reached = {list(KINDS)[generator(seed).integers(len(KINDS))] for seed in range(100)}
    assert reached == set(KINDS)


def test_grain_follows_the_crop_and_not_the_photograph():
    """The same texture painted on a photograph of twice the size, halved again, is the same picture."""
    small, large = (paint("clouds", pixels, 40, generator(3)).astype(float) for pixels in (40, 80))
    halved = large.reshape(40, 2, 40, 2, 3).mean(axis=(1, 3))
    assert np.abs(halved - small).mean() < 4


@pytest.fixture
def dtd(tmp_path):
    for k, name in enumerate(DTD_TEST_CLASSES):
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        Image.new("RGB", (300, 400), (10 * k, 100, 50)).save(folder / f"{name}_0001.jpg", quality=95)
    Image.new("RGB", (300, 400), (255, 255, 255)).save(tmp_path / "images" / "other.jpg")
    return tmp_path


def test_dtd_gives_squares_of_its_test_classes(dtd):
    source = DtdTextures(dtd)
    assert len(source.files) == 20
    reds = {int(source(30, 40, generator(seed))[..., 0].mean().round(-1)) for seed in range(200)}
    assert reds == {10 * k for k in range(20)}


def test_dtd_without_its_test_classes_is_named(dtd):
    with pytest.raises(InputError, match="lacks 20 of the 20 DTD test classes"):
        DtdTextures(dtd / "images" / "banded")(8, 40, generator())
