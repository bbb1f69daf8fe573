"""Draws picture i; everything random about it follows from (seed, split, i) alone."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from di2pose.files import Json
from di2pose_people.body import ANNY_VERSION, draw_shape, model
from di2pose_people.motion import CLASSES, fingerprint, library
from di2pose_people.render import Plan
from di2pose_people.retarget import Pose, lay_down, node_turns, perturb, sit
from di2pose_people.scene import OCCLUSIONS, Figure, Picture, draw_picture
from di2pose_people.store import picture_path
from di2pose_people.supported_poses import draw_settled
from di2pose_people.view import CROPS
from di2pose_people.wardrobe import HELD_OUT, DressedPerson, draw_outfit, dress

RENDERER = 1
"""Raised when the same seed gives other pictures."""
GROUP = 10
"""Pictures in a row that show the same person in the same clothes: fitting clothes costs more than drawing them."""
OCCLUSION_SHARES = (0.56, 0.17, 0.11, 0.10, 0.06)
"""Of OCCLUSIONS. The photo's border cuts 16 % of all pictures besides."""
MOST_HIDDEN, ATTEMPTS = 0.7, 6
"""Share of the joints that may be occluded or out of the frame, and how often a picture is tried."""
SIT, LIE = 0.05, 0.05
"""Share of upright poses that are seated on a chair, or tipped over, besides those in the motion."""


def settings(plan: Plan) -> Json:
    """What people.json says about a set: all that its pictures depend on, and the words of its labels."""
    return {
        "format_version": 1,
        "renderer": RENDERER,
        "skeleton": "h36m_17",
        "seed": plan.seed,
        "split": plan.split,
        "motion": fingerprint(plan.motion),
        "backgrounds": len(plan.photos),
        "anny": ANNY_VERSION,
        "pose_class": list(CLASSES),
        "occlusion": list(OCCLUSIONS),
        "crop": list(CROPS),
        "held_out_wardrobe": sorted(HELD_OUT),
        **({"attacked": plan.attacked} if plan.attacked else {}),
        **({"natural": True} if plan.natural else {}),
        **({"settled": plan.settled} if plan.settled else {}),
    }


def picture(plan: Plan, index: int) -> Picture:
    """Picture `index`; the same bytes and labels on every call, in every process.

    A picture that hides or cuts away too much of the person is drawn anew.
    """
    person = _person(plan, index // GROUP, "target")
    for attempt in range(ATTEMPTS):
        made = _attempt(plan, index, person, _generator(plan, index, "picture", attempt))
        if made.sample.extra["hidden"] <= MOST_HIDDEN:
            break
    shape = person.body.shape
    about = {"stature_m": shape.stature_m, "person": index // GROUP, "sliders": list(shape.sliders)}
    about["wardrobe"] = [person.outfit.skin, *person.outfit.items]
    name = f"people_{plan.split}_{plan.seed}_{index:07d}"
    extra = made.sample.extra | about
    return replace(made, sample=replace(made.sample, id=name, image=picture_path(index), split=plan.split, extra=extra))


def _attempt(plan: Plan, index: int, person: DressedPerson, generator: np.random.Generator) -> Picture:
    occlusion = str(generator.choice(OCCLUSIONS, p=OCCLUSION_SHARES))
    attacked = plan.attacked > 0 and bool(generator.random() < plan.attacked)
    if attacked:
        occlusion = "patch"
    seat = None
    if plan.settled > 0 and generator.random() < plan.settled:
        settled = draw_settled(person, library(plan.motion, plan.split), generator)
        posed, frame, seat = settled.pose, settled.frame, settled.seat
        about: dict[str, object] = {"mirrored": settled.mirrored, "variant": settled.name}
        if seat.table is not None and occlusion == "none":
            occlusion = "furniture"
    else:
        posed, frame, about = _pose(plan, person, generator)
    other = None
    if occlusion in ("person", "behind"):
        second = _person(plan, index // GROUP, "other")
        other = Figure(second, _pose(plan, second, generator)[0], np.zeros(3))
    made = draw_picture(Figure(person, posed, np.zeros(3)), other, occlusion, plan.photos, generator, attacked, seat)
    poses = library(plan.motion, plan.split)
    clip = int(poses.clip[frame])
    subject, sequence, number = poses.subjects[clip], poses.clips[clip], int(poses.frame[frame])
    extra = made.sample.extra | about
    return replace(made, sample=replace(made.sample, subject=subject, sequence=sequence, frame=number, extra=extra))


def _pose(plan: Plan, person: DressedPerson, generator: np.random.Generator) -> tuple[Pose, int, dict[str, object]]:
    """A pose, the frame of the library that it is, and what was done to it."""
    poses = library(plan.motion, plan.split)
    frame = poses.draw(generator, plan.natural)
    mirrored = bool(generator.random() < 0.5)
    turns = perturb(node_turns(poses.rotations[frame], mirrored), generator)
    variant = "motion"
    chance = 1.0 if plan.natural else generator.random()
    if chance < SIT:
        turns, variant = sit(turns, generator), "sit"
    elif chance < SIT + LIE:
        turns, variant = lay_down(turns, generator), "lie"
    left, right = generator.beta(1.5, 2.5, 2).tolist()
    return person.rig.pose(turns, (left, right)), frame, {"mirrored": mirrored, "variant": variant}


@lru_cache(maxsize=4)
def _person(plan: Plan, group: int, role: str) -> DressedPerson:
    generator = _generator(plan, group, role)
    shape = draw_shape(generator)
    outfit = draw_outfit(shape, plan.split, generator)
    return dress(model().body(shape), outfit, generator)


def _generator(plan: Plan, number: int, role: str, attempt: int = 0) -> np.random.Generator:
    roles = ("picture", "target", "other")
    return np.random.default_rng((plan.seed, ("train", "test").index(plan.split), roles.index(role), number, attempt))
