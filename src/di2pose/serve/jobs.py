"""What the worker does for a request that is no photo alone: a video, the reveal, the occlusion lab."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image

from di2pose.commands.photos import BATCH_PIXELS
from di2pose.errors import InputError
from di2pose.image.boxes import Box
from di2pose.network import Di2PoseNetwork
from di2pose.noise import hypothesis_generators
from di2pose.occlusion.patch_textures import ProceduralTextures
from di2pose.occlusion.patches import Rectangle, keyed_generator, paste
from di2pose.options import Options
from di2pose.output.tables import plain
from di2pose.output.thumbnails import Thumbnails
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pipeline.request import ImageRequest, open_query
from di2pose.result import Motion, Result
from di2pose.serve.pictures import Between, WatchedStream
from di2pose.serve.refusal import Limits, Refusal
from di2pose.video.estimate import estimate_video
from di2pose.video.stream import Frame, VideoBytes

GRAIN = 80.0
"""Crop pixels that the lab's patch stands for: the coarseness of its texture is that of advocc-80."""
TOGETHER = 8
"""Placements that are looked at in one pass of the networks."""


def estimate_motion(
    model: Di2Pose, source: VideoBytes, options: Mapping[str, Any], limits: Limits, between: Between, pictures: bool
) -> Motion:
    """Everybody in a video. `pictures`: with small pictures, of as many frames as a page shows."""
    thumbnails, count = Thumbnails(), itertools.count()

    def seen(frame: Frame) -> None:
        if pictures:
            thumbnails.add(next(count), frame.picture)

    motion = estimate_video(model, WatchedStream(source, limits, between, seen), **options)
    return thumbnails.on(motion) if pictures else motion


def reveal_steps(model: Di2Pose, picture: Image.Image, options: Mapping[str, Any], between: Between) -> dict[str, Any]:
    """The largest person, or the one in the box: tokens of hypothesis 0 as they are recovered, and the pose of each
    step as the decoder gives it, in camera axes."""
    network = model.model
    if not isinstance(network, Di2PoseNetwork):
        raise InputError(f"a model of kind '{network.kind}' has no tokens to reveal")
    result = model(picture, **options)
    if not result.people:
        raise InputError("nobody was found: draw a box round the person")
    between()
    boxes, hidden = options.get("boxes"), tuple(options.get("occluded", ()))
    query = open_query(
        ImageRequest(picture, None if boxes is None else tuple(boxes), hidden), None, options.get("field_of_view")
    )
    encoded = model.detect_and_encode([query], Options(**options))
    row = next(k for k, crop in enumerate(encoded.crops) if crop.detection.box == result.people[0].box)
    crop = replace(encoded.crops[row], camera=result.camera)
    turn = model.encoder.rotation(crop.region, crop.camera)
    steps = []
    features = torch.from_numpy(encoded.pick([row]).output.features).to(network.device)
    noise = hypothesis_generators(options["seed"], [row], 1)
    for s, decided, joints_mm in network.reveal(features, result.steps, noise):
        pose = joints_mm[0].double().cpu().numpy() @ turn
        steps.append({"step": s, "joints_mm": plain(pose), "decided": decided[0].tolist()})
    return {"steps": steps, "box_px": plain(crop.detection.box)}


def with_patch(model: Di2Pose, picture: Image.Image, at: Sequence[float], options: Mapping[str, Any]) -> Result:
    """Everybody in the picture with one patch."""
    return model(patched(picture, box_of(at), options["seed"]), **options)


def lab_grid(
    model: Di2Pose, picture: Image.Image, patch: float, count: int, options: Mapping[str, Any], between: Between
) -> dict[str, Any]:
    """How far a patch moves the estimate of the largest person, or of the one in the box, for each of count x count
    places over the box: AdvOcc's search, but against the estimate without a patch, for nobody knows the truth.

    The box stays, and everybody is looked at once: what the patch does to a detector is not measured.
    """
    alone = {**options, "second_look": False, "max_people": 1}
    boxes = options.get("boxes")
    if boxes is not None and len(boxes) != 1:
        raise Refusal(400, f"the lab is about one person: give one box, got {len(boxes)}")
    found = model(picture, **alone)
    if not found.people:
        raise InputError("nobody was found: draw a box round the person")
    person = found.people[0]
    alone["boxes"] = [person.box]
    clean_mm = model(picture, **alone).people[0].joints_mm
    places = placements(person.box, patch * min(picture.size), count)
    together = max(1, min(TOGETHER, BATCH_PIXELS // (picture.width * picture.height)))
    if alone.get("pin") or alone.get("keep_tokens"):  # these are about one picture
        together = 1
    per_picture = {name: alone.pop(name) for name in ("boxes", "occluded") if name in alone}
    moved_mm: list[float] = []
    for first in range(0, len(places), together):
        between()
        some = places[first : first + together]
        pictures = [patched(picture, place, options["seed"]) for place in some]
        shared: dict[str, Any] = {name: [value] * len(some) for name, value in per_picture.items()} | alone
        for result in model(pictures, **shared):
            moved_mm.append(float(np.linalg.norm(result.people[0].joints_mm - clean_mm, axis=-1).mean()))
    worst = int(np.argmax(moved_mm))
    return {
        "grid": plain(np.reshape(moved_mm, (count, count))),
        "boxes": plain(np.array(places)),
        "worst": plain(places[worst]),
        "worst_mm": plain(moved_mm[worst]),
        "box_px": plain(person.box),
    }


def placements(box: Box, side: float, count: int) -> list[Box]:
    """count x count squares, row by row, evenly from one edge of the box to the other; in the middle where they are
    larger than the box."""
    x0, y0, x1, y1 = box
    across, down = (
        np.linspace(low, high - side, count) if high - low > side else np.full(count, (low + high - side) / 2)
        for low, high in ((x0, x1), (y0, y1))
    )
    return [(float(x), float(y), float(x) + side, float(y) + side) for y in down for x in across]


def patched(picture: Image.Image, box: Box, seed: int) -> Image.Image:
    """The picture with a textured patch; the texture depends on the seed and the place alone."""
    x0, y0, x1, y1 = max(box[0], 0.0), max(box[1], 0.0), min(box[2], picture.width), min(box[3], picture.height)
    if not (x0 < x1 and y0 < y1):
        raise InputError(f"the patch lies outside of the picture of {picture.width}x{picture.height} pixels")
    side, shown = max(x1 - x0, y1 - y0), Rectangle(x0, y0, x1, y1)
    generator = keyed_generator("lab", seed, *(round(each) for each in (x0, y0, x1, y1)))
    return paste(picture, Rectangle(x0, y0, x0 + side, y0 + side), GRAIN, ProceduralTextures(), generator, shown)


def box_of(values: Sequence[float]) -> Box:
    x0, y0, x1, y1 = values
    return x0, y0, x1, y1
