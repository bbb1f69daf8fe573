"""Results: people with named joints in millimetres, their states and uncertainty, and how to save them.

Axes: the camera's, x right, y down, z away from the camera. J joints of the person's skeleton, H hypotheses.
"""

import dataclasses
import re
import tempfile
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from PIL import Image

from di2pose.errors import InputError, require
from di2pose.files import write_files
from di2pose.pose.camera import Camera
from di2pose.pose.floor import FEET, Floor, Walk, contacts, find_floor
from di2pose.pose.skeleton import H36M_17, Skeleton, convert, get

if TYPE_CHECKING:
    import pandas

    from di2pose.output.angles import Angle

STATES = ("pinned", "visible", "occluded", "out_of_frame", "unknown")
"""Of a joint in the picture; how sure its place is, r90 says. `pinned`: given by the user; `unknown`: not in the
skeleton before `convert`. Earlier versions wrote `seen` for `visible`: that is still read."""
KNOWN = ("pinned", "visible")
"""States of joints that are not guessed."""

WRITERS: dict[str, str] = {
    ".json": "di2pose.output.tables:as_json",
    ".csv": "di2pose.output.tables:as_csv",
    ".angles.csv": "di2pose.output.tables:as_angles",
    ".npz": "di2pose.output.tables:as_npz",
    ".parquet": "di2pose.output.parquet:as_parquet",
    ".trc": "di2pose.output.motion:as_trc",
    ".c3d": "di2pose.output.motion:as_c3d",
    ".bvh": "di2pose.output.bvh:as_bvh",
    ".mixamo.bvh": "di2pose.output.bvh:as_mixamo",
    ".glb": "di2pose.output.gltf:as_glb",
    ".mot": "di2pose.output.mot:as_mot",
    ".html": "di2pose.output.viewer:as_page",
    ".png": "di2pose.output.figure:as_figure",
    ".jpg": "di2pose.output.overlay:as_overlay",
}
"""File ending -> module:function of a Writer, imported when needed; the longest ending that fits a name is taken. A new
format is one line here."""
UPS, UPRIGHT_FILES = ("camera", "floor"), (".trc", ".c3d", ".bvh", ".mixamo.bvh", ".glb", ".html")
"""Choices of up, and the endings of the files that have one; all others are in camera axes."""
Files = dict[str, bytes]
"""File name -> content."""
Writer = Callable[[str, list["Result"], float | None], Files]
"""(file name, results, frames a second or None for a photo) -> one file, or one for each person."""


@dataclass(frozen=True, eq=False)
class Joint:
    """One joint of one person."""

    name: str
    xyz_mm: Float[np.ndarray, " 3"]
    """Relative to the person's pelvis, camera axes."""
    std_mm: float
    """Spread along an axis: sqrt(trace(covariance) / 3)."""
    r90_mm: float
    """Radius of the ball round `xyz_mm` that should hold the true joint in 90 % of cases."""
    state: str
    """'visible', 'occluded', 'out_of_frame' or 'pinned'."""


@dataclass(frozen=True, eq=False, repr=False)
class Person:
    """One person in one picture. The arrays are read-only."""

    joints_mm: Float[np.ndarray, "J 3"]
    """The estimate, relative to the pelvis, camera axes: a body with bones of the hypotheses' mean lengths, left and
    right alike, fitted to the 2D joints. `mean_mm` is the plain mean of the hypotheses."""
    samples_mm: Float[np.ndarray, "H J 3"]
    """The hypotheses, same frame: each a body with the same bones, fitted to the 2D joints."""
    covariance_mm2: Float[np.ndarray, "J 3 3"]
    """Calibrated covariance of the true joint, larger than that of the hypotheses."""
    r90_mm: Float[np.ndarray, " J"]
    state: np.ndarray
    """(J,) strings out of STATES."""
    joints_2d: Float[np.ndarray, "J 2"]
    """Pixels of the upright original; `joints_mm + root_mm` projects onto them."""
    box: tuple[float, float, float, float]
    """x0, y0, x1, y1 in pixels of the upright original."""
    root_mm: Float[np.ndarray, " 3"]
    """The pelvis in the camera frame."""
    score: float
    """Probability that this is a person at all, 0 to 1; 1 where the user drew the box."""
    root_std_mm: np.ndarray | None = None
    """(3,) standard deviation of `root_mm` along each axis, largest along the view; None where it is not known."""
    track: int | None = None
    """Number of the person in a video; None in a photo."""
    tokens: np.ndarray | None = None
    """(H, N) codes of the hypotheses, for `keep_tokens`; not written to files."""
    skeleton: Skeleton = H36M_17

    def __post_init__(self) -> None:
        count = self.skeleton.count
        samples = np.shape(self.samples_mm)
        shapes = {
            "joints_mm": (count, 3),
            "samples_mm": (samples[0] if samples else 0, count, 3),
            "covariance_mm2": (count, 3, 3),
            "r90_mm": (count,),
            "state": (count,),
            "joints_2d": (count, 2),
            "root_mm": (3,),
        }
        if self.root_std_mm is not None:
            shapes["root_std_mm"] = (3,)
        for name, shape in shapes.items():
            array = np.array(getattr(self, name))
            if name == "state":
                array = np.where(array == "seen", "visible", array)
            if array.shape != shape:
                raise InputError(f"a person of {self.skeleton.name} needs {name} of shape {shape}, got {array.shape}")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if wrong := sorted(set(self.state.tolist()) - set(STATES)):
            raise InputError(f"a joint's state is one of {', '.join(STATES)}, got {', '.join(map(repr, wrong))}")
        there = self.state != "unknown"
        for name in ("joints_mm", "covariance_mm2", "r90_mm"):
            if not np.isfinite(getattr(self, name)[there]).all():
                raise InputError(f"{name} of a person must be finite for every joint that is not 'unknown'")

    frame = "camera"
    """The axes of all coordinates; `camera.to_world` gives the world's."""

    def __repr__(self) -> str:
        track = "" if self.track is None else f", track {self.track}"
        return f"Person({len(self.state)} joints, {self.guessed.sum()} hidden, score {self.score:.2f}{track})"

    def __getitem__(self, name: str) -> Joint:
        j = self.skeleton.index(name)
        std, r90 = float(self.std_mm[j]), float(self.r90_mm[j])
        return Joint(name, self.joints_mm[j], std, r90, str(self.state[j]))

    @property
    def mean_mm(self) -> Float[np.ndarray, "J 3"]:
        """The plain mean of the hypotheses: as near to the truth, but its bones are too short where they disagree."""
        return np.asarray(self.samples_mm.mean(0))

    @property
    def std_mm(self) -> Float[np.ndarray, " J"]:
        """sqrt(trace(covariance) / 3) of every joint."""
        return np.sqrt(np.trace(self.covariance_mm2, axis1=1, axis2=2) / 3)

    @property
    def guessed(self) -> np.ndarray:
        """(J,) bool: the joints that were neither seen nor pinned."""
        return ~np.isin(self.state, KNOWN)

    @cached_property
    def angles(self) -> "Mapping[str, Angle]":
        """Joint angles by name, degrees, with 90 % interval and state: `angles["left_knee_flexion"]`, docs/guide.md"""
        from di2pose.output.angles import angles_of

        return angles_of(self)

    def convert(self, skeleton: str | Skeleton) -> "Person":
        """The person in another skeleton, by the meaning of each joint; still relative to the pelvis.

        Missing joints are built as means of others by the rules of `pose.skeleton`. Their covariance and r90 are the
        means of the parts' (for the covariance an upper bound, whatever the correlation), their state is the worst of
        the parts'. A joint that cannot be built is NaN and 'unknown'.
        """
        target = skeleton if isinstance(skeleton, Skeleton) else get(skeleton)
        # Conversion is linear: applied to unit vectors, it gives the weights of every part.
        units = np.repeat(np.eye(self.skeleton.count)[:, :, None], 2, axis=2)
        weights = convert(units, self.skeleton, target)[0][..., 0].T
        rank = np.array([STATES.index(state) for state in self.state.tolist()])
        worst = [int(rank[row > 0].max()) if np.isfinite(row).all() else len(STATES) - 1 for row in weights]
        return dataclasses.replace(
            self,
            joints_mm=convert(self.joints_mm, self.skeleton, target)[0],
            samples_mm=convert(self.samples_mm, self.skeleton, target)[0],
            joints_2d=convert(self.joints_2d, self.skeleton, target)[0],
            covariance_mm2=_mean(weights, self.covariance_mm2),
            r90_mm=_mean(weights, self.r90_mm),
            state=np.array([STATES[k] for k in worst]),
            skeleton=target,
        )


class _Saveable:
    """What Result and Motion share: `_frames` says which results they hold, at how many frames a second."""

    def _frames(self) -> tuple[list["Result"], float | None]:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """For notebooks: the repr and the overlay, of a video's middle frame."""
        from di2pose.output.viewer import notebook_html

        results, _ = self._frames()
        return notebook_html(repr(self), results[len(results) // 2])

    @cached_property
    def _floor_and_note(self) -> tuple[Floor | None, str]:
        return find_floor(list(walks_of(*self._frames()).values()))

    @property
    def floor(self) -> Floor | None:
        """The floor and up in camera axes, by the people's feet and posture; None where these do not say it."""
        return self._floor_and_note[0]

    @property
    def floor_note(self) -> str:
        """'floor: camera looks down by 12 +/- 3 degrees', or why there is none."""
        floor, reason = self._floor_and_note
        return f"no floor: {reason}" if floor is None else str(floor)

    def save(self, path: str | Path, up: str = "camera") -> list[Path]:
        """Write the file that the ending asks for (see WRITERS) and return the paths written.

        .trc, .c3d, .bvh, .glb and .mot hold one person: of several people each gets a file, `name_p0.trc`, ...
        up: "floor" turns the poses of UPRIGHT_FILES so that the floor is level and at height 0, where there is one
        """
        return write_files(Path(path).parent, self.to_files(Path(path).name, up))

    def to_files(self, name: str, up: str = "camera") -> Files:
        """What `save` would write under that name, in memory: contents by file name."""
        if up not in UPS:
            raise InputError(f"up must be one of {', '.join(UPS)}, got {up!r}")
        module, function = WRITERS[ending := ending_of(name)].split(":")
        writer: Writer = getattr(import_module(module), function)
        results, fps = self._frames()
        if up == "floor" and ending in UPRIGHT_FILES and self.floor is not None:
            results = [_upright(result, self.floor) for result in results]
        return writer(name, results, fps)

    def to_pandas(self) -> "pandas.DataFrame":
        """One row for each frame, person and joint, with the columns of the CSV file; needs the extra `pandas`."""
        from di2pose.output.tables import joint_records

        columns, rows = joint_records(*self._frames())
        return require("pandas", extra="pandas").DataFrame(rows, columns=columns)

    def show(self) -> Path:
        """Write the page to a temporary folder, open it in the browser, and return its path."""
        path = self.save(Path(tempfile.mkdtemp(prefix="di2pose-")) / "pose.html")[0]
        webbrowser.open(path.as_uri())
        return path


@dataclass(frozen=True, eq=False, repr=False)
class Result(_Saveable):
    """The people in one picture, and how the result was made."""

    image: str | None
    """Path of the photo, or of the video whose frame `frame_index` this is; None when pixels were given."""
    size: tuple[int, int]
    """Width and height of the upright picture in pixels."""
    camera: Camera
    people: Sequence[Person]
    seed: int
    steps: int
    hypotheses: int
    model: str
    version: str
    frame_index: int | None = None
    """Frame of the video, from 0; None for a photo."""
    time_s: float | None = None
    picture: Image.Image | None = None
    """Upright RGB pixels for pages and pictures, where pixels were given; None: they are read from `image` when
    needed. Not written to data files."""
    camera_source: str = ""
    """'given', 'field of view given', 'EXIF focal length (26 mm equivalent)' or 'assumed 60 degrees'; empty in files of
    older versions."""
    smoothing: str = ""
    """How the poses were smoothed over time; empty where they were not, and in files of older versions."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "people", tuple(self.people))
        if len({person.skeleton for person in self.people}) > 1:
            raise InputError("all people of a result must have the same skeleton: convert all of them, or none")

    def __repr__(self) -> str:
        name = [Path(self.image).name] if self.image else []
        frame = [] if self.frame_index is None else [f"frame {self.frame_index}"]
        return f"Result({', '.join([*name, *frame, '{}x{}'.format(*self.size), count_people(len(self.people))])})"

    def _frames(self) -> tuple[list["Result"], float | None]:
        return [self], None

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """Read a JSON file of `save`."""
        from di2pose.output.tables import read_json  # the output room imports this module

        results, _ = read_json(Path(path))
        if len(results) != 1:
            raise InputError(f"{path} holds {len(results)} frames of a video: read it with Motion.load")
        return results[0]


@dataclass(frozen=True, eq=False, repr=False)
class Motion(_Saveable):
    """The results of a video, in order."""

    results: Sequence[Result]
    """One for each frame, also where it has no people."""
    fps: float
    """Results a second."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "results", tuple(self.results))
        if not self.results or not 0 < self.fps < np.inf:
            raise InputError(f"a motion needs one frame or more and fps above 0, got {len(self.results)}, {self.fps}")
        for k, result in enumerate(self.results):
            tracks = [person.track for person in result.people]
            if None in tracks or len(set(tracks)) < len(tracks):
                raise InputError(f"frame {k} of a motion: every person needs a track number of their own, got {tracks}")

    def __repr__(self) -> str:
        name = [Path(self[0].image).name] if self[0].image else []
        frames = [f"{len(self)} frame{'s' * (len(self) != 1)}", f"{self.fps:g} a second"]
        return f"Motion({', '.join([*name, *frames, count_people(len(self.tracks))])})"

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, k: int) -> Result:
        return self.results[k]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    @property
    def tracks(self) -> tuple[int, ...]:
        """The people's numbers, ascending."""
        return tuple(sorted({p.track for result in self.results for p in result.people if p.track is not None}))

    def track(self, number: int) -> list[Person | None]:
        """One person through all frames; None where they were not found."""
        if number not in self.tracks:
            raise InputError(f"no track {number}; there are {', '.join(map(str, self.tracks)) or 'none'}")
        return [next((p for p in result.people if p.track == number), None) for result in self.results]

    def only(self, people: "Sequence[int] | str") -> "Motion":
        """Only these people, by track number; 'largest': the one with the largest median box."""
        if people == "largest":
            boxes = [np.array([p.box for p in self.track(one) if p is not None]) for one in self.tracks]
            areas = [np.median((box[:, 2:] - box[:, :2]).prod(1)) for box in boxes]
            people = [self.tracks[int(np.argmax(areas))]] if areas else []
        if missing := [one for one in people if one not in self.tracks]:
            there = ", ".join(map(str, self.tracks)) or "none"
            raise InputError(f"no person {missing[0]!r} in the video; there are {there}")
        kept = [[person for person in result.people if person.track in people] for result in self]
        return Motion([dataclasses.replace(r, people=p) for r, p in zip(self, kept, strict=True)], self.fps)

    def contact_shares(self) -> dict[int, dict[str, float]]:
        """Of every person with heels and toes: the share of their frames in which the left and the right foot are on
        the floor; empty without a floor."""
        floor = self.floor
        walks = {} if floor is None else walks_of(*self._frames())
        feet = {track: contacts(walk, floor) for track, walk in walks.items() if floor and walk.feet == FEET}
        return {
            track: {"left": float(each[:, :2].any(1).mean()), "right": float(each[:, 2:].any(1).mean())}
            for track, each in feet.items()
        }

    def _frames(self) -> tuple[list[Result], float | None]:
        return list(self.results), float(self.fps)

    @classmethod
    def load(cls, path: str | Path) -> "Motion":
        """Read a JSON file of `save`."""
        from di2pose.output.tables import read_json

        results, fps = read_json(Path(path))
        if fps is None:
            raise InputError(f"{path} holds a photo: read it with Result.load")
        return cls(results, fps)


def walks_of(results: Sequence[Result], fps: float | None = None) -> dict[int, Walk]:
    """Everybody's poses in their places, by number, in the order of the frames that have all their joints."""
    times = [result.time_s for result in results if result.time_s is not None]
    if len(times) < len(results) or not (np.diff(times) > 0).all():
        times = [k / (fps or 1.0) for k in range(len(results))]
    found: dict[int, list[tuple[float, Person]]] = {}
    for time_s, result in zip(times, results, strict=True):
        for number, person in numbered(result.people):
            if np.isfinite(person.joints_mm).all():
                found.setdefault(number, []).append((time_s, person))
    return {
        number: Walk(
            np.stack([person.joints_mm + person.root_mm for _, person in frames]),
            np.stack([person.std_mm for _, person in frames]),
            np.array([time_s for time_s, _ in frames]),
            frames[0][1].skeleton,
        )
        for number, frames in sorted(found.items())
    }


def _upright(result: Result, floor: Floor) -> Result:
    """The result with people in axes whose y is down and 0 on the floor, below the camera's place."""
    turn, people = floor.rotation, []
    for person in result.people:
        std = person.root_std_mm
        own = {"joints_mm": person.joints_mm @ turn.T, "samples_mm": person.samples_mm @ turn.T}
        own |= {"covariance_mm2": turn @ person.covariance_mm2 @ turn.T}
        own |= {"root_mm": turn @ person.root_mm - (0.0, floor.offset_mm, 0.0)}
        own |= {"root_std_mm": None if std is None else np.sqrt(turn**2 @ std**2)}
        people.append(dataclasses.replace(person, **own))
    return dataclasses.replace(result, people=people)


def ending_of(name: str) -> str:
    """The ending in WRITERS of a file's name."""
    plain = re.sub(r"\.jpeg$", ".jpg", re.sub(r"\.htm$", ".html", name.lower()))
    fitting = [ending for ending in WRITERS if plain.endswith(ending) and plain != ending]
    if not fitting:
        raise InputError(f"'{name}' must end in one of {' '.join(WRITERS)}: the ending says what is written")
    return max(fitting, key=len)


def numbered(people: Sequence[Person]) -> list[tuple[int, Person]]:
    """The people of a picture with their numbers: the track in a video, else the place in the list."""
    return [(place if person.track is None else person.track, person) for place, person in enumerate(people)]


def count_people(count: int) -> str:
    """'1 person', '2 people'."""
    return f"{count} {'person' if count == 1 else 'people'}"


def _mean(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Weighted sums over the first axis; NaN rows of weights stay NaN, and a NaN value reaches only its own joints."""
    out = np.full((len(weights), *values.shape[1:]), np.nan)
    for row in np.flatnonzero(np.isfinite(weights).all(1)):
        used = weights[row] > 0
        out[row] = np.tensordot(weights[row, used], values[used], axes=1)
    return out
