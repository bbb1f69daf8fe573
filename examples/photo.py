"""A photo -> people, their joints with states and radii, angles, and files.

python examples/photo.py [PHOTO] [FOLDER]
"""

import sys
from pathlib import Path

from di2pose import Di2Pose, Result
from di2pose.data.demo_footage import hide_legs, walker

JOINTS = ("left_knee", "right_knee", "left_wrist", "right_wrist")


def main(photo: str | Path | None = None, out: str | Path = "out/examples", hypotheses: int = 8) -> Result:
    """Without a photo: the walker of `di2pose demo`, whose legs are behind a board."""
    model = Di2Pose.from_pretrained()
    result = model(photo or hide_legs(walker()), hypotheses=hypotheses, seed=0)
    for number, person in enumerate(result.people):
        print(f"person {number}: probability {person.score:.2f}, {person.root_mm[2] / 1000:.1f} m away")
        for name in JOINTS:
            joint = person[name]  # mm from the pelvis: x right, y down, z away from the camera
            x, y, z = joint.xyz_mm
            print(f"  {name:<12} {x:6.0f} {y:6.0f} {z:6.0f} mm, 90 % within {joint.r90_mm:4.0f} mm, {joint.state}")
        knee = person.angles["left_knee_flexion"]
        print(f"  left knee    {knee.degrees:.0f} degrees of flexion, 90 % from {knee.low:.0f} to {knee.high:.0f}")
    name = "photo" if photo is None else Path(photo).stem
    # All people in one file; .bvh, as .trc and .c3d, has one person a file: photo_p0.bvh, photo_p1.bvh of several.
    for ending in (".json", ".csv", ".html", ".jpg", ".bvh"):
        if result.people or ending not in (".jpg", ".bvh"):
            print("written:", *result.save(Path(out) / f"{name}{ending}"))
    return result


if __name__ == "__main__":
    main(*sys.argv[1:3])
