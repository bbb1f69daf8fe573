"""Every parser of the project: a good input, the file of it that is damaged, and how it is read."""

import hashlib
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import torch
from data.layouts import write_cdf, write_video
from di2pose_experiments.results import FORMAT_VERSION, read_results
from output.people import person, result
from PIL import Image
from scipy.io import savemat
from stick_figures import write_set

from di2pose import checkpoint, recipes
from di2pose.calibration import Calibration
from di2pose.commands.inputs import BoxFile, fitted_camera, read_camera
from di2pose.data import mpi_inf_3dhp, pose2sim
from di2pose.data.bvh import Bvh
from di2pose.data.feature_cache import FeatureCache, write_features
from di2pose.data.frames import Video, video_frames
from di2pose.data.human36m import read_cdf
from di2pose.data.pickles import load_npz, load_pickle
from di2pose.data.sample import Dataset, Sample
from di2pose.evaluation.compare import compare_reports, read_report
from di2pose.evaluation.predictors import PredictionFile
from di2pose.evaluation.records import RecordLog
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.image.keypoints import read_keypoints
from di2pose.image.read import read_image, read_photo
from di2pose.model import load_model, save_model
from di2pose.network import Di2PoseNetwork
from di2pose.pose.camera import Camera
from di2pose.result import Motion, Result
from di2pose.training.log import read_rows
from di2pose.training.state import check_identity, read_state, write_state
from di2pose.video.stream import Stream


@dataclass(frozen=True)
class Parser:
    file: str
    make: Callable[[Path], object]
    """Writes the good input into a folder."""
    read: Callable[[Path], object]
    """Reads it from there, and uses what came out."""
    fix: Callable[[Path], None] | None = None
    """Makes checksums right again, so that the damage gets past them."""


PARSERS: dict[str, Parser] = {}


# Pictures and videos


def make_picture(path: Path, mode: str = "RGB", **options: Any) -> None:
    shape = (40, 48) if len(mode) == 1 else (40, 48, len(mode))
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8), mode)
    if path.suffix in (".jpg", ".webp"):
        exif = Image.Exif()
        exif[0x0112] = 6
        exif.get_ifd(0x8769)[0xA405] = 28
        options["exif"] = exif
    image.save(path, **options)


for _name, _mode, _options in (
    ("a.jpg", "RGB", {}), ("p.jpg", "RGB", {"progressive": True}), ("a.png", "RGBA", {}), ("a.webp", "RGB", {}),
    ("a.gif", "L", {}), ("a.tif", "RGB", {"compression": "tiff_lzw"}), ("a.bmp", "RGB", {}),
):  # fmt: skip
    PARSERS[f"picture {_name}"] = Parser(
        _name,
        lambda folder, name=_name, mode=_mode, options=_options: make_picture(folder / name, mode, **options),
        lambda folder, name=_name: (read_image(folder / name).tobytes(), read_photo(folder / name).picture.tobytes()),
    )


def read_stream(path: Path) -> object:
    stream = Stream(path)
    assert stream.expected is None or stream.expected >= 1
    assert 0 < stream.fps < float("inf")
    return [frame.picture.width for frame, _ in zip(stream, range(40), strict=False)]


def read_frames(path: Path) -> object:
    video_frames(path)
    video = Video(path)
    try:
        return [video.frame(number) for number in (0, 5, 2)]
    finally:
        video.close()


for _name in ("a.mp4", "a.avi", "a.mkv"):
    for _read in (read_stream, read_frames):
        PARSERS[f"{_read.__name__} {_name}"] = Parser(
            _name,
            lambda folder, name=_name: write_video(folder / name, 8),
            lambda folder, name=_name, read=_read: read(folder / name),
        )


# Files that users and other programs hand in

TEXTS = {
    "boxes.json": '{"a.jpg": [[10, 20, 200.5, 300], [1, 2, 3, 4]], "b.jpg": []}',
    "boxes.csv": "file,x0,y0,x1,y1\na.jpg,10,20,200.5,300\nb.jpg,1,2,3,4\n",
    "camera.json": '{"K": [[600, 0, 320], [0, 600, 240], [0, 0, 1]], "size": [640, 480], "distortion": [0.1, 0, 0, 0]}',
    "calib.toml": """[cam_01]
size = [1088.0, 1920.0]
matrix = [[1681.0, 0.0, 539.0], [0.0, 1681.0, 960.0], [0.0, 0.0, 1.0]]
distortions = [-0.05, 0.1, 0.0, 0.0]
rotation = [1.2, -0.5, 0.3]
translation = [0.4, 1.0, 4.0]
""",
}


def read_boxes(path: Path) -> object:
    boxes = BoxFile(path)
    return boxes.of(Path("a.jpg")), boxes.unused([])


TEXT_READERS = {
    "boxes.json": read_boxes,
    "boxes.csv": read_boxes,
    "camera.json": lambda path: fitted_camera(read_camera(path), (640, 480)).project(np.array([[0.0, 0.0, 1000.0]])),
    "calib.toml": lambda path: pose2sim.read_camera(path, "cam_01", (1080, 1920)),
}
for _name, _read in TEXT_READERS.items():
    PARSERS[_name] = Parser(
        _name,
        lambda folder, name=_name: (folder / name).write_text(TEXTS[name]),
        lambda folder, name=_name, read=_read: read(folder / name),
    )


def make_predictions(folder: Path) -> None:
    poses = np.random.default_rng(0).normal(0, 300, (4, 2, 17, 3)).astype(np.float32)
    np.savez_compressed(folder / "p.npz", ids=np.array(list("abcd")), joints_mm=poses - poses[:, :, :1], units="mm")


def read_predictions(folder: Path) -> object:
    file = PredictionFile(folder / "p.npz")
    return file.predict([], [SimpleNamespace(id=name) for name in file.rows], 1, None, 0)


def make_pickle(folder: Path) -> None:
    value = {("S1", "54138969"): {"f": np.ones((2, 1)), "names": np.array(["a", "b"], object)}, "w": 1000}
    (folder / "c.pkl").write_bytes(pickle.dumps(value, 2))
    np.savez(folder / "c.npz", a=np.arange(6.0).reshape(2, 3), b=np.array(value, object))


def make_motion(folder: Path) -> None:
    frames = [result([person(k, track=0, hypotheses=1)], frame_index=k, time_s=k / 10) for k in range(2)]
    for name in ("m.bvh", "m.trc", "r.json"):
        Motion(frames, 10.0).save(folder / name)


def make_hdf5(folder: Path) -> None:
    with h5py.File(folder / "annot.mat", "w") as file:
        file["annot2"], file["annot3"] = np.zeros((4, 1, 17, 2)), np.ones((4, 1, 17, 3))


def read_mat(folder: Path) -> object:
    mpi_inf_3dhp._load_mat.cache_clear()
    return mpi_inf_3dhp._load_mat(folder / "annot.mat", "annot2", "annot3")


MAT = {"annot2": np.zeros((4, 56)), "annot3": np.ones((4, 84)), "frames": np.arange(4)}
PARSERS |= {
    "predictions": Parser("p.npz", make_predictions, read_predictions),
    "pickle": Parser("c.pkl", make_pickle, lambda folder: load_pickle(folder / "c.pkl")),
    "npz": Parser("c.npz", make_pickle, lambda folder: load_npz(folder / "c.npz", ["a", "b"])),
    "bvh": Parser("m.bvh", make_motion, lambda folder: Bvh.read(folder / "m.bvh", 1.0).positions()),
    "trc": Parser("m.trc", make_motion, lambda folder: pose2sim.read_trc(folder / "m.trc")),
    "mat": Parser("annot.mat", lambda folder: savemat(folder / "annot.mat", MAT), read_mat),
    "mat 7.3": Parser("annot.mat", make_hdf5, read_mat),
    "cdf": Parser("W.cdf", lambda folder: write_cdf(folder / "W.cdf", np.ones((3, 32, 3))),
                  lambda folder: read_cdf(folder / "W.cdf", 3)),
}  # fmt: skip


# Networks


# Keypoints of other programs


def make_keypoints(folder: Path) -> None:
    marks = np.random.default_rng(0).uniform(1, 500, (2, 17, 3))
    entries = [{"image_id": "a.jpg", "keypoints": each.ravel().tolist(), "score": 1.0} for each in marks]
    (folder / "coco.json").write_text(json.dumps(entries))
    people = [{"pose_keypoints_2d": each.ravel().tolist()} for each in marks]
    (folder / "openpose.json").write_text(json.dumps({"version": 1.3, "people": people}))
    np.savez(folder / "marks.npz", keypoints=marks)


PARSERS |= {
    f"keypoints {name}": Parser(name, make_keypoints, lambda folder, name=name: read_keypoints(folder / name))
    for name in ("coco.json", "openpose.json", "marks.npz")
}


# What this program writes and reads again


def make_result(folder: Path) -> None:
    result([person(hypotheses=2)], image="a.jpg").save(folder / "r.json")


def use_results(found: list[Result], folder: Path) -> None:
    for each in found:
        repr(each)
        for someone in each.people:
            someone.angles  # noqa: B018
        each.save(folder / "again.csv")
        each.save(folder / "again.json")


def read_calibration(folder: Path) -> object:
    found = Calibration.read(folder)
    return found and found.covariance_mm2(np.zeros((2, 17, 3)), np.array(["seen"] * 17))


def make_checkpoint(folder: Path) -> None:
    torch.manual_seed(0)
    save_model(Di2PoseNetwork(recipes.tiny()), folder / "model", notes="fuzz")


def right_sums(folder: Path) -> None:
    """config.json as if the damaged weights were those that were saved."""
    path = folder / "model/config.json"
    about = json.loads(path.read_text())
    for part in about["files"]:
        data = (folder / f"model/{part}.safetensors").read_bytes()
        about["files"][part] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(about))


def read_checkpoint(folder: Path) -> object:
    return checkpoint.read_notes(folder / "model"), load_model(folder / "model")


def make_state(folder: Path) -> None:
    groups = {"model": {"a": torch.ones(3, 4)}, "ema": {"a": torch.ones(3)}}
    write_state(folder / "last.safetensors", groups, {"iteration": 4})


def read_training(folder: Path) -> None:
    _, facts = read_state(folder / "last.safetensors")
    check_identity(folder / "last.safetensors", facts, facts)


class Crops:
    """Crops without pictures, and their encoder."""

    name, layout = "fuzz", FeatureLayout((TokenBlock("map", 4, 6, 0),))

    def __len__(self) -> int:
        return 5

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        text = {"id": f"r{i}", "subject": "S", "action": "a", "sequence": "q", "split": "test"}
        return np.zeros((8, 8, 3), np.uint8), {"joints_mm": np.full((17, 3), i, np.float32)}, text

    def cache_parts(self, crops: np.ndarray) -> dict[str, np.ndarray]:
        return {"map": np.ones((len(crops), 4, 6), np.float16)}


def make_cache(folder: Path) -> None:
    write_features(Crops(), Crops(), folder, {"source": "fuzz"}, rows=3)


def read_cache(folder: Path) -> object:
    cache = FeatureCache(folder)
    cache.select(split="test")
    cache.column("joints_mm")
    return cache.features(np.arange(min(len(cache), 5)))


def make_dataset(folder: Path) -> None:
    about = {"image": "a.jpg", "box": (1.0, 2.0, 30.0, 38.0), "camera": Camera((100.0, 100.0), (24.0, 20.0), (48, 40))}
    samples = [Sample(f"r{k}", np.full((17, 3), k, np.float32), **about, extra={"k": k}) for k in range(3)]
    write_set(folder / "set", samples, "fuzz", image_root=".")
    make_picture(folder / "set/a.jpg")


def read_dataset(folder: Path) -> None:
    records = Dataset(folder / "set")
    records.select(split="test")
    for sample in records[:3]:
        sample.fault(records.skeleton)
        records.read_image(sample)


def make_lines(folder: Path) -> None:
    RecordLog(folder, "all", 0).append([{"row": k, "id": f"r{k}", "results": {}} for k in range(4)])
    rows = [json.dumps({"iteration": k, "loss": 2.0 / k}) + "\n" for k in range(1, 6)]
    (folder / "metrics.jsonl").write_text("".join(rows))


def make_report(folder: Path) -> None:
    values = {"1/mean/mpjpe": [50.0, 60.0, None]}
    records = {"limb-12": {"ids": ["r0", "r1", "r2"], "sequences": ["s", "s", "t"], "values": values}}
    run = {"predictor": "x", "dataset": "d", "protocols": [{"id": "limb-12", "truth": "abc", "occlusion": None}]}
    report = {"format_version": 3, "run": run, "records": records, "numbers": []}
    (folder / "report.json").write_text(json.dumps(report))


def compare_with_itself(folder: Path) -> object:
    report = read_report(folder / "report.json")
    return list(compare_reports(report, report, 0, "sequence"))


def make_table(folder: Path) -> None:
    figure = {"cell": "a", "data": "d", "protocol": "p", "run": "r", "doubled": False, "values": {"1/mean/mpjpe": 50.0}}
    about = {"format_version": FORMAT_VERSION, "table": "t", "cells": ["a"], "recipe": "tiny", "command": "x"}
    about |= {"title": "t", "note": "", "commit": "c", "seeds": [0, 1], "failed": [], "said": {}, "runs": {}}
    (folder / "t.json").write_text(json.dumps(about | {"figures": [figure | {"seed": seed} for seed in (0, 1)]}))


WEIGHTS = "model/tokenizer.safetensors"
PARSERS |= {
    "result": Parser("r.json", make_result, lambda folder: use_results([Result.load(folder / "r.json")], folder)),
    "motion": Parser("r.json", make_motion, lambda folder: use_results(list(Motion.load(folder / "r.json")), folder)),
    "calibration": Parser("calibration.json", Calibration.neutral().write, read_calibration),
    "checkpoint config": Parser("model/config.json", make_checkpoint, read_checkpoint),
    "checkpoint weights": Parser(WEIGHTS, make_checkpoint, read_checkpoint),
    "checkpoint inside": Parser(WEIGHTS, make_checkpoint, read_checkpoint, right_sums),
    "training state": Parser("last.safetensors", make_state, read_training),
    "feature header": Parser("features.json", make_cache, read_cache),
    "feature shard": Parser("shard-00000.npy", make_cache, read_cache),
    "feature index": Parser("shard-00000.jsonl", make_cache, read_cache),
    **{f"dataset {name}": Parser(f"set/{name}", make_dataset, read_dataset)
       for name in ("dataset.json", "cameras.json", "index.jsonl", "joints_mm.npy", "a.jpg")},
    "records": Parser("all.rank0000.jsonl", make_lines, lambda folder: RecordLog(folder, "all", 1).read()),
    "training log": Parser("metrics.jsonl", make_lines, lambda folder: read_rows(folder / "metrics.jsonl")),
    "report": Parser("report.json", make_report, compare_with_itself),
    "ablation": Parser("t.json", make_table, lambda folder: read_results(folder / "t.json")),
}  # fmt: skip
