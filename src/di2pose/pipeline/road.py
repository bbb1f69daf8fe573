"""The road from pixels to people, and the only one: photos, videos and evaluation all take it.  B crops, H hypotheses.

    picture -> [detector: who is where] -> [encoder: crop -> features] -> [second look, flip test: other crops]
            -> [model: features -> poses] -> [calibration, placing: people with states and spread]

Who owns the networks gives them: `pipeline.Di2Pose` in PyTorch, `onnx.OnnxPredictor` without. Nothing here imports it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack, overload

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from di2pose.calibration import Calibration
from di2pose.call_options import check_call
from di2pose.errors import InputError
from di2pose.image.boxes import Box
from di2pose.image.detect import Detection, Detector, from_boxes
from di2pose.image.encoder import PERSON, Encoder, EncoderOutput
from di2pose.pipeline.assemble import (
    Estimate,
    depths_mm,
    distinct,
    in_camera_axes,
    person_scores,
    pins_in_crops,
    place_people,
    through,
)
from di2pose.pipeline.crops import EncodedCrops, PersonCrop, encode_both, encode_crops
from di2pose.pipeline.flip import predict_both
from di2pose.pipeline.person_score import PersonFit
from di2pose.pipeline.request import ImageQuery, Picture, batches, open_query, parse_pins, parse_tokens
from di2pose.pipeline.second_look import doubtful, mistaken, surest_looks
from di2pose.pose.camera import Camera
from di2pose.prediction import Constraints, Pins
from di2pose.result import Person, Result
from di2pose.spread import hypothesis_generators

SPARE = 4
"""Detections beyond `max_people` that are looked at, for some may be nobody."""
BARE, SURE_DETECTION = 0.6, 0.72
"""Least score of a person of whom the detector saw no keypoints and whose own score is lower than the second, unless a
call says otherwise."""
ROUNDS = 3
"""Of the search for a lens through which nobody is too near."""
Boxes = Sequence[Box] | Sequence[Sequence[Box] | None]
"""Of one picture, or of each of several."""
Point = Sequence[float] | np.ndarray


class CallOptions(TypedDict, total=False):
    """The options of a call: see `Road.__call__`."""

    hypotheses: int
    steps: int | None
    seed: int
    boxes: Boxes | None
    camera: Camera | None
    field_of_view: float | None
    height_m: float | None
    max_people: int
    min_score: float | None
    detector: str | Detector | None
    second_look: bool
    occluded: Boxes
    pin: Mapping[str, Point] | None
    keep_tokens: Mapping[int, int] | None


class Road(ABC):
    """Conducts: hands the picture from station to station, whatever runs the networks."""

    model: Any
    """A `prediction.Predicts`, with the `config` of a `model.PoseModel`."""
    calibration: Calibration | None

    @property
    @abstractmethod
    def encoder(self) -> Encoder: ...

    @abstractmethod
    def encode_pixels(self, pixels: UInt8[np.ndarray, "B H W 3"]) -> EncoderOutput:
        """A pass of the encoder over crops, or over none."""

    @abstractmethod
    def load_detector(self, detector: str | Detector | None = None) -> Detector:
        """A detector by name; None: the own one."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a path is a sequence of strings, too
        self, images: Picture, **options: Unpack[CallOptions]
    ) -> Result: ...
    @overload
    def __call__(self, images: Sequence[Picture], **options: Unpack[CallOptions]) -> list[Result]: ...
    def __call__(
        self,
        images: Picture | Sequence[Picture],
        *,
        hypotheses: int = 8,
        steps: int | None = None,
        seed: int = 0,
        boxes: Boxes | None = None,
        camera: Camera | None = None,
        field_of_view: float | None = None,
        height_m: float | None = None,
        max_people: int = 8,
        min_score: float | None = None,
        detector: str | Detector | None = None,
        second_look: bool = True,
        occluded: Boxes = (),
        pin: Mapping[str, Point] | None = None,
        keep_tokens: Mapping[int, int] | None = None,
    ) -> Result | list[Result]:
        """Everybody in a photo, or in each photo of a list: a `Result`, or a list of them.

        images: a path, a PIL image, RGB pixels (H, W, 3) uint8, or a list of these; turned upright by EXIF
        hypotheses: poses drawn for each person; their mean is the estimate
        steps: reverse steps of the diffusion; None is the model's own default
        seed: the noise of hypothesis h of person p depends on (seed, p, h) alone, so a batch gives what single runs do
        boxes: where the people are, a list of (x0, y0, x1, y1) in pixels, instead of a detector; for a list of images
            a list of such lists
        camera: of the upright picture; field_of_view: degrees across its longer side. Neither: by EXIF, else 60 degrees
        height_m: everybody's stature, where it is known: it scales the skeleton and the distance
        max_people: at most so many, the largest ones, largest first
        min_score: leave out people whose score is lower, 0 to 1; None is the model's own default
        detector: 'auto', 'blazepose', 'rtdetr:FOLDER', or an object with `detect(image, max_people=)` -> list of
            Detection
        second_look: add the flip test, and look at people whose crop is doubtful again, upright and where the first
            looks suggest; the crop that the model is surest of counts. Two passes of the encoder instead of one, and up
            to four more for a doubtful crop
        occluded: boxes, as `boxes`: regions that are not to be looked at; joints that fall into them are 'occluded'
        pin: joints that are known, {"left_wrist": (x, y, z)} in mm from the pelvis, camera axes: the rest of the pose
            is drawn to agree with them. For one picture of one person; so are
        keep_tokens: {position: code} of tokens that are to stay, e.g. some of an earlier `person.tokens`
        """
        check_call(hypotheses, steps, seed, max_people, height_m, field_of_view, min_score)
        drawing = (hypotheses, self.model.config.sample_steps if steps is None else steps, seed)
        results: list[Result] = []
        for batch in batches(images, boxes, occluded):
            queries = [open_query(request, camera, field_of_view) for request in batch]
            owners, encoded = self.look(queries, max_people, detector, second_look)
            known = (height_m, pin or {}, keep_tokens or {})
            results += self._answer(queries, owners, encoded, drawing, known, (max_people, min_score))
        return results if isinstance(images, list | tuple) else results[0]

    def look(
        self, queries: Sequence[ImageQuery], max_people: int, detector: str | Detector | None, second_look: bool
    ) -> tuple[list[int], EncodedCrops]:
        """Whoever may be in the pictures, encoded, the largest first; and the number of each one's picture."""
        people = [
            self.load_detector(detector).detect(query.picture, max_people=max_people + SPARE)
            if query.request.boxes is None
            else from_boxes(query.request.boxes)
            for query in queries
        ]
        crops = [
            replace(
                self.crop(query.picture, person, query.camera, query.request.hidden, query.assumed),
                others=tuple(other.box for other in found if other is not person),
            )
            for query, found in zip(queries, people, strict=True)
            for person in found
        ]
        return [k for k, found in enumerate(people) for _ in found], self.encode(crops, second_look)

    def _answer(
        self,
        queries: Sequence[ImageQuery],
        owners: Sequence[int],
        encoded: EncodedCrops,
        drawing: tuple[int, int, int],
        about: tuple[float | None, Mapping[str, Point], Mapping[int, int]],
        wanted: tuple[int, float | None],
    ) -> list[Result]:
        """All people of all pictures at once; `owners`: the number of each crop's picture. What is taken for nobody is
        dropped, unless the user vouches for it by a box. about: height_m, pin, keep_tokens; wanted: max_people,
        min_score."""
        (hypotheses, steps, seed), (height_m, pin, keep_tokens), (max_people, min_score) = drawing, about, wanted
        there = encoded.output.person
        vouched = [query.request.boxes is not None for query in queries]
        if there is None or self._person_fit is not None:
            real = list(range(len(owners)))
        else:  # the encoder alone says who is nobody
            real = [row for row, k in enumerate(owners) if vouched[k] or there[row] >= PERSON]
        encoded, owners = encoded.pick(real), [owners[row] for row in real]
        people: list[Person] = []
        if real:
            numbers = [owners[:row].count(k) for row, k in enumerate(owners)]  # of each person in their own picture
            noise = hypothesis_generators(seed, numbers, hypotheses)
            pins = parse_pins(pin)
            known = Constraints(
                None if pins is None else pins_in_crops(pins, encoded.crops, self.encoder),
                parse_tokens(keep_tokens, getattr(self.model.config, "tokenizer", None)),
            )
            estimate = self.estimate(encoded, hypotheses, steps, noise, known)
            scores = person_scores(encoded, estimate, self.encoder, self.calibration)
            likely = [
                row
                for row, k in enumerate(owners)
                if vouched[k] or scores[row] >= self._least(encoded.crops[row], min_score)
            ]
            encoded, estimate, owners = encoded.pick(likely), estimate.pick(likely), [owners[row] for row in likely]
            for _ in range(ROUNDS):  # perspective changes with the lens, and with it the fit
                if not any(query.assumed for query in queries):
                    break
                depths = depths_mm(encoded, estimate, self.encoder, self.calibration, height_m, pins)
                nearest = [
                    min((depth for depth, k in zip(depths, owners, strict=True) if k == number), default=np.inf)
                    for number in range(len(queries))
                ]
                longer = [query.narrowed(near) for query, near in zip(queries, nearest, strict=True)]
                if all(query is before for query, before in zip(longer, queries, strict=True)):
                    break
                queries = longer
                encoded, estimate = through([queries[k].camera for k in owners], encoded, estimate, self.encoder)
            people = self.place(encoded, estimate, height_m, pins)
        run = (seed, steps, hypotheses, str(self.model.config.name))
        results = []
        for number, query in enumerate(queries):
            mine = [person for person, k in zip(people, owners, strict=True) if k == number]
            mine = [replace(person, score=1.0) for person in mine] if vouched[number] else distinct(mine)[:max_people]
            results.append(query.result(mine, *run))
        count = sum(len(result.people) for result in results)
        if (pin or keep_tokens) and (len(queries), count) != (1, 1):
            raise InputError(
                f"pin and keep_tokens are about one person in one picture, got {count} people in {len(queries)}: "
                "choose one by boxes=[(x0, y0, x1, y1)], or max_people=1"
            )
        return results

    def _least(self, crop: PersonCrop, min_score: float | None) -> float:
        """The score that a person needs; more where the detector is not sure and saw no keypoints, as of hands."""
        if min_score is not None or self._person_fit is None:
            return min_score or 0.0
        weak = crop.detection.has_few_keypoints and crop.detection.score < SURE_DETECTION
        return max(self.least_score, BARE) if weak else self.least_score

    @property
    def least_score(self) -> float:
        """Whoever scores less is taken for nobody, unless a call says otherwise."""
        return 0.0 if self._person_fit is None else self._person_fit.least

    @property
    def _person_fit(self) -> PersonFit | None:
        return None if self.calibration is None else self.calibration.person

    def crop(
        self,
        picture: Image.Image,
        detection: Detection,
        camera: Camera,
        hidden: tuple[Box, ...] = (),
        assumed: bool = False,
    ) -> PersonCrop:
        """A person to look at, as the encoder wants to see them; `assumed`: nobody knows the camera."""
        return PersonCrop(picture, detection, camera, self.encoder.region(detection), hidden, assumed=assumed)

    def encode(
        self,
        crops: Sequence[PersonCrop],
        second_look: bool = False,
        flip_test: bool | None = None,
        rows: Sequence[int] | None = None,
    ) -> EncodedCrops:
        """One pass of the encoder a crop; with `second_look` others where that one is doubtful, and the surest of them;
        with `flip_test` (None: as `second_look`) one of its mirror image, too. `rows`: those that may be looked at
        again; None: all."""
        flip_test = second_look if flip_test is None else flip_test
        if flip_test:
            encoded = encode_both(self.encoder, crops, self.encode_pixels)
        else:
            encoded = EncodedCrops(list(crops), encode_crops(self.encoder, crops, self.encode_pixels))
        if second_look:
            encoded = self.look_again(encoded, rows)
        return self._without_neighbours(encoded) if flip_test else encoded

    def look_again(self, first: EncodedCrops, rows: Sequence[int] | None = None) -> EncodedCrops:
        """For each doubtful crop, or each of those among the given rows, the look that the model is surest of
        (`second_look`)."""
        doubt = doubtful(first, self.encoder)
        again = [row for row in (range(len(first.crops)) if rows is None else rows) if doubt[row]]
        best = surest_looks(first, again, self.encoder, self.encode_pixels, self.model.certainty)
        moved = [row for row in again if best.crops[row] is not first.crops[row]]
        if not moved:
            return first
        if first.flipped is None:
            return best
        there = encode_crops(self.encoder, [best.crops[row] for row in moved], self.encode_pixels, flipped=True)
        return replace(best, flipped=first.flipped.swap(moved, there))

    def encode_flipped(self, encoded: EncodedCrops) -> EncodedCrops:
        """The same, with what the encoder tells of the crops' mirror images, for the flip test."""
        there = encode_crops(self.encoder, encoded.crops, self.encode_pixels, flipped=True)
        return self._without_neighbours(replace(encoded, flipped=there))

    def _without_neighbours(self, both: EncodedCrops) -> EncodedCrops:
        """The same, but where the encoder sees a neighbour in a mirror image, neighbours are painted over in it."""
        wrong = mistaken(both, self.encoder, flipped=True) & ~mistaken(both, self.encoder)
        crops = both.crops
        again = [row for row in np.flatnonzero(wrong).tolist() if crops[row].others and not crops[row].alone]
        if both.flipped is None or not again:
            return both
        alone = [replace(crops[row], alone=True) for row in again]
        there = encode_crops(self.encoder, alone, self.encode_pixels, flipped=True)
        return replace(both, flipped=both.flipped.swap(again, there))

    def estimate(
        self,
        encoded: EncodedCrops,
        hypotheses: int,
        steps: int,
        generators: Any,
        constraints: Constraints | None = None,
    ) -> Estimate:
        """H poses in camera axes and the visibility of every joint, for each crop. Constraints in the crops' axes."""
        prediction = predict_both(
            self.model,
            encoded.output.features,
            None if encoded.flipped is None else encoded.flipped.features,
            hypotheses,
            steps,
            generators,
            constraints,
        )
        return in_camera_axes(prediction, encoded, self.encoder)

    def place(
        self, encoded: EncodedCrops, estimate: Estimate, height_m: float | None = None, pins: Pins | None = None
    ) -> list[Person]:
        """A person for each crop; pins in camera axes."""
        return place_people(encoded, estimate, self.encoder, self.calibration, height_m, pins)
