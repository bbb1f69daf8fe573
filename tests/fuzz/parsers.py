"""Every parser of the project: a good input, the file of it that is made bad, and how it is read.

A parser's `make(folder)` writes the good input there; `read(folder)` reads it and looks at what came out. `file` is the
one that is damaged; `fix`, where there is one, makes checksums right again, so that the damage gets past them.
"""

import hashlib
import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
from output.people import person, result


@dataclass(frozen=True)
class Parser:
    name: str
    file: str
    make: Callable[[Path], None]
    read: Callable[[Path], object]
    kind: str = "bytes"
    count: int = 60
    fix: Callable[[Path], None] | None = None
    also: tuple[type[Exception], ...] = field(default=())
    """Documented errors besides InputError."""


PARSERS: list[Parser] = []


def add(name: str, file: str, make: Callable[[Path], None], read: Callable[[Path], object], **more: Any) -> None:
    PARSERS.append(Parser(name, file, make, read, **more))


# Pictures and videos


def _picture(folder: Path, name: str, mode: str = "RGB", **options: Any) -> None:
    rng = np.random.default_rng(0)
    shape = (40, 48, len(mode)) if len(mode) > 1 and mode != "I;16" else (40, 48)
    pixels = rng.integers(0, 256, shape).astype(np.uint16 if mode == "I;16" else np.uint8)
    image = Image.fromarray(pixels, None if mode == "I;16" else mode)
    if name.endswith((".jpg", ".webp")):
        exif = Image.Exif()
        exif[0x0112] = 6
        exif.get_ifd(0x8769)[0xA405] = 28
        options["exif"] = exif
    image.save(folder / name, **options)


def _read_picture(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from di2pose.image.read import read_image, read_photo

        read_image(folder / name).tobytes()
        return read_photo(folder / name).picture.tobytes()

    return read


for _name, _mode, _options in (
    ("a.jpg", "RGB", {}), ("p.jpg", "RGB", {"progressive": True}), ("a.png", "RGBA", {}), ("g.png", "I;16", {}),
    ("a.webp", "RGB", {}), ("a.gif", "L", {}), ("a.tif", "RGB", {"compression": "tiff_lzw"}), ("a.bmp", "RGB", {}),
):  # fmt: skip
    add(
        f"picture {_name}", _name,
        lambda folder, name=_name, mode=_mode, options=_options: _picture(folder, name, mode, **options),
        _read_picture(_name),
    )  # fmt: skip


def _make_video(folder: Path, name: str, codec: str) -> None:
    import av

    rng = np.random.default_rng(0)
    with av.open(str(folder / name), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height = 64, 48
        stream.codec_context.gop_size = 4
        for _ in range(8):
            picture = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((64, 48))
            container.mux(stream.encode(av.VideoFrame.from_image(picture)))
        container.mux(stream.encode())


def _read_video(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from di2pose.data.frames import Video, video_frames
        from di2pose.errors import InputError
        from di2pose.video.stream import Stream

        seen = 0
        try:
            stream = Stream(folder / name)
            assert stream.expected is None or stream.expected >= 1
            assert 0 < stream.fps < float("inf")
            for frame in stream:
                seen += frame.picture.width > 0
                if seen == 40:
                    break
        except InputError:
            pass
        video_frames(folder / name)
        video = Video(folder / name)
        try:
            for number in (0, 5, 2):
                video.frame(number)
        finally:
            video.close()
        return seen

    return read


for _name, _codec in (("a.mp4", "mpeg4"), ("a.avi", "mpeg4"), ("a.mkv", "mpeg4")):
    add(
        f"video {_name}",
        _name,
        lambda folder, n=_name, c=_codec: _make_video(folder, n, c),
        _read_video(_name),
        count=40,
    )


# What this program writes and reads again


def _read_result(folder: Path) -> object:
    from di2pose.errors import InputError
    from di2pose.result import Motion, Result

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


def _make_result(folder: Path) -> None:
    result([person(hypotheses=2)], image="a.jpg").save(folder / "r.json")


def _make_motion(folder: Path) -> None:
    from di2pose.result import Motion

    frames = [result([person(k, track=0, hypotheses=1)], frame_index=k, time_s=k / 10) for k in range(2)]
    Motion(frames, 10.0).save(folder / "r.json")


add("result", "r.json", _make_result, _read_result, kind="json", count=150)
add("motion", "r.json", _make_motion, _read_result, kind="json", count=60)


def _make_calibration(folder: Path) -> None:
    from di2pose.calibration import Calibration

    Calibration.neutral().write(folder)


def _read_calibration(folder: Path) -> object:
    from di2pose.calibration import Calibration

    found = Calibration.read(folder)
    return found and found.covariance_mm2(np.zeros((2, 17, 3)), np.array(["seen"] * 17))


add("calibration", "calibration.json", _make_calibration, _read_calibration, kind="json", count=90)


def _make_checkpoint(folder: Path) -> None:
    import torch

    from di2pose import recipes
    from di2pose.model import save_model
    from di2pose.network import Di2PoseNetwork

    torch.manual_seed(0)
    save_model(Di2PoseNetwork(recipes.tiny()), folder / "model", notes="fuzz")


def _read_checkpoint(folder: Path) -> object:
    from di2pose import checkpoint
    from di2pose.model import load_model

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
    import torch

    from di2pose.training.state import write_state

    write_state(
        folder / "last.safetensors", {"model": {"a": torch.ones(3, 4)}, "ema": {"a": torch.ones(3)}}, {"iteration": 4}
    )


def _read_state(folder: Path) -> object:
    from di2pose.training.state import check_identity, read_state

    groups, facts = read_state(folder / "last.safetensors")
    check_identity(folder / "last.safetensors", facts, facts)
    return groups


add("training state", "last.safetensors", _make_state, _read_state, count=90)


class _Crops:
    """Crops without pictures, for a feature cache."""

    layout: Any = None
    name = "fuzz"

    def __len__(self) -> int:
        return 5

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        labels = {"joints_mm": np.full((17, 3), i, np.float32), "visibility": np.zeros(17, np.int8)}
        text = {"id": f"r{i}", "subject": "S", "action": "a", "sequence": "q", "split": "test"}
        return np.zeros((8, 8, 3), np.uint8), labels, text

    def cache_parts(self, crops: np.ndarray) -> dict[str, np.ndarray]:
        return {"map": np.ones((len(crops), 4, 6), np.float16)}


def _make_cache(folder: Path) -> None:
    from di2pose.image.encoder import FeatureLayout, TokenBlock
    from di2pose.training.feature_cache import write_features

    source = _Crops()
    source.layout = FeatureLayout((TokenBlock("map", 4, 6, 0),))
    write_features(source, source, folder, {"source": "fuzz"}, rows=3)


def _read_cache(folder: Path) -> object:
    from di2pose.training.feature_cache import FeatureCache

    cache = FeatureCache(folder)
    cache.select(split="test")
    cache.column("joints_mm")
    return cache.features(np.arange(min(len(cache), 5)))


add("feature header", "features.json", _make_cache, _read_cache, kind="json", count=90)
add("feature shard", "shard-00000.npy", _make_cache, _read_cache, count=60)
add("feature index", "shard-00000.jsonl", _make_cache, _read_cache, count=40)


def _make_dataset(folder: Path) -> None:
    from di2pose.data.sample import Sample, Writer
    from di2pose.pose.camera import Camera
    from di2pose.pose.skeleton import H36M_17

    writer = Writer(folder / "set", "fuzz", H36M_17, image_root=".")
    _picture(folder / "set", "a.jpg")
    with writer.part("one"):
        for k in range(3):
            pose = np.random.default_rng(k).normal(0, 300, (17, 3)).astype(np.float32)
            camera = Camera((100.0, 100.0), (24.0, 20.0), (48, 40))
            writer.add(
                Sample(
                    f"r{k}", pose - pose[:1], image="a.jpg", box=(1.0, 2.0, 30.0, 38.0), camera=camera, extra={"k": k}
                )
            )
    writer.finish()


def _read_dataset(folder: Path) -> object:
    from di2pose.data.sample import Dataset

    records = Dataset(folder / "set")
    records.select(split="test")
    for k in range(min(len(records), 3)):
        sample = records[k]
        sample.fault(records.skeleton)
        records.read_image(sample)
    return records


for _file, _kind in (
    ("dataset.json", "json"),
    ("cameras.json", "json"),
    ("index.jsonl", "bytes"),
    ("joints_mm.npy", "bytes"),
):
    add(f"dataset {_file}", f"set/{_file}", _make_dataset, _read_dataset, kind=_kind, count=60)
add("dataset picture", "set/a.jpg", _make_dataset, _read_dataset, count=40)


def _make_records(folder: Path) -> None:
    from di2pose.evaluation.record_log import RecordLog

    RecordLog(folder, "all", 0).append([{"row": k, "id": f"r{k}", "results": {}} for k in range(4)])


def _read_records(folder: Path) -> object:
    from di2pose.evaluation.record_log import RecordLog

    return RecordLog(folder, "all", 1).read()


add("record log", "all.rank0000.jsonl", _make_records, _read_records, count=50)


def _make_rows(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps({"iteration": k, "loss": 2.0 / k}) + "\n" for k in range(1, 6))
    )


def _read_rows(folder: Path) -> object:
    from di2pose.training.log import plot, read_rows

    return plot(read_rows(folder / "metrics.jsonl"))


add("training log", "metrics.jsonl", _make_rows, _read_rows, count=50)


def _make_report(folder: Path) -> None:
    ids = ["r0", "r1", "r2"]
    records = {"limb-12": {"ids": ids, "sequences": ["s", "s", "t"], "values": {"1/mean/mpjpe": [50.0, 60.0, None]}}}
    run = {"predictor": "x", "dataset": "d", "protocols": [{"id": "limb-12", "truth": "abc", "occlusion": None}]}
    report = {"format_version": 3, "run": run, "records": records, "numbers": []}
    (folder / "report.json").write_text(json.dumps(report))


def _read_report(folder: Path) -> object:
    from di2pose.evaluation.compare import compare_reports, read_report

    report = read_report(folder / "report.json")
    return list(compare_reports(report, report, 0, "sequence"))


add("report", "report.json", _make_report, _read_report, kind="json", count=90)

# What users and other programs hand in


def _make_boxes(folder: Path) -> None:
    (folder / "boxes.json").write_text('{"a.jpg": [[10, 20, 200.5, 300], [1, 2, 3, 4]], "b.jpg": []}')
    (folder / "boxes.csv").write_text("file,x0,y0,x1,y1\na.jpg,10,20,200.5,300\nb.jpg,1,2,3,4\n")


def _read_boxes(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from di2pose.commands.user_files import BoxFile

        boxes = BoxFile(folder / name)
        return boxes.of(Path("a.jpg")), boxes.unused

    return read


add("boxes json", "boxes.json", _make_boxes, _read_boxes("boxes.json"), kind="json", count=120)
add("boxes csv", "boxes.csv", _make_boxes, _read_boxes("boxes.csv"), count=80)


def _make_camera(folder: Path) -> None:
    record = {"K": [[600, 0, 320], [0, 600, 240], [0, 0, 1]], "size": [640, 480], "distortion": [0.1, 0, 0, 0, 0]}
    (folder / "camera.json").write_text(json.dumps(record))


def _read_camera(folder: Path) -> object:
    from di2pose.commands.user_files import fitted_camera, read_camera

    camera = fitted_camera(read_camera(folder / "camera.json"), (640, 480))
    return camera.project(np.array([[0.0, 0.0, 1000.0]]))


add("camera", "camera.json", _make_camera, _read_camera, kind="json", count=150)


def _make_predictions(folder: Path) -> None:
    poses = np.random.default_rng(0).normal(0, 300, (4, 2, 17, 3)).astype(np.float32)
    np.savez_compressed(folder / "p.npz", ids=np.array(list("abcd")), joints_mm=poses - poses[:, :, :1], units="mm")


def _read_predictions(folder: Path) -> object:
    from di2pose.evaluation.prediction_file import PredictionFile

    file = PredictionFile(folder / "p.npz")
    return file.predict([], [SimpleNamespace(id=name) for name in file.rows], 1, None, 0)


add("predictions", "p.npz", _make_predictions, _read_predictions, count=150)


def _make_pickle(folder: Path) -> None:
    value = {("S1", "54138969"): {"f": np.ones((2, 1)), "names": np.array(["a", "b"], object)}, "w": 1000}
    (folder / "c.pkl").write_bytes(pickle.dumps(value, 2))
    np.savez(folder / "c.npz", a=np.arange(6.0).reshape(2, 3), b=np.array(value, object))


def _read_pickle(folder: Path) -> object:
    from di2pose.data.pickles import load_pickle

    return load_pickle(folder / "c.pkl")


def _read_npz(folder: Path) -> object:
    from di2pose.data.pickles import load_npz

    return load_npz(folder / "c.npz", ["a", "b"])


add("pickle", "c.pkl", _make_pickle, _read_pickle, count=150)
add("npz of others", "c.npz", _make_pickle, _read_npz, count=120)


def _make_bvh(folder: Path) -> None:
    from di2pose.result import Motion

    frames = [result([person(k, track=0, hypotheses=1)], frame_index=k, time_s=k / 10) for k in range(3)]
    Motion(frames, 10.0).save(folder / "m.bvh")
    Motion(frames, 10.0).save(folder / "m.trc")


def _read_bvh(folder: Path) -> object:
    from di2pose.data.bvh import Bvh, h36m_joints
    from di2pose.errors import InputError

    bvh = Bvh.read(folder / "m.bvh", 1.0)
    bvh.positions()
    try:
        bvh.motion_frames(1)
        h36m_joints(bvh)
    except InputError as error:
        assert "CMU" in str(error) or "motion" in str(error)  # noqa: PT017
    return bvh


def _read_trc(folder: Path) -> object:
    from di2pose.data.pose2sim import read_trc

    return read_trc(folder / "m.trc")


add("bvh", "m.bvh", _make_bvh, _read_bvh, count=150)
add("trc", "m.trc", _make_bvh, _read_trc, count=120)

TOML = """[cam_01]
name = "cam_01"
size = [1088.0, 1920.0]
matrix = [[1681.0, 0.0, 539.0], [0.0, 1681.0, 960.0], [0.0, 0.0, 1.0]]
distortions = [-0.05, 0.1, 0.0, 0.0]
rotation = [1.2, -0.5, 0.3]
translation = [0.4, 1.0, 4.0]
"""
SKELETOOL = """Skeletool Camera Calibration File V1.0
name          0
  sensor      10 10
  size        2048 2048
  animated    0
  intrinsic   1497.6 0 1024.7 0 0 1497.1 1051.3 0 0 0 1 0 0 0 0 1
  extrinsic   0.8 0.0 0.6 -562.8 0 1 0 1398.1 -0.6 0 0.8 3852.6 0 0 0 1
  radial      0
"""


def _make_text(folder: Path) -> None:
    (folder / "calib.toml").write_text(TOML)
    (folder / "camera.calibration").write_text(SKELETOOL)


def _read_toml(folder: Path) -> object:
    from di2pose.data.pose2sim import read_camera

    return read_camera(folder / "calib.toml", "cam_01", (1080, 1920))


def _read_skeletool(folder: Path) -> object:
    from di2pose.data.mpi_inf_3dhp import read_calibration

    return read_calibration(folder / "camera.calibration")


add("pose2sim calibration", "calib.toml", _make_text, _read_toml, count=120)
add("mpi calibration", "camera.calibration", _make_text, _read_skeletool, count=120)


def _make_mat(folder: Path) -> None:
    from scipy.io import savemat

    savemat(
        folder / "annot.mat", {"frames": np.arange(4), "annot3": np.zeros((4, 84)), "univ_annot3": np.ones((4, 84))}
    )


def _read_mat(folder: Path) -> object:
    from di2pose.data.mpi_inf_3dhp import _load_mat

    _load_mat.cache_clear()
    return _load_mat(folder / "annot.mat")


add("mat", "annot.mat", _make_mat, _read_mat, count=80)

# Networks of others


def _make_tfjs(folder: Path) -> None:
    weights = [{"name": "w", "shape": [3, 3, 2, 4], "dtype": "float32", "quantization": {"dtype": "float16"}},
               {"name": "b", "shape": [4], "dtype": "float32"}]  # fmt: skip
    about = {
        "strides": {"list": {"i": ["1", "2", "2", "1"]}},
        "padding": {"s": "U0FNRQ=="},
        "fused_ops": {"list": {"s": ["Qmlhc0FkZA==", "UmVsdTY="]}},
    }
    node = {"name": "c", "op": "_FusedConv2D", "input": ["x", "w", "b"], "attr": about}
    last = {"name": "d", "op": "AddV2", "input": ["c", "c"], "attr": {}}
    graph = {
        "modelTopology": {"node": [{"name": "x", "op": "Placeholder"}, node, last]},
        "weightsManifest": [{"weights": weights}],
    }
    (folder / "model.json").write_text(json.dumps(graph))
    (folder / "group1.bin").write_bytes(np.ones(72, "<f2").tobytes() + np.ones(4, "<f4").tobytes())


def _read_tfjs(folder: Path) -> object:
    from di2pose.image.tfjs_graph import TfjsFile, TfjsGraph

    file = TfjsFile(folder / "model.json", folder / "group1.bin")
    return TfjsGraph(file, "x", ["d"])


add("tfjs graph", "model.json", _make_tfjs, _read_tfjs, kind="json", count=150)
add("tfjs weights", "group1.bin", _make_tfjs, _read_tfjs, count=30)


def _make_tflite(folder: Path) -> None:
    from di2pose.image.tfjs_graph import TfjsFile
    from di2pose.image.tfjs_to_tflite import to_tflite

    _make_tfjs(folder)
    content, _ = to_tflite(TfjsFile(folder / "model.json", folder / "group1.bin"), "x", ["d"], (1, 8, 8, 2))
    (folder / "n.tflite").write_bytes(content)


def _read_tflite(folder: Path) -> object:
    from di2pose.image.tflite_file import TfliteFile
    from di2pose.image.tflite_graph import TfliteGraph

    file = TfliteFile(folder / "n.tflite")
    return TfliteGraph(file, file.outputs)


add("tflite", "n.tflite", _make_tflite, _read_tflite, count=150)
