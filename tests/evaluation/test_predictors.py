import dataclasses

import numpy as np
import pytest
import torch

from di2pose import Di2Pose, recipes
from di2pose.errors import InputError
from di2pose.evaluation.predictors import PicturePredictor, PredictionFile
from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.run import evaluate_dataset
from di2pose.image.crop import roi_from_box
from di2pose.image.detect import from_boxes
from di2pose.image.encoder import EncoderOutput, FeatureLayout, TokenBlock
from di2pose.noise import hypothesis_generators
from di2pose.pose.skeleton import H36M_17, LSP_14, convert


def test_poses_are_found_by_id_with_hypotheses_skeleton_and_units(make_samples, write_predictions):
    samples = make_samples(4)
    file = PredictionFile(write_predictions(samples[::-1]))
    poses = file.predict([None] * 4, samples, 1, 25, 0)
    assert np.array_equal(poses, np.stack([s.joints_mm for s in samples])[:, None])
    lsp, _ = convert(np.stack([s.joints_mm for s in samples[:2]]), H36M_17, LSP_14)
    many = np.stack([lsp, lsp + 1, lsp + 2], axis=1)
    ids = np.array([b"r0", b"r1"])
    file = PredictionFile(write_predictions(samples[:2], many, ids=ids, skeleton="lsp14", units="mm"))
    assert file.skeleton is LSP_14
    assert np.array_equal(file.predict([None], samples[1:2], 2, 25, 0), many[1:, :2])
    file.check(["r1"], ["r0", "r1", "r2"], 3)
    with pytest.raises(InputError, match=r"1 of 2 records have no pose \(r9\), 1 of 2 ids are not in .* \(r0\)"):
        file.check(["r1", "r9"], ["r1", "r2", "r9"], 1)


@pytest.mark.parametrize(
    ("change", "keys", "message"),
    [
        (None, {"ids": np.array(["r0"])}, "2 poses need as many ids"),
        (None, {"ids": np.array(["r0", "r0"])}, "1 of the 2 ids occur more than once"),
        (None, {"units": "m"}, r"must be in 'mm' \(the file says 'm'\)"),
        (None, {"skeleton": "lsp_14"}, r"shape \(n, 14, 3\) .* for lsp_14, got float32 of shape \(2, 17, 3\)"),
        (None, {"skeleton": "stick"}, "no skeleton is called 'stick'"),
        (lambda poses: poses / 10, {}, "multiply metres by 1000"),
        (lambda poses: poses + np.float32([0, 0, 3000]), {}, "must be root-relative"),
        (lambda poses: np.where(np.arange(17)[:, None] == 3, np.nan, poses), {}, r"NaN .* in 2 poses \(r0, r1\)"),
        (lambda poses: poses[:0], {}, "0 poses need as many ids"),
        (lambda poses: poses.astype(int), {}, "must be floating point"),
        (lambda poses: poses[..., :2], {}, r"got float32 of shape \(2, 17, 2\)"),
    ],
)
def test_poses_that_cannot_be_right_are_refused(make_samples, write_predictions, change, keys, message):
    samples = make_samples(2)
    poses = np.stack([s.joints_mm for s in samples])
    with pytest.raises(InputError, match=message):
        PredictionFile(write_predictions(samples, poses if change is None else change(poses), **keys))


def test_damaged_and_missing_files_are_refused_by_name(make_samples, write_predictions, tmp_path):
    whole = write_predictions(make_samples(2)).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "pickled.npz", ids=np.array([{}], object), joints_mm=np.zeros((1, 17, 3)))
    np.savez(tmp_path / "other.npz", ids=np.array(["r0"]))
    for name in ("none.npz", "cut.npz", "array.npy", "pickled.npz", "other.npz"):
        with pytest.raises(InputError, match=f"{name} is no readable npz file with ids and joints_mm"):
            PredictionFile(tmp_path / name)


class Grid:
    """An encoder without landmarks: 16 tokens, the mean colours of a 4 x 4 grid."""

    name, size = "grid", (16, 16)
    layout = FeatureLayout((TokenBlock("tokens", 16, 3, 0),))

    def __init__(self):
        self.crops = 0

    def region(self, detection):
        return roi_from_box(detection.box)

    def matrix(self, region):
        return region.matrix(16)

    def rotation(self, region, camera):
        return np.diag([-1.0, -1.0, 1.0])

    def encode(self, crops):
        self.crops += len(crops)
        return EncoderOutput((crops / np.float32(255)).reshape(-1, 4, 4, 4, 4, 3).mean((2, 4)).reshape(-1, 16, 3))

    def cache_parts(self, crops):
        raise NotImplementedError


@pytest.fixture
def pipeline():
    torch.manual_seed(0)
    return Di2Pose(recipes.tiny(3), encoder=Grid()).eval()


def test_a_model_on_pictures_needs_no_landmarks_and_looks_once_for_all_seeds(
    pipeline, make_samples, write_dataset, tmp_path
):
    dataset = write_dataset(make_samples(2))
    predictor = PicturePredictor(pipeline)
    protocols = parse_protocols("limb-12,occ-40")
    report = evaluate_dataset(
        predictor, dataset, protocols, tmp_path / "out", hypotheses=(2,), steps=1, more_seeds=(1,)
    )
    assert pipeline.encoder.crops == 2 * 2 * 2  # clean and occluded, each with its mirror image, whatever the seeds
    estimates = {number["estimate"] for number in report["numbers"]}
    assert {"soft decode", "sample", "p-agg", "fitted", "p-best", "j-best", "j-agg"} == estimates
    values = {n["estimate"]: n for n in report["numbers"] if (n["protocol"], n["metric"]) == ("limb-12", "mpjpe")}
    assert values["p-agg"]["deviation"] > 0
    assert values["soft decode"]["deviation"] is None


def test_poses_of_a_crop_are_turned_into_camera_axes_and_drawn_by_seed_and_id(pipeline, make_samples, write_dataset):
    dataset = write_dataset(make_samples(2))
    samples = [dataset[0], dataset[1]]
    images = [dataset.read_image(sample) for sample in samples]
    predictor = PicturePredictor(pipeline, second_look=False, flip_test=False)
    found = predictor.predict(images, samples, 2, 1, seed=3)
    crops = [pipeline.crop(i, from_boxes([s.box])[0], s.camera) for i, s in zip(images, samples, strict=True)]
    encoded, noise = pipeline.encode(crops), hypothesis_generators(3, ["r0", "r1"], 2)
    drawn = pipeline.numpy_model.predict(encoded.output.features, 2, 1, noise).joints_mm
    estimate = pipeline.estimate(encoded, 2, 1, hypothesis_generators(3, ["r0", "r1"], 2))
    np.testing.assert_allclose(estimate.samples_mm, drawn * [-1, -1, 1], rtol=1e-4, atol=1e-3)
    people = pipeline.place(encoded, estimate)
    np.testing.assert_allclose(found.samples_mm, [person.samples_mm for person in people], rtol=1e-3, atol=1e-2)
    alone = predictor.predict(images[1:], samples[1:], 2, 1, seed=3).samples_mm
    np.testing.assert_allclose(alone[0], found.samples_mm[1], rtol=1e-3, atol=1e-2)
    soft, skeleton = found.others["soft decode"]
    assert skeleton is H36M_17
    read = pipeline.numpy_model.point_estimates(encoded.output.features)["soft decode"]
    np.testing.assert_allclose(soft, read * [-1, -1, 1], rtol=1e-4, atol=1e-3)
    with pytest.raises(InputError, match="has no picture: grid needs one"):
        predictor.predict([None], samples[:1], 1, 1, 0)


def test_true_boxes_are_cropped_without_a_detector(pipeline, make_samples, write_dataset, monkeypatch):
    monkeypatch.setattr("di2pose.evaluation.predictors.PersonMatcher", lambda: pytest.fail("a detector was loaded"))
    dataset = write_dataset(make_samples(2))
    samples, predictor = [dataset[0], dataset[1]], PicturePredictor(pipeline, False, False, true_boxes=True)
    images = [dataset.read_image(sample) for sample in samples]
    predictor.predict(images, samples, 1, 1, seed=0)
    regions = [crop.region for crop in predictor._last[1].crops]
    assert regions == [pipeline.encoder.region(from_boxes([sample.box])[0]) for sample in samples]
    with pytest.raises(InputError, match="no box to crop by: leave --true-boxes out"):
        predictor.predict(images[:1], [dataclasses.replace(samples[0], box=None)], 1, 1, 0)
