"""JSON, CSV and NPZ. The columns and keys are described in docs/files.md."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from di2pose.errors import InputError
from di2pose.files import replacing, write_bytes
from di2pose.output.timeline import moment
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17, Skeleton
from di2pose.result import Person, Result

FORMAT, FORMAT_VERSION = "di2pose.result", 1
UNITS = {"mm": "millimetres", "px": "pixels of the upright picture, from its top left corner", "s": "seconds"}
AXES = (
    "camera: x right, y down, z away from the camera; xyz_mm and samples_mm are relative to the pelvis, "
    "root_mm is the pelvis in the camera frame, and xyz_mm + root_mm projects onto uv_px"
)
DIGITS = 3
"""Decimals in JSON and CSV: micrometres and thousandths of a pixel. NPZ keeps every bit."""


def write_json(path: Path, results: list[Result], fps: float | None) -> list[Path]:
    """One object; a line for each frame, so that a long file can still be looked at."""
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
    lines = [f"{json.dumps(key)}: {_dump(value)}" for key, value in head.items()]
    frames = ",\n".join(_dump(_frame(result)) for result in results)
    return [write_bytes(path, ("{" + ",\n".join(lines) + f',\n"frames": [\n{frames}\n]}}\n').encode())]


def read_json(path: Path) -> tuple[list[Result], float | None]:
    """What `write_json` wrote: the results and the rate, None for a photo."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}): the file is damaged or not a result") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f'{path} is not a result of this program: "format" must be "{FORMAT}"')
    if record.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {record.get('format_version')}, this program reads {FORMAT_VERSION}: "
            "use the di2pose that wrote it, or a newer one"
        )
    try:
        tree = record["skeleton"]
        skeleton = Skeleton(tree["name"], tuple(tree["joints"]), tuple(tree["parents"]))
        run = {key: record[key] for key in ("seed", "steps", "hypotheses")}
        run |= {"model": record["model"]["name"], "version": record["model"]["version"]}
        return [_read_frame(frame, skeleton, run) for frame in record["frames"]], record["fps"]
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path} is not whole: {type(error).__name__} at {error}") from error


def write_csv(path: Path, results: list[Result], fps: float | None) -> list[Path]:
    """One row for each frame and person."""
    skeleton = _skeleton(results)
    columns = ["image", "frame", "time_s", "person", "score"]
    columns += [f"box_{side}_px" for side in ("x0", "y0", "x1", "y1")] + [f"root_{axis}_mm" for axis in "xyz"]
    parts = ("x_mm", "y_mm", "z_mm", "std_mm", "r90_mm", "state", "u_px", "v_px")
    columns += [f"{joint}_{part}" for joint in skeleton.joints for part in parts]
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    for k, result in enumerate(results):
        for place, person in enumerate(result.people):
            frame = k if result.frame_index is None else result.frame_index
            who = place if person.track is None else person.track
            row: list[Any] = [result.image or "", frame, round(moment(results, fps, k), 6), who]
            row += [_cell(value) for value in (person.score, *person.box, *person.root_mm)]
            for j, std in enumerate(person.std_mm):
                row += [_cell(value) for value in (*person.joints_mm[j], std, person.r90_mm[j])]
                row += [person.state[j], *(_cell(value) for value in person.joints_2d[j])]
            table.writerow(row)
    return [write_bytes(path, text.getvalue().encode())]


def write_npz(path: Path, results: list[Result], fps: float | None) -> list[Path]:
    """One row for each frame and person in every array; text about the run as one JSON string, `meta`."""
    skeleton = _skeleton(results)
    rows = [(k, place, p) for k, result in enumerate(results) for place, p in enumerate(result.people)]
    most = max((len(person.samples_mm) for _, _, person in rows), default=0)
    count = len(rows)
    arrays: dict[str, np.ndarray] = {
        "frame": np.array([_or(results[k].frame_index, k) for k, _, _ in rows], np.int64),
        "time_s": np.array([moment(results, fps, k) for k, _, _ in rows], np.float64),
        "person": np.array([_or(person.track, place) for _, place, person in rows], np.int64),
        "samples_mm": np.full((count, most, skeleton.count, 3), np.nan),
        "joints": np.array(skeleton.joints),
        "parents": np.array(skeleton.parents),
        "state": np.array([p.state for _, _, p in rows], dtype="U12").reshape(count, skeleton.count),
    }
    for row, (_, _, person) in enumerate(rows):
        arrays["samples_mm"][row, : len(person.samples_mm)] = person.samples_mm
    shapes: dict[str, tuple[int, ...]] = {"joints_mm": (skeleton.count, 3), "covariance_mm2": (skeleton.count, 3, 3)}
    shapes |= {"std_mm": (skeleton.count,), "r90_mm": (skeleton.count,), "joints_2d": (skeleton.count, 2)}
    shapes |= {"root_mm": (3,), "box": (4,), "score": ()}
    for name, shape in shapes.items():
        arrays[name] = np.array([getattr(p, name) for _, _, p in rows], np.float64).reshape(count, *shape)
    first = results[0]
    meta = {"format": FORMAT, "format_version": FORMAT_VERSION, "units": UNITS, "axes": AXES, "fps": fps}
    meta |= {"model": first.model, "version": first.version, "seed": first.seed, "steps": first.steps}
    meta |= {"skeleton": skeleton.name, "image": first.image, "size": first.size, "camera": first.camera.to_json()}
    arrays["meta"] = np.array(json.dumps(meta))
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return [path]


def _frame(result: Result) -> dict[str, Any]:
    return {
        "image": result.image,
        "size_px": result.size,
        "camera": result.camera.to_json(),
        "frame_index": result.frame_index,
        "time_s": result.time_s,
        "people": [_person(person) for person in result.people],
    }


def _person(person: Person) -> dict[str, Any]:
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
        "root_mm": plain(person.root_mm),
        "joints": joints,
        "samples_mm": plain(person.samples_mm),
    }


def _read_frame(record: dict[str, Any], skeleton: Skeleton, run: dict[str, Any]) -> Result:
    return Result(
        image=record["image"],
        size=(int(record["size_px"][0]), int(record["size_px"][1])),
        camera=Camera.from_json(record["camera"]),
        people=[_read_person(person, skeleton) for person in record["people"]],
        frame_index=record["frame_index"],
        time_s=record["time_s"],
        **run,
    )


def _read_person(record: dict[str, Any], skeleton: Skeleton) -> Person:
    joints = [record["joints"][name] for name in skeleton.joints]
    column = {key: np.array([joint[key] for joint in joints], np.float64) for key in ("xyz_mm", "r90_mm", "uv_px")}
    x0, y0, x1, y1 = (float(value) for value in record["box_px"])
    return Person(
        joints_mm=column["xyz_mm"],
        samples_mm=np.array(record["samples_mm"], np.float64).reshape(-1, skeleton.count, 3),
        covariance_mm2=np.array([joint["covariance_mm2"] for joint in joints], np.float64),
        r90_mm=column["r90_mm"],
        state=np.array([joint["state"] for joint in joints]),
        joints_2d=column["uv_px"],
        box=(x0, y0, x1, y1),
        root_mm=np.array(record["root_mm"], np.float64),
        score=float(record["score"]),
        track=record["track"],
        skeleton=skeleton,
    )


def _skeleton(results: list[Result]) -> Skeleton:
    found = {person.skeleton for result in results for person in result.people} or {H36M_17}
    if len(found) > 1:
        raise InputError("a file holds one skeleton: convert all people, or none")
    return found.pop()


def plain(values: Any, digits: int = DIGITS) -> Any:
    """Nested lists of rounded numbers, None for what is not a number: JSON has no NaN."""
    if np.ndim(values):
        return [plain(value, digits) for value in values]
    return round(float(values), digits or None) if np.isfinite(values) else None


def _cell(value: Any) -> Any:
    return round(float(value), DIGITS) if np.isfinite(value) else ""


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _or(value: int | None, other: int) -> int:
    return other if value is None else value
