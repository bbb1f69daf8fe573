"""2D keypoints of other programs, from arrays and files: COCO's 17 joints of every person.  P people, J joints.

Pixels of the upright picture. A joint that is missing has score 0 and NaN for x and y; scores are cut at 1.
"""

import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from di2pose import files
from di2pose.errors import InputError
from di2pose.pose.skeleton import BLAZEPOSE_33, BODY_25, COCO_17, COCO_18, HALPE_26, MPII_16, Skeleton, same_points
from di2pose.pose.skeleton import get as get_skeleton

BY_COUNT = {each.count: each for each in (COCO_17, COCO_18, BODY_25, HALPE_26, MPII_16, BLAZEPOSE_33)}
"""The skeleton of a file that names none, by its number of joints."""
LONGER = {133: COCO_17, 136: HALPE_26}
"""Whole-body sets (COCO-WholeBody, Halpe) whose first joints are these."""
ADVICE = (
    "expected OpenPose's JSON (a file or a folder of them), COCO results or annotations, AlphaPose's or MMPose's JSON, "
    "a result of di2pose, or .npy / .npz with keypoints (people, joints, 3)"
)
MOST_MISSING = 10_000
"""Frames in a row; larger steps of a number are no gap in a video."""
WITHIN_ONE = 1.5
"""Coordinates up to here are shares of the picture, with some beyond its border."""
Raw = tuple[str | None, list[Any]]
"""A picture's name, and its people as arrays (J, 3)."""


@dataclass(frozen=True)
class PictureKeypoints:
    """The people of one picture."""

    name: str | None
    """File name of the picture, or of the file that holds its keypoints; None: known by its place alone."""
    people: Float[np.ndarray, "P 17 3"]


def parse_keypoints(values: Any, what: str = "keypoints") -> Float[np.ndarray, "P 17 3"]:
    """The user's array of one picture: (P, 17, 3), or (17, 3) of one person; x, y in pixels and score, COCO order.
    Without scores (P, 17, 2) every finite joint counts as sure."""
    return _to_coco(_people(values, what), COCO_17, what)


def coco_of(joints: Float[np.ndarray, "P J 3"], what: str) -> Float[np.ndarray, "P 17 3"]:
    """COCO's joints of people whose skeleton is known by its number of joints; what follows in whole-body sets is left
    out."""
    tree = _by_count(joints.shape[1], what)
    return _to_coco(joints[:, : tree.count], tree, what)


def read_keypoints(path: Path, skeleton: str | None = None) -> list[PictureKeypoints]:
    """The pictures of a file, or of a folder of OpenPose files in the order of their frame numbers. `skeleton` names
    the joints' order; None: by the file, or by the number of joints."""
    chosen = None if skeleton is None else get_skeleton(skeleton)
    if path.is_dir():
        found = sorted(path.glob("*.json"), key=_frame_number)
        if not found:
            raise InputError(f"{path} holds no .json file: {ADVICE}")
        return [picture for file in found for picture in _read_file(file, chosen)]
    return _read_file(path, chosen)


def match_pictures(
    found: Sequence[PictureKeypoints], pictures: Sequence[Any], source: object
) -> list[Float[np.ndarray, "P 17 3"]]:
    """The people of each picture: by its file name, with or without ending, where the source has names, else by order.
    A picture that is not among the names shows nobody; without names there must be as many as pictures."""
    names = [Path(each).name if isinstance(each, str | Path) else "" for each in pictures]
    by_name = {key: each.people for each in found if each.name for key in (Path(each.name).stem, each.name)}
    matched = [by_name.get(name, by_name.get(Path(name).stem)) for name in names]
    if any(each is not None for each in matched):
        return [np.zeros((0, COCO_17.count, 3)) if each is None else each for each in matched]
    if len(found) != len(pictures):
        raise InputError(
            f"{source} has keypoints of {len(found)} pictures, none of which has the name of one of the "
            f"{len(pictures)} given ({', '.join(names[:3])})"
        )
    return [each.people for each in found]


def people_in(found: Sequence[PictureKeypoints], picture: Path, source: object) -> Float[np.ndarray, "P 17 3"]:
    """The people of one of many pictures: by its file name, with or without ending, where the source has names; a
    picture that is not among them shows nobody. Without names the source must hold one picture."""
    names = {key: each.people for each in found if each.name for key in (Path(each.name).stem, each.name)}
    if not names and len(found) != 1:
        raise InputError(f"{source} holds {len(found)} pictures without names: name them, or give one file a picture")
    if not names:
        return found[0].people
    return names.get(picture.name, names.get(picture.stem, np.zeros((0, COCO_17.count, 3))))


def filled_frames(found: Sequence[PictureKeypoints]) -> list[PictureKeypoints]:
    """The frames of a video in the order of the numbers in their names, with the missing ones as frames without people:
    files of COCO and AlphaPose list people, not frames. Unchanged where the numbers do not mostly count one by one."""
    numbers = [_frame_number(Path(each.name or "")) for each in found]
    by_number = {number: each for (_, number, _), each in sorted(zip(numbers, found, strict=True), key=lambda e: e[0])}
    steps = np.diff(list(by_number))
    uneven = not len(steps) or np.median(steps) != 1 or steps.max() > MOST_MISSING or -1 in by_number
    if uneven or len(by_number) < len(found) or len({prefix for prefix, _, _ in numbers}) > 1:
        return list(found)
    nobody = PictureKeypoints(None, np.zeros((0, COCO_17.count, 3)))
    return [by_number.get(number, nobody) for number in range(min(by_number), max(by_number) + 1)]


def _read_file(path: Path, skeleton: Skeleton | None) -> list[PictureKeypoints]:
    if path.suffix.lower() in (".npy", ".npz"):
        with files.reading(path, ADVICE):
            pictures, own = _numpy_pictures(path)
    else:
        content = files.read_json(path, ADVICE)
        with files.reading(path, ADVICE):
            pictures, own = _json_pictures(content, path)
    found = []
    for number, (name, people) in enumerate(pictures):
        what = f"{path}, picture {name or number}"
        with files.reading(what, ADVICE):
            if not len(people):
                found.append(PictureKeypoints(name, np.zeros((0, 17, 3))))
                continue
            joints = _people(people, what)
            tree = skeleton or own
            found.append(PictureKeypoints(name, _to_coco(joints, tree, what) if tree else coco_of(joints, what)))
    return found


def _json_pictures(content: Any, path: Path) -> tuple[list[Raw], Skeleton | None]:
    """The pictures of a JSON file by the shape of its content, and the skeleton where the file names it."""
    if isinstance(content, dict):
        if content.get("format") == "di2pose.result":
            return _own_pictures(content)
        if "people" in content:  # OpenPose: a file a frame
            name = re.sub(r"_keypoints$", "", path.stem)
            return [(name, [_triples(each["pose_keypoints_2d"]) for each in content["people"]])], None
        if "annotations" in content:  # COCO's labels: visibility 0 is missing, 1 and 2 are labelled
            names = {image["id"]: image["file_name"] for image in content.get("images", [])}
            return _grouped(content["annotations"], lambda each: names.get(each["image_id"], each["image_id"])), None
        if "instance_info" in content:  # MMPose
            content = content["instance_info"]
        elif "keypoints" in content:  # rtmlib's arrays of one picture
            return [(content.get("image"), _scored(content))], None
    if not isinstance(content, list):
        raise InputError(f"{path}: {ADVICE}")
    if not content:
        return [], None
    first = content[0]
    if "instances" in first:  # MMPose, a video
        return [(None, [joints for each in frame["instances"] for joints in _scored(each)]) for frame in content], None
    if "image_id" in first:  # COCO results, AlphaPose
        return _grouped(content, lambda each: each["image_id"]), None
    if "keypoint_scores" in first:  # MMPose, one picture
        return [(None, [joints for each in content for joints in _scored(each)])], None
    if "keypoints" in first:  # rtmlib's arrays, one entry a picture
        return [(each.get("image"), _scored(each)) for each in content], None
    raise InputError(f"{path}: {ADVICE}")


def _own_pictures(content: Any) -> tuple[list[Raw], Skeleton]:
    tree = content["skeleton"]
    skeleton = Skeleton(tree["name"], tuple(tree["joints"]), tuple(tree["parents"]))
    pictures: list[Raw] = []
    for frame in content["frames"]:
        joints = [[person["joints"][name] for name in skeleton.joints] for person in frame["people"]]
        people = [[[*joint["uv_px"], float(joint["state"] != "out_of_frame")] for joint in each] for each in joints]
        pictures.append((frame["image"] and Path(frame["image"]).name, people))
    return pictures, skeleton


def _numpy_pictures(path: Path) -> tuple[list[Raw], Skeleton | None]:
    """(P, J, 3) of one picture or (pictures, P, J, 3); of an .npz `keypoints`, and `scores` where they are apart."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            parts = {"keypoints": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error
    values = parts["keypoints"]
    if "scores" in parts:
        values = np.concatenate([values[..., :2], parts["scores"].reshape(*values.shape[:-1], 1)], -1)
    skeleton = get_skeleton(str(parts["skeleton"])) if "skeleton" in parts else None
    names: list[str | None] = [str(name) for name in parts.get("names", ())]
    if values.ndim not in (2, 3, 4):
        raise InputError(
            f"{path}: keypoints must be (joints, 3), (people, joints, 3) or (pictures, people, joints, 3), "
            f"got {values.shape}"
        )
    values = values[None] if values.ndim == 2 else values
    pictures = values if values.ndim == 4 else values[None]
    # Pictures with fewer people are filled up with NaN or zeros.
    kept = [[person for person in each if np.nan_to_num(person).any()] for each in pictures]
    return list(zip(names or [None] * len(kept), kept, strict=True)), skeleton


def _grouped(entries: Iterable[Any], name: Callable[[Any], object]) -> list[Raw]:
    """One entry a person -> one a picture, in the order of their first entries."""
    found: dict[str, list[Any]] = {}
    for each in entries:
        if each.get("keypoints"):
            found.setdefault(str(name(each)), []).append(_triples(each["keypoints"]))
    return list(found.items())


def _triples(flat: Sequence[float]) -> list[Any]:
    return np.asarray(flat, np.float64).reshape(-1, 3).tolist()


def _scored(entry: Any) -> list[Any]:
    """People (J, 3) of an entry with `keypoints` of one person or of several, and their scores apart."""
    joints = np.asarray(entry["keypoints"], np.float64)
    scores = np.asarray(entry.get("keypoint_scores", entry.get("scores", np.ones(joints.shape[:-1]))), np.float64)
    whole = np.concatenate([joints[..., :2], scores.reshape(*joints.shape[:-1], 1)], -1)
    return list(whole if whole.ndim == 3 else whole[None])


def _people(values: Any, what: str) -> Float[np.ndarray, "P J 3"]:
    try:
        joints = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be numbers, (people, joints, 3), with as many joints for everybody") from error
    joints = joints[None] if joints.ndim == 2 else joints
    if joints.ndim != 3 or joints.shape[2] not in (2, 3):
        raise InputError(f"{what} must have shape (people, joints, 3): x, y in pixels and score; got {joints.shape}")
    if joints.shape[2] == 2:
        joints = np.concatenate([joints, np.isfinite(joints).all(-1, keepdims=True)], -1)
    return joints


def _to_coco(joints: Float[np.ndarray, "P J 3"], skeleton: Skeleton, what: str) -> Float[np.ndarray, "P 17 3"]:
    """COCO's joints by name; those that the skeleton does not have are missing."""
    if joints.shape[1] != skeleton.count:
        raise InputError(f"{what}: {skeleton.name} has {skeleton.count} joints, got {joints.shape[1]}")
    found = np.full((len(joints), COCO_17.count, 3), np.nan)
    source, target = same_points(skeleton, COCO_17)
    found[:, target] = joints[:, source]
    score = np.nan_to_num(found[..., 2], nan=0.0, posinf=1.0).clip(0, 1)
    score[~np.isfinite(found[..., :2]).all(-1)] = 0
    if (far := (score > 0) & (np.abs(found[..., :2]) > 1e6).any(-1)).any():
        person, joint = (int(each[0]) for each in np.nonzero(far))
        raise InputError(f"{what}, person {person}, {COCO_17.joints[joint]}: {found[person, joint, :2]} are no pixels")
    if (score > 0).sum() > 2 and np.abs(found[score > 0, :2]).max() <= WITHIN_ONE:
        raise InputError(f"{what} must be pixels, these are shares of the picture: multiply by width and height")
    found[score == 0] = np.nan
    found[..., 2] = score
    return found


def _by_count(count: int, what: str) -> Skeleton:
    known = BY_COUNT | LONGER
    if count not in known:
        each = ", ".join(f"{n} ({tree.name})" for n, tree in sorted(known.items()))
        raise InputError(f"{what}: people of {count} joints; known are {each}. Name the skeleton otherwise")
    return known[count]


def _frame_number(path: Path) -> tuple[str, int, str]:
    """Frames by number: walk_9_keypoints before walk_10_keypoints."""
    match = re.search(r"(\d+)(?:_keypoints)?$", path.stem)
    return (path.stem[: match.start()], int(match[1]), path.stem) if match else (path.stem, -1, path.stem)
