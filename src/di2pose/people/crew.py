"""Who is in picture i: everything random about it follows from (seed, split, i) alone."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from di2pose.people.body import draw_shape, model
from di2pose.people.dress import Person, dress
from di2pose.people.motion import Library, library
from di2pose.people.retarget import Pose, lay_down, node_turns, perturb, sit
from di2pose.people.scene import Figure, Picture, draw_picture
from di2pose.people.wardrobe import draw_outfit

GROUP = 10
"""Pictures in a row that show the same person in the same clothes: fitting clothes costs more than drawing them."""
OCCLUSION_SHARES = {"none": 0.56, "patch": 0.17, "furniture": 0.11, "person": 0.10, "behind": 0.06}
"""`behind`: a second person who hides nothing of the first. The photo's border cuts 16 % of all pictures besides."""
MOST_HIDDEN, ATTEMPTS = 0.7, 6
"""Share of the joints that may be occluded or out of the frame, and how often a picture is tried."""
SIT, LIE = 0.05, 0.05
"""Share of upright poses that are seated on a chair, or tipped over, besides those in the motion."""


@dataclass(frozen=True)
class Plan:
    """What is rendered: the motion folder, the split, the seed, and folders of background photos."""

    motion: Path
    split: str
    seed: int
    photos: tuple[Path, ...] = ()
    attacked: float = 0.0
    """Share of the pictures with a large patch on the person, cropped as by a detector that the patch misleads."""
    natural: bool = False
    """Poses as often as they are in the motion, instead of rare kinds more often."""


def picture(plan: Plan, index: int) -> Picture:
    """Picture `index`; the same bytes and labels on every call, in every process.

    A picture that hides or cuts away too much of the person is drawn anew.
    """
    person = _person(plan, index // GROUP, "target")
    for attempt in range(ATTEMPTS):
        made = _attempt(plan, index, person, _generator(plan, index, "picture", attempt))
        if made.labels["hidden"] <= MOST_HIDDEN:
            break
    shape = person.body.shape
    made.labels.update(
        person=index // GROUP,
        wardrobe=" ".join((person.outfit.skin, *person.outfit.items)),
        sliders=np.array(shape.sliders, np.float32),
        stature_m=shape.stature_m,
    )
    return made


def _attempt(plan: Plan, index: int, person: Person, generator: np.random.Generator) -> Picture:
    names = list(OCCLUSION_SHARES)
    occlusion = str(generator.choice(names, p=list(OCCLUSION_SHARES.values())))
    attacked = plan.attacked > 0 and bool(generator.random() < plan.attacked)
    if attacked:
        occlusion = "patch"
    posed, about = _pose(plan, person, generator)
    other = None
    if occlusion in ("person", "behind"):
        second = _person(plan, index // GROUP, "other")
        other = Figure(second, _pose(plan, second, generator)[0], np.zeros(3))
    made = draw_picture(Figure(person, posed, np.zeros(3)), other, occlusion, plan.photos, generator, attacked)
    made.labels.update(about)
    return made


def _pose(plan: Plan, person: Person, generator: np.random.Generator) -> tuple[Pose, dict[str, Any]]:
    poses: Library = library(plan.motion, plan.split)
    frame = poses.draw(generator, plan.natural)
    mirrored = bool(generator.random() < 0.5)
    turns = perturb(node_turns(poses.rotations[frame], mirrored), generator)
    variant = "motion"
    chance = 1.0 if plan.natural else generator.random()
    if chance < SIT:
        turns, variant = sit(turns, generator), "sit"
    elif chance < SIT + LIE:
        turns, variant = lay_down(turns, generator), "lie"
    clip = int(poses.clip[frame])
    grip = generator.beta(1.5, 2.5, 2)
    about = {
        "subject": poses.subjects[clip],
        "clip": poses.clips[clip],
        "frame": int(poses.frame[frame]),
        "mirrored": mirrored,
        "variant": variant,
    }
    return person.rig.pose(turns, (float(grip[0]), float(grip[1]))), about


@lru_cache(maxsize=4)
def _person(plan: Plan, group: int, role: str) -> Person:
    generator = _generator(plan, group, role)
    shape = draw_shape(generator)
    outfit = draw_outfit(shape, plan.split, generator)
    return dress(model().body(shape), outfit, generator)


def _generator(plan: Plan, number: int, role: str, attempt: int = 0) -> np.random.Generator:
    roles = ("picture", "target", "other")
    return np.random.default_rng((plan.seed, ("train", "test").index(plan.split), roles.index(role), number, attempt))
