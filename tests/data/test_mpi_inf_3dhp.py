"""MPI-INF-3DHP's official files: what is theirs alone. test_readers.py has the contract."""

import h5py
import numpy as np
from data import layouts
from data.test_readers import mpi_test

from di2pose.data.mpi_inf_3dhp import read
from di2pose.data.prepare import prepare
from di2pose.data.sample import Dataset, Sources

HEAD = b"MATLAB 7.3 MAT-file, Platform: GLNXA64"


def test_training_frames_come_from_the_videos_and_end_with_them(tmp_path):
    layouts.write_mpi_train(tmp_path, frames=6, video_frames=4)
    prepare("mpi-inf-3dhp", tmp_path / "out", src=tmp_path)
    dataset = Dataset(tmp_path / "out")
    assert len(dataset) == 2 * 4
    for sample in dataset:
        assert abs(np.asarray(dataset.read_image(sample)).mean() - 10 * sample.frame) < 5
    assert any("video_8.avi is missing" in skip["reason"] for skip in dataset.header["skipped"])
    assert dataset[0].camera.size == (2048, 2048)


def test_a_version_7_3_test_file_gives_the_records_of_a_version_5_one(tmp_path):
    joints = mpi_test(tmp_path)
    with h5py.File(tmp_path / "TS1/annot_data.mat", "w", userblock_size=512) as file:
        for key, value in layouts.mpi_test_arrays()[0].items():
            file[key] = value.T  # Matlab stores the last axis first
    with (tmp_path / "TS1/annot_data.mat").open("r+b") as raw:
        raw.write(HEAD)
    samples, left_out = layouts.drain(read(Sources("mpi-inf-3dhp", tmp_path)))
    assert left_out == {}
    assert [sample.frame for sample in samples] == [1, 2, 3, 4, 5, 6, 7]
    for sample in samples:
        layouts.assert_true(sample, joints)
        assert sample.extra["camera_fit_largest_px"] < 0.5


def test_outdoor_test_sequences_have_their_own_size(tmp_path):
    mpi_test(tmp_path, "TS6")
    assert layouts.drain(read(Sources("mpi-inf-3dhp", tmp_path)))[0][0].camera.size == (1920, 1080)
