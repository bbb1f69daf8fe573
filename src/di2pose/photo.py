"""Photo in, people out: what happens round the model.  B crops, H hypotheses, N tokens, L image tokens of width F.

    picture -> [detector] -> View -> [encoder] -> Seen -> [Di2Pose] -> Estimate -> Person

Poses leave the model in the axes of their crop; a Person is in the axes and in the frame of the camera.
"""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import product
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from PIL import Image, ImageDraw
from torch import Tensor

from di2pose.calibration import Calibration
from di2pose.config import Config, DenoiserConfig
from di2pose.errors import InputError
from di2pose.image.blazepose import CROP, PEER_JOINTS, BlazePose
from di2pose.image.crop import assumed_camera, crop, to_camera_axes, to_crop_axes
from di2pose.image.detect import Detection
from di2pose.pose.camera import Camera
from di2pose.pose.root import place, stature_mm
from di2pose.pose.skeleton import BLAZEPOSE_33, H36M_17, convert
from di2pose.result import Person

BATCH = 16
"""Pictures that are read, and crops that are looked at, together."""
PERSON = 0.5
"""Least `person` of the encoder for a detection that nobody but the detector vouches for."""
GREY = (127, 127, 127)
BEYOND = 0.05
"""A joint this share of the crop's side outside the picture is out of the frame, whatever the pixels suggest; and so
far inside it is not."""

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in pixels of the upright picture."""
Pins = tuple[Float[Tensor, "... 17 3"], Bool[Tensor, "... 17"]]
"""(joints in mm from the pelvis, which of them are known)."""


class View(NamedTuple):
    """One person to look at."""

    picture: Image.Image
    """The whole picture: upright RGB."""
    detection: Detection
    camera: Camera
    hidden: tuple[Box, ...] = ()
    """Regions that are not to be looked at: they are painted grey before the crop."""


class Seen(NamedTuple):
    """What the encoder saw in B views, one pass each."""

    views: list[View]
    features: Float[Tensor, "B L F"]
    landmarks_2d: Float[Tensor, "B 33 2"]
    """Pixels of the 256x256 crop: `view.detection.roi.to_image` takes them into the picture."""
    landmark_visibility: Float[Tensor, "B 33"]
    person: Float[Tensor, " B"]
    """Probability that somebody is in the crop."""
    mirrored: Float[Tensor, "B L F"] | None = None
    """Features of the crops' mirror images, where those were looked at, too."""

    def pick(self, rows: Sequence[int]) -> "Seen":
        """Some of the views."""
        index = torch.tensor(list(rows), dtype=torch.int64)
        parts = (part[index.to(part.device)] for part in self[1:] if part is not None)
        return Seen([self.views[row] for row in rows], *parts)

    @staticmethod
    def joined(parts: Sequence["Seen"]) -> "Seen":
        """One after the other."""
        views, *columns = zip(*parts, strict=True)
        whole = (torch.cat(column) for column in columns if all(part is not None for part in column))
        return Seen([view for some in views for view in some], *whole)


class Estimate(NamedTuple):
    """What the model makes of B views."""

    tokens: Int[Tensor, "B H N"]
    samples_mm: Float[np.ndarray, "B H 17 3"]
    """Camera axes, root-relative."""
    visibility: Float[np.ndarray, "B 17 4"]
    """Probabilities: seen, hidden by the own body, hidden by something else, out of the frame."""


@runtime_checkable
class Glance(Protocol):
    """What an encoder tells of B crops; `image.blazepose.BlazePoseOutput` is one."""

    @property
    def features(self) -> Tensor: ...

    @property
    def landmarks_2d(self) -> Tensor: ...

    @property
    def visibility(self) -> Tensor: ...

    @property
    def person(self) -> Tensor: ...


def load_encoder(config: Config, device: torch.device) -> BlazePose:
    """The frozen backbone whose features the model was trained on; never part of a checkpoint."""
    variant: Any = config.encoder.removeprefix("blazepose-")
    if variant not in ("heavy", "full", "lite"):
        raise InputError(
            f"this model cannot look at pictures: its features come from '{config.encoder}', and only blazepose-heavy, "
            "-full and -lite are run on photos; give it features (predict_joints), or Di2Pose(config, encoder=...)"
        )
    quick = device.type == "cpu" and find_spec("ai_edge_litert") is not None
    tokens, width = config.denoiser.feature_tokens, config.denoiser.feature_width
    for movenet, map16 in product((False, True), repeat=2):  # the configuration tells sizes only, and those tell which
        encoder = BlazePose(variant, map16, movenet, "litert" if quick else "torch")
        if encoder.layout.width == width and (not config.denoiser.adapter_layers or encoder.layout.length == tokens):
            return encoder.to(device)
    raise InputError(f"this model wants {tokens} image tokens of width {width}: no form of {config.encoder} gives them")


def camera_for(size: tuple[int, int], camera: Camera | None, field_of_view: float | None) -> Camera:
    """The camera of a picture (width, height): the stated one, else a centred one of the stated field of view, else of
    60 degrees across the longer side."""
    if camera is not None and field_of_view is not None:
        raise InputError("give the camera or its field_of_view, not both")
    if camera is None:
        return assumed_camera(size) if field_of_view is None else assumed_camera(size, field_of_view)
    if camera.size is not None and tuple(camera.size) != tuple(size):
        raise InputError(
            f"the camera is of pictures of {camera.size[0]}x{camera.size[1]} pixels, this one has {size[0]}x{size[1]} "
            "(upright): give the camera of this size"
        )
    return camera


def crops_of(views: Sequence[View], mirrored: bool = False) -> Iterator[np.ndarray]:
    """The pixels of the views, or their mirror images, BATCH at a time: (b, 256, 256, 3) uint8."""
    for first in range(0, len(views), BATCH):
        some = views[first : first + BATCH]
        crops = np.stack([crop(_painted(view.picture, view.hidden), view.detection.roi, CROP) for view in some])
        yield np.ascontiguousarray(crops[:, :, ::-1]) if mirrored else crops


def gather(views: Sequence[View], glances: Sequence[Glance], config: DenoiserConfig, device: torch.device) -> Seen:
    """The glances at the batches of `crops_of` in one."""
    if not glances:
        empty = torch.zeros(0, config.feature_tokens, config.feature_width, device=device)
        return Seen([], empty, torch.zeros(0, 33, 2), torch.zeros(0, 33), torch.zeros(0))
    features = torch.cat([glance.features for glance in glances]).float().to(device)
    parts = ([getattr(glance, name) for glance in glances] for name in ("landmarks_2d", "visibility", "person"))
    return Seen(list(views), features, *(torch.cat(part).cpu() for part in parts))


def no_estimate(hypotheses: int, tokens: int) -> Estimate:
    """Of nobody."""
    nobody = torch.zeros(0, hypotheses, tokens, dtype=torch.int64)
    return Estimate(nobody, np.zeros((0, hypotheses, H36M_17.count, 3)), np.zeros((0, H36M_17.count, 4)))


def to_camera(joints_mm: Float[np.ndarray, "B H 17 3"], views: Sequence[View]) -> Float[np.ndarray, "B H 17 3"]:
    """Poses in the axes of their crops -> in the axes of their cameras."""
    poses = zip(joints_mm.astype(np.float64), views, strict=True)
    return np.stack([to_camera_axes(pose, view.detection.roi, view.camera) for pose, view in poses])


def pins_in_crops(pins: Pins, views: Sequence[View], device: torch.device) -> Pins:
    """Pins in camera axes, the same for every view -> in the axes of each view's crop."""
    turned = [to_crop_axes(pins[0], view.detection.roi, view.camera) for view in views]
    return torch.stack(turned).float().to(device), pins[1].expand(len(views), -1).to(device)


def visibility_by_landmarks(landmark_visibility: Float[Tensor, "B 33"]) -> Float[np.ndarray, "B 17 4"]:
    """For a model without a visibility head: seen as BlazePose thinks of its own landmarks, else hidden."""
    twice = landmark_visibility.double().numpy()[..., None].repeat(2, axis=-1)
    seen = convert(twice, BLAZEPOSE_33, H36M_17)[0][..., 0]
    seen[:, H36M_17.index("head")] = seen[:, H36M_17.index("nose")]  # no landmark lies on top of the head
    none = np.zeros_like(seen)
    return np.stack([seen, none, 1 - seen, none], axis=-1)


def people_of(
    seen: Seen, estimate: Estimate, calibration: Calibration | None, height_m: float | None = None
) -> list[Person]:
    """A person for each view, in the views' order. `height_m`, where it is known, is everybody's stature."""
    if height_m is not None and not 0.3 <= height_m <= 3.0:
        raise InputError(f"height_m is a stature in metres, 0.3 to 3, got {height_m}")
    calibration = calibration or Calibration.neutral()
    return [_person(seen, estimate, row, calibration, height_m) for row in range(len(seen.views))]


def _person(seen: Seen, estimate: Estimate, row: int, calibration: Calibration, height_m: float | None) -> Person:
    view, samples_mm = seen.views[row], estimate.samples_mm[row]
    joints_mm = samples_mm.mean(0)
    landmarks_2d, weights = _limbs(seen, row)
    root_mm = place(joints_mm, landmarks_2d, weights, view.detection.box, view.camera)
    joints_2d = view.camera.project(joints_mm + root_mm)
    state = _overruled(calibration.state(estimate.visibility[row]), joints_2d, view)
    covariance_mm2 = calibration.covariance_mm2(samples_mm, state)
    factor = 1.0 if height_m is None else height_m * 1000 / float(stature_mm(samples_mm).mean())
    return Person(
        joints_mm=joints_mm * factor,
        samples_mm=samples_mm * factor,
        covariance_mm2=covariance_mm2 * factor**2,
        r90_mm=calibration.r90_mm(covariance_mm2, state) * factor,
        state=state,
        joints_2d=joints_2d,
        box=view.detection.box,
        root_mm=root_mm * factor,
        score=view.detection.score,
        tokens=estimate.tokens[row].cpu().numpy(),
    )


def _limbs(seen: Seen, row: int) -> tuple[np.ndarray, np.ndarray]:
    """The landmarks of the twelve limb joints at their places in H36M order, picture pixels, and their visibility."""
    points, weights = np.full((H36M_17.count, 2), np.nan), np.zeros(H36M_17.count)
    there, here = list(BLAZEPOSE_33.indices(*PEER_JOINTS)), list(H36M_17.indices(*PEER_JOINTS))
    found = seen.landmarks_2d[row, there].double().numpy()
    points[here] = seen.views[row].detection.roi.to_image(found, CROP)
    weights[here] = seen.landmark_visibility[row, there].double().numpy()
    return points, weights


def _overruled(state: np.ndarray, joints_2d: np.ndarray, view: View) -> np.ndarray:
    """The states, where geometry knows better: behind what the user calls hidden, or clearly outside or inside of the
    picture."""
    x, y = joints_2d.T
    for x0, y0, x1, y1 in view.hidden:
        state = np.where((x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1), "occluded", state)
    slack = BEYOND * view.detection.roi.side
    half = np.array(view.picture.size) / 2
    near, inside = ((np.abs(joints_2d - half) <= half + reach).all(-1) for reach in (slack, -slack))
    state = np.where(inside & (state == "out_of_frame"), "occluded", state)
    return np.where(near, state, "out_of_frame")


def _painted(picture: Image.Image, boxes: Sequence[Box]) -> Image.Image:
    if not boxes:
        return picture
    picture = picture.copy()
    pen = ImageDraw.Draw(picture)
    for x0, y0, x1, y1 in boxes:
        # A rectangle of PIL's holds its last pixel; pixel i covers [i, i + 1).
        pen.rectangle((np.floor(x0), np.floor(y0), np.ceil(x1) - 1, np.ceil(y1) - 1), fill=GREY)
    return picture
