"""MOT (OpenSim's motion file): the joint angles of the CSV of angles over time, one person a file, degrees.

Gaps (frames without the person, or an open angle) of up to MOST_GAP_S are interpolated; rows in longer ones are left
out: OpenSim's Storage stops reading at a NaN. The header names both, and the smoothing that was applied before.
"""

import numpy as np
from jaxtyping import Float

from di2pose.errors import InputError
from di2pose.files import encoded
from di2pose.output.motion import for_each, times_of
from di2pose.pose.angles import UNSIGNED, angle_names, basis, joint_angles, with_differences, wrapped
from di2pose.result import Files, Person, Result

MOST_GAP_S = 0.25
"""Seconds between the known frames before and after a gap that is interpolated."""
MOST_OPEN = 0.5
"""An angle that is open in a larger share of the person's frames is left out."""
DIGITS = 4


def as_mot(name: str, results: list[Result], fps: float | None) -> Files:
    """Rows from the first to the last frame of the person, by the video's time stamps; a photo is one row at 0 s."""
    times = times_of(results, fps)

    def one(name: str, frames: list[Person | None], first: int) -> bytes:
        smoothing = results[first].smoothing or "none"
        return encoded(_text(times[first : first + len(frames)], angles_over_time(frames), smoothing))

    return for_each(name, results, one)


def angles_over_time(frames: list[Person | None]) -> dict[str, Float[np.ndarray, " F"]]:
    """Every angle by name, degrees; NaN where the person is missing and where the angle is open."""
    skeleton = basis(next(person.skeleton for person in frames if person is not None))
    poses = np.full((len(frames), skeleton.count, 3), np.nan)
    for k, person in enumerate(frames):
        if person is not None:
            poses[k] = (person if person.skeleton == skeleton else person.convert(skeleton)).joints_mm
    angles = with_differences(joint_angles(poses, skeleton))
    return {name: angles[name] for name in angle_names(skeleton)}


def gaps_of(degrees: Float[np.ndarray, " F"]) -> list[tuple[int, int]]:
    """First and last frame of every run of NaN."""
    edges = np.flatnonzero(np.diff(np.isnan(degrees), prepend=False, append=False))
    return [(int(start), int(end) - 1) for start, end in edges.reshape(-1, 2)]


def _text(times_s: Float[np.ndarray, " F"], angles: dict[str, Float[np.ndarray, " F"]], smoothing: str) -> str:
    known = np.isfinite(np.stack(list(angles.values()), axis=1))
    often = known.sum(0) >= (1 - MOST_OPEN) * known.any(1).sum()
    kept = {name: degrees for (name, degrees), each in zip(angles.items(), often, strict=True) if each}
    gaps: dict[tuple[str, int, int], list[str]] = {}
    columns = [times_s]
    for name, degrees in kept.items():
        columns.append(degrees.copy())
        for start, end in gaps_of(degrees):
            inside = start > 0 and end + 1 < len(times_s) and times_s[end + 1] - times_s[start - 1] <= MOST_GAP_S
            if inside:
                before, after = degrees[start - 1 : start], degrees[end + 1 : end + 2]
                share = (times_s[start : end + 1] - times_s[start - 1]) / (times_s[end + 1] - times_s[start - 1])
                same = np.asarray if name.endswith(UNSIGNED) else wrapped  # 179 to -179 degrees are 2
                columns[-1][start : end + 1] = same(before + share * same(after - before))
            gaps.setdefault(("interpolated" if inside else "rows left out", start, end), []).append(name)
    table = np.stack(columns, axis=1)
    table = table[np.isfinite(table).all(1)]
    if not len(table) or not kept:
        raise InputError("no frame has all angles: write them as .angles.csv, which may have empty cells")
    lines = ["Coordinates", "version=1", f"nRows={len(table)}", f"nColumns={len(columns)}", "inDegrees=yes", ""]
    lines += ["Angles as in the CSV of angles of di2pose", f"smoothing: {smoothing}"]
    lines += [f"gaps: interpolated up to {MOST_GAP_S:g} s, rows in longer ones left out"]
    if len(kept) < len(angles):
        lines.append(f"angles left out, open in most frames: {' '.join(name for name in angles if name not in kept)}")
    for (kind, start, end), names in gaps.items():
        which = "all angles" if len(names) == len(kept) else " ".join(names)
        lines.append(f"{kind}: {times_s[start]:.6f} to {times_s[end]:.6f} s, of {which}")
    lines += ["endheader", "\t".join(["time", *kept])]
    lines += ["\t".join([f"{time:.6f}", *(f"{value:.{DIGITS}f}" for value in row)]) for time, *row in table]
    return "\n".join(lines) + "\n"
