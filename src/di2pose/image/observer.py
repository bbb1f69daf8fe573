"""2D observers: networks that find COCO's 17 keypoints of a person in a box, instead of MoveNet.  P people.

`movenet` is part of the default encoder. Others are named here, come by entry point, or are handed in as objects.
"""

from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.errors import InputError, require
from di2pose.image.boxes import Box
from di2pose.image.crop import apply, warp
from di2pose.image.detect import from_boxes, plug_in
from di2pose.image.keypoints import coco_of

PLUG_INS = "di2pose.observers"
"""The entry point group of observers of other distributions: family name -> load(name, device)."""
RTM_MODES = ("lightweight", "balanced", "performance")
"""rtmlib's own names of weights, which it fetches."""


@runtime_checkable
class Observer(Protocol):
    """Finds the keypoints of known people."""

    def observe(self, image: Image.Image, boxes: Sequence[Box]) -> Float[np.ndarray, "P 17 3"]:
        """x, y in pixels of the picture and score of 0 to 1, COCO order, of the person in each box; NaN and 0 where a
        keypoint is missing."""
        ...


def load_observer(name: str, device: Any = "cpu") -> Observer | None:
    """'movenet' (None: the encoder has it), 'vitpose:FOLDER-OR-HUB-NAME', 'rtmlib[:MODE-OR-ONNX]', or the name of an
    entry point in the group `di2pose.observers`."""
    family, _, place = name.partition(":")
    if family == "movenet":
        return None
    if family == "vitpose":
        return VitPoseObserver(place, device)
    if family == "rtmlib":
        return RtmlibObserver(place or "balanced", device)
    if (load := plug_in(PLUG_INS, family)) is not None:
        found: Observer = load(name, device)
        return found
    others = "".join(f", {each}" for each in sorted(entry_points(group=PLUG_INS).names))
    raise InputError(
        f"no observer is called '{name}': choose from movenet, vitpose:FOLDER-OR-HUB-NAME, rtmlib[:MODE-OR-ONNX]"
        f"{others}, or hand in an object with observe(image, boxes)"
    )


class VitPoseObserver:
    """ViTPose with its keypoint head, by the package transformers; of COCO's 17 keypoints."""

    def __init__(self, name_or_folder: str = "", device: Any = "cpu") -> None:
        from di2pose.image.vitpose import DEFAULT, VitPose

        self.encoder = VitPose(name_or_folder or DEFAULT, head=True).to(device)

    def observe(self, image: Image.Image, boxes: Sequence[Box]) -> Float[np.ndarray, "P 17 3"]:
        encoder = self.encoder
        matrices = [encoder.matrix(encoder.region(person)) for person in from_boxes(boxes)]
        if not matrices:
            return np.zeros((0, 17, 3))
        maps = encoder.heat_maps(np.stack([warp(image, matrix, encoder.size) for matrix in matrices]))
        places, scores = peaks(maps)
        rows, columns = maps.shape[2:]
        # Unbiased data processing: the centres of the first and last cells are those of the first and last pixels.
        step = (np.array(encoder.size) - 1) / (columns - 1, rows - 1)
        points = [apply(matrix, each * step + 0.5) for matrix, each in zip(matrices, places, strict=True)]
        return coco_of(np.concatenate([np.stack(points), scores[..., None]], -1), "ViTPose's keypoints")


class RtmlibObserver:
    """RTMPose by the package rtmlib: one of its modes, whose weights it fetches, or an ONNX file of one's own."""

    def __init__(self, what: str, device: Any = "cpu") -> None:
        rtmlib = require("rtmlib", extra="rtmlib")
        own = Path(what).is_file()
        if not own and what not in RTM_MODES:
            raise InputError(f"rtmlib:{what} is neither an ONNX file nor one of {', '.join(RTM_MODES)}")
        mode = {"pose": what} if own else rtmlib.Body.MODE[what]
        try:
            self.network = rtmlib.RTMPose(mode["pose"], backend="onnxruntime", device=str(device))
        except Exception as error:  # onnxruntime's and the downloader's own kinds
            raise InputError(f"rtmlib could not load '{mode['pose']}': {str(error)[:200]}") from error
        height, width = self.network.session.get_inputs()[0].shape[2:]
        self.network.model_input_size = (width, height)

    def observe(self, image: Image.Image, boxes: Sequence[Box]) -> Float[np.ndarray, "P 17 3"]:
        if not len(boxes):
            return np.zeros((0, 17, 3))
        points, scores = self.network(np.asarray(image)[..., ::-1], bboxes=[list(box) for box in boxes])
        return coco_of(np.concatenate([points, scores[..., None]], -1), "RTMPose's keypoints")


def peaks(maps: Float[np.ndarray, "P J h w"]) -> tuple[Float[np.ndarray, "P J 2"], Float[np.ndarray, "P J"]]:
    """Highest cell of each heat map (x, y), moved to the top of the parabola through its neighbours; and its value."""
    count, joints, rows, columns = maps.shape
    best = maps.reshape(count, joints, -1).argmax(-1)
    y, x = np.divmod(best, columns)
    first, second = np.arange(count)[:, None], np.arange(joints)
    places = []
    for at, size, near in ((x, columns, lambda d: maps[first, second, y, np.clip(x + d, 0, columns - 1)]),
                           (y, rows, lambda d: maps[first, second, np.clip(y + d, 0, rows - 1), x])):  # fmt: skip
        low, middle, high = near(-1), near(0), near(1)
        curve = 2 * middle - low - high
        inner = (at > 0) & (at < size - 1) & (curve > 1e-12)
        places.append(at + np.where(inner, 0.5 * (high - low) / np.where(inner, curve, 1), 0))
    return np.stack(places, -1), maps[first, second, y, x]
