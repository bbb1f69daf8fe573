"""End-to-end inference for photos, video and evaluation.  B crops, H hypotheses.

    picture -> [detector: detections] -> [encoder: crops -> features] -> [second look, flip test: other crops]
            -> [model: features -> poses] -> [fit, calibration: people with states and spread]

The parts are handed in. This module imports no PyTorch, so that an ONNX model runs without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import numpy as np
from PIL import Image

from di2pose.calibration import Calibration
from di2pose.config import Config
from di2pose.errors import InputError
from di2pose.image.boxes import Box
from di2pose.image.detect import Detection, Detector, from_boxes, load_detector
from di2pose.image.encoder import PERSON, Encoder, load_encoder
from di2pose.image.keypoint_encoder import KeypointEncoder
from di2pose.image.observer import Observer, load_observer
from di2pose.model import Constraints, NumpyModel, Pins, PoseModel, TorchModel, find_model, load_model, save_model
from di2pose.noise import hypothesis_generators
from di2pose.options import CallOptions, Options
from di2pose.pipeline.assemble import (
    BodyFit,
    Estimate,
    fit_people,
    in_camera_axes,
    make_person,
    person_scores,
    suppress_duplicates,
    with_cameras,
    with_heights,
)
from di2pose.pipeline.crops import EncodedCrops, PersonCrop, encode_crops, encode_mirrored
from di2pose.pipeline.given import detections_of, observed, with_given_keypoints, without_pictures
from di2pose.pipeline.observations import observe
from di2pose.pipeline.request import ImageQuery, Picture, batches, open_query, parse_pins, parse_tokens
from di2pose.pipeline.second_look import observers_disagree, predict_both, with_second_looks, without_neighbours
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import COCO_17, H36M_17, Skeleton
from di2pose.result import Person, Result

SPARE = 4
"""Detections beyond `max_people` that are encoded, as some may turn out to be no people."""
FEW_KEYPOINTS_SCORE, SURE_DETECTION = 0.6, 0.72
"""Default score threshold of people for whom the detector found hardly any keypoints, unless its own score reaches the
second."""
ROUNDS = 3
"""Of the search for a focal length with which no person is too near."""


class Di2Pose:
    """The pipeline from pixels to people. Encoder and detectors are loaded on first use, and are no part of a
    checkpoint.

        model = Di2Pose.from_pretrained()
        result = model("photo.jpg")
        result.people[0]["left_knee"].xyz_mm
    """

    def __init__(
        self,
        model: Any,
        encoder: Encoder | str | None = None,
        detector: Detector | str = "auto",
        calibration: Calibration | None = None,
        observer: Observer | str = "movenet",
    ) -> None:
        """model: a `model.PoseModel` of any kind, a `model.NumpyModel`, or the configuration of an untrained Di2Pose
        encoder: a name or an object, instead of the one that the model's configuration names
        detector: a name or an object with `detect(image, max_people=)` -> list of Detection
        observer: who finds 2D keypoints in a person's box: a name or an object (`image.observer`)
        calibration: what the spread of the hypotheses means; None: `Calibration.neutral`
        """
        if isinstance(model, Config):
            from di2pose.network import Di2PoseNetwork

            model = Di2PoseNetwork(model)
        self.model = model
        self.numpy_model: NumpyModel = TorchModel(model) if isinstance(model, PoseModel) else model
        self.detector, self.calibration, self._observer = detector, calibration, observer
        self.skeleton: Skeleton = self.numpy_model.skeleton
        """Of the model's joints: Human3.6M's 17, or these and others."""
        if self.skeleton.root != 0 or not set(H36M_17.joints) <= set(self.skeleton.joints):
            raise InputError(f"a model's skeleton needs the joints of h36m_17, its root first; got {self.skeleton}")
        self._encoder: Encoder | str = encoder or model.config.encoder
        self._encoders: dict[str, Encoder] = {}
        self._detectors: dict[tuple[str, str], Detector] = {}

    @classmethod
    def from_pretrained(
        cls,
        folder: Path | str | None = None,
        device: str = "cpu",
        encoder: Encoder | str | None = None,
        observer: Observer | str = "movenet",
    ) -> "Di2Pose":
        """A model of any kind from a checkpoint folder, a run, the name of a packaged one, or None: the packaged
        `small`; with its calibration where the folder has one. In evaluation mode."""
        from di2pose.device import usable_device

        place = find_model(folder)
        model = load_model(place, usable_device(device))
        return cls(model, encoder, calibration=Calibration.read(place), observer=observer)

    def save(self, folder: Path | str, half: bool = False, **notes: str | float) -> Path:
        """Write a checkpoint folder, atomically; `half` in 16 bits. Notes are kept in its config.json."""
        written = save_model(self.model, folder, half, **notes)
        if self.calibration is not None:
            self.calibration.write(written)
        return written

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.model.config

    def loss(self, batch: Mapping[str, Any], generator: Any) -> dict[str, Any]:
        """The model's training losses: Algorithm 1."""
        losses: dict[str, Any] = self.model.loss(batch, generator)
        return losses

    def predict_joints(self, features: Any, hypotheses: int, steps: int, generator: Any) -> Any:
        """Poses (B, H, J, 3) from features (B, L, F), both tensors: mm, in the axes of the crops; Algorithm 2."""
        return self.model.predict(features, hypotheses, steps, generator).joints_mm

    def eval(self) -> "Di2Pose":
        """Put a PyTorch model into evaluation mode."""
        self.model.eval()
        return self

    def to(self, device: Any) -> "Di2Pose":
        """Move a PyTorch model; encoder and detectors follow."""
        self.model.to(device)
        return self

    @property
    def device(self) -> Any:
        """The model's device; 'cpu' without PyTorch."""
        return getattr(self.numpy_model, "device", "cpu")

    @property
    def encoder(self) -> Encoder:
        """The encoder, on the model's device."""
        key = str(self.device)
        if key not in self._encoders:
            encoder = load_encoder(self._encoder, self.device) if isinstance(self._encoder, str) else self._encoder
            tokens, width = self.config.feature_size
            length = encoder.layout.length
            if encoder.layout.width != width or tokens not in (0, length):
                raise InputError(
                    f"this model wants {tokens or 'any number of'} image tokens of width {width}; {encoder.name} gives "
                    f"{length} of width {encoder.layout.width}. Hand in the encoder that made its features: "
                    "encoder='NAME'"
                )
            self._encoders[key] = encoder
        return self._encoders[key]

    @cached_property
    def observer(self) -> Observer | None:
        """Who finds 2D keypoints in a person's box; None: MoveNet, in the encoder."""
        return load_observer(self._observer, self.device) if isinstance(self._observer, str) else self._observer

    def load_detector(self, detector: str | Detector | None = None) -> Detector:
        """A detector by name, on the model's device; None: the pipeline's own."""
        chosen = self.detector if detector is None else detector
        if not isinstance(chosen, str):
            return chosen
        key = chosen, str(self.device)
        if key not in self._detectors:
            self._detectors[key] = load_detector(chosen, self.device)
        return self._detectors[key]

    @cached_property
    def for_videos(self) -> "Di2Pose":
        """This model; where keypoints alone draw half of the hypotheses (`Config.lift`), the packaged `lift` draws them
        instead, which sees those of the frames before and after, too. A model with another tokenizer stays as it is."""
        if getattr(self.config, "lift", None) is None or not hasattr(self.model, "with_lift"):
            return self
        other: Any = load_model(find_model("lift"), self.device)
        if other.config.tokenizer != self.config.tokenizer or not self.model.same_tokenizer(other):
            return self
        joined = Di2Pose(self.model.with_lift(other), self._encoder, self.detector, self.calibration, self._observer)
        joined._encoders, joined._detectors = self._encoders, self._detectors
        return joined.to(self.device)

    @property
    def window(self) -> int:
        """How many frames of a video the model sees the keypoints of."""
        if isinstance(self.encoder, KeypointEncoder):
            return self.encoder.frames
        lift = getattr(self.config, "lift", None)
        return lift.feature_tokens if lift is not None and lift.feature_tokens != COCO_17.count else 1

    @property
    def least_score(self) -> float:
        """Default person-score threshold."""
        return 0.0 if self.calibration is None or self.calibration.person is None else self.calibration.person.least

    def _calibration(self) -> Calibration:
        """The calibration to apply."""
        found = self.calibration or Calibration.neutral(self.skeleton)
        if found.joints != self.skeleton.count:
            raise InputError(f"the calibration is of {found.joints} joints, the model has {self.skeleton.count}")
        return found

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a path is a sequence of strings, too
        self, images: Picture, **options: Unpack[CallOptions]
    ) -> Result: ...
    @overload
    def __call__(self, images: Sequence[Picture], **options: Unpack[CallOptions]) -> list[Result]: ...
    @overload
    def __call__(self, images: None = None, size: Any = None, **options: Unpack[CallOptions]) -> Any: ...
    def __call__(self, images: Any = None, size: Any = None, **options: Unpack[CallOptions]) -> Result | list[Result]:
        """The people in a photo, or in each photo of a list: a `Result`, or a list of them.

        images: a path, a PIL image, RGB pixels (H, W, 3) uint8, or a list of these; turned upright by EXIF. A model of
            keypoints alone needs none: keypoints=..., size=(width, height) of the picture
        options: the fields of `di2pose.options.Options`, which says what they mean: hypotheses, steps, seed, boxes,
            keypoints, camera, field_of_view, height_m, max_people, min_score, detector, second_look, occluded, pin,
            keep_tokens
        """
        if images is None:
            images, options["keypoints"] = without_pictures(options.get("keypoints"), size)
        wanted = Options(**options).check()
        if wanted.pin and isinstance(wanted.height_m, Mapping):  # one person, and pins are of the scaled body
            wanted = replace(wanted, height_m=wanted.height_m.get(0))
        results: list[Result] = []
        for batch in batches(images, wanted.boxes, wanted.occluded, wanted.keypoints):
            queries = [open_query(request, wanted.camera, wanted.field_of_view) for request in batch]
            results += self.predict_people(queries, self.detect_and_encode(queries, wanted), wanted)
        return results if isinstance(images, list | tuple) else results[0]

    def detect_and_encode(self, queries: Sequence[ImageQuery], options: Options) -> EncodedCrops:
        """All detections in the pictures, largest first, encoded."""
        crops = []
        for number, query in enumerate(queries):
            if query.request.keypoints is not None:
                found = detections_of(query.request.keypoints)
            elif query.request.boxes is not None:
                found = from_boxes(query.request.boxes)
            elif isinstance(self.encoder, KeypointEncoder):
                raise InputError("this model sees 2D keypoints alone: give keypoints=(people, 17, 3) or a file of them")
            else:
                detector = self.load_detector(options.detector)
                found = detector.detect(query.picture, max_people=options.max_people + SPARE)
            for person in found:
                crop = self.crop(query.picture, person, query.camera, query.request.hidden, query.assumed)
                others = tuple(other.box for other in found if other is not person)
                crops.append(replace(crop, others=others, query=number))
        return self.encode(crops, options.second_look)

    def predict_people(self, queries: Sequence[ImageQuery], encoded: EncodedCrops, options: Options) -> list[Result]:
        """The result of each picture. Detections that are no people are dropped, unless the user gave their boxes."""
        calibration = self._calibration()
        if encoded.output.person is not None and calibration.person is None:  # then the encoder decides
            by_user = np.array([queries[crop.query].request.people_given for crop in encoded.crops], bool)
            encoded = encoded.pick(np.flatnonzero(by_user | (encoded.output.person >= PERSON)).tolist())
        steps = self.config.sample_steps if options.steps is None else options.steps
        people: list[Person] = []
        height_m = None if isinstance(options.height_m, Mapping) else options.height_m
        if encoded.crops:
            pins = parse_pins(options.pin, self.skeleton)
            estimate = self._draw(encoded, steps, pins, options)
            scores = person_scores(encoded, estimate, self.encoder, calibration)
            likely = [
                row
                for row, crop in enumerate(encoded.crops)
                if queries[crop.query].request.people_given or scores[row] >= self._threshold(crop, options)
            ]
            encoded, estimate = encoded.pick(likely), estimate.pick(likely)
            views = observe(encoded, self.encoder, self.skeleton)
            fits = fit_people(views, estimate, calibration, height_m, pins)
            for _ in range(ROUNDS):  # perspective changes with the lens, and with it the fit
                longer = _longer_lenses(queries, encoded, fits)
                if all(query is before for query, before in zip(longer, queries, strict=True)):
                    break
                queries = longer
                cameras = [queries[crop.query].camera for crop in encoded.crops]
                encoded, estimate = with_cameras(cameras, encoded, estimate, self.encoder)
                views = [replace(view, camera=camera) for view, camera in zip(views, cameras, strict=True)]
                fits = fit_people(views, estimate, calibration, height_m, pins, only_mean=True)
            if any(not len(fit.samples_mm) for fit in fits):
                fits = fit_people(views, estimate, calibration, height_m, pins)
            people = self._people(encoded, estimate, fits, scores[likely], height_m is not None)
        made = options.seed, steps, options.hypotheses, str(self.config.name)
        results = []
        for number, query in enumerate(queries):
            mine = [each for each, crop in zip(people, encoded.crops, strict=True) if crop.query == number]
            if query.request.people_given:
                mine = [replace(person, score=1.0) for person in mine]
            else:
                mine = suppress_duplicates(mine)[: options.max_people]
            results.append(query.result(with_heights(mine, options.height_m), *made))
        count = sum(len(result.people) for result in results)
        if (options.pin or options.keep_tokens) and (len(queries), count) != (1, 1):
            raise InputError(
                f"pin and keep_tokens are about one person in one picture, got {count} people in {len(queries)}: "
                "choose one by boxes=[(x0, y0, x1, y1)], or max_people=1"
            )
        return results

    def _draw(self, encoded: EncodedCrops, steps: int, pins: Pins | None, options: Options) -> Estimate:
        """Hypotheses for every crop, seeded by the number of the person in their own picture."""
        owners = [crop.query for crop in encoded.crops]
        numbers = [owners[:row].count(owner) for row, owner in enumerate(owners)]
        known = Constraints(kept=parse_tokens(options.keep_tokens, getattr(self.config, "tokenizer", None)))
        if pins is not None:  # in camera axes, the same for every crop -> in the axes of each crop
            turned = [pins[0] @ self.encoder.rotation(crop.region, crop.camera).T for crop in encoded.crops]
            known = replace(known, pins=(np.stack(turned).astype(np.float32), np.tile(pins[1], (len(turned), 1))))
        noise = hypothesis_generators(options.seed, numbers, options.hypotheses)
        return self.estimate(encoded, options.hypotheses, steps, noise, known)

    def _threshold(self, crop: PersonCrop, options: Options) -> float:
        """The score that a person needs; more where the detector is unsure and found no keypoints, as of hands."""
        if options.min_score is not None:
            return options.min_score
        weak = crop.detection.has_few_keypoints and crop.detection.score < SURE_DETECTION
        return max(self.least_score, FEW_KEYPOINTS_SCORE) if weak and self.least_score else self.least_score

    def find(self, picture: Image.Image, max_people: int = 8, quick: bool = False) -> list[Detection]:
        """Detections by the pipeline's own detector, largest first. Quick: in one pass, without tiles."""
        detector = self.load_detector()
        if quick and "tiles" in signature(detector.detect).parameters:  # a user's own detector need not have it
            return detector.detect(picture, max_people, tiles=())  # type: ignore[call-arg]
        return detector.detect(picture, max_people=max_people)

    def crop(
        self,
        picture: Image.Image,
        detection: Detection,
        camera: Camera,
        hidden: tuple[Box, ...] = (),
        assumed: bool = False,
    ) -> PersonCrop:
        """A person's crop as the encoder wants it; `assumed`: the camera is unknown."""
        if self.observer is not None and not detection.given:
            detection = observed(detection, self.observer.observe(picture, [detection.box])[0])
        return PersonCrop(picture, detection, camera, self.encoder.region(detection), hidden, assumed)

    def encode(
        self,
        crops: Sequence[PersonCrop],
        second_look: bool = False,
        flip_test: bool | Literal["on_disagreement"] | None = None,
        rows: Sequence[int] | None = None,
    ) -> EncodedCrops:
        """One pass of the encoder over each crop; with `flip_test` (None: as `second_look`) one over its mirror image,
        too ("on_disagreement": of all crops where the observers of one disagree); with `second_look` other crops where
        they are needed. `rows`: those that may get one; None: all."""
        flip_test = second_look if flip_test is None else flip_test
        encoded = encode_crops(self.encoder, crops, flip_test is True)
        if flip_test == "on_disagreement" and observers_disagree(encoded, self.encoder).any():
            encoded = replace(encoded, flipped=encode_mirrored(self.encoder, crops))
        if second_look:
            places = range(len(crops)) if rows is None else rows
            others = [row for row in places if not crops[row].detection.given]
            encoded = with_second_looks(encoded, self.encoder, self.numpy_model, others)
        encoded = without_neighbours(encoded, self.encoder) if flip_test else encoded
        return with_given_keypoints(encoded, self.encoder)

    def estimate(
        self, encoded: EncodedCrops, hypotheses: int, steps: int, noise: Any, constraints: Constraints | None = None
    ) -> Estimate:
        """H poses in camera axes and the visibility of every joint, for each crop. Constraints in the crops' axes."""
        flipped = None if encoded.flipped is None else encoded.flipped.features
        asked = hypotheses, steps, noise, constraints
        prediction = predict_both(self.numpy_model, encoded.output.features, flipped, *asked, self.skeleton)
        return in_camera_axes(prediction, encoded, self.encoder, self.skeleton)

    def place(self, encoded: EncodedCrops, estimate: Estimate, height_m: float | None = None) -> list[Person]:
        """A person for each crop."""
        calibration = self._calibration()
        fits = fit_people(observe(encoded, self.encoder, self.skeleton), estimate, calibration, height_m)
        scores = person_scores(encoded, estimate, self.encoder, calibration)
        return self._people(encoded, estimate, fits, scores, height_m is not None)

    def _people(
        self, encoded: EncodedCrops, estimate: Estimate, fits: Sequence[BodyFit], scores: np.ndarray, known_height: bool
    ) -> list[Person]:
        calibration = self._calibration()
        tokens = [None] * len(fits) if estimate.tokens is None else estimate.tokens
        every = zip(encoded.crops, fits, estimate.visibility, tokens, scores.tolist(), strict=True)
        return [make_person(*each, calibration, known_height, self.skeleton) for each in every]


def _longer_lenses(queries: Sequence[ImageQuery], encoded: EncodedCrops, fits: Sequence[BodyFit]) -> list[ImageQuery]:
    """The queries, with a longer lens where the camera is assumed and a person stands too near."""
    nearest = [np.inf] * len(queries)
    for crop, fit in zip(encoded.crops, fits, strict=True):
        nearest[crop.query] = min(nearest[crop.query], fit.depth_mm)
    return [query.narrowed(near) for query, near in zip(queries, nearest, strict=True)]
