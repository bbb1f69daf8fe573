"""Write an ONNX folder; each network is checked against PyTorch's own answers before the folder counts.

B images, H hypotheses, J joints, N tokens, A some of their B * H * N, L image tokens of width F, Q keys of
D = heads * E, R rows.
"""

import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose import __version__
from di2pose.assets import fetch
from di2pose.config import to_json
from di2pose.diffusion.denoiser import Condition, Denoiser
from di2pose.errors import InputError, require
from di2pose.files import Json, replace_folder, write_json
from di2pose.image.crop import roi_from_box
from di2pose.image.encoder import crop_pixels, load_encoder
from di2pose.image.read import read_image
from di2pose.network import Di2PoseNetwork
from di2pose.noise import generator_of
from di2pose.onnx.model import DESCRIPTION, FORMAT_VERSION, start_session
from di2pose.pipeline.pipeline import Di2Pose

OPSET = 18
LEAST_HALVED = 1024
"""Smallest tensor that is stored in 16 bits."""
HYPOTHESES = 3
"""Of each image, in the trial of the denoiser."""
BODIES = ((130, 0, 400, 512), (60, -100, 460, 700), (150, 20, 330, 260), (0, 0, 512, 512))
"""Boxes in a portrait of 512x512 pixels, on whose features the networks are tried."""


@dataclass(frozen=True)
class Part:
    """A network to export, with trial inputs."""

    name: str
    function: Callable[..., tuple[Tensor, ...]]
    """Inputs in order -> a tuple of outputs."""
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    free: dict[str, dict[int, str]]
    """Axes of the inputs whose size is free: even in the trial, which is done at half the size, too."""
    most: float
    """Largest difference from PyTorch that passes, in the outputs' own units; of tokens the share that differs."""


@torch.no_grad()
def export_onnx(pipeline: Di2Pose, folder: Path) -> Json:
    """Write the model as a folder that `OnnxModel` reads; returns the content of onnx.json. An older folder is replaced
    when the new one is whole."""
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
    about: Json = {
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "made_with": {"torch": torch.__version__, "opset": OPSET},
        "config": to_json(model.config),
        "joints": list(model.skeleton.joints),
        "calibration": None if pipeline.calibration is None else to_json(pipeline.calibration),
        "files": {},
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for part in parts_of(model.eval()):
            path = new / f"{part.name}.onnx"
            _trace(part, model, path)
            _halve(path)
            about["files"][part.name] = _fingerprint(path, part)
            if not (largest := about["files"][part.name]["largest_difference"]) <= part.most:
                raise InputError(
                    f"{part.name}: ONNX differs from PyTorch by {largest:.3g}, more than {part.most:g}: this version "
                    "of PyTorch or onnxruntime cannot be used for the export"
                )
        write_json(new / DESCRIPTION, about)
        os.chmod(new, 0o755)  # mkdtemp makes it private
        replace_folder(folder, new)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return about


def parts_of(model: Di2PoseNetwork) -> list[Part]:
    """The networks of a model, with features of a portrait as trial inputs."""
    encoder, picture = load_encoder(model.config.encoder), read_image(fetch("astronaut"))
    crops = np.stack([crop_pixels(encoder, picture, roi_from_box(box)) for box in BODIES])
    features = torch.from_numpy(encoder.encode(crops).features)
    tokenizer = model.tokenizer
    codebook = tokenizer.codebook()

    def decode(tokens: Tensor) -> tuple[Tensor]:
        """(R, N) -> joints (R, J, 3) in mm. The embeddings of all codes are computed once."""
        return (tokenizer.decode_embedded(F.embedding(tokens, codebook)),)

    shape = (HYPOTHESES * len(crops), tokenizer.config.tokens)
    ks = torch.randint(model.schedule.codes + 1, shape, generator=generator_of(0))
    tokens, rows = ks.clamp(max=model.schedule.codes - 1), {0: "R"}
    poses = {"joints_mm": tokenizer.decode(tokens)}
    parts = _denoiser_parts(model.denoiser, model.condition, features, ks, model.schedule.steps)
    if model.lift is not None:
        parts += _denoiser_parts(model.lift, model.lift_condition, features, ks, model.schedule.steps, "lift_")
    return [
        *parts,
        Part("decoder", decode, {"tokens": tokens}, ("joints_mm",), {"tokens": rows}, most=0.05),
        Part("tokens", lambda x: (tokenizer.encode(x),), poses, ("tokens",), {"joints_mm": rows}, most=0.01),
    ]


def _denoiser_parts(
    denoiser: Denoiser,
    to_condition: Callable[[Tensor], Condition],
    features: Tensor,
    ks: Tensor,
    steps: int,
    prefix: str = "",
) -> list[Part]:
    """A denoiser, and the condition of its images."""
    extras = (denoiser.config.adapter_layers, "visibility"), (denoiser.config.hint_channels, "self_condition")
    names = ("keys", "values", *(name for there, name in extras if there))

    def condition(features: Tensor) -> tuple[Tensor, ...]:
        """(B, L, F) -> keys and values (layers, B, heads, Q, E), visibility (B, J, 4), self_condition (B, N, D)."""
        found = to_condition(features)
        parts = (torch.stack(found.keys), torch.stack(found.values), found.visibility, found.self_condition)
        return tuple(part for part in parts if part is not None)

    def denoise(
        ks: Tensor, s: Tensor, asked: Tensor, keys: Tensor, values: Tensor, self_condition: Tensor | None = None
    ) -> tuple[Tensor]:
        """Tokens (B * H, N) at step s (1,) -> probabilities (A, C) of k_0 of the asked ones (A,)."""
        known = Condition(list(keys.unbind(0)), list(values.unbind(0)), self_condition=self_condition)
        x = denoiser.run_blocks(denoiser.token_embed(ks), denoiser.step_norms(s), known)
        return (denoiser.head(x.flatten(0, 1)[asked], ks.flatten()[asked], s).softmax(-1),)

    known = dict(zip(names, condition(features), strict=True))
    inputs = {"ks": ks, "s": torch.tensor([steps // 2]), "asked": torch.arange(ks.numel())}
    inputs |= {name: value for name, value in known.items() if name != "visibility"}
    free = {"ks": {0: "R"}, "asked": {0: "A"}, "keys": {1: "B"}, "values": {1: "B"}}
    free |= {"self_condition": {0: "B"}} if "self_condition" in known else {}
    return [
        Part(f"{prefix}condition", condition, {"features": features}, names, {"features": {0: "B"}}, most=0.01),
        Part(f"{prefix}denoiser", denoise, inputs, ("p0",), free, most=1e-3),
    ]


class _Module(nn.Module):
    """A function as a module, for the exporter; `model` has its weights."""

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], model: nn.Module) -> None:
        super().__init__()
        self.function, self.model = function, model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.function(*inputs)


def _trace(part: Part, model: nn.Module, path: Path) -> None:
    require("onnx", extra="onnx")
    with warnings.catch_warnings():  # about what is constant in a trace; `_difference` tries other sizes
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Module(part.function, model),
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


def _fingerprint(path: Path, part: Part) -> Json:
    """Size, sha256 and the largest difference from PyTorch, on the trial inputs and on half as many."""
    content, largest, half = path.read_bytes(), 0.0, dict(part.inputs)
    for name, axis in ((name, axis) for name, axes in part.free.items() for axis in axes):
        half[name] = half[name].narrow(axis, 0, half[name].shape[axis] // 2).contiguous()
    session = start_session(content)
    for inputs in (part.inputs, half):
        wanted = part.function(*inputs.values())
        found = session.run(list(part.outputs), {name: value.numpy() for name, value in inputs.items()})
        for name, here, there in zip(part.outputs, wanted, found, strict=True):
            if tuple(here.shape) != there.shape:
                raise InputError(f"{part.name}: ONNX gives {name} of shape {there.shape}, PyTorch {tuple(here.shape)}")
            off = np.abs(here.numpy() - there)
            largest = max(largest, float(off.max() if here.is_floating_point() else (off > 0).mean()))
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "largest_difference": largest}
