"""Calibration: from the spread of the hypotheses to the expected error.  H hypotheses, J joints, classes c.

Hypotheses that agree can be wrong together. On held-out people whose truth is known, the expected squared error of the
estimate from H hypotheses is modelled for each joint j, apart for joints that are predicted seen and for the others:

    expected squared error = floor_mm2[c][j] + gain[c][j] * trace(C) + apart_gain[c][j] * apart^2
    covariance = gain * C + (floor + apart_gain * apart^2) / 3 * I
    r90 = radius_factor[c][j] * sqrt(trace(covariance))

with C the unbiased covariance of the hypotheses, and `apart` how far the 2D observers of the joint are apart, in mm.
`evaluation` fits it; here it is read, written and applied. The file is calibration.json in the model's folder.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from di2pose.config import from_json, to_json
from di2pose.errors import InputError
from di2pose.files import read_json, write_json
from di2pose.pose.skeleton import H36M_17, Skeleton

FILE = "calibration.json"
FORMAT_VERSION = 1
CLASSES = ("seen", "hidden")
"""What c counts: 0 where a joint is 'visible' and clear, 1 for any other."""
GAUSSIAN_R90 = math.sqrt(6.251388631170325 / 3)
"""r90 over sqrt(trace) of an isotropic Gaussian: 6.25 is the 90 % point of chi-squared with 3 degrees of freedom."""

PERSON_FEATURES = ("person", "limbs", "spread", "apart")
"""The encoder's own probability (logit); mean visibility of its limb landmarks; spread of the hypotheses (log of mm);
distance of the landmarks of the crop from those of its mirror image (log of the share of the crop's width)."""

Table = tuple[tuple[float, ...], ...]
"""[class][joint] numbers."""


@dataclass(frozen=True)
class PersonFit:
    """Probability that a crop shows a person: sigmoid(bias + weights . features), a logistic model fitted on rendered
    people and on pictures without people (`experiments/person_score.py`). An encoder's own probability alone calls
    ceiling cameras people."""

    bias: float
    weights: tuple[float, ...]
    """Of PERSON_FEATURES."""
    least: float
    """Default threshold: below, it is no person."""
    fitted_on: str = ""

    def score(self, features: Float[np.ndarray, "B E"]) -> Float[np.ndarray, " B"]:
        logit = self.bias + features @ np.asarray(self.weights)
        return np.asarray(1 / (1 + np.exp(-np.clip(logit, -30, 30))))


@dataclass(frozen=True)
class Calibration:
    """The expected error of a model's joints, given its hypotheses and its visibility head."""

    floor_mm2: Table
    """Squared error at zero spread."""
    gain: Table
    """Squared error for each mm2 of spread, of the estimate from `hypotheses`."""
    radius_factor: Table
    """Radius of the 90 % ball over sqrt(trace(covariance))."""
    trace_mm2: Table
    """Mean trace of C in the fit: the spread of a single hypothesis, which has none of its own."""
    seen_threshold: float
    """A joint is 'visible' from this probability on."""
    hypotheses: int
    """H of the fit."""
    fitted_on: str = ""
    """The data, in words."""
    person: PersonFit | None = None
    """Of the person score; None: the encoder's own probability."""
    apart_gain: Table = field(default=(), metadata={"added": True})
    """Squared error for each mm2 by which observers are apart; empty, as in older files: 0."""

    def __post_init__(self) -> None:
        for name in ("floor_mm2", "gain", "radius_factor", "trace_mm2", *(["apart_gain"] if self.apart_gain else [])):
            table = getattr(self, name)
            if len(table) != len(CLASSES) or any(len(row) != self.joints for row in table):
                raise InputError(f"calibration: {name} needs {len(CLASSES)} rows of {self.joints} numbers")
            if not all(0 <= value < math.inf for row in table for value in row):
                raise InputError(f"calibration: {name} must hold finite numbers of 0 or above")
        if not 0 <= self.seen_threshold <= 1 or self.hypotheses < 2:
            raise InputError(
                "calibration: seen_threshold must lie in [0, 1] and hypotheses be 2 or more, "
                f"got {self.seen_threshold} and {self.hypotheses}"
            )

    @property
    def joints(self) -> int:
        """How many joints the model has."""
        return len(self.gain[0]) if self.gain else 0

    def state(self, visibility: Float[np.ndarray, "*B J 4"]) -> np.ndarray:
        """(..., J) strings, from probabilities of (seen, hidden by the body, hidden by something else, out of frame).

        'visible' from `seen_threshold` on; else the likelier of 'occluded' (both ways to be hidden) and 'out_of_frame'.
        """
        unseen = np.where(visibility[..., 1] + visibility[..., 2] >= visibility[..., 3], "occluded", "out_of_frame")
        return np.where(visibility[..., 0] >= self.seen_threshold, "visible", unseen)

    def covariance_mm2(
        self,
        samples_mm: Float[np.ndarray, "*B H J 3"],
        uncertain: Bool[np.ndarray, "*B J"],
        apart_mm: Float[np.ndarray, "*B J"] | None = None,
    ) -> Float[np.ndarray, "*B J 3 3"]:
        """What the truth varies by round the mean of the H samples. `uncertain`: joints that are not visible, or whose
        place in the picture is not clear. `apart_mm`: how far their observers are apart."""
        count = samples_mm.shape[-3]
        c, j = uncertain.astype(int), np.arange(self.joints)
        # The mean of H draws varies by trace / H itself: the fit knew `hypotheses` of them, this run has `count`.
        gain = np.maximum(np.asarray(self.gain)[c, j] + 1 / count - 1 / self.hypotheses, 0)
        floor = np.asarray(self.floor_mm2)[c, j]
        if self.apart_gain and apart_mm is not None:
            floor = floor + np.asarray(self.apart_gain)[c, j] * apart_mm**2
        axes = np.eye(3)
        if count > 1:
            spread = sample_covariance(samples_mm)
        else:
            spread = np.asarray(self.trace_mm2)[c, j][..., None, None] / 3 * axes
        return gain[..., None, None] * spread + floor[..., None, None] / 3 * axes

    def r90_mm(
        self, covariance_mm2: Float[np.ndarray, "*B J 3 3"], uncertain: Bool[np.ndarray, "*B J"]
    ) -> Float[np.ndarray, "*B J"]:
        """Radii of the balls that should hold the truth in 90 % of cases."""
        c, j = uncertain.astype(int), np.arange(self.joints)
        return np.asarray(self.radius_factor)[c, j] * np.sqrt(np.trace(covariance_mm2, axis1=-2, axis2=-1))

    @classmethod
    def neutral(cls, skeleton: Skeleton = H36M_17) -> "Calibration":
        """For a model without calibration: the hypotheses' own spread, read as a Gaussian; no floor. Overconfident as a
        rule. A single hypothesis has no spread: it gets 100 mm."""

        floor, gain, radius = (((value,) * skeleton.count,) * 2 for value in (0.0, 1.0, GAUSSIAN_R90))
        return cls(
            floor_mm2=floor,
            gain=gain,
            radius_factor=radius,
            trace_mm2=(tuple(0.0 if joint == skeleton.root else 100.0**2 for joint in range(skeleton.count)),) * 2,
            seen_threshold=0.5,
            hypotheses=8,
            fitted_on="nothing: the raw spread of the hypotheses",
        )

    @classmethod
    def read(cls, folder: Path | str) -> "Calibration | None":
        """The calibration of a model's folder; None where it has none."""
        path = Path(folder) / FILE
        if not path.is_file():
            return None
        record = read_json(path, "it is damaged, copy it again")
        if not isinstance(record, dict) or record.pop("format_version", None) != FORMAT_VERSION:
            raise InputError(f"{path} is not a calibration of format version {FORMAT_VERSION}")
        return from_json(cls, {"person": None, **record})  # older files lack the person score

    def write(self, folder: Path | str) -> Path:
        """Put it into a model's folder, atomically."""
        return write_json(Path(folder) / FILE, {"format_version": FORMAT_VERSION, **to_json(self)})


def sample_covariance(samples_mm: Float[np.ndarray, "*B H J 3"]) -> np.ndarray:
    """(..., J, 3, 3) unbiased covariance over the hypotheses; its trace does not depend on how many there are."""
    offset = samples_mm.astype(np.float64) - samples_mm.mean(axis=-3, keepdims=True, dtype=np.float64)
    return np.einsum("...hja,...hjb->...jab", offset, offset) / (samples_mm.shape[-3] - 1)
