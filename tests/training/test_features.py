"""The feature cache: the command on a small prepared dataset, occlusion patches, resuming, ranks, reading."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from stick_figures import write_set

from di2pose.cli import main
from di2pose.data.feature_cache import FeatureCache, write_features
from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED, UNKNOWN, Dataset, Sample
from di2pose.errors import InputError
from di2pose.image.blazepose import BlazePose
from di2pose.image.crop import Roi, apply, crop, roi_from_box, warp
from di2pose.image.detect import PersonMatcher, from_boxes
from di2pose.image.encoder import FeatureLayout, TokenBlock, load_encoder
from di2pose.image.vitpose import VitPose
from di2pose.occlusion.protocols import LIMB_12, occlude_limb
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17
from di2pose.training.features import NUMBERS, DatasetCrops, PatchedCrops, PeopleCrops, features, labelled

LIMBS = list(H36M_17.indices(*LIMB_12))
COUNT = 5
CAMERA = Camera((900.0, 900.0), (320.0, 240.0), (640, 480))


def people(count):
    """Random standing figures off the axis of one camera, with their projections."""
    rng = np.random.default_rng(0)
    for i in range(count):
        joints = rng.normal(scale=250, size=(17, 3))
        joints[:, 1] += np.linspace(-400, 400, 17)[np.argsort(np.argsort(joints[:, 1]))]
        for name, y in (("left_hip", 0), ("right_hip", 0), ("left_shoulder", -500), ("right_shoulder", -500)):
            joints[H36M_17.index(name), 1] = y
        root = np.array([400.0, -100.0, 4000.0])
        joints -= joints[0]
        yield Sample(
            id=f"p{i}",
            joints_mm=joints.astype(np.float32),
            root_mm=root,
            joints_2d=CAMERA.project(joints + root).astype(np.float32),
            visibility=np.full(17, i % 2, np.int8),
            image=f"{i}.png",
            camera=CAMERA,
            subject=f"S{i % 2}",
            split="train" if i % 2 else "test",
            box=(90.0, 80.0, 210.0, 300.0) if i == 4 else None,
            extra={"roi": [330.0, 230.0, 200.0, 0.4]} if i == 1 else {},
        )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "images").mkdir()
    for sample in people(5):
        pixels = np.random.default_rng(int(sample.id[1:])).integers(0, 256, (480, 640, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / sample.image)
    unseen = Sample("unseen", np.zeros((17, 3), np.float32))
    return write_set(folder / "set", [*people(5), unseen], image_root=str(folder / "images"))


class Numbers:
    """A source and an encoder in one: crop i is a plain picture of i, its features are its brightness."""

    name = "numbers"
    layout = FeatureLayout((TokenBlock("tokens", 4, 2, 0),))

    def __init__(self, count, fail_at=None):
        self.count, self.fail_at = count, fail_at

    def __len__(self):
        return self.count

    def crop(self, i):
        if i == self.fail_at:
            raise KeyboardInterrupt
        text = {name: f"{name}{i}" for name in ("id", "subject", "action", "sequence")} | {"split": "ab"[i % 2]}
        return np.full((4, 4, 3), i, np.uint8), {"row": np.array(i), "flag": np.array(i % 2 == 0)}, text

    def cache_parts(self, crops):
        return {"tokens": crops[:, :, :2, 0].astype(np.float16)}


def write(out, count=10, fail_at=None, workers=0, **about):
    numbers = Numbers(count, fail_at)
    write_features(numbers, numbers, out, about, rows=4, batch=3, workers=workers)


def content(out):
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def assert_close(cached, seen):
    """Within fp16."""
    wanted = np.asarray(seen)
    assert np.abs(cached.numpy() - wanted).max() < 2e-3 * np.abs(wanted).max()


def test_the_command_writes_what_the_encoder_sees(prepared, tmp_path):
    assert main(["features", str(prepared), "--encoder", "blazepose-lite", "--out", str(tmp_path)]) == 0
    cache, dataset, encoder = FeatureCache(tmp_path), Dataset(prepared), BlazePose("lite")
    assert len(cache) == 5  # the record without an image is left out
    assert cache.header["runtime"] == "litert"
    assert cache.layout == encoder.layout
    source = DatasetCrops(dataset, encoder)
    for i in range(5):
        sample = dataset[i]
        pixels = crop(dataset.read_image(sample), labelled(sample, H36M_17).roi)
        assert np.array_equal(source.crop(i)[0], pixels)
        assert_close(cache.features(np.array([i])), encoder.encode(pixels[None]).features)


def test_vitpose_sees_the_upright_box_in_camera_axes(prepared, vitpose, tmp_path):
    assert main(["features", str(prepared), "--encoder", f"vitpose:{vitpose}", "--out", str(tmp_path)]) == 0
    cache, dataset, encoder = FeatureCache(tmp_path), Dataset(prepared), VitPose(str(vitpose))
    assert (cache.header["encoder"], cache.header["runtime"]) == (f"vitpose:{vitpose}", "torch")
    source = DatasetCrops(dataset, encoder)
    for i in range(5):
        sample = dataset[i]
        (x0, y0), (x1, y1) = sample.joints_2d.min(0).tolist(), sample.joints_2d.max(0).tolist()
        box = (90.0, 80.0, 210.0, 300.0) if i == 4 else (x0, y0, x1, y1)
        assert (sample.box == box) == (i == 4)
        matrix = encoder.matrix(encoder.region(from_boxes([box])[0]))
        np.testing.assert_allclose(encoder.matrix(encoder.region(labelled(sample, H36M_17))), matrix, rtol=1e-12)
        pixels, labels, _ = source.crop(i)
        assert np.array_equal(pixels, warp(dataset.read_image(sample), matrix, (192, 256)))
        np.testing.assert_array_equal(labels["joints_mm"], sample.joints_mm)
        np.testing.assert_allclose(apply(matrix, labels["joints_2d"]), sample.joints_2d, atol=0.01)
        assert np.isnan(labels["focal"])
        assert_close(cache.features(np.array([i])), encoder.encode(pixels[None]).features)


def test_the_name_rebuilds_the_encoder_and_mirror_images_are_kept(prepared, tmp_path):
    words = ["features", str(prepared), "--encoder", "blazepose-lite+movenet", "--flip", "--out", str(tmp_path)]
    assert main(words) == 0
    cache = FeatureCache(tmp_path)
    assert cache.header["encoder"] == "blazepose-lite+movenet"
    encoder = load_encoder(cache.header["encoder"])
    assert encoder.layout == cache.layout
    source = DatasetCrops(Dataset(prepared), encoder)
    assert cache.has_flipped
    pixels = np.stack([source.crop(i)[0] for i in range(2)])
    for flipped, seen in ((False, pixels), (True, pixels[:, :, ::-1])):
        assert_close(cache.features(np.arange(2), flipped=flipped), encoder.encode(seen).features)
    for name, match in (("blazepose-lite+map16", "no tokens called map16"), ("eyes", "no encoder is called 'eyes'")):
        with pytest.raises(InputError, match=match):
            features(prepared, tmp_path, encoder=name)


def test_labels_are_in_the_crop_and_come_back(prepared, tmp_path):
    dataset = Dataset(prepared)
    source = DatasetCrops(dataset, BlazePose("lite"))
    for i in range(5):
        _, labels, text = source.crop(i)
        sample = dataset[i]
        roi = Roi((float(labels["roi"][0]), float(labels["roi"][1])), *map(float, labels["roi"][2:]))
        assert text == {"id": f"p{i}", "subject": f"S{i % 2}", "action": "", "sequence": "", "split": sample.split}
        assert np.abs(labels["joints_mm"] @ labels["rotation"] - sample.joints_mm).max() < 0.1
        assert np.abs(roi.to_image(labels["joints_2d"]) - sample.joints_2d).max() < 0.01
        assert labels["row"] == i
        assert labels["focal"] > 900 * 256 / roi.side
    for i in (0, 2, 3, 4):  # the region holds all joints, hips in the middle, shoulders up
        inside = labelled(dataset[i], H36M_17).roi.to_crop(dataset[i].joints_2d)
        assert (inside > 0).all()
        assert (inside < 256).all()
        hips, shoulders = (
            inside[list(H36M_17.indices(f"left_{name}", f"right_{name}"))].mean(0) for name in ("hip", "shoulder")
        )
        assert np.abs(hips - 128).max() < 0.1
        assert abs(shoulders[0] - 128) < 0.1
        assert shoulders[1] < 128
    assert labelled(dataset[1], H36M_17).roi == Roi((330.0, 230.0), 200.0, 0.4)


def test_a_killed_run_goes_on_to_the_identical_files(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "killed", fail_at=6)
    assert sorted(path.name for path in (tmp_path / "killed").glob("*.npy")) == ["shard-00000.npy"]
    with pytest.raises(InputError, match="2 of 3 shards"):
        FeatureCache(tmp_path / "killed")
    write(tmp_path / "killed")
    write(tmp_path / "whole")
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_workers_give_the_identical_files_and_their_errors(prepared, tmp_path):
    write(tmp_path / "alone")
    write(tmp_path / "workers", workers=2)
    assert content(tmp_path / "alone") == content(tmp_path / "workers")
    boxed = [replace(sample, box=(90.0, 80.0, 210.0, 300.0)) for sample in people(2)]
    write_set(tmp_path / "boxed", boxed, image_root=str(prepared.parent / "images"))
    for workers in (0, 2):  # workers have a detector of their own
        features(tmp_path / "boxed", tmp_path / f"{workers}", "blazepose-lite", detect=True, workers=workers)
    assert content(tmp_path / "0") == content(tmp_path / "2")

    class Damaged(Numbers):
        def crop(self, i):
            if i == 7:
                raise InputError("7.png cannot be read")
            return super().crop(i)

    with pytest.raises(InputError, match=r"^7\.png cannot be read$"):
        write_features(Damaged(10), Damaged(10), tmp_path / "damaged", {}, rows=4, workers=2)
    assert [path.name for path in (tmp_path / "damaged").glob("*.npy")] == ["shard-00000.npy"]
    with pytest.raises(InputError, match="--workers must be 0 or more"):
        features(prepared, tmp_path / "none", workers=-1)


def test_two_ranks_and_an_extended_cache_give_the_identical_files(tmp_path, monkeypatch):
    write(tmp_path / "whole", count=15)
    write(tmp_path / "grown", count=10)
    write(tmp_path / "grown", count=15, fail_at=2)  # finished shards are not encoded again
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "10":
        monkeypatch.setenv("RANK", rank)
        write(tmp_path / "two", count=15)
    assert content(tmp_path / "grown") == content(tmp_path / "two") == content(tmp_path / "whole")


def test_caches_of_another_encoder_or_format_are_refused(tmp_path):
    with pytest.raises(InputError, match="di2pose features"):
        FeatureCache(tmp_path)
    write(tmp_path, encoder="a")
    with pytest.raises(InputError, match="other encoder"):
        write(tmp_path, encoder="b")
    header = json.loads((tmp_path / "features.json").read_text())
    assert header["encoder"] == "a"
    (tmp_path / "features.json").write_text(json.dumps(header | {"format_version": 1}))
    for use in (FeatureCache, write):
        with pytest.raises(InputError, match=r"of format 1, this program reads 2: .*make the features again"):
            use(tmp_path)


def test_reading_by_number_by_split_and_by_column(tmp_path):
    write(tmp_path)
    cache = FeatureCache(tmp_path)
    order = np.array([9, 0, 4, 4])
    assert cache.read(order, "row")["row"].tolist() == [9, 0, 4, 4]
    assert set(cache.read(order)) == {"tokens", "row", "flag"}
    assert cache.features(order)[:, 2, 1].tolist() == [9.0, 0.0, 4.0, 4.0]
    assert cache.column("row").tolist() == list(range(10))
    assert cache.select(split="b").tolist() == [1, 3, 5, 7, 9]
    assert cache.select(split=("a", "b"), subject="subject4").tolist() == [4]
    assert isinstance(cache.shards[0], np.memmap)


def test_a_dataset_without_images_is_refused(tmp_path):
    write_set(tmp_path, [Sample("a", np.zeros((17, 3), np.float32))])
    with pytest.raises(InputError, match="nothing to encode"):
        DatasetCrops(Dataset(tmp_path), BlazePose("lite"))


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
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


def test_the_patch_covers_a_limb_and_its_joints_are_occluded(rendered):
    plain = PeopleCrops(Dataset(rendered))
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


def test_the_command_says_in_the_cache_which_protocol_it_is(rendered, tmp_path):
    command = ["features", str(rendered), "--encoder", "blazepose-lite", "--occlusion", "occ-40"]
    assert main([*command, "--out", str(tmp_path / "patched")]) == 0
    cache = FeatureCache(tmp_path / "patched")
    assert cache.header["occlusion"] == "occ-40"
    assert (cache.column("visibility") == OCCLUDED).any(1).all()
    features(rendered, tmp_path / "plain", encoder="blazepose-lite")
    plain = FeatureCache(tmp_path / "plain")
    assert plain.header.keys() == cache.header.keys() - {"occlusion"}
    with pytest.raises(InputError, match="other occlusion"):
        features(rendered, tmp_path / "patched", encoder="blazepose-lite", occlusion="occ-80")
    with pytest.raises(InputError, match="no picture for --detect"):
        features(rendered, tmp_path, encoder="blazepose-lite", detect=True)


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


def test_a_found_region_replaces_the_labels_region_and_the_patch_lies_on_the_picture(pictures, vitpose):
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
    encoder = VitPose(str(vitpose))  # which looks at found and patched people, too
    made = [DatasetCrops(pictures, encoder, find, occlusion).crop(0) for occlusion in (None, "occ-80")]
    for pixels, labels, _ in made:
        assert pixels.shape == (256, 192, 3)
        np.testing.assert_array_equal(labels["rotation"], np.eye(3))
        np.testing.assert_allclose(labels["roi"], [160, 120, 1.25 * 120 * 256 / 192, 0], rtol=1e-6)
    assert (made[0][0] != made[1][0]).any()
    assert (made[1][1]["visibility"] == OCCLUDED).any()
