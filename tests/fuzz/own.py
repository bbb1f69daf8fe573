"""What this program writes and reads again."""

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from di2pose_experiments.results import FORMAT_VERSION, read_results
from fuzz.corpus import add
from fuzz.media import picture
from output.people import person, result
from stick_figures import write_set

from di2pose import checkpoint, recipes
from di2pose.calibration import Calibration
from di2pose.data.feature_cache import FeatureCache, write_features
from di2pose.data.sample import Dataset, Sample
from di2pose.errors import InputError
from di2pose.evaluation.compare import compare_reports, read_report
from di2pose.evaluation.records import RecordLog
from di2pose.image.encoder import FeatureLayout, TokenBlock
from di2pose.model import load_model, save_model
from di2pose.network import Di2PoseNetwork
from di2pose.pose.camera import Camera
from di2pose.result import Motion, Result
from di2pose.training.log import read_rows
from di2pose.training.state import check_identity, read_state, write_state


def _read_result(folder: Path) -> object:
    try:
        found = [Result.load(folder / "r.json")]
    except InputError:
        found = list(Motion.load(folder / "r.json"))
    for each in found:
        repr(each)
        for someone in each.people:
            someone.angles  # noqa: B018
        each.save(folder / "again.csv")
        each.save(folder / "again.json")
    return found


def _make_motion(folder: Path) -> None:
    frames = [result([person(k, track=0, hypotheses=1)], frame_index=k, time_s=k / 10) for k in range(2)]
    Motion(frames, 10.0).save(folder / "r.json")


def _make_result(folder: Path) -> None:
    result([person(hypotheses=2)], image="a.jpg").save(folder / "r.json")


add("result", "r.json", _make_result, _read_result, kind="json", count=150)
add("motion", "r.json", _make_motion, _read_result, kind="json", count=60)


def _read_calibration(folder: Path) -> object:
    found = Calibration.read(folder)
    return found and found.covariance_mm2(np.zeros((2, 17, 3)), np.array(["seen"] * 17))


add("calibration", "calibration.json", Calibration.neutral().write, _read_calibration, kind="json", count=90)


def _make_checkpoint(folder: Path) -> None:
    torch.manual_seed(0)
    save_model(Di2PoseNetwork(recipes.tiny()), folder / "model", notes="fuzz")


def _read_checkpoint(folder: Path) -> object:
    checkpoint.read_notes(folder / "model")
    return load_model(folder / "model")


def _right_sums(folder: Path) -> None:
    """config.json as if the damaged weights were those that were saved."""
    path = folder / "model/config.json"
    about = json.loads(path.read_text())
    for part in about["files"]:
        data = (folder / f"model/{part}.safetensors").read_bytes()
        about["files"][part] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(about))


add("checkpoint config", "model/config.json", _make_checkpoint, _read_checkpoint, kind="json", count=120)
add("checkpoint weights", "model/tokenizer.safetensors", _make_checkpoint, _read_checkpoint, count=20)
add("checkpoint inside", "model/tokenizer.safetensors", _make_checkpoint, _read_checkpoint, count=50, fix=_right_sums)


def _make_state(folder: Path) -> None:
    groups = {"model": {"a": torch.ones(3, 4)}, "ema": {"a": torch.ones(3)}}
    write_state(folder / "last.safetensors", groups, {"iteration": 4})


def _read_state(folder: Path) -> object:
    groups, facts = read_state(folder / "last.safetensors")
    check_identity(folder / "last.safetensors", facts, facts)
    return groups


add("training state", "last.safetensors", _make_state, _read_state, count=90)


class _Crops:
    """Crops without pictures, for a feature cache."""

    name, layout = "fuzz", FeatureLayout((TokenBlock("map", 4, 6, 0),))

    def __len__(self) -> int:
        return 5

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        labels = {"joints_mm": np.full((17, 3), i, np.float32), "visibility": np.zeros(17, np.int8)}
        text = {"id": f"r{i}", "subject": "S", "action": "a", "sequence": "q", "split": "test"}
        return np.zeros((8, 8, 3), np.uint8), labels, text

    def cache_parts(self, crops: np.ndarray) -> dict[str, np.ndarray]:
        return {"map": np.ones((len(crops), 4, 6), np.float16)}


def _make_cache(folder: Path) -> None:
    write_features(_Crops(), _Crops(), folder, {"source": "fuzz"}, rows=3)


def _read_cache(folder: Path) -> object:
    cache = FeatureCache(folder)
    cache.select(split="test")
    cache.column("joints_mm")
    return cache.features(np.arange(min(len(cache), 5)))


add("feature header", "features.json", _make_cache, _read_cache, kind="json", count=90)
add("feature shard", "shard-00000.npy", _make_cache, _read_cache, count=60)
add("feature index", "shard-00000.jsonl", _make_cache, _read_cache, count=40)


def _make_dataset(folder: Path) -> None:
    poses = np.random.default_rng(0).normal(0, 300, (3, 17, 3)).astype(np.float32)
    about = {"image": "a.jpg", "box": (1.0, 2.0, 30.0, 38.0), "camera": Camera((100.0, 100.0), (24.0, 20.0), (48, 40))}
    samples = [Sample(f"r{k}", pose - pose[:1], **about, extra={"k": k}) for k, pose in enumerate(poses)]
    write_set(folder / "set", samples, "fuzz", image_root=".")
    picture(folder / "set", "a.jpg")


def _read_dataset(folder: Path) -> object:
    records = Dataset(folder / "set")
    records.select(split="test")
    for sample in records[:3]:
        sample.fault(records.skeleton)
        records.read_image(sample)
    return records


for _file in ("dataset.json", "cameras.json", "index.jsonl", "joints_mm.npy"):
    _kind = "json" if _file.endswith(".json") else "bytes"
    add(f"dataset {_file}", f"set/{_file}", _make_dataset, _read_dataset, kind=_kind, count=60)
add("dataset picture", "set/a.jpg", _make_dataset, _read_dataset, count=40)


def _make_lines(folder: Path) -> None:
    RecordLog(folder, "all", 0).append([{"row": k, "id": f"r{k}", "results": {}} for k in range(4)])
    rows = [json.dumps({"iteration": k, "loss": 2.0 / k}) + "\n" for k in range(1, 6)]
    (folder / "metrics.jsonl").write_text("".join(rows))


add("record log", "all.rank0000.jsonl", _make_lines, lambda folder: RecordLog(folder, "all", 1).read(), count=50)
add("training log", "metrics.jsonl", _make_lines, lambda folder: read_rows(folder / "metrics.jsonl"), count=50)


def _make_report(folder: Path) -> None:
    ids = ["r0", "r1", "r2"]
    records = {"limb-12": {"ids": ids, "sequences": ["s", "s", "t"], "values": {"1/mean/mpjpe": [50.0, 60.0, None]}}}
    run = {"predictor": "x", "dataset": "d", "protocols": [{"id": "limb-12", "truth": "abc", "occlusion": None}]}
    report = {"format_version": 3, "run": run, "records": records, "numbers": []}
    (folder / "report.json").write_text(json.dumps(report))


def _read_report(folder: Path) -> object:
    report = read_report(folder / "report.json")
    return list(compare_reports(report, report, 0, "sequence"))


add("report", "report.json", _make_report, _read_report, kind="json", count=90)


def _make_table(folder: Path) -> None:
    figure = {"cell": "a", "data": "d", "protocol": "p", "run": "r", "doubled": False, "values": {"1/mean/mpjpe": 50.0}}
    figures = [figure | {"seed": seed} for seed in (0, 1)]
    about = {"format_version": FORMAT_VERSION, "table": "t", "cells": ["a"], "recipe": "tiny", "command": "x"}
    about |= {"title": "t", "note": "", "commit": "c", "seeds": [0, 1], "failed": [], "said": {}, "runs": {}}
    (folder / "t.json").write_text(json.dumps(about | {"figures": figures}))


def _read_table(folder: Path) -> object:
    return read_results(folder / "t.json")


add("table of an ablation", "t.json", _make_table, _read_table, kind="json", count=90)
