"""What can be evaluated: a model on pictures, a model on cached features, a file of poses, anything with `predict`.

B records, H hypotheses, J joints.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image

from di2pose import checkpoint
from di2pose.baselines.blazepose import PEERS, BlazePosePeer
from di2pose.calibration import Calibration
from di2pose.data.feature_cache import FLIPPED
from di2pose.data.sample import Sample
from di2pose.device import Precision, autocast, choose_device
from di2pose.errors import InputError
from di2pose.evaluation.records import CachedRecords, Records
from di2pose.files import DAMAGED
from di2pose.image.crop import assumed_camera
from di2pose.image.detect import PersonMatcher, from_record_box
from di2pose.model import PoseModel, TorchModel, find_model, load_model
from di2pose.noise import hypothesis_generators
from di2pose.pipeline.assemble import fit_bodies
from di2pose.pipeline.crops import EncodedCrops
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pipeline.second_look import point_estimates, predict_both
from di2pose.pose.skeleton import BLAZEPOSE_33, H36M_17, Skeleton, get, mirror

PEER, PEER_FLIPPED = "peer", "peer, flip test"
"""The encoder's own 3D of the same crop; and its mean with that of the mirror image."""

Pictures = Sequence[Image.Image | None]
PointEstimates = dict[str, tuple[np.ndarray, Skeleton]]
"""Name -> poses (B, K, 3) in mm and what their K joints are."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Of B records, all in the same axes as their true poses."""

    samples_mm: Float[np.ndarray, "B H J 3"]
    others: PointEstimates = field(default_factory=dict)
    """Poses measured beside the hypotheses: the peer's, a regression's."""
    visibility: Float[np.ndarray, "B J 4"] | None = None
    """Probabilities of seen, hidden by the body, hidden by something else, out of the frame; None without that head."""
    fitted_mm: Float[np.ndarray, "B J 3"] | None = None
    """The estimate that a user gets, of all the hypotheses: bones kept, fitted to the landmarks."""
    states: np.ndarray | None = None
    """(B, J) 'visible', 'occluded', 'out_of_frame'."""
    unclear: np.ndarray | None = None
    """(B, J) bool, as `BodyFit.unclear`."""
    apart_mm: np.ndarray | None = None
    """(B, J), as `BodyFit.apart_mm`."""
    r90_mm: Float[np.ndarray, "B J"] | None = None
    """Radii of the balls that should hold the truth in 90 % of cases; None of a model without a calibration."""

    def row(self, k: int) -> "Predictions":
        """Those of one record, with B = 1."""
        arrays = {name: part[k : k + 1] for name, part in vars(self).items() if isinstance(part, np.ndarray)}
        others = {name: (poses[k : k + 1], skeleton) for name, (poses, skeleton) in self.others.items()}
        return Predictions(**arrays, others=others)


@runtime_checkable
class Predictor(Protocol):
    """Pictures in, poses out. May have `skeleton`, its joint order, and `steps`, its own number of reverse steps."""

    def predict(
        self, images: Pictures, samples: Sequence[Sample], hypotheses: int, steps: int | None, seed: int
    ) -> Predictions | np.ndarray:
        """(B, H, J, 3) joints in mm, camera axes, root-relative; or those and more as `Predictions`.

        The whole picture comes in: the method makes its own crop from it and `sample.box`, and uses no annotation.
        Hypothesis h of a record is drawn from (seed, record id, h) alone, so that neither batching nor ranks change it,
        and the first k of H are the draws of a run with k. `steps`: None is the method's own.
        """
        ...


class PicturePredictor:
    """The pipeline on pictures: the record's person is detected as in a user's picture, or with `true_boxes` cropped by
    the record's own box, as in the paper."""

    def __init__(
        self,
        pipeline: Di2Pose,
        second_look: bool = True,
        flip_test: bool = True,
        true_boxes: bool = False,
        precision: Precision = "auto",
    ) -> None:
        self.pipeline, self.second_look, self.flip_test = pipeline, second_look, flip_test
        self.precision = precision
        self.skeleton = pipeline.skeleton
        self.model, self.steps = pipeline.model, int(pipeline.config.sample_steps)
        self.find = from_record_box if true_boxes else PersonMatcher(pipeline.load_detector()).find
        pipeline.encoder  # noqa: B018  # a model without an image encoder fails here, before the first picture
        self._last: tuple[Pictures, EncodedCrops, PointEstimates] | None = None
        """Of the last pictures, which several seeds share."""

    @torch.no_grad()
    def predict(
        self, images: Pictures, samples: Sequence[Sample], hypotheses: int, steps: int | None, seed: int
    ) -> Predictions:
        if self._last is None or [*map(id, images)] != [*map(id, self._last[0])]:
            self._last = (list(images), *self._encode(images, samples))
        _, encoded, others = self._last
        noise = hypothesis_generators(seed, [sample.id for sample in samples], hypotheses)
        with autocast(self.pipeline.device, self.precision):
            estimate = self.pipeline.estimate(encoded, hypotheses, steps or self.steps, noise)
        people = self.pipeline.place(encoded, estimate)
        samples_mm, fitted_mm, states, r90_mm = (
            np.stack([getattr(person, name) for person in people])
            for name in ("samples_mm", "joints_mm", "state", "r90_mm")
        )
        radii = None if self.pipeline.calibration is None else r90_mm
        return Predictions(samples_mm, others, estimate.visibility, fitted_mm, states, r90_mm=radii)

    def _encode(self, images: Pictures, samples: Sequence[Sample]) -> tuple[EncodedCrops, PointEstimates]:
        """The encoded crops, and the estimates that are not drawn."""
        pipeline, crops = self.pipeline, []
        for image, sample in zip(images, samples, strict=True):
            if image is None:
                raise InputError(f"record {sample.id} has no picture: {pipeline.encoder.name} needs one")
            camera = sample.camera or assumed_camera(image.size)
            crops.append(pipeline.crop(image, self.find(sample, image), camera))
        encoded = pipeline.encode(crops, self.second_look, self.flip_test)
        here, there = encoded.output, encoded.flipped
        features, flipped_3d = (None, None) if there is None else (there.features, there.world_mm)
        with autocast(pipeline.device, self.precision):
            found = _point_estimates(self.model, here.features, features, here.world_mm, flipped_3d, here.skeleton)
        turns = np.stack([pipeline.encoder.rotation(crop.region, crop.camera) for crop in encoded.crops])
        return encoded, {name: (poses @ turns, skeleton) for name, (poses, skeleton) in found.items()}


class CachedPredictor:
    """A model of any kind on the features of a cache, in crop axes."""

    def __init__(
        self,
        model: PoseModel,
        records: CachedRecords,
        calibration: Calibration | None = None,
        device: torch.device | str = "cpu",
        flip_test: bool = True,
        fit: bool = True,
        precision: Precision = "auto",
    ) -> None:
        self.model, self.records, self.cache, self.fit = model, records, records.cache, fit
        self.skeleton = model.skeleton
        self.device, self.precision, self.steps = torch.device(device), precision, model.config.sample_steps
        self.calibration, self.calibrated = calibration or Calibration.neutral(model.skeleton), calibration is not None
        self.flipped = flip_test and self.cache.has_flipped
        tokens, width = model.config.feature_size
        layout = self.cache.layout
        if layout.width != width or tokens not in (0, layout.length):
            raise InputError(
                f"this model wants {tokens or 'any number of'} image tokens of width {width}; {self.cache.folder} "
                f"({self.cache.header.get('encoder', 'unknown encoder')}) holds {layout.length} of width {layout.width}"
            )

    @torch.no_grad()
    def predict(
        self, images: Pictures, samples: Sequence[Sample], hypotheses: int, steps: int | None, seed: int
    ) -> Predictions:
        rows = np.array([sample.row for sample in samples])
        noise = hypothesis_generators(seed, [sample.id for sample in samples], hypotheses)
        features, world_mm = self._encoded(rows)
        flipped, flipped_world_mm = self._encoded(rows, FLIPPED) if self.flipped else (None, None)
        with autocast(self.device, self.precision):
            asked = hypotheses, steps or self.steps, noise, None, self.skeleton
            drawn = predict_both(TorchModel(self.model), features, flipped, *asked)
            others = _point_estimates(self.model, features, flipped, world_mm, flipped_world_mm, BLAZEPOSE_33)
        visibility = None if drawn.visibility is None else drawn.visibility.astype(np.float64)
        samples_mm = drawn.joints_mm.astype(np.float64)
        fitted_mm = unclear = apart_mm = states = r90_mm = None
        views = self.records.views(rows, self.flipped, self.skeleton) if self.fit else None
        if views is not None:  # as for a picture
            single_mm2 = np.asarray(self.calibration.trace_mm2[0]) / 3
            seen = [view.visibility for view in views] if visibility is None else visibility[..., 0]
            bodies = fit_bodies(samples_mm, seen, views, single_mm2)
            samples_mm = np.stack([body.samples_mm for body in bodies])
            fitted_mm = np.stack([body.pose.joints_mm for body in bodies])
            unclear = np.stack([body.unclear for body in bodies])
            apart_mm = np.stack([body.apart_mm for body in bodies])
        if visibility is not None:
            states = self.calibration.state(visibility)
            uncertain = (states != "visible") | (False if unclear is None else unclear)
            if self.calibrated:
                covariance_mm2 = self.calibration.covariance_mm2(samples_mm, uncertain, apart_mm)
                r90_mm = self.calibration.r90_mm(covariance_mm2, uncertain)
        return Predictions(samples_mm, others, visibility, fitted_mm, states, unclear, apart_mm, r90_mm)

    def _encoded(self, rows: np.ndarray, prefix: str = "") -> tuple[np.ndarray, np.ndarray | None]:
        """Features, and the encoder's own 3D where the cache has it."""
        name = f"{prefix}world_mm"
        world_mm = self.cache.read(rows, name)[name] if name in self.cache.fields else None
        return self.cache.features(rows, flipped=bool(prefix)).numpy(), world_mm


class PredictionFile:
    """A `Predictor` of finished poses: an npz file with

    ids        (n,) record ids of the prepared dataset
    joints_mm  (n, J, 3) or (n, H, J, 3), root-relative, camera axes (x right, y down, z away)
    units      'mm' (may be left out: the key joints_mm says it)
    skeleton   name of the joint order, e.g. 'lsp_14' (left out: 'h36m_17')
    """

    def __init__(self, path: Path) -> None:
        self.path, arrays = path, _read_arrays(path)
        self.fingerprint = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        words = {key: str(arrays[key].squeeze()) for key in ("skeleton", "units") if key in arrays}
        self.skeleton: Skeleton = get(words.get("skeleton", H36M_17.name))
        given, ids, count = arrays["joints_mm"], arrays["ids"], self.skeleton.count
        joints = given[:, None] if given.ndim == 3 else given
        if joints.ndim != 4 or joints.shape[2:] != (count, 3) or not np.issubdtype(joints.dtype, np.floating):
            raise InputError(
                f"{path}: joints_mm must be floating point of shape (n, {count}, 3) or (n, H, {count}, 3) for "
                f"{self.skeleton.name}, got {given.dtype} of shape {given.shape}; another joint order is named by the "
                "key 'skeleton'"
            )
        if ids.shape != (len(joints),) or not len(joints):
            raise InputError(f"{path}: {len(joints)} poses need as many ids, got ids of shape {ids.shape}")
        self.joints_mm, self.hypotheses = joints, joints.shape[1]
        names = np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids
        self.rows = {str(name): row for row, name in enumerate(names)}
        if len(self.rows) != len(ids):
            raise InputError(f"{path}: {len(ids) - len(self.rows)} of the {len(ids)} ids occur more than once")
        if broken := [name for name, row in self.rows.items() if not np.isfinite(joints[row]).all()]:
            raise InputError(f"{path}: NaN or infinite joints in {len(broken)} poses{_some(broken)}")
        hips = joints[:, :, self.skeleton.indices("left_hip", "right_hip")].mean(axis=2, dtype=np.float64)
        reach = float(np.median(np.linalg.norm(joints - hips[:, :, None], axis=-1).max(axis=-1)))
        if reach < 200 or words.get("units", "mm") != "mm":
            raise InputError(
                f"{path}: joints_mm must be in 'mm' (the file says '{words.get('units', 'mm')}'): the farthest joint "
                f"lies {reach:.3g} from the hips (median), a body's 500 to 1200 mm; multiply metres by 1000"
            )
        offset = float(np.median(np.linalg.norm(hips, axis=-1)))
        if offset > 400:
            raise InputError(
                f"{path}: the hips lie {offset:.0f} mm from the origin (median): the poses must be root-relative, "
                "subtract the pelvis"
            )

    def check(self, wanted: Collection[str], known: Collection[str], hypotheses: int) -> None:
        """Every wanted record must be in the file with so many hypotheses, and every id of the file in the dataset."""
        if hypotheses > self.hypotheses:
            raise InputError(f"{self.path} holds {self.hypotheses} hypotheses per record, {hypotheses} were asked for")
        missing, foreign = [name for name in wanted if name not in self.rows], [*(self.rows.keys() - set(known))]
        if missing or foreign:
            raise InputError(
                f"{self.path} does not fit the dataset: {len(missing)} of {len(wanted)} records have no pose"
                f"{_some(missing)}, {len(foreign)} of {len(self.rows)} ids are not in the dataset{_some(foreign)}; ids "
                "are those of its index.jsonl"
            )

    def predict(
        self, images: object, samples: Sequence[Sample], hypotheses: int, steps: int | None, seed: int
    ) -> np.ndarray:
        return self.joints_mm[[self.rows[sample.id] for sample in samples], :hypotheses]


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in ("ids", "joints_mm", *({"skeleton", "units"} & {*loaded.files}))}
    except (*DAMAGED, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"{path} is no readable npz file with ids and joints_mm, without pickled objects ({error}): save it with "
            "np.savez(file, ids=..., joints_mm=...)"
        ) from error


def _some(names: Sequence[str]) -> str:
    """' (a, b, c, ...)'; nothing of none."""
    return f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""


def _point_estimates(
    model: PoseModel,
    features: np.ndarray,
    flipped: np.ndarray | None,
    world_mm: np.ndarray | None,
    flipped_world_mm: np.ndarray | None,
    skeleton: Skeleton | None,
) -> PointEstimates:
    """Without drawing: the encoder's own 3D, its mean with that of the mirror images, and the model's regressions."""
    found: PointEstimates = {}
    if world_mm is not None and skeleton is not None:
        own = world_mm.astype(np.float64)
        found[PEER] = own, skeleton
        if flipped_world_mm is not None:
            found[PEER_FLIPPED] = (own + mirror(flipped_world_mm.astype(np.float64), skeleton)) / 2, skeleton
    points = point_estimates(TorchModel(model), features, flipped, model.skeleton)
    return found | {name: (poses.astype(np.float64), model.skeleton) for name, poses in points.items()}


def load_predictor(
    name: str,
    records: Records | None = None,
    *,
    device: str = "cpu",
    encoder: str | None = None,
    second_look: bool = True,
    flip_test: bool = True,
    true_boxes: bool = False,
    fit: bool = True,
    precision: Precision = "auto",
) -> PicturePredictor | CachedPredictor | BlazePosePeer:
    """A model by its folder, its run or its name in the package, for pictures or for a cache's records; or a peer."""
    cached, known = isinstance(records, CachedRecords), Path(name).exists() or name in checkpoint.packaged()
    if not fit and not cached:
        raise InputError("--no-fit is for feature caches: people in pictures are always fitted to their landmarks")
    if not known and name not in PEERS:
        raise InputError(
            f"no checkpoint at {name}, no model of the package ({', '.join(checkpoint.packaged())}) and none of the "
            f"peers {', '.join(PEERS)} is called so; poses from another program are given by --predictions FILE.npz"
        )
    if not known and cached:
        raise InputError(f"{name} needs pictures; its 3D of cached crops is the row '{PEER}' in the table of any model")
    if not known:
        return BlazePosePeer(name, true_boxes)
    where = choose_device(device)
    if isinstance(records, CachedRecords):
        place = find_model(name)
        calibration = Calibration.read(place)
        return CachedPredictor(load_model(place, where), records, calibration, where, flip_test, fit, precision)
    pipeline = Di2Pose.from_pretrained(name, str(where), encoder)
    return PicturePredictor(pipeline, second_look, flip_test, true_boxes, precision)


def fingerprint(model: PoseModel) -> str:
    """Of the weights: distinguishes models of the same name."""
    digest = hashlib.sha256()
    for part in model.parts().values():
        for tensor in part.state_dict().values():
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]
