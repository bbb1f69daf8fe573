"""Write an ONNX folder; each network is checked against PyTorch's own answers before the folder counts.

B images, H hypotheses, N tokens, R some tokens of some rows.
"""

import hashlib
import logging
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch

from di2pose import __version__
from di2pose.config import to_json
from di2pose.errors import InputError, require
from di2pose.files import Json, replace_folder, write_json
from di2pose.network import Di2PoseNetwork
from di2pose.noise import hypothesis_generators
from di2pose.onnx.folder import DESCRIPTION, FORMAT_VERSION, OnnxFolder, start_session
from di2pose.onnx.parts import Part, parts_of
from di2pose.onnx.predictor import OnnxModel
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.skeleton import H36M_17

OPSET = 18
ROUNDED = ("step", "head")
"""The parts whose weights `int8` rounds: the denoiser's."""
LEAST_HALVED = 1024
"""Numbers of a tensor that is worth it."""


@torch.no_grad()
def export_onnx(pipeline: Di2Pose, folder: Path, int8: bool = False) -> Json:
    """The pipeline as a folder that `OnnxPredictor` reads; gives what onnx.json says. An older folder is replaced when
    the new one is whole. `int8`: the denoiser's weights in 8 bits, and what that costs in mm beside it."""
    model = pipeline.model
    if not isinstance(model, Di2PoseNetwork) or not model.config.encoder.startswith("blazepose-"):
        raise InputError(
            f"ONNX is for models of kind 'di2pose' that look through BlazePose, got kind '{model.kind}' with encoder "
            f"'{model.config.encoder}'"
        )
    if (model.config.diffusion.temperature, model.config.diffusion.top_r) != (1, 1):
        raise InputError("ONNX draws tokens at temperature 1 and top_r 1: set them so before the export")
    if folder.exists() and not (folder / DESCRIPTION).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there and is no ONNX folder: choose another name, or remove it")
    parts, layout = parts_of(model.eval())
    schedule = model.schedule
    told: Json = {
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "made_with": {"torch": torch.__version__, "opset": OPSET},
        "config": to_json(model.config),
        "layout": to_json(layout),
        "joints": list(H36M_17.joints),
        "schedule": {
            "codes": schedule.codes,
            "final_occlude": schedule.final_occlude,
            "keep": schedule.keep.tolist(),
            "replace": schedule.replace.tolist(),
            "occlude": schedule.occlude.tolist(),
            "carry_over": model.config.denoiser.carry_over,
        },
        "calibration": None if pipeline.calibration is None else to_json(pipeline.calibration),
        "files": {},
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for part in parts:
            path = new / f"{part.name}.onnx"
            _trace(part, path)
            if not (int8 and part.name in ROUNDED):
                _halve(path)
            told["files"][part.name] = _fingerprint(path, part)
            _check(part, told["files"][part.name]["largest_difference"])
        write_json(new / DESCRIPTION, told)
        if int8:
            told["int8"] = _round(new, told, parts)
            write_json(new / DESCRIPTION, told)
        os.chmod(new, 0o755)  # mkdtemp makes it private
        replace_folder(folder, new)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return told


def _trace(part: Part, path: Path) -> None:
    require("onnx", extra="onnx")
    with warnings.catch_warnings():  # of what is constant in a trace; `_difference` tries other sizes
        warnings.simplefilter("ignore")
        torch.onnx.export(
            part.network.eval(),
            tuple(part.inputs.values()),
            path,
            dynamo=False,
            opset_version=OPSET,
            input_names=list(part.inputs),
            output_names=list(part.outputs),
            dynamic_axes=part.free,
        )


def _halve(path: Path) -> None:
    """Store in 16 bits what 16 bits hold exactly, as most weights came: half the file, the same network."""
    onnx = require("onnx", extra="onnx")
    network = onnx.load(path)
    graph, casts = network.graph, []
    for tensor in graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if values.dtype != np.float32 or values.size < LEAST_HALVED or (values != half).any():
            continue
        name = tensor.name
        tensor.CopyFrom(onnx.numpy_helper.from_array(half, f"{name}/16"))
        casts.append(onnx.helper.make_node("Cast", [f"{name}/16"], [name], to=onnx.TensorProto.FLOAT))
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend([*casts, *nodes])  # a value comes before its use
    onnx.save(network, path)


def _difference(part: Part, path: Path) -> float:
    """The largest one between ONNX's outputs and PyTorch's, on what the part was traced with and on half as much."""
    session = start_session(path.read_bytes())
    largest = 0.0
    for inputs in (part.inputs, part.half()):
        wanted = part.network(*inputs.values())
        found = session.run(list(part.outputs), {name: value.numpy() for name, value in inputs.items()})
        for name, here, there in zip(part.outputs, wanted, found, strict=True):
            if tuple(here.shape) != there.shape:
                raise InputError(f"{part.name}: ONNX gives {name} of shape {there.shape}, PyTorch {tuple(here.shape)}")
            off = np.abs(here.numpy() - there)
            largest = max(largest, float(off.max() if here.is_floating_point() else (off > 0).mean()))
    return largest


def _check(part: Part, largest: float) -> None:
    if not largest <= part.most:
        raise InputError(
            f"{part.name}: ONNX differs from PyTorch by {largest:.3g}, more than {part.most:g}: this version of "
            "PyTorch or onnxruntime cannot be used for the export"
        )


def _round(folder: Path, told: Json, parts: list[Part]) -> Json:
    """Weights of ROUNDED in 8 bits, and how far joints move by it, mean over a few crops, with the same noise: the mean
    of 8 hypotheses, each hypothesis (some take other codes), and as a measure the mean of 8 with another seed."""
    quantisation = require("onnxruntime.quantization", extra="onnx")
    features = next(part.inputs["features"] for part in parts if part.name == "condition").numpy()

    def joints(seed: int) -> np.ndarray:
        noise = hypothesis_generators(seed, range(len(features)), 8)
        model = OnnxModel(OnnxFolder(folder))
        found: np.ndarray = model.predict(features, 8, model.config.sample_steps, noise).joints_mm
        return found

    before, other = joints(0), joints(1)
    logging.disable(logging.WARNING)  # it advises what would change nothing here
    try:
        for part in parts:
            if part.name in ROUNDED:
                path = folder / f"{part.name}.onnx"
                quantisation.quantize_dynamic(path, path, per_channel=True, weight_type=quantisation.QuantType.QInt8)
                told["files"][part.name] = _fingerprint(path, part)
    finally:
        logging.disable(logging.NOTSET)
    write_json(folder / DESCRIPTION, told)
    after = joints(0)
    return {
        "parts": list(ROUNDED),
        "mean_of_8_mm": _apart(before.mean(1), after.mean(1)),
        "hypothesis_mm": _apart(before, after),
        "other_seed_mm": _apart(before.mean(1), other.mean(1)),
    }


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b, axis=-1).mean())


def _fingerprint(path: Path, part: Part) -> Json:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return {"bytes": len(content), "sha256": digest, "largest_difference": _difference(part, path)}
