"""Human3.6M's own names: the 15 actions and how its files spell them, subjects, cameras, the 17 of its 32 joints."""

import re
from dataclasses import dataclass

from di2pose.errors import InputError

ACTIONS = (
    "Directions", "Discussion", "Eating", "Greeting", "Phoning", "Photo", "Posing", "Purchases", "Sitting",
    "SittingDown", "Smoking", "Waiting", "WalkDog", "Walking", "WalkTogether",
)  # fmt: skip
"""In the column order of the paper's table: Dir Disc Eat Greet Phone Photo Pose Purch Sit SitD Smoke Wait WalkD Walk
WalkT."""
SPELLINGS = {"TakingPhoto": "Photo", "WalkingDog": "WalkDog"}
"""S1's files spell two actions differently."""
TRAIN, TEST = ("S1", "S5", "S6", "S7", "S8"), ("S9", "S11")
CAMERA_SIZES = {"54138969": (1000, 1002), "55011271": (1000, 1000), "58860488": (1000, 1000), "60457274": (1000, 1002)}
"""(width, height) of the four cameras' pictures."""
JOINTS_17_OF_32 = (0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 15, 17, 18, 19, 25, 26, 27)
"""The joints that move, in the order of H36M_17; the other 15 repeat them or are toes and fingers."""


@dataclass(frozen=True)
class Clip:
    """One video. `base` is the action as the file spells it, with the number of the take: 'TakingPhoto 1'."""

    subject: str
    base: str
    camera: str

    @classmethod
    def parse(cls, subject: str, stem: str) -> "Clip | None":
        """From 'S1' and 'Directions 1.54138969'; None for '_ALL', the recording of no action."""
        base, _, camera = stem.rpartition(".")
        clip = cls(subject, base, camera)
        if base.strip("_ 0123456789") == "ALL":
            return None
        if camera not in CAMERA_SIZES:
            raise InputError(f"'{stem}' does not end in one of the cameras {', '.join(CAMERA_SIZES)}")
        if clip.action not in ACTIONS:
            raise InputError(f"'{base}' is none of the actions {', '.join(ACTIONS)}")
        return clip

    @property
    def action(self) -> str:
        return action_of(self.base)

    @property
    def sequence(self) -> str:
        return f"{self.subject}_{self.base.replace(' ', '_')}.{self.camera}"

    @property
    def split(self) -> str:
        return split_of(self.subject)

    def id(self, frame: int) -> str:
        """As the processed layout names its images, so that records of both layouts have the same ids."""
        return f"{self.sequence}_{frame + 1:06d}"


def action_of(base: str) -> str:
    """One of ACTIONS from 'Directions 1', 'Directions_1', 'TakingPhoto': without the take, in the common spelling."""
    name = re.sub(r"[ _]\d+$", "", base)
    return SPELLINGS.get(name, name)


def split_of(subject: str) -> str:
    """train, test, or '' for a subject of neither."""
    return "train" if subject in TRAIN else "test" if subject in TEST else ""
