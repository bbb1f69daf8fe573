"""A folder of ONNX networks and onnx.json, which tells all that a predictor needs to run them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from di2pose.errors import InputError, require
from di2pose.files import Json

FORMAT_VERSION = 1
DESCRIPTION = "onnx.json"
PARTS = ("condition", "step", "head", "decoder", "tokens")
"""condition: features -> what the denoiser knows of an image; step: tokens of a step -> the trunk's outputs; head:
those of some tokens -> their probabilities; decoder: tokens -> joints; tokens: joints -> tokens."""
NEEDED = ("version", "config", "layout", "schedule", "calibration", "joints", "files")


class OnnxFolder:
    """The description, checked, and the networks, each loaded and checked when it is first run."""

    def __init__(self, folder: Path | str, threads: int = 0) -> None:
        self.folder, self.threads = Path(folder), threads
        self.description = _describe(self.folder)
        self._sessions: dict[str, Any] = {}

    def __contains__(self, part: str) -> bool:
        return part in self.description["files"]

    def run(self, part: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """The named outputs of a network."""
        if part not in self._sessions:
            self._sessions[part] = self._load(part)
        session = self._sessions[part]
        names = [each.name for each in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))

    def _load(self, part: str) -> Any:
        if part not in self:
            raise InputError(f"{self.folder} has no network '{part}': export the model again")
        about, path = self.description["files"][part], self.folder / f"{part}.onnx"
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
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}): the folder is damaged, copy it again") from error
    if not isinstance(description, dict) or description.get("format_version") != FORMAT_VERSION:
        raise InputError(f"{path} is not of format version {FORMAT_VERSION}: export the model again")
    if missing := [name for name in NEEDED if name not in description]:
        raise InputError(f"{path} lacks {', '.join(missing)}: export the model again")
    return description
