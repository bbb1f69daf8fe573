"""Every parser of the project: the name of a file, how a good one is written, and how it is read and used."""

import hashlib
import json
import pickle
from collections.abc import Callable
from contextlib import closing
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
    """Writes a good file, and the others that belong to it."""
    read: Callable[[Path], object]
    """Reads the file and uses what came out."""
    fix: Callable[[Path], object] | None = None
    """Makes checksums right again, so that the damage gets past them."""
    examples: int = 20


# Pictures and videos


def make_picture(path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif.get_ifd(0x8769)[0xA405] = 28
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 48, 3), np.uint8)).save(path, exif=exif)


def read_picture(path: Path) -> object:
    return read_image(path).tobytes(), read_photo(path).picture.tobytes()


def read_stream(path: Path) -> object:
    stream = Stream(path)
    assert stream.expected is None or stream.expected >= 1
    assert 0 < stream.fps < float("inf")
    return [frame.picture.width for frame, _ in zip(stream, range(40), strict=False)]


def read_frames(path: Path) -> object:
    video_frames(path)
    with closing(Video(path)) as video:
        return [video.frame(number) for number in (0, 5, 2)]


def make_video(path: Path) -> None:
    write_video(path, 8)


# Files that users and other programs hand in

CAMERA = '{"K": [[600, 0, 320], [0, 600, 240], [0, 0, 1]], "size": [640, 480], "distortion": [0.1, 0, 0, 0]}'
CALIBRATION = """[cam_01]
size = [1088.0, 1920.0]
matrix = [[1681.0, 0.0, 539.0], [0.0, 1681.0, 960.0], [0.0, 0.0, 1.0]]
distortions = [-0.05, 0.1, 0.0, 0.0]
rotation = [1.2, -0.5, 0.3]
translation = [0.4, 1.0, 4.0]
"""
MARKS = np.random.default_rng(0).uniform(1, 500, (2, 17, 3))
COCO = json.dumps([{"image_id": "a.jpg", "keypoints": each.ravel().tolist(), "score": 1.0} for each in MARKS])
OPENPOSE = json.dumps({"version": 1.3, "people": [{"pose_keypoints_2d": each.ravel().tolist()} for each in MARKS]})
MAT = {"annot2": np.zeros((4, 56)), "annot3": np.ones((4, 84)), "frames": np.arange(4)}
PICKLED = {("S1", "54138969"): {"f": np.ones((2, 1)), "names": np.array(["a", "b"], object)}, "w": 1000}


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def read_boxes(path: Path) -> object:
    boxes = BoxFile(path)
    return boxes.of(Path("a.jpg")), boxes.unused([])


def make_predictions(path: Path) -> None:
    poses = np.random.default_rng(0).normal(0, 300, (4, 2, 17, 3)).astype(np.float32)
    np.savez_compressed(path, ids=np.array(list("abcd")), joints_mm=poses - poses[:, :, :1], units="mm")


def read_predictions(path: Path) -> object:
    file = PredictionFile(path)
    return file.predict([], [SimpleNamespace(id=name) for name in file.rows], 1, None, 0)


def make_motion(path: Path) -> None:
    frames = [result([person(k, track=0, hypotheses=1)], frame_index=k, time_s=k / 10) for k in range(2)]
    Motion(frames, 10.0).save(path)


def make_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["annot2"], file["annot3"] = np.zeros((4, 1, 17, 2)), np.ones((4, 1, 17, 3))


def read_mat(path: Path) -> object:
    mpi_inf_3dhp._load_mat.cache_clear()
    return mpi_inf_3dhp._load_mat(path, "annot2", "annot3")


# What this program writes and reads again


def use_result(found: Result, folder: Path) -> None:
    repr(found)
    for someone in found.people:
        someone.angles  # noqa: B018
    found.save(folder / "again.csv")
    found.save(folder / "again.json")


def use_motion(path: Path) -> None:
    for frame in Motion.load(path):
        use_result(frame, path.parent)


def read_calibration(path: Path) -> object:
    found = Calibration.read(path.parent)
    return found and found.covariance_mm2(np.zeros((2, 17, 3)), np.zeros(17, bool))


def make_checkpoint(path: Path) -> None:
    torch.manual_seed(0)
    save_model(Di2PoseNetwork(recipes.tiny()), path.parent, notes="fuzz")


def right_sum(path: Path) -> None:
    """config.json as if the damaged weights were those that were saved."""
    config = path.parent / "config.json"
    about, data = json.loads(config.read_text()), path.read_bytes()
    about["files"][path.stem] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    config.write_text(json.dumps(about))


def read_checkpoint(path: Path) -> object:
    return checkpoint.read_notes(path.parent), load_model(path.parent)


def make_state(path: Path) -> None:
    write_state(path, {"model": {"a": torch.ones(3, 4)}, "ema": {"a": torch.ones(3)}}, {"iteration": 4})


def use_state(path: Path) -> None:
    _, facts = read_state(path)
    check_identity(path, facts, facts)


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


def make_cache(path: Path) -> None:
    write_features(Crops(), Crops(), path.parent, {"source": "fuzz"}, rows=3)


def read_cache(path: Path) -> object:
    cache = FeatureCache(path.parent)
    cache.select(split="test")
    cache.column("joints_mm")
    return cache.features(np.arange(min(len(cache), 5)))


def make_dataset(path: Path) -> None:
    about: Any = {"image": "a.jpg", "box": (1.0, 2.0, 30.0, 38.0)}
    about["camera"] = Camera((100.0, 100.0), (24.0, 20.0), (48, 40))
    samples = [Sample(f"r{k}", np.full((17, 3), k, np.float32), **about, extra={"k": k}) for k in range(3)]
    make_picture(write_set(path.parent, samples, "fuzz", image_root=".") / "a.jpg")


def read_dataset(path: Path) -> None:
    records = Dataset(path.parent)
    records.select(split="test")
    for sample in records[:3]:
        sample.fault(records.skeleton)
        records.read_image(sample)


def make_records(path: Path) -> None:
    RecordLog(path.parent, "all", 0).append([{"row": k, "id": f"r{k}", "results": {}} for k in range(4)])


def compare_with_itself(path: Path) -> object:
    report = read_report(path)
    return list(compare_reports(report, report, 0, "sequence"))


LOG = "".join(json.dumps({"iteration": k, "loss": 2.0 / k}) + "\n" for k in range(1, 6))
RECORDS = {"ids": ["r0", "r1", "r2"], "sequences": ["s", "s", "t"], "values": {"1/mean/mpjpe": [50.0, 60.0, None]}}
RUN = {"predictor": "x", "dataset": "d", "protocols": [{"id": "limb-12", "truth": "abc", "occlusion": None}]}
REPORT = json.dumps({"format_version": 3, "run": RUN, "records": {"limb-12": RECORDS}, "numbers": []})
FIGURE = {"cell": "a", "data": "d", "protocol": "p", "run": "r", "doubled": False, "values": {"1/mean/mpjpe": 50.0}}
TABLE = {"format_version": FORMAT_VERSION, "table": "t", "cells": ["a"], "recipe": "tiny", "command": "x", "title": "t",
         "note": "", "commit": "c", "seeds": [0, 1], "failed": [], "said": {}, "runs": {},
         "figures": [FIGURE | {"seed": seed} for seed in (0, 1)]}  # fmt: skip

PARSERS = {
    **{f"picture {name}": Parser(name, make_picture, read_picture) for name in ("a.jpg", "a.png", "a.webp", "a.tif")},
    "stream mp4": Parser("a.mp4", make_video, read_stream),
    "stream mkv": Parser("a.mkv", make_video, read_stream),
    "frames mp4": Parser("a.mp4", make_video, read_frames),
    "frames avi": Parser("a.avi", make_video, read_frames),
    "boxes json": Parser("b.json", text('{"a.jpg": [[10, 20, 200.5, 300], [1, 2, 3, 4]], "b.jpg": []}'), read_boxes),
    "boxes csv": Parser("b.csv", text("file,x0,y0,x1,y1\na.jpg,10,20,200.5,300\nb.jpg,1,2,3,4\n"), read_boxes),
    "camera": Parser("camera.json", text(CAMERA), lambda path: fitted_camera(read_camera(path), (640, 480))),
    "calibration toml": Parser(
        "c.toml", text(CALIBRATION), lambda path: pose2sim.read_camera(path, "cam_01", (1080, 1920))
    ),
    "predictions": Parser("p.npz", make_predictions, read_predictions),
    "keypoints coco": Parser("coco.json", text(COCO), read_keypoints),
    "keypoints openpose": Parser("openpose.json", text(OPENPOSE), read_keypoints),
    "keypoints npz": Parser("marks.npz", lambda path: np.savez(path, keypoints=MARKS), read_keypoints),
    "pickle": Parser("c.pkl", lambda path: path.write_bytes(pickle.dumps(PICKLED, 2)), load_pickle),
    "npz": Parser(
        "c.npz",
        lambda path: np.savez(path, a=np.arange(6.0).reshape(2, 3), b=np.array(PICKLED, object)),
        lambda path: load_npz(path, ["a", "b"]),
    ),
    "bvh": Parser("m.bvh", make_motion, lambda path: Bvh.read(path, 1.0).positions()),
    "trc": Parser("m.trc", make_motion, pose2sim.read_trc),
    "mat": Parser("annot.mat", lambda path: savemat(path, MAT), read_mat),
    "mat 7.3": Parser("annot.mat", make_hdf5, read_mat),
    "cdf": Parser(
        "W.cdf", lambda path: write_cdf(path, np.ones((3, 32, 3))), lambda path: read_cdf(path, 3), examples=8
    ),
    "result": Parser(
        "r.json",
        lambda path: result([person(hypotheses=2)], image="a.jpg").save(path),
        lambda path: use_result(Result.load(path), path.parent),
    ),
    "motion": Parser("r.json", make_motion, use_motion),
    "calibration": Parser("calibration.json", lambda path: Calibration.neutral().write(path.parent), read_calibration),
    "checkpoint config": Parser("config.json", make_checkpoint, read_checkpoint, examples=10),
    "checkpoint weights": Parser("tokenizer.safetensors", make_checkpoint, read_checkpoint, examples=5),
    "checkpoint inside": Parser("tokenizer.safetensors", make_checkpoint, read_checkpoint, right_sum, examples=10),
    "training state": Parser("last.safetensors", make_state, use_state),
    **{f"feature {name}": Parser(name, make_cache, read_cache)
       for name in ("features.json", "shard-00000.npy", "shard-00000.jsonl")},
    **{f"dataset {name}": Parser(f"set/{name}", make_dataset, read_dataset)
       for name in ("dataset.json", "cameras.json", "index.jsonl", "joints_mm.npy", "a.jpg")},
    "records": Parser("all.rank0000.jsonl", make_records, lambda path: RecordLog(path.parent, "all", 1).read()),
    "training log": Parser("metrics.jsonl", text(LOG), read_rows),
    "report": Parser("report.json", text(REPORT), compare_with_itself),
    "ablation": Parser("t.json", text(json.dumps(TABLE)), read_results),
}  # fmt: skip
