"""Rendering straight into features: the pictures of `people render`, seen by the encoder, only features kept."""

import numpy as np
import pytest
from di2pose_people.features import RenderedCrops, people_features

from di2pose.data.feature_cache import FeatureCache
from di2pose.image.blazepose import BlazePose
from di2pose.training.features import PeopleCrops, features


@pytest.fixture(scope="session")
def cache(plan, tmp_path_factory):
    out = tmp_path_factory.mktemp("features")
    people_features(plan, out, count=4, encoder="blazepose-lite")
    return FeatureCache(out)


def test_drawn_crops_are_the_rendered_pictures(plan, people):
    drawn, kept = RenderedCrops(plan, 12), PeopleCrops(people)
    assert drawn.about == kept.about
    for i in (0, 11):
        (pixels, labels, texts), (pixels_too, labels_too, texts_too) = drawn.crop(i), kept.crop(i)
        assert np.array_equal(pixels, pixels_too)
        assert texts == texts_too
        for name, value in labels.items():
            np.testing.assert_array_equal(value, labels_too[name])
            assert value.dtype == labels_too[name].dtype


def test_features_are_the_encoders_and_labels_the_renderers(cache, people):
    seen = BlazePose("lite").cache_parts(np.stack([np.asarray(people.read_image(people[i])) for i in range(4)]))
    np.testing.assert_allclose(cache.column("map8").astype(np.float32), seen["map8"].astype(np.float32), atol=0.02)
    np.testing.assert_array_equal(cache.column("joints_mm"), people.joints_mm[:4])
    assert cache.features(np.arange(4)).shape == (4, cache.layout.length, cache.layout.width)


def test_a_larger_count_extends_and_a_second_run_changes_nothing(cache, plan, tmp_path):
    for count in (2, 4):
        people_features(plan, tmp_path, count=count, encoder="blazepose-lite")
    more = FeatureCache(tmp_path)
    np.testing.assert_array_equal(more.column("joints_mm"), cache.column("joints_mm"))
    # One picture at a time or in a batch: the encoder's rounding may differ, the picture may not.
    np.testing.assert_allclose(more.column("landmarks"), cache.column("landmarks"), atol=0.05)
    before = (tmp_path / "shard-00000.npy").stat().st_mtime_ns
    people_features(plan, tmp_path, count=4, encoder="blazepose-lite")
    assert (tmp_path / "shard-00000.npy").stat().st_mtime_ns == before


def test_the_features_command_takes_a_folder_of_rendered_people(folder, cache, tmp_path):
    features(folder, tmp_path / "kept", encoder="blazepose-lite")
    kept = FeatureCache(tmp_path / "kept")
    assert len(kept) == 12
    np.testing.assert_array_equal(kept.column("joints_mm")[:4], cache.column("joints_mm"))
