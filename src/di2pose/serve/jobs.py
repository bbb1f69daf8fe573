"""Work for requests other than plain photos: a video, the reveal, the occlusion lab."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image

from di2pose.errors import InputError
from di2pose.image.boxes import Box
from di2pose.image.read import BATCH_PIXELS
from di2pose.network import Di2PoseNetwork
from di2pose.noise import hypothesis_generators
from di2pose.occlusion.patches import Rectangle, keyed_generator, paste
from di2pose.occlusion.textures import ProceduralTextures
from di2pose.options import Options
from di2pose.output.media import Thumbnails
from di2pose.output.tables import plain
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pipeline.request import ImageRequest, open_query
from di2pose.result import Motion, Result
from di2pose.serve.decoding import Between, WatchedStream
from di2pose.serve.limits import ApiError, Limits
from di2pose.video.estimate import video_results, whole_motion
from di2pose.video.fragments import TrackNotes
from di2pose.video.stream import VideoBytes

RequestOptions = Mapping[str, Any]
GRAIN = 80.0
"""Crop pixels that the lab's patch stands for: the coarseness of its texture is that of advocc-80."""
TOGETHER = 8
"""Placements in one pass of the networks."""


def estimate_motion(
    model: Di2Pose, source: VideoBytes, options: RequestOptions, limits: Limits, coming: Callable[[Result], None],
    between: Between,
) -> Motion:  # fmt: skip
    """Everybody in a video, as `estimate_video` has it. coming: called with each frame's result before smoothing."""
    stream, notes, results = WatchedStream(source, limits, lambda _: between()), TrackNotes(), []
    for result in video_results(model, stream, smoothed=False, same_body=False, least_s=0.0, notes=notes, **options):
        results.append(result)
        coming(result)
    least = model.least_score if options["min_score"] is None else options["min_score"]
    return whole_motion(results, stream.fps, notes, True, True, True, options["height_m"], least_score=least)


def with_thumbnails(motion: Motion, source: VideoBytes, limits: Limits, between: Between) -> Motion:
    """As many frames as a page shows, with small pictures of the video."""
    thumbnails = Thumbnails()
    for k, frame in enumerate(WatchedStream(source, limits, lambda _: between())):
        thumbnails.add(k, frame.picture)
    return thumbnails.on(motion)


def reveal_steps(model: Di2Pose, picture: Image.Image, options: RequestOptions, between: Between) -> dict[str, Any]:
    """The largest person, or the one in the box: tokens of hypothesis 0 as they are recovered, and the decoder's pose
    of each step, in camera axes."""
    network = model.model
    if not isinstance(network, Di2PoseNetwork):
        raise InputError(f"a model of kind '{network.kind}' has no tokens to reveal")
    result = model(picture, **options)
    if not result.people:
        raise InputError("nobody was found: draw a box round the person")
    between()
    boxes = options["boxes"] and tuple(options["boxes"])
    query = open_query(ImageRequest(picture, boxes, tuple(options["occluded"])), None, options["field_of_view"])
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


def lab_grid(
    model: Di2Pose, picture: Image.Image, patch: float, count: int, options: RequestOptions, between: Between
) -> dict[str, Any]:
    """How far a patch moves the estimate of the largest person, or of the one in the box, for each of count x count
    places over the box: AdvOcc's search, against the estimate without a patch, for the true pose is unknown.

    The box stays, without a second look: the patch's effect on a detector is not measured.
    """
    if options["boxes"] is not None and len(options["boxes"]) != 1:
        raise ApiError(400, f"the lab is about one person: give one box, got {len(options['boxes'])}")
    one = {**options, "second_look": False, "max_people": 1}
    found = model(picture, **one)
    if not found.people:
        raise InputError("nobody was found: draw a box round the person")
    box = found.people[0].box
    one["boxes"] = [box]
    clean_mm = model(picture, **one).people[0].joints_mm
    places = placements(box, patch * min(picture.size), count)
    together = max(1, min(TOGETHER, BATCH_PIXELS // (picture.width * picture.height)))
    if one["pin"] or one["keep_tokens"]:  # these are for one picture
        together = 1
    covered = one.pop("occluded")
    moved_mm: list[float] = []
    for first in range(0, len(places), together):
        between()
        some = places[first : first + together]
        pictures = [patched(picture, place, options["seed"]) for place in some]
        for result in model(pictures, **one | {"boxes": [[box]] * len(some), "occluded": [covered] * len(some)}):
            moved_mm.append(float(np.linalg.norm(result.people[0].joints_mm - clean_mm, axis=-1).mean()))
    worst = int(np.argmax(moved_mm))
    return {
        "grid": plain(np.reshape(moved_mm, (count, count))),
        "boxes": plain(np.array(places)),
        "worst": plain(places[worst]),
        "worst_mm": plain(moved_mm[worst]),
        "box_px": plain(box),
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
