"""Di2Pose in PyTorch: detector + encoder + model + calibration, each a part that is handed in, on the road."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor, nn

from di2pose.calibration import Calibration
from di2pose.call_options import usable_device
from di2pose.config import Config
from di2pose.errors import InputError
from di2pose.image.detect import Detection, Detector, load_detector
from di2pose.image.encoder import Encoder, EncoderOutput, load_encoder
from di2pose.image.people_detector import PeopleDetector
from di2pose.model import PoseModel, find_model, load_model, save_model
from di2pose.network import Di2PoseNetwork
from di2pose.pipeline.road import Road
from di2pose.randomness import Noise


class Di2Pose(Road, nn.Module):
    """Owns the parts. Encoder and detectors are loaded when they are first used, and are no part of a checkpoint.

        model = Di2Pose.from_pretrained()
        result = model("photo.jpg")
        result.people[0]["left_knee"].xyz_mm
    """

    model: PoseModel

    __call__ = torch.no_grad()(Road.__call__)
    encode = torch.no_grad()(Road.encode)
    look_again = torch.no_grad()(Road.look_again)
    encode_flipped = torch.no_grad()(Road.encode_flipped)
    estimate = torch.no_grad()(Road.estimate)

    def __init__(
        self,
        model: PoseModel | Config,
        encoder: Encoder | str | None = None,
        detector: Detector | str = "auto",
        calibration: Calibration | None = None,
    ) -> None:
        """model: any kind of `model.PoseModel`, or the configuration of an untrained Di2Pose
        encoder: instead of the one that the model's configuration names; a name or an object
        detector: a name or an object with `detect(image, max_people=)` -> list of Detection
        calibration: what the spread of the hypotheses means; None: `Calibration.neutral`
        """
        super().__init__()
        self.model = Di2PoseNetwork(model) if isinstance(model, Config) else model
        self.detector, self.calibration = detector, calibration
        # A dict hides the encoder and the detectors from state_dict and parameters.
        self._handed: dict[str, Encoder | str] = {"encoder": encoder or self.model.config.encoder}
        self._encoders: dict[torch.device, Encoder] = {}
        self._detectors: dict[tuple[str, torch.device], Detector] = {}

    @classmethod
    def from_pretrained(
        cls, folder: Path | str | None = None, device: str = "cpu", encoder: Encoder | str | None = None
    ) -> "Di2Pose":
        """A model of any kind from a checkpoint folder, a run, the name of a packaged one, or None: the packaged
        `small`. Nothing else is needed. In evaluation mode, with its calibration where the folder has one."""
        place = find_model(folder)
        return cls(load_model(place, usable_device(device)), encoder, calibration=Calibration.read(place)).eval()

    def save(self, folder: Path | str, half: bool = False, **notes: str | float) -> Path:
        """Write a checkpoint folder, atomically; `half` in 16 bits. Notes are kept in its config.json."""
        written = save_model(self.model, folder, half, **notes)
        if self.calibration is not None:
            self.calibration.write(written)
        return written

    def __getattr__(self, name: str) -> Any:
        """What the model has, the pipeline has: config, loss, predict_tokens, tokenizer, denoiser, ..."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "model":
                raise
            return getattr(self.model, name)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def find(self, picture: Image.Image, max_people: int = 8, quick: bool = False) -> list[Detection]:
        """Who is where, by the pipeline's own detector, largest first. Quick: at a glance, without tiles."""
        detector = self.load_detector()
        if quick:
            from di2pose.image.blazepose import BlazePoseDetector  # most photos do without

            if isinstance(detector, BlazePoseDetector | PeopleDetector):
                return detector.detect(picture, max_people, tiles=())
        return detector.detect(picture, max_people=max_people)

    @property
    def encoder(self) -> Encoder:
        """The encoder, on the model's device."""
        device = self.device
        if device not in self._encoders:  # a model may be moved after its first photo
            handed = self._handed["encoder"]
            encoder = load_encoder(handed, device) if isinstance(handed, str) else handed
            self._check(encoder)
            self._encoders[device] = encoder
        return self._encoders[device]

    def encode_pixels(self, pixels: UInt8[np.ndarray, "B H W 3"]) -> EncoderOutput:
        """One pass of the encoder; features on the model's device."""
        if not len(pixels):
            layout = self.encoder.layout
            return EncoderOutput(torch.zeros(0, layout.length, layout.width, device=self.device))
        seen = self.encoder.encode(pixels)
        return replace(seen, features=torch.from_numpy(seen.features).float().to(self.device))

    def _check(self, encoder: Encoder) -> None:
        tokens, width = self.config.feature_size
        length = encoder.layout.length
        if encoder.layout.width != width or tokens not in (0, length):
            raise InputError(
                f"this model wants {tokens or 'any number of'} image tokens of width {width}; {encoder.name} gives "
                f"{length} of width {encoder.layout.width}. Hand in the encoder that made its features: encoder='NAME'"
            )

    def load_detector(self, detector: str | Detector | None = None) -> Detector:
        """A detector by name, on the model's device; None: the pipeline's own."""
        chosen = self.detector if detector is None else detector
        if not isinstance(chosen, str):
            return chosen
        key = (chosen, self.device)
        if key not in self._detectors:
            self._detectors[key] = load_detector(chosen, self.device)
        return self._detectors[key]

    @torch.no_grad()
    def predict_joints(
        self, features: Float[Tensor, "B L F"], hypotheses: int, steps: int, generator: Noise
    ) -> Float[Tensor, "B H 17 3"]:
        """Poses from features: root-relative millimetres, in the axes of the crops."""
        return self.model.predict(features, hypotheses, steps, generator).joints_mm
