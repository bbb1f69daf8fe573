"""Di2Pose, the whole model.  B images, H hypotheses, N tokens, L image tokens of width F.

    photo -> [detector: who is where] -> [encoder: crop -> features y]
          -> [denoiser: noise -> tokens] -> [tokenizer: tokens -> joints] -> people

Training, evaluation and prediction all meet in `loss` and `predict_tokens`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from PIL import Image
from torch import Tensor, nn

from di2pose import checkpoint, photo
from di2pose.calibration import Calibration
from di2pose.config import Config
from di2pose.diffusion.adapter import reading_losses
from di2pose.diffusion.denoiser import Condition, Denoiser
from di2pose.diffusion.guidance import towards_pins
from di2pose.diffusion.objective import StepSampler, diffusion_loss
from di2pose.diffusion.sampler import Kept, PredictP0, Start, Warm, sample
from di2pose.diffusion.schedule import Schedule
from di2pose.diffusion.transition import forward_sample
from di2pose.errors import InputError
from di2pose.image.crop import assumed_camera
from di2pose.image.detect import Detection
from di2pose.image.find import Detector, Finder, Record, load_detector
from di2pose.looks import surest_looks
from di2pose.photo import Estimate, Pins, Seen, View
from di2pose.pose.camera import Camera
from di2pose.pose.metrics import mpjpe
from di2pose.pose.skeleton import H36M_17, mirror
from di2pose.randomness import Noise, hypothesis_generators
from di2pose.request import Known, Picture, Shot, batches, shot_of
from di2pose.result import Result
from di2pose.tokenizer.tokenizer import MM_PER_METRE, PoseTokenizer


class Di2Pose(nn.Module):
    """Owns the parts: a frozen tokenizer and the denoiser. What only photos need, the frozen image encoder and the
    detector, is loaded when it is first used, and is no part of a checkpoint.

        model = Di2Pose.from_pretrained()
        result = model("photo.jpg")
        result.people[0]["left_knee"].xyz_mm
    """

    def __init__(self, config: Config, encoder: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = PoseTokenizer(config.tokenizer)
        self.denoiser = Denoiser(config.denoiser)
        self.encoder = encoder
        """Instead of the encoder that the configuration names: crops (B, 256, 256, 3) uint8 -> `photo.Glance`."""
        self.calibration: Calibration | None = None
        """What the spread of its hypotheses means; None: `Calibration.neutral`."""
        self.schedule = Schedule(config.tokenizer.codes, config.diffusion.steps, config.diffusion.final_occlude)
        self.step_sampler = StepSampler(config.diffusion.steps, config.diffusion.importance_sampling)
        self.tokenizer.requires_grad_(False)
        self._loaded: dict[str, Any] = {}  # a dict hides the encoder and the detectors from state_dict and parameters

    @classmethod
    def from_pretrained(cls, folder: Path | str | None = None, device: str = "cpu") -> "Di2Pose":
        """A model from a checkpoint folder, the name of a packaged one, or None: the packaged `small`.

        Nothing else is needed. In evaluation mode, with its calibration where the folder has one.
        """
        folder = checkpoint.find("small" if folder is None else folder)
        model = cls(checkpoint.read_config(folder))
        checkpoint.load(folder, model.parts())
        model.calibration = Calibration.read(folder)
        return model.to(device).eval()

    def save(self, folder: Path | str, half: bool = False, **notes: str | float) -> Path:
        """Write a checkpoint folder, atomically; `half` in 16 bits. Notes are kept in its config.json."""
        written = checkpoint.save(folder, self.config, self.parts(), notes, half)
        if self.calibration is not None:
            self.calibration.write(written)
        return written

    def parts(self) -> dict[str, nn.Module]:
        """The trained parts, by the names of their files. The frozen backbone is not ours to ship."""
        return {"tokenizer": self.tokenizer, "denoiser": self.denoiser}

    @torch.no_grad()
    def forward(
        self,
        images: Picture | Sequence[Picture],
        *,
        hypotheses: int = 8,
        steps: int | None = None,
        seed: int = 0,
        boxes: Any = None,
        camera: Camera | None = None,
        field_of_view: float | None = None,
        height_m: float | None = None,
        max_people: int = 8,
        detector: str | Detector = "blazepose",
        second_look: bool = True,
        occluded: Any = (),
        pin: Mapping[str, Any] | None = None,
        keep_tokens: Mapping[Any, Any] | None = None,
    ) -> Result | list[Result]:
        """Everybody in a photo, or in each photo of a list: a `Result`, or a list of them.

        images: a path, a PIL image, RGB pixels (H, W, 3) uint8, or a list of these; turned upright by EXIF
        hypotheses: poses drawn for each person; their mean is the estimate
        steps: reverse steps of the diffusion; None is the model's own default
        seed: the noise of hypothesis h of person p depends on (seed, p, h) alone, so a batch gives what single runs do
        boxes: where the people are, a list of (x0, y0, x1, y1) in pixels, instead of a detector; for a list of images
            a list of such lists
        camera: of the upright picture; field_of_view: degrees across its longer side. Neither: 60 degrees are assumed
        height_m: everybody's stature, where it is known: it scales the skeleton and the distance
        max_people: at most so many, the surest first
        detector: 'blazepose', 'rtdetr:FOLDER', or an object with `detect(image, max_people=)` -> list of Detection
        second_look: look at people again upright and where the first looks suggest, keep the crop that the model is
            surest of, and look at that in the mirror, too: up to five passes of the encoder instead of one
        occluded: boxes, as `boxes`: regions that are not to be looked at; joints that fall into them are 'occluded'
        pin: joints that are known, {"left_wrist": (x, y, z)} in mm from the pelvis, camera axes: the rest of the pose
            is drawn to agree with them. For one picture of one person; so are
        keep_tokens: {position: code} of tokens that are to stay, e.g. some of an earlier `person.tokens`
        """
        known = Known(pin or {}, keep_tokens or {})
        steps = self.config.sample_steps if steps is None else steps

        def find(picture: Image.Image) -> list[Detection]:
            finder = self._detector(detector) if isinstance(detector, str) else detector
            return finder.detect(picture, max_people=max_people)

        results: list[Result] = []
        for batch in batches(images, boxes, occluded):
            shots = [shot_of(request, find, camera, field_of_view) for request in batch]
            views = [view for shot in shots for view in shot.views]
            seen = self.look_well(views) if second_look else self.look(views)
            results += self._answer(shots, seen, hypotheses, steps, seed, height_m, known)
        return results if isinstance(images, list | tuple) else results[0]

    def _answer(
        self,
        shots: Sequence[Shot],
        seen: Seen,
        hypotheses: int,
        steps: int,
        seed: int,
        height_m: float | None,
        known: Known,
    ) -> list[Result]:
        """All people of all shots at once."""
        owners = [k for k, shot in enumerate(shots) for _ in shot.views]
        real = [row for row, k in enumerate(owners) if shots[k].given or seen.person[row] >= photo.PERSON]
        seen, owners = seen.pick(real), [owners[row] for row in real]
        numbers = [owners[:row].count(k) for row, k in enumerate(owners)]  # of each person in their own picture
        noise = hypothesis_generators(seed, numbers, hypotheses)
        known.check_people(len(shots), len(real))
        estimate = self.estimate(seen, hypotheses, steps, noise, pins=known.pins(), kept=known.tokens(self.config))
        people = photo.people_of(seen, estimate, self.calibration, height_m)
        run = {"seed": seed, "steps": steps, "hypotheses": hypotheses, "model": self.config.name}
        return [
            shot.result([person for person, k in zip(people, owners, strict=True) if k == shot_number], **run)
            for shot_number, shot in enumerate(shots)
        ]

    def find(self, image: Image.Image, max_people: int = 8, tiles: Sequence[int] = (2, 4)) -> list[Detection]:
        """Who is where, by BlazePose's detector, surest first. Without tiles: the one prominent person, quickly."""
        people: list[Detection] = self._detector("blazepose").detect(image, max_people, tiles)
        return people

    @torch.no_grad()
    def look(self, views: Sequence[View]) -> Seen:
        """What the frozen encoder sees: ONE pass a view, in batches."""
        return self._seen(views)

    def look_well(self, views: Sequence[View]) -> Seen:
        """What a photo is worth: the surest look at everybody, and its mirror image."""
        return self.look_mirrored(self.look_again(self.look(views)))

    @torch.no_grad()
    def look_mirrored(self, seen: Seen) -> Seen:
        """The same, with what the frozen encoder sees in the crops' mirror images: it errs differently there."""
        return seen._replace(mirrored=self._seen(seen.views, mirrored=True).features)

    def _seen(self, views: Sequence[View], mirrored: bool = False) -> Seen:
        crops = photo.crops_of(views, mirrored)
        glances = [self._encoder()(torch.from_numpy(some).to(self.device)) for some in crops]
        return photo.gather(views, glances, self.config.denoiser, self.device)

    @torch.no_grad()
    def look_again(self, first: Seen, rows: Sequence[int] | None = None) -> Seen:
        """For each view, or each of the given rows, the look that the model is surest of: the one that was taken,
        upright where that was turned, and at the places where those two saw the body.

        The tokens of a wrong crop are uncertain, and that tells. A model that never sees all-occluded tokens cannot
        tell, and stays with the first.
        """
        rows = range(len(first.views)) if rows is None else rows
        if not len(rows) or not self.schedule.final_occlude:
            return first
        return surest_looks(first, rows, self.look, lambda seen: self.certainty(seen.features))

    def certainty(self, features: Float[Tensor, "B L F"]) -> Float[Tensor, " B"]:
        """How sure the denoiser is of the tokens before one is drawn: minus their mean entropy, in nats."""
        p0 = self.first_guess(self.condition(features))
        return (p0 * p0.clamp_min(1e-12).log()).sum(-1).mean(-1)

    def first_guess(self, condition: Condition) -> Float[Tensor, "B N C"]:
        """Probabilities of the tokens in one pass, from all-occluded ones."""
        images = len(condition.keys[0])
        ks = torch.full((images, self.config.tokenizer.tokens), self.schedule.occ, device=self.device)
        s = torch.full((images,), self.schedule.steps, device=self.device)
        return self.denoiser(ks, s, condition).float().softmax(-1)

    @torch.no_grad()
    def estimate(
        self,
        seen: Seen,
        hypotheses: int,
        steps: int,
        generators: Noise,
        warm: Warm | None = None,
        pins: Pins | None = None,
        kept: Kept | None = None,
    ) -> Estimate:
        """H poses and the visibility of every joint for each view. `generators`, `warm`, `kept` as in `predict_tokens`.

        `pins` = (joints (17, 3) mm from the pelvis in camera axes, which of them are known (17,)), of every view.
        Where the mirror images were looked at, too, they give every other pair of hypotheses and half of the
        visibility.
        """
        _check_hypotheses(hypotheses)
        if not seen.views:
            return photo.no_estimate(hypotheses, self.config.tokenizer.tokens)
        condition = self.condition(seen.features)
        mirrored = None if seen.mirrored is None else self.condition(seen.mirrored)
        turned = None if pins is None else photo.pins_in_crops(pins, seen.views, self.device)
        given: dict[str, Any] = {"warm": warm, "pins": turned, "kept": kept}
        tokens, joints_mm = self.draw(condition, mirrored, hypotheses, steps, generators, **given)
        seen_by = visibility_of(condition, mirrored)
        if seen_by is None:
            visibility = photo.visibility_by_landmarks(seen.landmark_visibility)
        else:
            visibility = seen_by.double().cpu().numpy()
        return Estimate(tokens, photo.to_camera(joints_mm.cpu().numpy(), seen.views), visibility)

    @torch.no_grad()
    def draw(
        self,
        condition: Condition,
        mirrored: Condition | None,
        hypotheses: int,
        steps: int | Sequence[int],
        generator: Noise,
        warm: Warm | None = None,
        pins: Pins | None = None,
        kept: Kept | None = None,
    ) -> tuple[Int[Tensor, "B H N"], Float[Tensor, "B H 17 3"]]:
        """H hypotheses for each image: tokens, and the poses that they were decoded to, root-relative millimetres.

        Where there are conditions of the mirror images, every other pair of hypotheses is drawn from these, and its
        poses are mirrored back; the tokens of such a pose are those that it has outside of the mirror. Kept tokens
        and those of a warm start mean nothing in the mirror: with them it is left out.
        """
        images = len(condition.keys[0])
        tokens = torch.zeros(images, hypotheses, self.config.tokenizer.tokens, dtype=torch.int64, device=self.device)
        joints_mm = torch.zeros(images, hypotheses, H36M_17.count, 3, device=self.device)
        sides = [(condition, False)]
        if mirrored is not None and warm is None and kept is None:
            sides.append((mirrored, True))
        for side, swap in sides:
            mine = [h for h in range(hypotheses) if len(sides) == 1 or h // 2 % 2 == swap]
            if not mine:
                continue
            noise = generator
            if not isinstance(generator, torch.Generator):
                noise = [generator[image * hypotheses + h] for image in range(images) for h in mine]
            known = pins
            if swap and pins is not None:
                known = (mirror(pins[0], H36M_17), pins[1][:, list(H36M_17.mirror_order)])
            drawn = self.predict_tokens(side, len(mine), steps, noise, warm=warm, pins=known, kept=kept)
            poses = self.tokenizer.decode(drawn.flatten(0, 1))
            if swap:
                poses = mirror(poses, H36M_17)
                drawn = self.tokenizer.encode(poses).unflatten(0, drawn.shape[:2])
            tokens[:, mine], joints_mm[:, mine] = drawn, poses.unflatten(0, drawn.shape[:2])
        return tokens, joints_mm

    def predict(
        self,
        images: Sequence[Image.Image | None],
        samples: Sequence[Record],
        hypotheses: int,
        steps: int,
        seed: int,
    ) -> np.ndarray:
        """(B, H, 17, 3) for records of a dataset: what `evaluation.predictor.Predictor` asks for.

        The person is the detection at the record's box, the camera the record's own; noise by (seed, record id, h).
        """
        finder = Finder(self._detector("blazepose"))
        views = []
        for image, record in zip(images, samples, strict=True):
            if image is None:
                raise InputError(f"record {record.id} has no picture: the model needs one")
            camera = record.camera or assumed_camera(image.size)
            views.append(View(image, finder.find(record, image), camera))
        generators = hypothesis_generators(seed, [record.id for record in samples], hypotheses)
        return self.estimate(self.look_well(views), hypotheses, steps, generators).samples_mm

    @property
    def device(self) -> torch.device:
        return self.denoiser.position.device

    def _encoder(self) -> Any:
        if self.encoder is not None:
            return self.encoder
        return self._once("encoder", lambda: photo.load_encoder(self.config, self.device))

    def _detector(self, name: str) -> Any:
        return self._once(name, lambda: load_detector(name, self.device))

    def _once(self, name: str, load: Callable[[], Any]) -> Any:
        key = f"{name} on {self.device}"  # a model may be moved after its first photo
        if key not in self._loaded:
            self._loaded[key] = load()
        return self._loaded[key]

    def loss(self, batch: dict[str, Tensor], generator: Noise) -> dict[str, Tensor]:
        """Algorithm 1 on `{"features": (B, L, F), "joints_mm": (B, 17, 3)}`: `loss`, `vlb`, `aux`, `accuracy`.

        Where `pose_weight` is above 0 (an extension), the predicted probabilities are also decoded softly by the
        frozen tokenizer: `pose`, the mean joint error in metres, joins the loss with that weight. So do the adapter's
        `regression`, where there is an adapter, and `visibility`, its cross-entropy to `batch["visibility"]` (B, 17),
        where that is given; -1 is unknown.

        The generator draws s, then the noise of k_s, then what the adapter drops; with one generator per row a sample's
        noise is its own.
        """
        if missing := {"features", "joints_mm"} - batch.keys():
            raise InputError(f"a batch needs the keys features and joints_mm, it lacks {', '.join(sorted(missing))}")
        features, joints_mm = batch["features"], batch["joints_mm"]
        if len(features) != len(joints_mm):
            raise InputError(f"a batch needs as many features as poses, got {len(features)} and {len(joints_mm)}")
        k0 = self.tokenizer.encode(joints_mm)
        s, weights = self.step_sampler.draw(len(k0), generator)
        ks = forward_sample(k0, s, self.schedule, generator)
        condition = self.condition(features, generator if self.training else None)
        logits = self.denoiser(ks, s.to(ks.device), condition)
        losses = diffusion_loss(logits, k0, ks, s, self.schedule, self.config.diffusion.aux_weight, weights)
        per_sample = losses.pop("vlb_per_sample")
        if self.config.diffusion.pose_weight:
            errors = mpjpe(self.tokenizer.decode_soft(logits.float().softmax(-1)), joints_mm, root=0)
            losses["pose"] = (weights.to(errors) * errors).mean() / MM_PER_METRE
            losses["loss"] = losses["loss"] + self.config.diffusion.pose_weight * losses["pose"]
        if condition.joints_mm is not None and condition.visibility_logits is not None:
            reading = reading_losses(condition.joints_mm, condition.visibility_logits, batch, self.config.diffusion)
            losses |= reading | {"loss": losses["loss"] + reading["loss"]}
        if self.training:
            self.step_sampler.update(s, per_sample.cpu())
        return losses | {"accuracy": (logits.argmax(-1) == k0).float().mean()}

    def condition(self, features: Float[Tensor, "B L F"], noise: Noise | None = None) -> Condition:
        """What the denoiser knows of B images; a model that takes hints also the codes of the adapter's own pose.

        `noise` is for the adapter's dropout, in training.
        """
        condition = self.denoiser.condition(features, noise)
        if condition.joints_mm is None or not self.config.denoiser.hint_channels:
            return condition
        return self.denoiser.hinted(condition, self.tokenizer.codes(condition.joints_mm.detach()))

    @torch.no_grad()
    def predict_tokens(
        self,
        features: Float[Tensor, "B L F"] | Condition,
        hypotheses: int,
        steps: int | Sequence[int],
        generator: Noise,
        start: Start = "stationary",
        warm: Warm | None = None,
        pins: Pins | None = None,
        kept: Kept | None = None,
    ) -> Int[Tensor, "B H N"]:
        """Algorithm 2, H times for each image; from its features, or from the condition that was made of them.

        `generator`: one, or one per row (image, hypothesis), B * H in all.
        Extensions. `warm` = (tokens (B, H, N), w): begin at the tokens noised to step w; `steps` then divides w..0.
        `pins` = (joints (B, 17, 3) mm, which are known (B, 17)): the other joints are drawn to agree with these, in the
        axes of the crop. `kept` = (tokens (B, N), which are to stay (B, N)).
        """
        _check_hypotheses(hypotheses)
        condition = features if isinstance(features, Condition) else self.condition(features)
        images = len(condition.keys[0])
        if warm is not None:
            warm = (warm[0].flatten(0, -2), warm[1])
        shape = (images * hypotheses, self.config.tokenizer.tokens)

        def predict_p0(ks: Tensor, s: Tensor) -> Tensor:
            return self.denoiser(ks, s, condition).float().softmax(-1)

        steered: PredictP0 = predict_p0
        if pins is not None:
            pins_mm, pinned = (part.repeat_interleave(hypotheses, 0) for part in pins)
            steered = towards_pins(predict_p0, self.tokenizer.decode_soft, pins_mm, pinned)
        if kept is not None:
            kept = (kept[0].repeat_interleave(hypotheses, 0), kept[1].repeat_interleave(hypotheses, 0))
        levels = self.config.tokenizer.levels
        given: dict[str, Any] = {"warm": warm, "kept": kept, "device": self.device, "levels": levels}
        for ks in sample(steered, self.schedule, steps, shape, generator, start, **given):
            tokens = ks
        return tokens.unflatten(0, (images, hypotheses))

    @torch.no_grad()
    def regress_joints(self, features: Float[Tensor, "B L F"]) -> Float[Tensor, "B 17 3"]:
        """The adapter's direct regression, for comparison: one pose an image, no hypotheses."""
        joints_mm = self.denoiser.condition(features).joints_mm
        if joints_mm is None:
            raise InputError("this model has no adapter (adapter_layers is 0), so nothing regresses joints")
        return joints_mm

    @torch.no_grad()
    def predict_joints(
        self,
        features: Float[Tensor, "B L F"] | Condition,
        hypotheses: int,
        steps: int | Sequence[int],
        generator: Noise,
        start: Start = "stationary",
    ) -> Float[Tensor, "B H 17 3"]:
        """The poses of `predict_tokens`: root-relative millimetres."""
        tokens = self.predict_tokens(features, hypotheses, steps, generator, start)
        return self.tokenizer.decode(tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])


def visibility_of(condition: Condition, mirrored: Condition | None = None) -> Float[Tensor, "B 17 4"] | None:
    """Probabilities of the four states; the mean of both ways. None for a model without a visibility head."""
    if condition.visibility_logits is None:
        return None
    found = condition.visibility_logits.softmax(-1)
    if mirrored is None or mirrored.visibility_logits is None:
        return found
    return (found + mirrored.visibility_logits.softmax(-1)[:, list(H36M_17.mirror_order)]) / 2


def _check_hypotheses(hypotheses: int) -> None:
    if hypotheses < 1:
        raise InputError(f"hypotheses must be 1 or more, got {hypotheses}")
