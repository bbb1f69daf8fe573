"""A video -> a TRC file for OpenSim and a table of joint angles, for each person.

python examples/video_to_opensim.py [VIDEO] [FOLDER] [STATURE_IN_METRES]

Axes of the TRC: millimetres, Y up, the camera at the origin; "up" is the camera's up. OpenSim's scaling and inverse
kinematics depend on distances between markers alone; the ground is not known, so forces on it are not either.
"""

import sys
from pathlib import Path

from di2pose import Di2Pose, Motion, estimate_video
from di2pose.assets import extract
from di2pose.data.demo_footage import CLIP


def main(
    video: str | Path | None = None,
    out: str | Path = "out/examples",
    height_m: str | float | None = None,
    hypotheses: int = 4,
) -> Motion:
    """Without a video: a walker filmed from the side (PyPI package sports2d, BSD-3), 230 frames; some minutes."""
    video = Path(video or extract("sports2d-demo", CLIP) / CLIP)
    model = Di2Pose.from_pretrained()
    # People are followed, smoothed over time, and given one body each. A known stature (of everybody in the video)
    # fixes the scale, which a single camera cannot see.
    stature = None if height_m is None else float(height_m)
    motion = estimate_video(model, video, hypotheses=hypotheses, height_m=stature)
    print(f"{motion!r}: {len(motion) / motion.fps:.1f} s")
    for number in motion.tracks:
        found = [person for person in motion.track(number) if person is not None]
        hidden = sum(int(person.guessed.sum()) for person in found) / sum(len(person.state) for person in found)
        print(f"person {number}: in {len(found)} of {len(motion)} frames, {hidden:.0%} of the joints inferred")
    if motion.tracks:
        # DataRate is the video's; frames without the person are empty. Several people: walk_p0.trc, walk_p1.trc, ...
        print("markers:", *motion.save(Path(out) / f"{video.stem}.trc"))
        print("angles: ", *motion.save(Path(out) / f"{video.stem}.angles.csv"))
    return motion


if __name__ == "__main__":
    main(*sys.argv[1:4])
