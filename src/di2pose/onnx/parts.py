"""The networks of a pipeline as modules that can be exported: arrays in, arrays out, nothing else.

B images, H hypotheses, N tokens, L image tokens of width F, Q keys of D = heads * E, R rows.
"""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose.assets import can_fetch, fetch
from di2pose.diffusion.denoiser import Denoiser
from di2pose.diffusion.trunk import Condition
from di2pose.image.blazepose import BlazePose, load
from di2pose.image.crop import crop, roi_from_box
from di2pose.image.efficientdet import EfficientDet
from di2pose.image.encoder import FeatureLayout
from di2pose.image.multipose import MultiPose
from di2pose.image.read import read_image
from di2pose.network import Di2PoseNetwork
from di2pose.noise import generator_of
from di2pose.tokenizer.tokenizer import PoseTokenizer

HYPOTHESES = 3
"""Of each image, in the trial of a step."""
BODIES = ((130, 0, 400, 512), (60, -100, 460, 700), (150, 20, 330, 260), (0, 0, 512, 512))
"""Boxes in the picture on which networks are tried: a portrait of 512x512 pixels."""


@dataclass(frozen=True)
class Part:
    """A network to be exported, what it is tried on, and how far off its answers may be."""

    name: str
    network: nn.Module
    """Inputs in order -> a tuple of outputs."""
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    free: dict[str, dict[int, str]]
    """The axes of the inputs whose size is free: all have an even size in the trial."""
    most: float
    """Largest difference from PyTorch that is let pass, in the outputs' own units; of tokens the share that differ."""

    def half(self) -> dict[str, Tensor]:
        """The inputs, half as large along every free axis."""
        halved = dict(self.inputs)
        for name, axes in self.free.items():
            for axis in axes:
                halved[name] = halved[name].narrow(axis, 0, halved[name].shape[axis] // 2)
        return {name: value.contiguous() for name, value in halved.items()}


def parts_of(model: Di2PoseNetwork) -> tuple[list[Part], FeatureLayout]:
    """Everything between pixels and people that has weights, tried on a portrait; and what the features are."""
    picture = read_image(fetch("astronaut"))
    encoder = load(model.config.encoder, "torch")
    crops = torch.from_numpy(np.stack([crop(picture, roi_from_box(box)) for box in BODIES]))
    see, know = _Encoder(encoder), _Condition(model)
    features = see(crops)[0]
    known = dict(zip(know.names, know(features), strict=True))
    shape = (HYPOTHESES * len(crops), model.config.tokenizer.tokens)
    ks = torch.randint(model.config.denoiser.codes + 1, shape, generator=generator_of(0))
    told: dict[str, Tensor] = {name: known[name] for name in ("keys", "values", "hint") if name in known}
    step = {"ks": ks, "s": torch.tensor([model.schedule.steps // 2]), **told}
    x = _Step(model.denoiser)(*step.values())[0].flatten(0, 1)
    tokens = ks.clamp(max=model.config.denoiser.codes - 1)
    joints_mm = model.tokenizer.decode(tokens)
    rows, images = {0: "R"}, {0: "B"}
    parts = [
        Part("encoder", see, {"crops": crops}, see.names, {"crops": images}, most=0.05),
        Part("boxes", EfficientDet("torch"), {"pixels": _square(picture, 320)}, ("boxes", "scores"), {}, most=0.01),
        Part("condition", know, {"features": features}, know.names, {"features": images}, most=0.01),
        Part("step", _Step(model.denoiser), step, ("x",),
             {"ks": rows, "keys": {1: "B"}, "values": {1: "B"}} | ({"hint": images} if "hint" in told else {}), 1e-2),
        Part("head", _Head(model.denoiser), {"x": x}, ("p0",), {"x": rows}, most=1e-3),
        Part("decoder", _Decoder(model.tokenizer), {"tokens": tokens}, ("joints_mm",), {"tokens": rows}, most=0.05),
        Part("tokens", _Tokens(model.tokenizer), {"joints_mm": joints_mm}, ("tokens",), {"joints_mm": rows}, most=0.01),
    ]  # fmt: skip
    if can_fetch("movenet-multipose"):
        sides = {"pixels": {1: "h", 2: "w"}}
        names = ("keypoints", "boxes", "scores")
        parts.append(Part("poses", MultiPose(runtime="torch"), {"pixels": _square(picture, 256)}, names, sides, 0.1))
    return parts, encoder.layout


def _square(picture: Image.Image, side: int) -> Tensor:
    return torch.from_numpy(np.array(picture.resize((side, side), Image.Resampling.BILINEAR)))[None]


class _Encoder(nn.Module):
    def __init__(self, encoder: BlazePose) -> None:
        super().__init__()
        self.encoder = encoder
        second = () if encoder.movenet is None else ("keypoints",)
        self.names = ("features", "landmarks_2d", "landmark_visibility", "world_mm", "person", *second)

    def forward(self, crops: Tensor) -> tuple[Tensor, ...]:
        seen = self.encoder.encode(crops)
        return tuple(getattr(seen, name) for name in self.names)


class _Condition(nn.Module):
    """Features (B, L, F) -> keys and values (layers, B, heads, Q, E); where there is an adapter also the visibilities
    (B, 17, 4), and the hint (B, N, D)."""

    def __init__(self, model: Di2PoseNetwork) -> None:
        super().__init__()
        self.model = model
        config = model.config.denoiser
        extras = ("visibility",) * bool(config.adapter_layers) + ("hint",) * bool(config.hint_channels)
        self.names = ("keys", "values", *extras)

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        found = self.model.condition(features)
        parts = [torch.stack(found.keys), torch.stack(found.values)]
        if found.visibility_logits is not None:
            parts.append(found.visibility_logits.softmax(-1))
        if found.hint is not None:
            parts.append(found.hint)
        return tuple(parts)


class _Step(nn.Module):
    """Tokens (B * H, N) at step s (1,) -> what the trunk makes of them (B * H, N, D)."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.denoiser = denoiser

    def forward(self, ks: Tensor, s: Tensor, keys: Tensor, values: Tensor, hint: Tensor | None = None) -> tuple[Tensor]:
        condition = Condition(list(keys.unbind(0)), list(values.unbind(0)), hint=hint)
        return (self.denoiser.trunk(ks, self.denoiser.step_norms(s), condition),)


class _Head(nn.Module):
    """What the trunk made of some tokens (R, D) -> probabilities of their codes (R, C)."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.denoiser = denoiser

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.denoiser.head(x).softmax(-1),)


class _Decoder(nn.Module):
    """Tokens (R, N) -> joints (R, 17, 3) in mm. The embeddings of all codes are made once."""

    codebook: Tensor

    def __init__(self, tokenizer: PoseTokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.register_buffer("codebook", tokenizer.codebook().detach())

    def forward(self, tokens: Tensor) -> tuple[Tensor]:
        return (self.tokenizer._joints(F.embedding(tokens, self.codebook)),)


class _Tokens(nn.Module):
    """Joints (R, 17, 3) in mm -> tokens (R, N)."""

    def __init__(self, tokenizer: PoseTokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer

    def forward(self, joints_mm: Tensor) -> tuple[Tensor]:
        return (self.tokenizer.encode(joints_mm),)
