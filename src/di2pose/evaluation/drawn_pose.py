"""A protocol's joints as lines in a picture."""

import numpy as np
from jaxtyping import Float

from di2pose.data.sample import Sample
from di2pose.evaluation.scoring import Scorer
from di2pose.pose.skeleton import LIMB_12


def bones(scorer: Scorer) -> list[tuple[int, int]]:
    """Pairs of the protocol's K joints."""
    place = {joint: at for at, joint in enumerate(scorer.columns)}
    found = [(place[c], place[p]) for c, p in scorer.protocol.skeleton.bones if c in place and p in place]
    if scorer.protocol.joints == LIMB_12:  # the trunk, which has no joints of its own here
        at = {name: place[scorer.protocol.skeleton.index(name)] for name in LIMB_12}
        corners = [at[name] for name in ("left_shoulder", "right_shoulder", "right_hip", "left_hip")]
        found += list(zip(corners, corners[1:] + corners[:1], strict=True))
    return found


def projected(scorer: Scorer, sample: Sample, pose: Float[np.ndarray, "K 3"]) -> Float[np.ndarray, "K 2"] | None:
    """Where a pose at the protocol's root falls in the picture when that root stands where the record's does; None
    where nobody knows that."""
    if sample.camera is None or sample.root_mm is None:
        return None
    root = sample.root_mm.astype(np.float64)  # of the record; the protocol's lies where its joints do
    if scorer.protocol.root != ("pelvis",):
        joints = list(scorer.truth_skeleton.indices(*scorer.protocol.root))
        root = sample.joints_mm[joints].mean(0).astype(np.float64) + root
    points: np.ndarray = sample.camera.project(pose + root)
    return points
