"""JSON, CSV, the CSV of joint angles, NPZ and the rows of a pandas table. See docs/guide.md."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from di2pose.errors import InputError
from di2pose.files import Json, encoded, reading
from di2pose.files import read_json as read_json_file
from di2pose.output.angles import angles_json
from di2pose.pose.angles import angle_names
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, Skeleton
from di2pose.result import Files, Motion, Person, Result, numbered

FORMAT, FORMAT_VERSION = "di2pose.result", 1
UNITS = {"mm": "millimetres", "px": "pixels of the upright picture, from its top left corner", "s": "seconds"}
AXES = (
    "camera: x right, y down, z away from the camera; xyz_mm and samples_mm are relative to the pelvis, "
    "root_mm is the pelvis in the camera frame, and xyz_mm + root_mm projects onto uv_px; floor.up . p + "
    "floor.offset_mm is the height of a point p of the camera frame above the floor"
)
DIGITS = 3
"""Decimals in JSON and CSV: micrometres and thousandths of a pixel. NPZ and pandas keep every bit."""
Cell = str | int | float
PERSON_COLUMNS = (
    "image", "frame", "time_s", "person", "score", "box_x0_px", "box_y0_px", "box_x1_px", "box_y1_px",
    "root_x_mm", "root_y_mm", "root_z_mm", "root_std_x_mm", "root_std_y_mm", "root_std_z_mm",
)  # fmt: skip
JOINT_COLUMNS = ("x_mm", "y_mm", "z_mm", "std_mm", "r90_mm", "state", "u_px", "v_px")
JOINT_FIELDS = {
    "xyz_mm": "joints_mm", "std_mm": "std_mm", "r90_mm": "r90_mm", "state": "state", "uv_px": "joints_2d",
    "covariance_mm2": "covariance_mm2",
}  # fmt: skip
"""Key of a joint in JSON -> field of Person."""
ANGLE_COLUMNS = ("deg", "low_deg", "high_deg", "state")
"""Of each angle in the CSV of angles, in the order of the fields of `Angle`."""
RUN = ("seed", "steps", "hypotheses")
SMALL, FAR = 0.35, 2.0
"""Limits of `main_people`, relative to the person with the largest box: longer side of the box, distance of the
pelvis. Both must be passed, so that people who are near but mostly hidden, or behind a close-up, stay main."""


def frame_and_time(results: list[Result], fps: float | None, k: int) -> tuple[int, float]:
    """Number and seconds of frame k: the video's, else by place and rate; 0 s for a photo."""
    number, time_s = results[k].frame_index, results[k].time_s
    return k if number is None else number, time_s if time_s is not None else k / fps if fps else 0.0


def skeleton_of(results: list[Result]) -> Skeleton:
    """The one skeleton of all people; H36M_17 where there are none."""
    found = {person.skeleton for result in results for person in result.people} or {H36M_17}
    if len(found) > 1:
        raise InputError("a file holds one skeleton: convert all people, or none")
    return found.pop()


def main_people(people: Sequence[Person]) -> list[bool]:
    """Which people the figure and the 3D view are framed round: all but those who are both small and far away."""
    sides = [max(person.box[2] - person.box[0], person.box[3] - person.box[1]) for person in people]
    if not people:
        return []
    largest = sides.index(max(sides))
    farthest = FAR * float(people[largest].root_mm[2])
    return [
        side >= SMALL * sides[largest] or float(person.root_mm[2]) <= farthest
        for side, person in zip(sides, people, strict=True)
    ]


def about(first: Result, fps: float | None = None, **more: object) -> Json:
    """How a file's results were made, from any of them."""
    run = {key: getattr(first, key) for key in RUN}
    made = {"model": {"name": first.model, "version": first.version}, **run, "fps": fps}
    return {"format": FORMAT, "format_version": FORMAT_VERSION, "units": UNITS, "axes": AXES, **more, **made}


def as_json(name: str, results: list[Result], fps: float | None, wanted: int | None = None) -> Files:
    """One object with a line for each frame. `wanted`: the expected number of frames of a run that was stopped; the
    file then says that it is partial."""
    tree = skeleton_of(results)
    head = about(results[0], fps, skeleton={"name": tree.name, "joints": tree.joints, "parents": tree.parents})
    whole = results[0] if fps is None else Motion(results, fps)
    floor = whole.floor
    head |= {"floor": None if floor is None else floor.to_json(), "floor_note": whole.floor_note}
    if isinstance(whole, Motion):
        head["contact_shares"] = {
            str(track): {side: round(share, 3) for side, share in each.items()}
            for track, each in whole.contact_shares().items()
        }
    if wanted is not None:
        head |= {"partial": True, "frames_done": len(results), "frames_wanted": wanted}
    lines = [f"{json.dumps(key)}: {_dump(value)}" for key, value in head.items()]
    frames = ",\n".join(_dump(_frame(result)) for result in results)
    return {name: encoded("{" + ",\n".join(lines) + f',\n"frames": [\n{frames}\n]}}\n')}


def _frame(result: Result) -> Json:
    return {
        "image": result.image,
        "size_px": result.size,
        "camera": result.camera.to_json(),
        "camera_source": result.camera_source,
        "frame_index": result.frame_index,
        "time_s": result.time_s,
        "smoothing": result.smoothing,
        "people": [_person(*each) for each in zip(result.people, main_people(result.people), strict=True)],
    }


def _person(person: Person, main: bool) -> Json:
    columns = {key: getattr(person, field) for key, field in JOINT_FIELDS.items()}
    lists = {key: value.tolist() if key == "state" else plain(value) for key, value in columns.items()}
    return {
        "track": person.track,
        "score": plain(person.score),
        "box_px": plain(person.box),
        "main": main,
        "root_mm": plain(person.root_mm),
        "root_std_mm": None if person.root_std_mm is None else plain(person.root_std_mm),
        "joints": {name: {key: lists[key][j] for key in lists} for j, name in enumerate(person.skeleton.joints)},
        "angles": angles_json(person),
        "samples_mm": plain(person.samples_mm),
    }


def read_json(path: Path) -> tuple[list[Result], float | None]:
    """The results in a file of `as_json`, and the frame rate; None for a photo."""
    record = read_json_file(path, "it must be what `result.save` wrote; save or copy it again")
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f'{path} is not a result of this program: "format" must be "{FORMAT}"')
    if record.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {record.get('format_version')}, this program reads {FORMAT_VERSION}: "
            "use the di2pose that wrote it, or a newer one"
        )
    with reading(path, "save or copy it again"):
        tree = record["skeleton"]
        skeleton = Skeleton(str(tree["name"]), tuple(map(str, tree["joints"])), tuple(map(int, tree["parents"])))
        run: Json = {key: int(record[key]) for key in RUN}
        run |= {"model": str(record["model"]["name"]), "version": str(record["model"]["version"])}
        fps = None if record["fps"] is None else float(record["fps"])
        return [_read_frame(frame, skeleton, run) for frame in record["frames"]], fps


def _read_frame(record: Json, skeleton: Skeleton, run: Json) -> Result:
    return Result(
        image=None if record["image"] is None else str(record["image"]),
        size=(int(record["size_px"][0]), int(record["size_px"][1])),
        camera=Camera.from_json(record["camera"]),
        camera_source=str(record.get("camera_source", "")),  # older files have none
        smoothing=str(record.get("smoothing", "")),
        people=[_read_person(person, skeleton) for person in record["people"]],
        frame_index=None if record["frame_index"] is None else int(record["frame_index"]),
        time_s=None if record["time_s"] is None else float(record["time_s"]),
        **run,
    )


def _read_person(record: Json, skeleton: Skeleton) -> Person:
    joints = [record["joints"][name] for name in skeleton.joints]
    fields: Json = {
        field: np.array([joint[key] for joint in joints], np.str_ if key == "state" else np.float64)
        for key, field in JOINT_FIELDS.items()
        if key != "std_mm"  # follows from the covariance
    }
    x0, y0, x1, y1 = (float(value) for value in record["box_px"])
    std = record.get("root_std_mm")  # older files have none
    return Person(
        samples_mm=np.array(record["samples_mm"], np.float64).reshape(-1, skeleton.count, 3),
        box=(x0, y0, x1, y1),
        root_mm=np.array(record["root_mm"], np.float64),
        root_std_mm=None if std is None else np.array(std, np.float64),
        score=float(record["score"]),
        track=None if record["track"] is None else int(record["track"]),
        skeleton=skeleton,
        **fields,
    )


def person_rows(results: list[Result], fps: float | None) -> Iterator[tuple[list[Cell], dict[str, list[Cell]]]]:
    """For each frame and person the cells of PERSON_COLUMNS, and those of JOINT_COLUMNS by joint name."""
    for k, result in enumerate(results):
        for number, person in numbered(result.people):
            root_std = np.full(3, np.nan) if person.root_std_mm is None else person.root_std_mm
            numbers = map(float, (person.score, *person.box, *person.root_mm, *root_std))
            about: list[Cell] = [result.image or "", *frame_and_time(results, fps, k), number, *numbers]
            joints: dict[str, list[Cell]] = {}
            for j, (name, std) in enumerate(zip(person.skeleton.joints, person.std_mm, strict=True)):
                joints[name] = [float(value) for value in (*person.joints_mm[j], std, person.r90_mm[j])]
                joints[name] += [str(person.state[j]), *map(float, person.joints_2d[j])]
            yield about, joints


def joint_records(results: list[Result], fps: float | None) -> tuple[list[str], list[list[Cell]]]:
    """Columns and rows of a long table: one row for each frame, person and joint."""
    rows = [[*about, name, *cells] for about, joints in person_rows(results, fps) for name, cells in joints.items()]
    return [*PERSON_COLUMNS, "joint", *JOINT_COLUMNS], rows


def as_csv(name: str, results: list[Result], fps: float | None) -> Files:
    """One row for each frame and person."""
    header = [f"{joint}_{part}" for joint in skeleton_of(results).joints for part in JOINT_COLUMNS]
    rows = []
    for (image, frame, time_s, *about), joints in person_rows(results, fps):
        numbers = [*about, *(cell for cells in joints.values() for cell in cells)]
        rows.append([image, frame, _cell(time_s, 6), *(_cell(value, DIGITS) for value in numbers)])
    return {name: _csv([*PERSON_COLUMNS, *header], rows)}


def as_angles(name: str, results: list[Result], fps: float | None) -> Files:
    """Joint angles, one row for each frame and person; an empty cell where an angle is open."""
    header = [f"{angle}_{part}" for angle in angle_names(skeleton_of(results)) for part in ANGLE_COLUMNS]
    rows: list[list[object]] = []
    for k, result in enumerate(results):
        frame, time_s = frame_and_time(results, fps, k)
        for number, person in numbered(result.people):
            cells = [cell for angle in angles_json(person).values() for cell in angle.values()]
            about = [result.image or "", frame, round(time_s, 6), number]
            rows.append([*about, *("" if cell is None else cell for cell in cells)])
    return {name: _csv(["image", "frame", "time_s", "person", *header], rows)}


def _csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return encoded(text.getvalue())


def as_npz(name: str, results: list[Result], fps: float | None) -> Files:
    """One row for each frame and person in every array; how they were made as a JSON string, `meta`."""
    skeleton, first = skeleton_of(results), results[0]
    rows = [(frame_and_time(results, fps, k), *each) for k, one in enumerate(results) for each in numbered(one.people)]
    people, count, joints = [person for _, _, person in rows], len(rows), skeleton.count
    arrays: dict[str, np.ndarray] = {
        "frame": np.array([frame for (frame, _), _, _ in rows], np.int64),
        "time_s": np.array([time_s for (_, time_s), _, _ in rows], np.float64),
        "person": np.array([number for _, number, _ in rows], np.int64),
        "samples_mm": np.full((count, max((len(p.samples_mm) for p in people), default=0), joints, 3), np.nan),
        "joints": np.array(skeleton.joints),
        "parents": np.array(skeleton.parents),
        "state": np.array([person.state for person in people], dtype="U12").reshape(count, joints),
    }
    for row, person in enumerate(people):
        arrays["samples_mm"][row, : len(person.samples_mm)] = person.samples_mm
    shapes: dict[str, tuple[int, ...]] = {
        "joints_mm": (joints, 3), "covariance_mm2": (joints, 3, 3), "std_mm": (joints,), "r90_mm": (joints,),
        "joints_2d": (joints, 2), "mean_mm": (joints, 3), "root_mm": (3,), "root_std_mm": (3,), "box": (4,),
        "score": (),
    }  # fmt: skip
    for part, shape in shapes.items():
        values = [getattr(person, part) for person in people]
        filled = [np.full(shape, np.nan) if value is None else value for value in values]
        arrays[part] = np.array(filled, np.float64).reshape(count, *shape)
    meta = {"format": FORMAT, "format_version": FORMAT_VERSION, "units": UNITS, "axes": AXES, "fps": fps}
    meta |= {"model": first.model, "version": first.version, "seed": first.seed, "steps": first.steps}
    meta |= {"skeleton": skeleton.name, "image": first.image, "size": first.size, "camera": first.camera.to_json()}
    arrays["meta"] = np.array(json.dumps(meta | {"camera_source": first.camera_source}))
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return {name: file.getvalue()}


def plain(values: np.ndarray | tuple[float, ...] | float, digits: int = DIGITS) -> Any:
    """Nested lists of rounded numbers; None for NaN, which JSON does not have."""
    array = np.asarray(values, np.float64)
    if array.ndim:
        return [plain(value, digits) for value in array]
    return round(float(array), digits or None) if np.isfinite(array) else None


def _cell(value: Cell, digits: int) -> Cell:
    if not isinstance(value, float):
        return value
    return round(value, digits) if np.isfinite(value) else ""


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
