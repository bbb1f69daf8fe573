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
    assert (square.shape, square.dtype) == ((60, 60, 3), np.uint8)
    assert square.astype(float).std(axis=(0, 1)).max() > 5


def test_a_seed_gives_the_same_texture_and_another_seed_another():
    first, again, other = (ProceduralTextures()(20, 40, generator(seed)).tobytes() for seed in (1, 1, 2))
    assert first == again != other


def test_grain_follows_the_crop_and_not_the_photograph():
    """The same texture painted on a photograph of twice the size, halved again, is the same picture."""
    small, large = (paint("clouds", pixels, 40, generator(3)).astype(float) for pixels in (40, 80))
    halved = large.reshape(40, 2, 40, 2, 3).mean(axis=(1, 3))
    assert np.abs(halved - small).mean() < 4


def test_dtd_gives_squares_of_its_test_classes_and_names_those_that_are_missing(tmp_path):
    for k, name in enumerate(DTD_TEST_CLASSES):
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        Image.new("RGB", (60, 80), (10 * k, 100, 50)).save(folder / f"{name}_0001.jpg", quality=95)
    Image.new("RGB", (60, 80), (255, 255, 255)).save(tmp_path / "images" / "other.jpg")
    source = DtdTextures(tmp_path)
    assert source.name == "dtd-test-20"
    reds = {int(source(8, 40, generator(seed))[..., 0].mean().round(-1)) for seed in range(200)}
    assert reds == {10 * k for k in range(20)}
    with pytest.raises(InputError, match="lacks 20 of the 20 DTD test classes"):
        DtdTextures(tmp_path / "images" / "banded")(8, 40, generator())
