"""MOT (OpenSim's motion file): the joint angles of the CSV of angles over time, one person a file, degrees.

Gaps (frames without the person, or an open angle) of up to MOST_GAP_S are interpolated, longer ones are NaN; the header
names them, and the smoothing that was applied before.
"""

import numpy as np
from jaxtyping import Float

from di2pose.files import encoded
from di2pose.output.motion import for_each, times_of
from di2pose.pose.angles import UNSIGNED, angle_names, basis, joint_angles, with_differences, wrapped
from di2pose.result import Files, Person, Result

MOST_GAP_S = 0.25
"""Seconds between the known frames before and after a gap that is interpolated."""
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
    gaps: dict[tuple[str, int, int], list[str]] = {}
    columns = []
    for name, degrees in angles.items():
        column = degrees.copy()
        for start, end in gaps_of(degrees):
            inside = start > 0 and end + 1 < len(times_s) and times_s[end + 1] - times_s[start - 1] <= MOST_GAP_S
            if inside:
                before, after = degrees[start - 1], degrees[end + 1]
                share = (times_s[start : end + 1] - times_s[start - 1]) / (times_s[end + 1] - times_s[start - 1])
                same = np.asarray if name.endswith(UNSIGNED) else wrapped  # 179 to -179 degrees are 2
                column[start : end + 1] = same(before + share * same(after - before))
            gaps.setdefault(("interpolated" if inside else "left as NaN", start, end), []).append(name)
        columns.append(column)
    lines = ["Coordinates", "version=1", f"nRows={len(times_s)}", f"nColumns={len(angles) + 1}", "inDegrees=yes", ""]
    lines += ["Angles as in the CSV of angles, docs/guide.md", f"smoothing: {smoothing}"]
    lines += [f"gaps: interpolated up to {MOST_GAP_S:g} s, longer ones are NaN"]
    for (kind, start, end), names in gaps.items():
        which = "all angles" if len(names) == len(angles) else " ".join(names)
        lines.append(f"{kind}: {times_s[start]:.6f} to {times_s[end]:.6f} s, {end - start + 1} frames, {which}")
    lines += ["endheader", "\t".join(["time", *angles])]
    for time, row in zip(times_s, np.stack(columns, axis=1), strict=True):
        cells = [f"{value:.{DIGITS}f}" if np.isfinite(value) else "NaN" for value in row]
        lines.append("\t".join([f"{time:.6f}", *cells]))
    return "\n".join(lines) + "\n"
