"""`di2pose demo`: a real person, whole and half hidden, by the model inside the package."""

import os
import sys
import webbrowser
from contextlib import closing
from pathlib import Path

from PIL import Image, ImageDraw

from di2pose.assets import extract
from di2pose.commands.inputs import Input, Inputs
from di2pose.commands.predict import run
from di2pose.commands.predict_options import PredictOptions
from di2pose.commands.writing import ready_folder
from di2pose.data.frames import Video
from di2pose.files import replacing
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.result import Result

CLIP = "Sports2D/Demo/demo.mp4"
FRAME, REGION = 120, (510, 464, 1160, 994)
"""The walker well visible from the side, nobody else in the region (x0, y0, x1, y1)."""
BOARD = (0.06, 0.60, 0.94, 0.97)
"""What hides the legs in the second picture, as shares of the first one's width and height."""
LEGS = ("left_knee", "right_knee", "left_ankle", "right_ankle")


def demo(
    out: Path = Path("out/demo"), model: str | None = None, seed: int = 0, device: str = "auto", open: bool = True
) -> int:
    """Fetch real footage, estimate the 3D pose of a person in it, and of the same person half hidden; show the page.

    The footage (PyPI package sports2d, BSD-3) and the frozen backbone (npm @mediapipe/pose, PyPI mediapipe, Apache-2.0)
    are fetched once.

    Args:
        out: Folder for the pictures, pages and numbers.
        model: Name or folder of a model (left out: the one inside the package).
        seed: The same seed gives the same result.
        device: auto, cpu, cuda or mps.
        open: Open the page in a browser, where there is a display.
    """
    options = PredictOptions(out=ready_folder(out), model=model, seed=seed, device=device)
    network = Di2Pose.from_pretrained(options.model, device=options.torch_device)
    print("footage: a walker, from the PyPI package sports2d; fetched once")
    walker = _walker()
    items = []
    for name, picture in (("walker", walker), ("walker-hidden", hide_legs(walker))):
        path = out / f"{name}.jpg"
        with replacing(path) as temporary:
            picture.save(temporary, "JPEG", quality=92)
        items.append(Input("photo", path, name))
    code = run(network, Inputs(items, [], []), options)
    if code == 0:
        _compare(*(Result.load(out / f"{item.name}.json") for item in items))
        _show([(out / f"{item.name}.html").resolve() for item in items], open)
    return code


def hide_legs(picture: Image.Image) -> Image.Image:
    """The picture with a board painted over the legs."""
    hidden = picture.copy()
    x0, y0, x1, y1 = (share * side for share, side in zip(BOARD, picture.size * 2, strict=True))
    pen = ImageDraw.Draw(hidden)
    pen.rectangle((x0, y0, x1, y1), fill=(124, 98, 70), outline=(84, 64, 44), width=4)
    for x in range(int(x0) + 60, int(x1), 60):
        pen.line((x, y0 + 4, x, y1 - 4), fill=(104, 80, 56), width=3)
    return hidden


def _walker() -> Image.Image:
    with closing(Video(extract("sports2d-demo", CLIP) / CLIP)) as video:
        return video.frame(FRAME).crop(REGION)


def _compare(seen: Result, hidden: Result) -> None:
    """How much less sure the model is of what it cannot see."""
    if seen.people and hidden.people:
        first, second = (sum(result.people[0][name].r90_mm for name in LEGS) / len(LEGS) for result in (seen, hidden))
        print(f"knees and ankles: within {first:.0f} mm in 9 cases of 10 when seen, {second:.0f} mm when hidden")


def _show(pages: list[Path], open: bool) -> None:
    for page in pages:
        print(f"page: {page}")
    display = sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if open and display:
        for page in pages:
            webbrowser.open(page.as_uri())
