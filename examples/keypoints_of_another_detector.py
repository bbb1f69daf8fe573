"""2D keypoints that another program has found -> 3D people, with the photo and without it.

python examples/keypoints_of_another_detector.py [PHOTO KEYPOINTS] [FOLDER]

KEYPOINTS: JSON of OpenPose, COCO, AlphaPose, MMPose or rtmlib, or .npz / .npy. docs/guide.md lists them.
"""

import json
import sys
from pathlib import Path

from di2pose import Di2Pose, Result
from di2pose.data.demo_footage import walker
from di2pose.image.keypoints import people_in, read_keypoints
from di2pose.image.movenet import MultiPose
from di2pose.image.read import read_image


def demo_files(folder: Path) -> tuple[Path, Path]:
    """A photo, and what another detector finds in it (MoveNet MultiPose here) as a list of COCO results."""
    folder.mkdir(parents=True, exist_ok=True)
    photo, keypoints, picture = folder / "walker.jpg", folder / "walker-coco.json", walker()
    picture.save(photo)
    people = MultiPose().begin(picture, least=0.25)().keypoints  # (people, 17, 3): x, y in pixels, score
    entries = [{"image_id": photo.name, "category_id": 1, "keypoints": each.ravel().tolist()} for each in people]
    keypoints.write_text(json.dumps(entries), encoding="utf-8")
    return photo, keypoints


def main(
    photo: str | Path | None = None,
    keypoints: str | Path | None = None,
    out: str | Path = "out/examples",
    hypotheses: int = 8,
) -> list[Result]:
    """Three results: of the photo with the file, with an array, and of the array alone."""
    if photo is None or keypoints is None:
        photo, keypoints = demo_files(Path(out))
    model, lift = Di2Pose.from_pretrained(), Di2Pose.from_pretrained("lift")
    # The keypoints say who is there and replace the packaged 2D network; the photo is looked at as well.
    from_file = model(photo, keypoints=keypoints, hypotheses=hypotheses, seed=0)
    # An array is (people, 17, 3): x, y in pixels of the upright photo and score, COCO order, NaN where missing.
    array = people_in(read_keypoints(Path(keypoints)), Path(photo), keypoints)
    from_array = model(photo, keypoints=array, hypotheses=hypotheses, seed=0)
    # Without the photo, by the model of keypoints alone. Videos: di2pose.video.lift.lift_video.
    size = read_image(photo).size
    alone = lift(keypoints=array, size=size, hypotheses=hypotheses, seed=0)
    for name, result in (("photo and file", from_file), ("photo and array", from_array), ("array alone", alone)):
        wrists = [f"{person['left_wrist'].xyz_mm.round()} mm" for person in result.people]
        print(f"{name:<16} {result!r}: left wrist {', '.join(wrists)}")
    print("written:", *from_file.save(Path(out) / "with-photo.html"), *alone.save(Path(out) / "keypoints-alone.html"))
    return [from_file, from_array, alone]


if __name__ == "__main__":
    main(*sys.argv[1:4])
