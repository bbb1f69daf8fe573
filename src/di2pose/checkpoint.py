"""A checkpoint is a folder: config.json and one safetensors file a part. Written atomically, loaded strictly.

config.json holds the format's version, the kind of model and that kind's own configuration, and the size and sha256 of
every file: the folder explains itself, and a truncated or altered copy is found before anything is loaded.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from di2pose.config import Config, from_json, to_json
from di2pose.errors import InputError
from di2pose.files import Json, read_json, replace_folder

FORMAT_VERSION = 1
OWN_FILE = {"adapter": "denoiser"}
"""Module -> the part that contains it: its weights are a file of their own, which a new denoiser with the same adapter
shares. Older folders have them in the part's file."""


def save(
    folder: Path | str,
    config: object,
    parts: Mapping[str, nn.Module],
    notes: Mapping[str, str | float] = {},
    half: bool = False,
    kind: str = "di2pose",
) -> Path:
    """Write every part's weights and the config. An old checkpoint of that name stays whole until the new one is.

    `half` stores floating point weights in 16 bits: half the size, for use and not for further training.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        states: dict[str, dict[str, Tensor]] = {}
        for name, part in parts.items():
            for key, value in part.state_dict().items():
                inner, _, rest = key.partition(".")
                file, short = (inner, rest) if OWN_FILE.get(inner) == name else (name, key)
                kept = value.half() if half and value.is_floating_point() else value
                states.setdefault(file, {})[short] = kept.contiguous()
        for name, state in states.items():
            save_file(state, _weights(new, name))
            os.chmod(_weights(new, name), 0o644)  # safetensors makes it private
        files = {name: _fingerprint(_weights(new, name)) for name in states}
        about = {"kind": kind, "config": to_json(config), "files": files, "notes": dict(notes)}
        (new / "config.json").write_text(json.dumps({"format_version": FORMAT_VERSION, **about}, indent=2) + "\n")
        os.chmod(new, 0o755)  # mkdtemp makes it private
        replace_folder(folder, new)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def find(folder: Path | str) -> Path:
    """The checkpoint of a plain word that names a packaged model, of a run of `di2pose train` (RUN/model), else the
    folder itself; so is a `Path` that is there."""
    name, place = str(folder), Path(folder)
    if not ((isinstance(folder, Path) and folder.is_dir()) or "/" in name or "\\" in name):
        names = packaged()
        if name in names:
            return _shelf() / name
        if not place.is_dir():
            there = f"it has {', '.join(names)}" if names else "it holds none: install a release, or train one"
            raise InputError(f"no model '{name}': no such folder, and the package has none of that name ({there})")
    return place / "model" if (place / "model" / "config.json").is_file() else place


def packaged() -> list[str]:
    """Names of the models inside the package."""
    return sorted(item.name for item in _shelf().iterdir() if item.is_dir()) if _shelf().is_dir() else []


def _shelf() -> Path:
    return Path(str(resources.files("di2pose") / "weights"))


def read_kind(folder: Path | str) -> tuple[str, Json]:
    """The kind of a checkpoint's model, and its configuration as JSON values."""
    description = _describe(Path(folder))
    return str(description.get("kind", "di2pose")), description["config"]  # older folders hold no other kind


def read_config(folder: Path | str) -> Config:
    """The configuration of a checkpoint of Di2Pose, or of one of its parts."""
    kind, config = read_kind(folder)
    if kind != "di2pose":
        raise InputError(f"{folder} holds a model of kind '{kind}', expected one of 'di2pose'")
    return from_json(Config, config)


def read_notes(folder: Path | str) -> Json:
    """Notes of a checkpoint: data, command, figures."""
    return dict(_describe(Path(folder))["notes"])


def load(folder: Path | str, parts: Mapping[str, nn.Module]) -> None:
    """Load the weights of every part, strictly: each key and each shape must agree."""
    for name, part in parts.items():
        state = read_part(folder, name)
        check_state(state, part.state_dict(), _weights(Path(folder), name))
        part.load_state_dict(state)


def read_part(folder: Path | str, name: str) -> dict[str, Tensor]:
    """The weights of one part, or of a module with a file of its own, as they are stored."""
    folder = Path(folder)
    files = _describe(folder)["files"]
    outer = OWN_FILE.get(name, name)
    if name not in files and outer in files:  # an older folder
        whole = _read_weights(_weights(folder, outer), files[outer])
        return {key.removeprefix(f"{name}."): value for key, value in whole.items() if key.startswith(f"{name}.")}
    if name not in files:
        raise InputError(f"checkpoint {folder} has no part '{name}'; it has {', '.join(sorted(files))}")
    state = _read_weights(_weights(folder, name), files[name])
    for inner in (inner for inner, outer in OWN_FILE.items() if outer == name and inner in files):
        own = _read_weights(_weights(folder, inner), files[inner])
        state |= {f"{inner}.{key}": value for key, value in own.items()}
    return state


class uninitialised(TorchFunctionMode):
    """Context in which parameters are not filled with random numbers: a checkpoint holds all of them. It saves most of
    the time that loading a model takes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
        return func(*args, **(kwargs or {}))


def check_state(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], source: Path) -> None:
    """Name every missing key, extra key and wrong shape of a state dict, in one error."""
    problems = [f"missing {key}" for key in wanted if key not in state]
    problems += [f"unexpected {key}" for key in state if key not in wanted]
    problems += [
        f"{key} has shape {tuple(state[key].shape)}, expected {tuple(value.shape)}"
        for key, value in wanted.items()
        if key in state and state[key].shape != value.shape
    ]
    if problems:
        shown = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise InputError(f"{source} does not fit the model of its config.json: {shown}")


def _describe(folder: Path) -> Json:
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"{folder} is not a checkpoint: expected a folder with config.json and .safetensors files")
    description = read_json(path, "the checkpoint is damaged, copy it again")
    if not isinstance(description, dict) or description.get("format_version") != FORMAT_VERSION:
        raise InputError(f"{path} is not a checkpoint of format version {FORMAT_VERSION}")
    if missing := {"config", "files", "notes"} - description.keys():
        raise InputError(f"{path} lacks {', '.join(sorted(missing))}")
    files, notes = description["files"], description["notes"]
    whole = isinstance(files, dict) and isinstance(notes, dict)
    if not whole or not all(isinstance(each, dict) and isinstance(each.get("bytes"), int) for each in files.values()):
        raise InputError(f"{path} does not list the files with their sizes: the checkpoint is damaged, copy it again")
    return description


def _read_weights(path: Path, fingerprint: Mapping[str, Any]) -> dict[str, Tensor]:
    if not path.is_file():
        raise InputError(f"{path} is missing: the checkpoint is incomplete, copy it again")
    if path.stat().st_size != fingerprint["bytes"]:
        raise InputError(
            f"{path} is truncated or not the file that was saved: expected {fingerprint['bytes']} bytes, "
            f"got {path.stat().st_size}; copy it again"
        )
    wanted = fingerprint.get("sha256")  # the first folders have none
    if wanted is not None and (found := _fingerprint(path)["sha256"]) != wanted:
        raise InputError(
            f"{path} is damaged or not the file that was saved: its sha256 is {found[:12]}..., config.json says "
            f"{str(wanted)[:12]}...; copy the folder or install the package again"
        )
    try:
        return load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path} is not a readable safetensors file ({error}); copy it again") from error


def _fingerprint(path: Path) -> Json:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _weights(folder: Path, part: str) -> Path:
    return folder / f"{part}.safetensors"
