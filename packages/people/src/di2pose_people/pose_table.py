"""Ways to stand, sit, kneel, squat, lie and bend: angles of the trunk, where feet and hands go, what carries the body.

Ranges are drawn from evenly. Lengths are in sizes of the body (1: a person of 1.75 m), angles in degrees.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Range = tuple[float, float]
Direction = tuple[float, float, float]
"""To the outside, up, to the front."""

KINDS = {"seated": 0.45, "kneeling": 0.17, "floor": 0.17, "lying": 0.15, "bent": 0.06}
"""How often each kind of supported pose is drawn."""
HIP_FLESH, LIMB_FLESH = 0.09, 0.08
"""From the middle of the hips, and from any other joint, to what it rests on."""


@dataclass(frozen=True)
class Foot:
    """An ankle at a point, as seen from the middle of the hips; `above` the floor."""

    out: Range
    front: Range
    above: Range = (0.085, 0.085)
    knee: Direction = (0.15, 1.0, 1.0)
    """Where the knee points."""
    toes: Range | None = None
    """Degrees down against the shin; None: flat on the floor."""
    on_knee: bool = False
    """Seen from the other knee instead, and `above` that."""


@dataclass(frozen=True)
class Fold:
    """Thigh and shin by their directions: degrees to the front of straight down, or of straight on for one who lies."""

    thigh: Range
    shin: Range
    out: Range
    toes: Range = (15, 50)


@dataclass(frozen=True)
class Hand:
    """A wrist at a point, as seen from a joint, or from the middle of a thigh or shin."""

    start: str
    out: Range
    up: Range
    front: Range
    elbow: Direction
    """Where the elbow points."""
    palm: Direction | None = (0.0, -1.0, 0.0)
    on: str = ""
    """`up` is above the floor, table or arm rest."""
    in_chest: bool = False
    """All directions are those of the chest."""


@dataclass(frozen=True)
class Way:
    """One way to sit, kneel, lie or bend. Where legs or hands have several ways, each side takes one of them."""

    share: float
    chest: Range
    """Degrees that the chest leans forwards."""
    pelvis: tuple[float, Range]
    """The part of that lean which the pelvis takes, and degrees more."""
    legs: Sequence[Foot | Fold]
    hands: Sequence[str]
    other_leg: Sequence[Foot | Fold] = ()
    """Of the other side, where it differs."""
    other_hand: Sequence[str] = ()
    on: Sequence[str] = ()
    """What carries the body, where it is not one of ON."""
    height: Range = (HIP_FLESH, HIP_FLESH)
    """Of the middle of the hips above the floor (or above the seat)."""
    roll: Range | None = None
    """Of one who lies: degrees about the body's axis, 0 is on the back, 90 on a side."""
    tilt: Range = (-4, 4)
    """Degrees that the chest tilts away from the side it lies on."""
    gaze: Range = (0.3, 1.0)
    """How much of the chest's lean the head undoes."""
    head: Range = (0, 0)
    """Degrees that the head is turned to either side."""


HANDS = {
    "lap": Hand("thigh", (-0.09, -0.04), (0.1, 0.12), (0, 0), (1, -0.4, -0.8)),
    "thigh": Hand("thigh", (-0.03, 0.03), (0.1, 0.12), (0, 0), (1, -0.4, -0.8)),
    "knee": Hand("knee", (-0.02, 0.03), (0.08, 0.11), (-0.06, 0.02), (0.7, 0, -1)),
    "between": Hand("knee", (-0.16, -0.08), (0, 0.1), (0.02, 0.12), (0.5, -1, 0.2), (-1, 0, 0)),
    "shin": Hand("shin", (-0.06, 0.08), (0, 0), (0.08, 0.14), (1, 0, 0), (-1, 0, 0)),
    "phone": Hand("thorax", (0.02, 0.1), (-0.25, -0.02), (0.26, 0.36), (0.5, -1, -0.3), (0, 0.5, -1), in_chest=True),
    "chin": Hand("nose", (0.02, 0.1), (-0.08, -0.03), (0.16, 0.2), (0.4, -1, 0.3), None, in_chest=True),
    "rest": Hand("pelvis", (0.28, 0.33), (0.03, 0.05), (0.2, 0.34), (0.2, -1, -1), on="rest"),
    "table": Hand("shoulder", (-0.14, 0.1), (0.05, 0.06), (0.24, 0.4), (0.8, -0.3, -0.35), on="table"),
    "below": Hand("shoulder", (-0.03, 0.1), (0.08, 0.1), (-0.12, 0.16), (1, 0, -0.6), on="floor"),
    "lifted": Hand("shoulder", (-0.03, 0.1), (0.3, 0.55), (0.15, 0.45), (1, 0, -0.6), on="floor"),
    "ahead": Hand("shoulder", (0, 0.12), (0.08, 0.09), (0.15, 0.45), (0.8, 1, 0), on="floor"),
    "behind": Hand("pelvis", (0.2, 0.38), (0.085, 0.085), (-0.42, -0.18), (0.2, 0.3, -1), on="floor"),
    "beside": Hand("pelvis", (0.25, 0.4), (0.085, 0.085), (-0.2, 0.1), (1, 0, -1), on="floor"),
    "pick": Hand("pelvis", (-0.02, 0.18), (0.08, 0.3), (0.35, 0.58), (1, 0.3, -0.3), (-1, 0, 0), on="floor"),
    # of people who stand
    "hanging": Hand("shoulder", (0.02, 0.14), (-0.5, -0.47), (-0.02, 0.08), (0.3, 0, -1), (-1, 0, 0), in_chest=True),
    "pocket": Hand("pelvis", (0.17, 0.22), (-0.04, 0.04), (0.02, 0.12), (1, 0.2, -0.7), (-1, 0, 0)),
    "hip": Hand("pelvis", (0.16, 0.2), (0.08, 0.16), (0, 0.08), (1, 0, -0.4), (-1, 0, 0)),
    "clasped": Hand("pelvis", (-0.03, 0.04), (-0.06, 0.08), (0.17, 0.22), (1, 0, -0.5), (0, 0, -1)),
    "back": Hand("pelvis", (-0.03, 0.06), (0, 0.12), (-0.22, -0.17), (1, 0, -0.2), (0, 0, 1)),
    "crossed": Hand("spine", (-0.12, -0.04), (0.06, 0.14), (0.2, 0.25), (1, -0.6, 0.2), (0, 0, -1), in_chest=True),
    "crossed_over": Hand("spine", (-0.14, -0.06), (0.09, 0.17), (0.26, 0.3), (1, -0.6, 0.3), (0, 0, -1), in_chest=True),
    # of people who lie: up is towards the head
    "along": Hand("shoulder", (0.06, 0.22), (-0.47, -0.36), (-0.05, -0.02), (1, 0, -0.5), (0, 0, -1), in_chest=True),
    "belly": Hand("spine", (0, 0.1), (-0.12, 0.16), (0.15, 0.19), (1, 0, -0.6), (0, 0, -1), in_chest=True),
    "at_head": Hand("nose", (0.12, 0.25), (0, 0.16), (-0.05, 0), (1, 0.3, 0), (0, 0, 1), in_chest=True),
    "screen": Hand("nose", (0.02, 0.06), (-0.2, -0.04), (0.28, 0.4), (0.6, -1, 0), (0, 0, -1), in_chest=True),
    "aside": Hand("shoulder", (0.3, 0.45), (-0.3, 0.2), (-0.05, -0.02), (0, -1, -0.2), (0, 0, 1), in_chest=True),
    "prone": Hand("shoulder", (0.1, 0.25), (-0.45, 0.3), (0.03, 0.05), (1, 0, -0.2), (0, 0, 1), in_chest=True),
    "propped": Hand("shoulder", (-0.08, 0), (0.06, 0.07), (-0.28, -0.2), (0, -1, 0.4), on="floor"),
    "under": Hand("shoulder", (-0.03, 0.03), (0.05, 0.32), (0.2, 0.34), (0, -0.6, 1), (-1, 0, 0), in_chest=True),
    "over": Hand("shoulder", (-0.3, -0.2), (-0.25, 0.15), (0.22, 0.4), (0.5, -0.8, 0), (-1, 0, 0), in_chest=True),
    "upper_side": Hand("shoulder", (0.04, 0.08), (-0.47, -0.4), (0.02, 0.06), (1, 0, -0.5), (-1, 0, 0), in_chest=True),
    "elbow": Hand("shoulder", (0.16, 0.22), (-0.24, -0.16), (0.2, 0.26), (1, -1, -0.4), (1, -1, 0), in_chest=True),
}  # fmt: skip
"""What a hand does; "motion" is not here: as in the motion, where that is not inside what carries the body."""

FREE = ("lap", "thigh", "thigh", "knee", "phone", "chin", "motion", "motion", "motion", "motion")
KNEELING = (Fold((-7, 27), (-97, -94), (-1, 10), (48, 58)), Fold((-7, 27), (-114, -111), (-1, 10), (-28, -24)))
"""Toes stretched, or tucked under."""
ON_HEELS = (Fold((54, 63), (-95, -92), (3, 20), (48, 58)),)
FLAT = Foot((0.03, 0.22), (0.3, 0.55))
FORWARDS = Foot((0.02, 0.16), (0.58, 0.86))
STANDING = (Foot((0.03, 0.22), (0, 0.3), knee=(0.1, 0, 1)),)
KNEE_UP = Foot((0.04, 0.16), (0.38, 0.6), knee=(0.1, 1, 0.4))
STRAIGHT = Foot((0.04, 0.25), (0.74, 0.83), (0.07, 0.08), (0.3, 1, 0), (5, 42))
PRONE = Fold((2, 6), (-6, 0), (1, 12), (35, 55))
UPRIGHT = (Foot((0.0, 0.12), (-0.06, 0.04), knee=(0.15, 0, 1)),)
RELAXED = (Foot((0.06, 0.2), (0.02, 0.2), knee=(0.35, 0, 1)),)
"""The free leg of one whose weight is on the other."""
ROLLED_BACK = (0.5, (-18, -4))
"""The pelvis of one who sits."""

LEVEL = (0.0, (-4.0, 6.0))
"""The pelvis of one who stands."""
TALL = (0.915, 0.93)
"""Hips above the floor with straight legs: 0.925 is their whole length."""

ON = {
    "kneeling": ("floor", "floor", "floor", "mat"),
    "floor": ("floor", "floor", "mat", "mattress"),
    "lying": ("floor", "mat", "mattress", "mattress", "couch"),
    "bent": ("floor",),
    "standing": ("floor",),
}
"""What carries those who do not sit on one of SEATS."""
WAYS: dict[str, dict[str, Way]] = {
    "seated": {
        "feet": Way(0.4, (-24, 30), ROLLED_BACK, (FLAT,), FREE),
        "stretched": Way(0.16, (-26, 20), ROLLED_BACK, (FORWARDS,), FREE, other_leg=(FORWARDS, FLAT)),
        "crossed": Way(
            0.18, (-22, 24), ROLLED_BACK,
            (Foot((-0.17, -0.1), (0.12, 0.3), (-0.3, -0.2), (0, 1, 0.7), (0, 35), on_knee=True),), FREE,
            other_leg=(Foot((-0.08, 0), (0.34, 0.5), knee=(-0.45, 1, 1)),),
        ),
        "figure4": Way(
            0.1, (-22, 24), ROLLED_BACK,
            (Foot((-0.04, 0), (-0.1, -0.03), (0.12, 0.14), (1, 0.3, 0.3), (-5, 25), on_knee=True),), FREE,
            other_leg=(Foot((0.08, 0.16), (0.36, 0.5)),),
        ),
        "elbows": Way(
            0.16, (34, 48), ROLLED_BACK, (Foot((0.1, 0.26), (0.28, 0.46)),), ("between", "between", "between", "chin")
        ),
    },
    "standing": {
        "hanging": Way(0.2, (-4, 8), LEVEL, UPRIGHT, ("hanging",), height=TALL),
        "motion": Way(0.18, (-6, 12), LEVEL, UPRIGHT, ("motion",), height=TALL),
        "pockets": Way(0.14, (-4, 8), LEVEL, UPRIGHT, ("pocket",), other_hand=("pocket", "hanging"), height=TALL),
        "crossed": Way(0.1, (-6, 6), LEVEL, UPRIGHT, ("crossed",), other_hand=("crossed_over",), height=TALL),
        "hips": Way(0.08, (-6, 8), LEVEL, UPRIGHT, ("hip",), other_hand=("hip", "hanging"), height=TALL),
        "clasped": Way(0.08, (-4, 8), LEVEL, UPRIGHT, ("clasped",), height=TALL),
        "behind": Way(0.05, (-6, 4), LEVEL, UPRIGHT, ("back",), height=TALL),
        "phone": Way(0.07, (0, 14), LEVEL, UPRIGHT, ("phone",), other_hand=("phone", "hanging", "pocket"), height=TALL,
                     gaze=(0, 0.3)),
        "relaxed": Way(0.1, (-6, 8), LEVEL, RELAXED, ("pocket", "hip", "hanging", "motion"), other_leg=UPRIGHT,
                       height=TALL, tilt=(-6, 6)),
    },
    "kneeling": {
        "two": Way(0.25, (-8, 20), (0, (-6, 14)), KNEELING, FREE),
        "one": Way(
            0.34, (-5, 26), (0, (-6, 12)), (Foot((0.06, 0.22), (0.3, 0.54), knee=(0.2, 1, 1)),), ("knee", *FREE),
            other_leg=KNEELING, other_hand=FREE,
        ),
        "heels": Way(0.2, (-6, 24), ROLLED_BACK, ON_HEELS, FREE),
        "bow": Way(0.04, (62, 82), (1, (-30, -26)), ON_HEELS, ("ahead",), gaze=(0.1, 0.5)),
        "fours": Way(
            0.17, (68, 98), (1, (-20, 8)), (Fold((-18, 18), (-97, -94), (-2, 8), (48, 58)),),
            ("below", "below", "below", "below", "below", "lifted"), gaze=(0.1, 0.5),
        ),
    },
    "floor": {
        "crosslegged": Way(
            0.26, (-8, 28), ROLLED_BACK,
            (Foot((-0.08, -0.02), (0.3, 0.33), (0.12, 0.12), (1, 0.2, 0.25), (10, 40)),), FREE,
            other_leg=(Foot((-0.08, -0.02), (0.17, 0.21), (0.08, 0.08), (1, 0.2, 0.25), (10, 40)),),
        ),
        "stretched": Way(0.12, (-6, 28), ROLLED_BACK, (STRAIGHT,), FREE),
        "leaning": Way(
            0.12, (-36, -16), ROLLED_BACK, (STRAIGHT, KNEE_UP), ("behind", "behind", "behind", "knee", "motion")
        ),
        "one_up": Way(
            0.1, (-6, 28), ROLLED_BACK, (KNEE_UP,), FREE,
            other_leg=(STRAIGHT, Foot((-0.16, -0.06), (0.2, 0.3), (0.07, 0.08), (1, 0.05, 0.2), (15, 45))),
        ),
        "hugging": Way(
            0.1, (4, 20), (0.5, (-38, -24)), (Foot((0.03, 0.1), (0.5, 0.62), knee=(0.05, 1, 0.4)),), ("shin",)
        ),
        "sideways": Way(
            0.1, (-8, 20), (0, (-10, -4)), (Foot((-0.12, 0), (0.18, 0.3), (0.06, 0.06), (1, 0, 0.3), (25, 50)),),
            ("beside", *FREE), tilt=(-12, -4),
            other_leg=(Foot((0.3, 0.42), (-0.12, 0.08), (0.06, 0.06), (-0.55, 0, 1), (25, 50)),), other_hand=FREE,
        ),
        "squat": Way(
            0.2, (15, 45), (0, (0, 28)), (Foot((0.06, 0.28), (0.06, 0.2), knee=(0.35, 0.5, 1)),),
            ("pick", "between", *FREE), on=("floor",), height=(0.3, 0.5),
        ),
    },
    "lying": {
        "back": Way(
            0.36, (-8, 8), (0, (0, 0)), (STRAIGHT, STRAIGHT, KNEE_UP),
            ("along", "along", "belly", "at_head", "screen", "aside", "motion"), roll=(-8, 8), gaze=(0, 0),
        ),
        "side": Way(
            0.3, (-6, 34), (0, (0, 0)), (Fold((10, 85), (-50, -5), (4, 8)),), ("under",), roll=(75, 105), gaze=(0, 0),
            other_leg=(Fold((15, 100), (-50, -5), (-20, -8)),), other_hand=("over", "over", "upper_side"),
        ),
        "belly": Way(0.09, (0, 0), (0, (0, 0)), (PRONE,), ("prone",), roll=(173, 187), gaze=(0, 0), head=(50, 70)),
        "propped": Way(
            0.08, (-38, -24), (0, (0, 0)), (PRONE, Fold((2, 6), (-100, -55), (1, 12), (35, 55))), ("propped",),
            roll=(173, 187), gaze=(0.6, 0.9), height=(0.12, 0.12),
        ),
        "elbow": Way(
            0.07, (-4, 12), (0, (0, 0)), (Fold((5, 55), (-40, -5), (6, 8)),), ("elbow",), roll=(75, 95), tilt=(42, 54),
            gaze=(0, 0), other_leg=(Fold((5, 80), (-40, -5), (-12, -6)),), other_hand=("over", "upper_side"),
        ),
        "reclined": Way(
            0.1, (-58, -36), (0.8, (-9, -9)), (STRAIGHT, STRAIGHT, KNEE_UP), FREE, on=("mattress", "couch"),
            gaze=(0.2, 0.6),
        ),
    },
    "bent": {
        "pick": Way(
            0.3, (60, 100), (1, (-38, -22)), STANDING, ("pick",), other_hand=("pick", "knee"), height=(0.7, 0.86),
            gaze=(0.1, 0.8),
        ),
        "over": Way(
            0.3, (46, 78), (1, (-26, -12)), STANDING, ("table",), on=("counter",), height=(0.84, 0.92), gaze=(0.1, 0.8)
        ),
        "knees": Way(0.22, (44, 68), (1, (-28, -16)), STANDING, ("knee",), height=(0.77, 0.86), gaze=(0.1, 0.8)),
        "crouch": Way(0.18, (32, 64), (1, (-26, -14)), STANDING, FREE, height=(0.5, 0.7), gaze=(0.1, 0.8)),
    },
}  # fmt: skip
