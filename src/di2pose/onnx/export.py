"""Write an ONNX folder; each network is checked against PyTorch's own answers before the folder counts.

B images, H hypotheses, N tokens, R some tokens of some rows.
"""

import hashlib
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
from di2pose.onnx.folder import DESCRIPTION, FORMAT_VERSION, OnnxFolder, start_session
from di2pose.onnx.parts import Part, parts_of
from di2pose.onnx.predictor import OnnxModel
from di2pose.pipeline import Di2Pose
from di2pose.pose.skeleton import H36M_17
from di2pose.spread import hypothesis_generators

OPSET = 18
ROUNDED = ("step", "head")
"""The parts whose weights `int8` rounds: the denoiser's."""


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
            told["files"][part.name] = _fingerprint(path) | {"largest_difference": _difference(part, path)}
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
            largest = max(largest, float(np.abs(here.double().numpy() - there).max()))
    if not largest <= part.most:
        raise InputError(
            f"{part.name}: ONNX differs from PyTorch by {largest:.3g}, more than {part.most:g}; this version of "
            "PyTorch or onnxruntime cannot be used for the export"
        )
    return largest


def _round(folder: Path, told: Json, parts: list[Part]) -> Json:
    """Weights of ROUNDED in 8 bits; the mean distance of joints from the unrounded model's, same noise, over a few
    crops: of the mean of 8 hypotheses, and of the hypotheses themselves, of which some take other codes."""
    quantisation = require("onnxruntime.quantization", extra="onnx")
    features = next(part.inputs["features"] for part in parts if part.name == "condition").numpy()

    def joints() -> np.ndarray:
        noise = hypothesis_generators(0, range(len(features)), 8)
        model = OnnxModel(OnnxFolder(folder))
        return model.predict(features, 8, model.config.sample_steps, noise).joints_mm

    before = joints()
    for name in ROUNDED:
        path = folder / f"{name}.onnx"
        kind = quantisation.QuantType.QInt8
        quantisation.quantize_dynamic(path, path, per_channel=True, weight_type=kind)
        told["files"][name] |= _fingerprint(path)
    write_json(folder / DESCRIPTION, told)
    after = joints()
    apart = np.linalg.norm(after - before, axis=-1)
    mean = np.linalg.norm(after.mean(1) - before.mean(1), axis=-1)
    return {"parts": list(ROUNDED), "mean_of_8_mm": float(mean.mean()), "hypothesis_mm": float(apart.mean())}


def _fingerprint(path: Path) -> Json:
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
