"""A model in an ONNX folder: the networks, and onnx.json.  B crops, H hypotheses, J joints, N tokens."""

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from di2pose.calibration import Calibration
from di2pose.config import Config, from_json
from di2pose.diffusion.fast_sampler import fast_sample
from di2pose.diffusion.schedule import Schedule, step_grid
from di2pose.errors import InputError, require
from di2pose.files import Json, read_json
from di2pose.model import Constraints, Prediction, check_hypotheses
from di2pose.noise import antithetic_uniform, mirrored, share

FORMAT_VERSION = 2
"""1 had encoder and detectors, too, and the denoiser in two networks."""
DESCRIPTION = "onnx.json"
PARTS = ("condition", "denoiser", "decoder", "tokens")
"""condition: features -> the denoiser's condition of an image; denoiser: tokens of a step -> p0 of some of them;
decoder: tokens -> joints; tokens: joints -> tokens."""
LIFT_PARTS = ("lift_condition", "lift_denoiser")
"""The same of the denoiser of keypoints, where the model has one."""
CONDITION = ("keys", "values", "self_condition")
"""Outputs of `condition` that are inputs of `denoiser`; the last is optional."""


class OnnxModel:
    """Features in, poses out, in NumPy: a `prediction.Predicts`. Each network is loaded and checked when it first runs.

    folder: what `di2pose export MODEL --onnx DIR` wrote; threads: 0 is as many as there are cores
    """

    def __init__(self, folder: Path | str, threads: int = 0) -> None:
        self.folder, self.threads = Path(folder), threads
        self.description = _describe(self.folder)
        self.config = from_json(Config, self.description["config"])
        self.skeleton = self.config.skeleton
        known = self.description["calibration"]
        self.calibration = None if known is None else from_json(Calibration, known)
        noise = self.config.diffusion
        self.schedule = Schedule(self.config.tokenizer.codes, noise.steps, noise.final_occlude)
        self._sessions: dict[str, Any] = {}

    def predict(
        self, features: Float[np.ndarray, "B L F"], hypotheses: int, steps: int, generator: Any,
        constraints: Constraints | None = None,
    ) -> Prediction:  # fmt: skip
        """As `Di2PoseNetwork.predict`; the noise is that of `spread.hypothesis_generators`."""
        check_hypotheses(hypotheses)
        known = constraints or Constraints()
        if known.pins is not None:
            raise InputError("pins need gradients, which ONNX has not: use di2pose.Di2Pose (PyTorch) for them")
        condition = self.run("condition", features=features)
        mine = hypotheses if self.config.lift is None else hypotheses - hypotheses // 2
        drawn = [self._draw(condition, mine, steps, share(generator, range(mine), hypotheses), known)]
        if mine < hypotheses:
            others = share(generator, range(mine, hypotheses), hypotheses)
            seen = self.run("lift_condition", features=features)
            drawn.append(self._draw(seen, hypotheses - mine, steps, others, known, "lift_denoiser"))
        tokens = np.concatenate(drawn, axis=1)  # B H N
        joints_mm = self.run("decoder", tokens=tokens.reshape(-1, tokens.shape[2]))["joints_mm"]
        poses = joints_mm.reshape(*tokens.shape[:2], *joints_mm.shape[1:])
        return Prediction(poses, condition.get("visibility"), tokens)

    def _draw(
        self, condition: dict[str, np.ndarray], hypotheses: int, steps: int, noise: Any, known: Constraints,
        denoiser: str = "denoiser",
    ) -> Int[np.ndarray, "B H N"]:  # fmt: skip
        """Tokens of all hypotheses of each image that a condition is of."""
        count, kept = condition["keys"].shape[1], None
        if known.kept is not None:
            kept = (np.repeat(known.kept[0], hypotheses, axis=0), np.repeat(known.kept[1], hypotheses, axis=0))
        *_, tokens = fast_sample(
            partial(self._p0, condition, denoiser=denoiser),
            self.schedule,
            step_grid(steps, self.schedule),
            (count * hypotheses, self.config.tokenizer.tokens),
            partial(antithetic_uniform, rows=noise),
            partial(mirrored, noise=noise),
            self.config.tokenizer.digits,
            kept,
        )
        return tokens.reshape(count, hypotheses, -1)

    def certainty(self, features: Float[np.ndarray, "B L F"]) -> Float[np.ndarray, " B"] | None:
        """As `Di2PoseNetwork.certainty`."""
        if not self.schedule.final_occlude:
            return None
        ks = np.full((len(features), self.config.tokenizer.tokens), self.schedule.occ)
        condition = self.run("condition", features=features)
        p0 = np.concatenate(list(self._p0(condition, ks, self.schedule.steps, np.arange(ks.size))))
        return (p0 * np.log(np.maximum(p0, 1e-12))).sum(-1).reshape(ks.shape).mean(-1)

    def tokens_of(self, joints_mm: Float[np.ndarray, "B H J 3"]) -> Int[np.ndarray, "B H N"]:
        poses = joints_mm.reshape(-1, *joints_mm.shape[2:])
        return self.run("tokens", joints_mm=poses)["tokens"].astype(np.int64).reshape(*joints_mm.shape[:2], -1)

    def run(self, part: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """The named outputs of a network."""
        if part not in self._sessions:
            self._sessions[part] = self._load(part)
        names = [each.name for each in self._sessions[part].get_outputs()]
        return dict(zip(names, self._sessions[part].run(names, inputs), strict=True))

    def _p0(
        self, condition: dict[str, np.ndarray], ks: np.ndarray, s: int, asked: np.ndarray, denoiser: str = "denoiser"
    ) -> Iterator[np.ndarray]:
        """A `fast_sampler.LazyP0`, in one block."""
        known = {name: condition[name] for name in CONDITION if name in condition}
        yield self.run(denoiser, ks=ks, s=np.array([s]), asked=asked, **known)["p0"]

    def _load(self, part: str) -> Any:
        about, path = self.description["files"].get(part), self.folder / f"{part}.onnx"
        if about is None:
            raise InputError(f"{self.folder} has no network '{part}': export the model again")
        if not path.is_file():
            raise InputError(f"{path} is missing: the folder is incomplete, copy it again")
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != about["sha256"]:
            raise InputError(
                f"{path} is damaged or not the file that was exported: expected {about['bytes']} bytes of sha256 "
                f"{str(about['sha256'])[:12]}..., got {len(content)} bytes of another; copy the folder again"
            )
        return start_session(content, self.threads)


def start_session(network: bytes, threads: int = 0) -> Any:
    """A network, ready to run on the CPU. threads: 0 is as many as there are cores."""
    runtime = require("onnxruntime", extra="onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors only
    return runtime.InferenceSession(network, options, providers=["CPUExecutionProvider"])


def _describe(folder: Path) -> Json:
    path = folder / DESCRIPTION
    if not path.is_file():
        raise InputError(
            f"{folder} is no ONNX folder: expected {DESCRIPTION} in it; `di2pose export MODEL --onnx DIR` writes one"
        )
    description = read_json(path, "the folder is damaged, copy it again")
    version = description.get("format_version") if isinstance(description, dict) else None
    if version != FORMAT_VERSION:
        raise InputError(f"{path} is of format version {version}, expected {FORMAT_VERSION}: export the model again")
    if missing := [name for name in ("config", "calibration", "files") if name not in description]:
        raise InputError(f"{path} lacks {', '.join(missing)}: export the model again")
    return description
