"""Crops under the patch of an occlusion protocol: of rendered people, and of pictures that a detector looks at."""

import numpy as np
import pytest
from PIL import Image
from stick_figures import write_set

from di2pose.cli import main
from di2pose.data.feature_cache import FeatureCache
from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED, UNKNOWN, Dataset, Sample
from di2pose.errors import InputError
from di2pose.image.blazepose import BlazePose
from di2pose.image.crop import roi_from_box
from di2pose.image.detect import PersonMatcher
from di2pose.image.vitpose import VitPose
from di2pose.occlusion.protocols import LIMB_12, occlude_limb
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17
from di2pose.training.features import DatasetCrops, features
from di2pose.training.people_crops import NUMBERS, PatchedCrops, PeopleCrops

LIMBS = list(H36M_17.indices(*LIMB_12))
COUNT = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Grey pictures with joints all over them, as `people render` would keep them; some lie beyond the border."""
    out = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(0)
    words = {"pose_class": "upright", "occlusion": "none", "crop": "detector"}
    settings = {"seed": 1, "split": "test", **{name: [word] for name, word in words.items()}}
    Image.new("RGB", (256, 256), (90, 90, 90)).save(out / "grey.jpg")
    extra = {"roi": [128, 128, 256, 0], "truncated": False, **words, **dict.fromkeys(NUMBERS, 0.0)}
    camera, samples = Camera((500.0, 500.0), (128.0, 128.0), (256, 256)), []
    for i in range(COUNT):
        points = rng.uniform(-30, 286, (17, 2)).astype(np.float32)
        outside = ((points < 0) | (points >= 256)).any(-1)
        state = np.where(outside, OUT_OF_FRAME, rng.choice([SEEN, SELF_OCCLUDED], 17)).astype(np.int8)
        labels = {"image": "grey.jpg", "camera": camera, "action": "upright", "split": "test", "extra": extra}
        pose, root = rng.normal(0, 300, (17, 3)).astype(np.float32), np.array([0.0, 0.0, 4000.0])
        samples.append(Sample(f"people_test_1_{i:07d}", pose, root, points, state, **labels))
    write_set(out, samples, "people", image_root=".", settings=settings)
    return out


def test_the_patch_covers_a_limb_and_its_joints_are_occluded(folder):
    plain = PeopleCrops(Dataset(folder))
    patched = PatchedCrops(plain, "occ-80")
    for i in range(COUNT):
        (before, labels, text), (after, new, same_text) = plain.crop(i), patched.crop(i)
        assert same_text == text
        rows, columns = np.nonzero((before != after).any(-1))
        x0, x1, y0, y1 = columns.min(), columns.max() + 1, rows.min(), rows.max() + 1
        assert max(x1 - x0, y1 - y0) <= 81
        points, outside = labels["joints_2d"], labels["visibility"] == OUT_OF_FRAME
        under = (points > (x0 - 1, y0 - 1)).all(-1) & (points < (x1 + 1, y1 + 1)).all(-1) & ~outside
        changed = new["visibility"] != labels["visibility"]
        assert (new["visibility"][changed] == OCCLUDED).all()
        assert not changed[~under].any()
        assert (new["visibility"] == OCCLUDED)[LIMBS].any()
        np.testing.assert_array_equal(new["visibility"] == OUT_OF_FRAME, outside)
        assert new["hidden"] == np.float32((new["visibility"] >= OCCLUDED).mean())
        for name in set(labels) - {"visibility", "hidden"}:
            np.testing.assert_array_equal(new[name], labels[name])
            assert new[name].dtype == labels[name].dtype
        assert new["hidden"].dtype == labels["hidden"].dtype


def test_the_command_says_in_the_cache_which_protocol_it_is(folder, tmp_path):
    command = ["features", str(folder), "--encoder", "blazepose-lite", "--occlusion", "occ-40"]
    assert main([*command, "--out", str(tmp_path / "patched")]) == 0
    cache = FeatureCache(tmp_path / "patched")
    assert cache.header["occlusion"] == "occ-40"
    assert (cache.column("visibility") == OCCLUDED).any(1).all()
    features(folder, tmp_path / "plain", encoder="blazepose-lite")
    plain = FeatureCache(tmp_path / "plain")
    assert plain.header.keys() == cache.header.keys() - {"occlusion"}
    with pytest.raises(InputError, match="other occlusion"):
        features(folder, tmp_path / "patched", encoder="blazepose-lite", occlusion="occ-80")
    with pytest.raises(InputError, match="no picture for --detect"):
        features(folder, tmp_path, encoder="blazepose-lite", detect=True)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """One empty grey picture with a record in it: the detector finds nobody, the record's box counts."""
    folder = tmp_path_factory.mktemp("pictures")
    Image.new("RGB", (320, 240), (128, 128, 128)).save(folder / "a.png")
    rng = np.random.default_rng(1)
    joints = rng.normal(0, 300, (17, 3)).astype(np.float32)
    joints[0] = 0
    camera, root = Camera((300.0, 300.0), (160.0, 120.0), (320, 240)), np.array([0.0, 0.0, 3000.0])
    record = Sample(
        "a", joints, root_mm=root, joints_2d=camera.project(joints + root).astype(np.float32), image="a.png",
        box=(100.0, 60.0, 220.0, 180.0), camera=camera, split="test",
    )  # fmt: skip
    return Dataset(write_set(folder / "set", [record], image_root=str(folder)))


def test_a_found_region_replaces_the_labels_region_and_the_patch_lies_on_the_picture(pictures):
    find, encoder = PersonMatcher(), BlazePose("lite")
    plain, patched = DatasetCrops(pictures, encoder, find), DatasetCrops(pictures, encoder, find, "occ-80")
    assert plain.about == {"source": "figures", "skeleton": "h36m_17", "regions": "detector"}
    assert patched.about == plain.about | {"occlusion": "occ-80"}
    sample = pictures[0]
    image = pictures.read_image(sample)
    roi = roi_from_box(sample.box)
    made = occlude_limb(image, sample, H36M_17, 80, 0, roi=roi)
    _, labels, _ = plain.crop(0)
    np.testing.assert_allclose(labels["roi"], [*roi.centre, roi.side, roi.angle], rtol=1e-6)
    assert (labels["visibility"] == UNKNOWN).all()
    pixels, labels, _ = patched.crop(0)
    np.testing.assert_array_equal(labels["visibility"], np.where(made.hidden, OCCLUDED, UNKNOWN))
    found = find(sample, made.image)
    np.testing.assert_allclose(labels["roi"], [*found.centre, found.side, found.angle], rtol=1e-6)
    assert (pixels != plain.crop(0)[0]).any()
    with pytest.raises(InputError, match="tries the detector"):
        DatasetCrops(pictures, encoder, occlusion="occ-80")


def test_vitpose_looks_at_found_and_patched_people_too(pictures, vitpose):
    find, encoder = PersonMatcher(), VitPose(str(vitpose))
    made = [DatasetCrops(pictures, encoder, find, occlusion).crop(0) for occlusion in (None, "occ-80")]
    for pixels, labels, _ in made:
        assert pixels.shape == (256, 192, 3)
        np.testing.assert_array_equal(labels["rotation"], np.eye(3))
        np.testing.assert_allclose(labels["roi"], [160, 120, 1.25 * 120 * 256 / 192, 0], rtol=1e-6)
    assert (made[0][0] != made[1][0]).any()
    assert (made[1][1]["visibility"] == OCCLUDED).any()
