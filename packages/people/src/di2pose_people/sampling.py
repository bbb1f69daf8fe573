"""Draws picture i; everything random about it follows from (seed, split, i) alone."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from di2pose.errors import InputError
from di2pose.files import Json
from di2pose_people.backdrop import photo_files
from di2pose_people.body import ANNY_VERSION, draw_shape, model
from di2pose_people.motion import CLASSES, fingerprint, library
from di2pose_people.retarget import Pose, node_turns, perturb
from di2pose_people.scene import OCCLUSIONS, Figure, Picture, draw_picture
from di2pose_people.supported_poses import draw_settled
from di2pose_people.view import CROPS
from di2pose_people.wardrobe import HELD_OUT, DressedPerson, draw_outfit, dress

RENDERER = 4
"""Raised when the same seed gives other pictures."""
GROUP = 10
"""Pictures in a row that show the same person in the same clothes: fitting clothes costs more than drawing them."""
OCCLUSION_SHARES = (0.56, 0.17, 0.11, 0.10, 0.06)
"""Of OCCLUSIONS. The photo's border cuts some of all pictures besides."""
MOST_HIDDEN, ATTEMPTS = 0.7, 6
"""Share of the joints that may be occluded or out of the frame, and how often a picture is tried."""


@dataclass(frozen=True)
class Plan:
    """Which people are rendered."""

    motion: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """folder of BVH clips: the CMU motion capture database in its BVH conversion, or clips with its node names"""
    split: Literal["train", "test"] = "train"
    """train, or test: other motion subjects and other clothes, which no training picture shows"""
    seed: int = 0
    """another seed gives other people"""
    backgrounds: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """folder of photos without people to put behind most figures"""
    attacked: float = 0.0
    """share of people behind a large patch, cropped as by a detector that the patch misleads: to learn from"""
    natural: bool = False
    """poses as often as they are in the motion, mostly upright, instead of rare kinds more often"""
    settled: float | None = None
    """share of people who sit, kneel, lie or bend, on furniture and seen as in photos of such scenes; by default 0.1,
    and 0 with --natural"""
    standing: float | None = None
    """share of people who simply stand, legs straight, hands in pockets, arms crossed; by default 0.3, and 0 with
    --natural"""

    def __post_init__(self) -> None:
        for name in ("attacked", "settled", "standing"):
            if not 0 <= (getattr(self, name) or 0) <= 1:
                raise InputError(f"--{name} is a share of the people, 0 to 1, got {getattr(self, name)}")
        if self.settled_share + self.standing_share > 1:
            raise InputError(f"--settled and --standing are at most 1 together, got {self.settled}, {self.standing}")

    @property
    def settled_share(self) -> float:
        return (0.0 if self.natural else 0.1) if self.settled is None else self.settled

    @property
    def standing_share(self) -> float:
        if self.standing is not None:
            return self.standing
        return 0.0 if self.natural else min(0.3, 1 - self.settled_share)

    @cached_property
    def photos(self) -> tuple[Path, ...]:
        return photo_files(self.backgrounds)

    def settings(self) -> Json:
        """What the header of a set says: all that its pictures depend on, and the words of its labels."""
        return {
            "renderer": RENDERER,
            "skeleton": "h36m_21",
            "seed": self.seed,
            "split": self.split,
            "motion": fingerprint(self.motion),
            "backgrounds": len(self.photos),
            "attacked": self.attacked,
            "natural": self.natural,
            "settled": self.settled_share,
            "standing": self.standing_share,
            "anny": ANNY_VERSION,
            "pose_class": list(CLASSES),
            "occlusion": list(OCCLUSIONS),
            "crop": list(CROPS),
            "held_out_wardrobe": sorted(HELD_OUT),
        }


def picture_path(number: int) -> str:
    """Where picture `number` is below a set's folder."""
    return f"pictures/{number // 1000:04d}/{number:07d}.jpg"


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
    attacked = bool(generator.random() < plan.attacked)
    if attacked:
        occlusion = "patch"
    poses, seat, variant = library(plan.motion, plan.split), None, "motion"
    kind = generator.random()
    standing = bool(plan.settled_share <= kind < plan.settled_share + plan.standing_share)
    if kind < plan.settled_share + plan.standing_share:
        settled = draw_settled(person, poses, generator, standing)
        pose, frame, mirrored, seat, variant = settled.pose, settled.frame, settled.mirrored, settled.seat, settled.name
        if seat.table is not None and occlusion == "none":
            occlusion = "furniture"
    else:
        pose, frame, mirrored = _pose(plan, person, generator)
    other = None
    if occlusion in ("person", "behind"):
        second = _person(plan, index // GROUP, "other")
        other = Figure(second, _pose(plan, second, generator)[0], np.zeros(3))
    figure = Figure(person, pose, np.zeros(3))
    made = draw_picture(figure, other, occlusion, plan.photos, generator, attacked, seat, standing)
    clip = int(poses.clip[frame])
    subject, sequence, number = poses.subjects[clip], poses.clips[clip], int(poses.frame[frame])
    extra = made.sample.extra | {"mirrored": mirrored, "variant": variant}
    return replace(made, sample=replace(made.sample, subject=subject, sequence=sequence, frame=number, extra=extra))


def _pose(plan: Plan, person: DressedPerson, generator: np.random.Generator) -> tuple[Pose, int, bool]:
    """A pose, the frame of the library that it is, and whether it is mirrored."""
    poses = library(plan.motion, plan.split)
    frame = poses.draw(generator, plan.natural)
    mirrored = bool(generator.random() < 0.5)
    turns = perturb(node_turns(poses.rotations[frame], mirrored), generator)
    left, right = generator.beta(1.5, 2.5, 2).tolist()
    return person.rig.pose(turns, (left, right)), frame, mirrored


@lru_cache(maxsize=4)
def _person(plan: Plan, group: int, role: str) -> DressedPerson:
    generator = _generator(plan, group, role)
    shape = draw_shape(generator)
    outfit = draw_outfit(shape, plan.split, generator)
    return dress(model().body(shape), outfit, generator)


def _generator(plan: Plan, number: int, role: str, attempt: int = 0) -> np.random.Generator:
    roles = ("picture", "target", "other")
    return np.random.default_rng((plan.seed, ("train", "test").index(plan.split), roles.index(role), number, attempt))
