import numpy as np
import pytest

from di2pose.errors import InputError
from di2pose.evaluation.prediction_file import PredictionFile
from di2pose.evaluation.predictor import load_predictor
from di2pose.pose.skeleton import H36M_17, LSP_14, convert


def test_poses_are_found_by_id_whatever_their_order(make_samples, write_predictions):
    samples = make_samples(4)
    file = PredictionFile(write_predictions(samples[::-1]))
    poses = file.predict([None] * 4, samples, 1, 25, 0)
    assert poses.shape == (4, 1, 17, 3)
    assert np.array_equal(poses[:, 0], [s.joints_mm for s in samples])


def test_hypotheses_skeleton_units_and_byte_ids_are_read(make_samples, write_predictions):
    samples = make_samples(2)
    lsp, _ = convert(np.stack([s.joints_mm for s in samples]), H36M_17, LSP_14)
    many = np.stack([lsp, lsp + 1, lsp + 2], axis=1)
    ids = np.array([b"r0", b"r1"])
    file = PredictionFile(write_predictions(samples, many, ids=ids, skeleton="lsp14", units="mm"))
    assert file.skeleton is LSP_14
    assert file.hypotheses == 3
    assert np.array_equal(file.predict([None], samples[1:], 2, 25, 0), many[1:, :2])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"ids": np.array(["r0"])}, "2 poses need as many ids"),
        ({"ids": np.array(["r0", "r0"])}, "1 of the 2 ids occur more than once"),
        ({"units": "m"}, "must be in 'mm', the file says units 'm'"),
        ({"skeleton": "lsp_14"}, r"shape \(n, 14, 3\) .* for lsp_14, got float32 of shape \(2, 17, 3\)"),
        ({"skeleton": "stick"}, "no skeleton is called 'stick'"),
    ],
)
def test_files_that_contradict_themselves_are_refused(make_samples, write_predictions, keys, message):
    with pytest.raises(InputError, match=message):
        PredictionFile(write_predictions(make_samples(2), **keys))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda poses: poses / 1000, "look like metres or centimetres"),
        (lambda poses: poses / 10, "look like metres or centimetres"),
        (lambda poses: poses + np.float32([0, 0, 3000]), "must be root-relative"),
        (
            lambda poses: np.where(np.arange(17)[:, None] == 3, np.nan, poses),
            "NaN or infinite joints in 2 poses: r0, r1",
        ),
        (lambda poses: poses[:0], "2 poses need as many ids|0 poses need as many ids"),
        (lambda poses: poses.astype(int), "must be floating point"),
        (lambda poses: poses[..., :2], r"got float32 of shape \(2, 17, 2\)"),
    ],
)
def test_poses_that_cannot_be_right_are_refused(make_samples, write_predictions, change, message):
    samples = make_samples(2)
    poses = change(np.stack([s.joints_mm for s in samples]))
    with pytest.raises(InputError, match=message):
        PredictionFile(write_predictions(samples, poses))


def test_ids_of_another_dataset_are_named(make_samples, write_predictions):
    file = PredictionFile(write_predictions(make_samples(3)))
    file.check_records(["r1"], ["r0", "r1", "r2"])
    with pytest.raises(
        InputError, match=r"1 of 2 records have no pose \(r9\), 1 of 3 ids are not in the dataset \(r0\)"
    ):
        file.check_records(["r1", "r9"], ["r1", "r2", "r9"])


def test_damaged_files_are_told_from_missing_ones(make_samples, write_predictions, tmp_path):
    whole = write_predictions(make_samples(2)).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "pickled.npz", ids=np.array([{}], object), joints_mm=np.zeros((1, 17, 3)))
    for name, message in {
        "none.npz": "no prediction file",
        "cut.npz": "not a readable npz",
        "array.npy": r"lacks the keys \['ids', 'joints_mm'\]",
        "pickled.npz": "not a readable npz file without pickled objects",
    }.items():
        with pytest.raises(InputError, match=message):
            PredictionFile(tmp_path / name)


def test_a_checkpoint_that_is_not_there_says_so(tmp_path):
    with pytest.raises(InputError, match="no checkpoint at"):
        load_predictor(str(tmp_path / "nothing"))
