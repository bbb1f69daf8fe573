"""The flip test: a crop's mirror image is a second observation, in which an encoder errs differently.

Every other pair of hypotheses comes from the mirror image and is mirrored back; single poses and visibilities are the
means of both. For any kind of model.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jaxtyping import Float

from di2pose.arrays import concatenate
from di2pose.pose.skeleton import H36M_17, mirror
from di2pose.prediction import Constraints, Prediction, Predicts, check_hypotheses


def predict_both(
    model: Predicts,
    features: Float[Any, "B L F"],
    flipped: Float[Any, "B L F"] | None,
    hypotheses: int,
    steps: int,
    generator: Any,
    constraints: Constraints | None = None,
) -> Prediction:
    """`model.predict`, with `flipped`, the features of the mirror images, where there are any.

    Tokens mean nothing in the mirror: kept ones leave the flip test out. The tokens of a mirrored
    hypothesis are those that its pose has outside of the mirror.
    """
    check_hypotheses(hypotheses)
    known = constraints or Constraints()
    if flipped is None or known.kept is not None:
        return model.predict(features, hypotheses, steps, generator, constraints)
    rows: list[list[int]] = [[h for h in range(hypotheses) if h // 2 % 2 == side] for side in (0, 1)]
    order = [(rows[0] + rows[1]).index(h) for h in range(hypotheses)]
    noise = [_share(generator, each, hypotheses) for each in rows]
    if not rows[1]:
        found = model.predict(features, hypotheses, steps, noise[0], constraints)
        return replace(found, visibility=_mean_visibility(model, found, flipped, generator))
    mirrored = known
    if known.pins is not None:
        joints, which = known.pins
        mirrored = replace(known, pins=(mirror(joints, H36M_17), which[:, list(H36M_17.mirror_order)]))
    if len(rows[0]) == len(rows[1]) and isinstance(noise[0], list) and isinstance(noise[1], list):
        joined = concatenate([features, flipped])
        both = model.predict(joined, len(rows[0]), steps, noise[0] + noise[1], _joined(known, mirrored))
        found, there = _half(both, slice(0, len(features))), _half(both, slice(len(features), None))
    else:
        found = model.predict(features, len(rows[0]), steps, noise[0], known)
        there = model.predict(flipped, len(rows[1]), steps, noise[1], mirrored)
    back = mirror(there.joints_mm, H36M_17)
    joints_mm = concatenate([found.joints_mm, back], axis=1)[:, order]
    tokens = None
    again = model.tokens_of(back)
    if found.tokens is not None and again is not None:
        tokens = concatenate([found.tokens, again], axis=1)[:, order]
    return Prediction(joints_mm, _mean(found.visibility, there.visibility), tokens)


def _joined(here: Constraints, there: Constraints) -> Constraints:
    """Of the crops, then of their mirror images."""
    if here.pins is None or there.pins is None:
        return here
    joints, which = (concatenate(pair) for pair in zip(here.pins, there.pins, strict=True))
    return replace(here, pins=(joints, which))


def _half(both: Prediction, rows: slice) -> Prediction:
    joints_mm, visibility, tokens = (
        None if part is None else part[rows] for part in (both.joints_mm, both.visibility, both.tokens)
    )
    assert joints_mm is not None
    return Prediction(joints_mm, visibility, tokens)


def point_estimates(
    model: Any, features: Float[Any, "B L F"], flipped: Float[Any, "B L F"] | None
) -> dict[str, Float[Any, "B 17 3"]]:
    """`PoseModel.point_estimates`; with the mirror images the means of both."""
    found = model.point_estimates(features)
    if flipped is None:
        return found
    there = model.point_estimates(flipped)
    return {name: (pose + mirror(there[name], H36M_17)) / 2 for name, pose in found.items()}


def _share(generator: Any, rows: Sequence[int], hypotheses: int) -> Any:
    """The noise of some of the hypotheses of every crop."""
    if not isinstance(generator, Sequence):
        return generator  # one for all rows
    crops = len(generator) // hypotheses
    return [generator[crop * hypotheses + h] for crop in range(crops) for h in rows]


def _mean(here: Any, there: Any) -> Any:
    return None if here is None or there is None else (here + there[:, list(H36M_17.mirror_order)]) / 2


def _mean_visibility(model: Predicts, found: Prediction, flipped: Any, generator: Any) -> Any:
    """With one pair of hypotheses or less the mirror image gives no pose, but still half of the visibility: drawn in
    one step, for the pose is not used."""
    if found.visibility is None:
        return None
    there = model.predict(flipped, 1, 1, _share(generator, [0], found.joints_mm.shape[1]))
    return _mean(found.visibility, there.visibility)
