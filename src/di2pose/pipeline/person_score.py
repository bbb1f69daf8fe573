"""Is this a person at all? A probability, from what the encoder and the hypotheses say of a crop.  B crops.

A logistic model of a few numbers (EVIDENCE), fitted on rendered people and on pictures without people
(`experiments/person_score.py`) and kept in the model's calibration. An encoder's own opinion alone calls ceiling
cameras people.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from di2pose.arrays import to_numpy
from di2pose.image.encoder import EncoderOutput
from di2pose.pose.skeleton import LIMB_12

EVIDENCE = ("person", "limbs", "spread", "apart")
"""The encoder's own probability (logit); mean visibility of its limb landmarks; how far hypotheses spread (log of mm);
how far the landmarks of the crop and of its mirror image lie apart (log of the share of the crop's width)."""


@dataclass(frozen=True)
class PersonFit:
    """Score = sigmoid(bias + weights . evidence); below `least` it is taken for nobody."""

    bias: float
    weights: tuple[float, ...]
    """As EVIDENCE."""
    least: float
    fitted_on: str = ""

    def score(self, evidence: Float[np.ndarray, "B E"]) -> Float[np.ndarray, " B"]:
        logit = self.bias + evidence @ np.asarray(self.weights)
        return np.asarray(1 / (1 + np.exp(-np.clip(logit, -30, 30))))


def evidence(
    here: EncoderOutput, there: EncoderOutput | None, samples_mm: Float[np.ndarray, "B H 17 3"], width: float
) -> Float[np.ndarray, "B E"] | None:
    """EVIDENCE of each crop; `there` of the mirror images, in pixels of the mirror; `width` of the crops. None where
    the encoder has no landmarks, or a pose no spread."""
    looks = [look for look in (here, there) if look is not None]
    if here.skeleton is None or samples_mm.shape[1] < 2:
        return None
    points, visible, person = [], [], []
    for look in looks:
        if look.landmarks_2d is None or look.landmark_visibility is None or look.person is None:
            return None
        places, shown = (to_numpy(part) for part in (look.landmarks_2d, look.landmark_visibility))
        if look is there:
            order = list(here.skeleton.mirror_order)
            places, shown = (places * (-1, 1) + (width, 0))[:, order], shown[:, order]
        limbs = list(here.skeleton.indices(*LIMB_12))
        points.append(places[:, limbs])
        visible.append(shown[:, limbs])
        person.append(to_numpy(look.person))
    probability = np.clip(np.mean(person, axis=0), 1e-3, 1 - 1e-3)
    weight = np.mean(visible, axis=0) + 0.05
    gap = np.linalg.norm(points[0] - points[-1], axis=-1) / width
    apart = (gap * weight).sum(-1) / weight.sum(-1)
    spread = np.sqrt(samples_mm.var(1, ddof=1).sum(-1)).mean(-1)
    return np.stack(
        [
            np.log(probability / (1 - probability)),
            np.mean(visible, axis=(0, 2)),
            np.log(spread + 1),
            np.log(apart + 0.003),
        ],
        axis=-1,
    )
