"""JSON, CSV, NPZ and the rows of a pandas table. The columns and keys are described in docs/files.md."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from di2pose.errors import InputError
from di2pose.files import Json, encoded, reading
from di2pose.files import read_json as read_json_file
from di2pose.output.angles import angles_json
from di2pose.output.framing import main_people
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, Skeleton
from di2pose.result import Files, Person, Result, numbered

FORMAT, FORMAT_VERSION = "di2pose.result", 1
UNITS = {"mm": "millimetres", "px": "pixels of the upright picture, from its top left corner", "s": "seconds"}
AXES = (
    "camera: x right, y down, z away from the camera; xyz_mm and samples_mm are relative to the pelvis, "
    "root_mm is the pelvis in the camera frame, and xyz_mm + root_mm projects onto uv_px"
)
DIGITS = 3
"""Decimals in JSON and CSV: micrometres and thousandths of a pixel. NPZ and pandas keep every bit."""
Cell = str | int | float
PERSON_COLUMNS = (
    "image", "frame", "time_s", "person", "score", "box_x0_px", "box_y0_px", "box_x1_px", "box_y1_px",
    "root_x_mm", "root_y_mm", "root_z_mm", "root_std_x_mm", "root_std_y_mm", "root_std_z_mm",
)  # fmt: skip
JOINT_COLUMNS = ("x_mm", "y_mm", "z_mm", "std_mm", "r90_mm", "state", "u_px", "v_px")


def as_json(name: str, results: list[Result], fps: float | None, wanted: int | None = None) -> Files:
    """One object; a line for each frame, so that a long file can still be looked at. `wanted`: about how many frames
    there would have been, where the run was stopped; then the file says that it is partial."""
    first, skeleton = results[0], _skeleton(results)
    head = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "units": UNITS,
        "axes": AXES,
        "skeleton": {"name": skeleton.name, "joints": skeleton.joints, "parents": skeleton.parents},
        "model": {"name": first.model, "version": first.version},
        "seed": first.seed,
        "steps": first.steps,
        "hypotheses": first.hypotheses,
        "fps": fps,
    }
    if wanted is not None:
        head |= {"partial": True, "frames_done": len(results), "frames_wanted": wanted}
    lines = [f"{json.dumps(key)}: {_dump(value)}" for key, value in head.items()]
    frames = ",\n".join(_dump(_frame(result)) for result in results)
    return {name: encoded("{" + ",\n".join(lines) + f',\n"frames": [\n{frames}\n]}}\n')}


def read_json(path: Path) -> tuple[list[Result], float | None]:
    """What `as_json` gave: the results and the rate, None for a photo."""
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
        joints, parents = ([_is(kind, each) for each in tree[key]] for key, kind in (("joints", str), ("parents", int)))
        skeleton = Skeleton(_is(str, tree["name"]), tuple(joints), tuple(parents))
        run = {key: _is(int, record[key]) for key in ("seed", "steps", "hypotheses")}
        run |= {key: _is(str, record["model"][name]) for key, name in (("model", "name"), ("version", "version"))}
        fps = None if record["fps"] is None else float(_is((int, float), record["fps"]))
        return [_read_frame(frame, skeleton, run) for frame in record["frames"]], fps


def moment(results: list[Result], fps: float | None, k: int) -> tuple[int, float]:
    """Number and seconds of frame k: as the video says, else by its place and the rate; 0 s for a photo."""
    number, time_s = results[k].frame_index, results[k].time_s
    return k if number is None else number, time_s if time_s is not None else k / fps if fps else 0.0


def person_rows(results: list[Result], fps: float | None) -> Iterator[tuple[list[Cell], dict[str, list[Cell]]]]:
    """For each frame and person the cells of PERSON_COLUMNS, and those of JOINT_COLUMNS by the name of the joint."""
    for k, result in enumerate(results):
        for number, person in numbered(result.people):
            about: list[Cell] = [result.image or "", *moment(results, fps, k), number]
            root_std = np.full(3, np.nan) if person.root_std_mm is None else person.root_std_mm
            about += [float(value) for value in (person.score, *person.box, *person.root_mm, *root_std)]
            joints: dict[str, list[Cell]] = {}
            for j, (name, std) in enumerate(zip(person.skeleton.joints, person.std_mm, strict=True)):
                joints[name] = [float(value) for value in (*person.joints_mm[j], std, person.r90_mm[j])]
                joints[name] += [str(person.state[j]), *(float(value) for value in person.joints_2d[j])]
            yield about, joints


def joint_records(results: list[Result], fps: float | None) -> tuple[list[str], list[list[Cell]]]:
    """Columns and rows of a long table: one row for each frame, person and joint."""
    rows = [[*about, name, *cells] for about, joints in person_rows(results, fps) for name, cells in joints.items()]
    return [*PERSON_COLUMNS, "joint", *JOINT_COLUMNS], rows


def as_csv(name: str, results: list[Result], fps: float | None) -> Files:
    """One row for each frame and person."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    joints = _skeleton(results).joints
    table.writerow([*PERSON_COLUMNS, *(f"{joint}_{part}" for joint in joints for part in JOINT_COLUMNS)])
    for (image, frame, time_s, *about), cells in person_rows(results, fps):
        numbers = [*about, *(cell for joint in cells.values() for cell in joint)]
        table.writerow([image, frame, _cell(time_s, 6), *(_cell(value, DIGITS) for value in numbers)])
    return {name: encoded(text.getvalue())}


def as_npz(name: str, results: list[Result], fps: float | None) -> Files:
    """One row for each frame and person in every array; text about the run as one JSON string, `meta`."""
    skeleton = _skeleton(results)
    rows = [(k, number, p) for k, result in enumerate(results) for number, p in numbered(result.people)]
    moments, people = [moment(results, fps, k) for k, _, _ in rows], [person for _, _, person in rows]
    most, count = max((len(person.samples_mm) for person in people), default=0), len(rows)
    arrays: dict[str, np.ndarray] = {
        "frame": np.array([frame for frame, _ in moments], np.int64),
        "time_s": np.array([time_s for _, time_s in moments], np.float64),
        "person": np.array([number for _, number, _ in rows], np.int64),
        "samples_mm": np.full((count, most, skeleton.count, 3), np.nan),
        "joints": np.array(skeleton.joints),
        "parents": np.array(skeleton.parents),
        "state": np.array([person.state for person in people], dtype="U12").reshape(count, skeleton.count),
    }
    for row, person in enumerate(people):
        arrays["samples_mm"][row, : len(person.samples_mm)] = person.samples_mm
    shapes: dict[str, tuple[int, ...]] = {"joints_mm": (skeleton.count, 3), "covariance_mm2": (skeleton.count, 3, 3)}
    shapes |= {"std_mm": (skeleton.count,), "r90_mm": (skeleton.count,), "joints_2d": (skeleton.count, 2)}
    shapes |= {"mean_mm": (skeleton.count, 3), "root_mm": (3,), "root_std_mm": (3,), "box": (4,), "score": ()}
    for part, shape in shapes.items():
        told = [getattr(person, part) for person in people]
        rows_of = [np.full(shape, np.nan) if each is None else each for each in told]
        arrays[part] = np.array(rows_of, np.float64).reshape(count, *shape)
    first = results[0]
    meta = {"format": FORMAT, "format_version": FORMAT_VERSION, "units": UNITS, "axes": AXES, "fps": fps}
    meta |= {"model": first.model, "version": first.version, "seed": first.seed, "steps": first.steps}
    meta |= {"skeleton": skeleton.name, "image": first.image, "size": first.size, "camera": first.camera.to_json()}
    meta |= {"camera_source": first.camera_source}
    arrays["meta"] = np.array(json.dumps(meta))
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return {name: file.getvalue()}


def _frame(result: Result) -> dict[str, object]:
    return {
        "image": result.image,
        "size_px": result.size,
        "camera": result.camera.to_json(),
        "camera_source": result.camera_source,
        "frame_index": result.frame_index,
        "time_s": result.time_s,
        "people": [_person(*each) for each in zip(result.people, main_people(result.people), strict=True)],
    }


def _person(person: Person, main: bool) -> dict[str, object]:
    std = person.std_mm
    joints = {
        name: {
            "xyz_mm": plain(person.joints_mm[j]),
            "std_mm": plain(std[j]),
            "r90_mm": plain(person.r90_mm[j]),
            "state": str(person.state[j]),
            "uv_px": plain(person.joints_2d[j]),
            "covariance_mm2": plain(person.covariance_mm2[j]),
        }
        for j, name in enumerate(person.skeleton.joints)
    }
    return {
        "track": person.track,
        "score": plain(person.score),
        "box_px": plain(person.box),
        "main": main,
        "root_mm": plain(person.root_mm),
        "root_std_mm": None if person.root_std_mm is None else plain(person.root_std_mm),
        "joints": joints,
        "angles": angles_json(person),
        "samples_mm": plain(person.samples_mm),
    }


def _read_frame(record: Json, skeleton: Skeleton, run: Json) -> Result:
    return Result(
        image=_is((str, NoneType), record["image"]),
        size=(int(record["size_px"][0]), int(record["size_px"][1])),
        camera=Camera.from_json(record["camera"]),
        camera_source=str(record.get("camera_source", "")),  # older files have none
        people=[_read_person(person, skeleton) for person in record["people"]],
        frame_index=_is((int, NoneType), record["frame_index"]),
        time_s=_is((int, float, NoneType), record["time_s"]),
        **run,
    )


def _read_person(record: Json, skeleton: Skeleton) -> Person:
    joints = [record["joints"][name] for name in skeleton.joints]
    column = {key: np.array([joint[key] for joint in joints], np.float64) for key in ("xyz_mm", "r90_mm", "uv_px")}
    x0, y0, x1, y1 = (float(value) for value in record["box_px"])
    std = record.get("root_std_mm")  # older files have none
    return Person(
        joints_mm=column["xyz_mm"],
        samples_mm=np.array(record["samples_mm"], np.float64).reshape(-1, skeleton.count, 3),
        covariance_mm2=np.array([joint["covariance_mm2"] for joint in joints], np.float64),
        r90_mm=column["r90_mm"],
        state=np.array([joint["state"] for joint in joints]),
        joints_2d=column["uv_px"],
        box=(x0, y0, x1, y1),
        root_mm=np.array(record["root_mm"], np.float64),
        root_std_mm=None if std is None else np.array(std, np.float64),
        score=float(record["score"]),
        track=_is((int, NoneType), record["track"]),
        skeleton=skeleton,
    )


def _is(kind: type | tuple[type, ...], value: Any) -> Any:
    """The value, if it is of that kind; true and false are no numbers."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{value!r:.80} stands where something else must")
    return value


def _skeleton(results: list[Result]) -> Skeleton:
    found = {person.skeleton for result in results for person in result.people} or {H36M_17}
    if len(found) > 1:
        raise InputError("a file holds one skeleton: convert all people, or none")
    return found.pop()


def plain(values: np.ndarray | tuple[float, ...] | float, digits: int = DIGITS) -> object:
    """Nested lists of rounded numbers, None for what is not a number: JSON has no NaN."""
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
