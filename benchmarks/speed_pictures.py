"""Of `speed.py`: photos, videos, rendered people and start-up.

The unit is one pass of BlazePose heavy over one crop, in its own runtime with as many threads as PyTorch has here.
"""

import subprocess
import sys
import tempfile
import time
from contextlib import closing
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from clock import Clock, Job, Row, peak_bytes
from PIL import Image

from di2pose import Di2Pose, video_results
from di2pose.assets import extract, fetch
from di2pose.data.demo_footage import CLIP, FRAME, REGION
from di2pose.data.frames import Video
from di2pose.errors import require
from di2pose.image.crop import assumed_camera
from di2pose.image.encoder import load_encoder
from di2pose.image.litert import without_information
from di2pose.noise import hypothesis_generators
from di2pose.output.media import CODECS
from di2pose.pipeline.assemble import fit_people
from di2pose.pipeline.observations import observe
from di2pose.video.lift import lift_video
from di2pose.video.stream import Stream

UNIT = "BlazePose passes"


def clip() -> Path:
    return extract("sports2d-demo", CLIP) / CLIP


@cache
def walker() -> Image.Image:
    with closing(Video(clip())) as video:
        return video.frame(FRAME).crop(REGION)


@cache
def astronaut() -> Image.Image:
    return Image.open(fetch("astronaut")).convert("RGB")


ALONE = (0, 0, 1200, 994)
"""Of the clip's first ALONE_FRAMES: a region of one person, before the other walks into it."""
ALONE_FRAMES = 60


def alone_clip(path: Path, frames: int) -> Path:
    """A film of one person, large enough for the detector's tiles; the same frames again where it is longer."""
    av = require("av", extra="video")
    codec = next(name for name in CODECS if name in av.codecs_available)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=30)
        stream.width, stream.height, stream.pix_fmt = ALONE[2] - ALONE[0], ALONE[3] - ALONE[1], "yuv420p"
        pictures = [frame.picture.crop(ALONE) for frame in islice(Stream(clip()), min(frames, ALONE_FRAMES))]
        for picture in islice(cycle(pictures), frames):
            container.mux(stream.encode(av.VideoFrame.from_image(picture)))
        container.mux(stream.encode())
    return path


def beside(left: Image.Image, right: Image.Image) -> Image.Image:
    height = min(left.height, right.height)
    pictures = [each.resize((round(each.width * height / each.height), height)) for each in (left, right)]
    whole = Image.new("RGB", (sum(each.width for each in pictures), height))
    whole.paste(pictures[0], (0, 0))
    whole.paste(pictures[1], (pictures[0].width, 0))
    return whole


def mosaic(count: int) -> tuple[Image.Image, list[tuple[float, float, float, float]]]:
    """A picture of 16 places, and the boxes of so many of the people in them."""
    tile = walker().resize((325, 265))
    whole = Image.new("RGB", (4 * tile.width, 4 * tile.height))
    boxes = []
    for k in range(16):
        x, y = k % 4 * tile.width, k // 4 * tile.height
        whole.paste(tile, (x, y))
        boxes.append((float(x + 80), float(y), float(x + tile.width - 80), float(y + tile.height)))
    return whole, boxes[:count]


def line_of(count: int) -> Image.Image:
    """A picture of four places, with the walker in so many of them: the same for the detector, whoever is there."""
    tile = walker().crop((100, 0, 550, 530)).resize((225, 265))
    whole = Image.new("RGB", (4 * tile.width, tile.height), (120, 120, 120))
    for k in range(count):
        whole.paste(tile, (k * tile.width, 0))
    return whole


def unit_pass() -> Job:
    """The network's file as a user of the runtime would run it, without anything of ours."""
    from ai_edge_litert.interpreter import Interpreter

    with without_information():
        network = Interpreter(model_path=str(fetch("blazepose-heavy")), num_threads=torch.get_num_threads())
        network.allocate_tensors()
    place = network.get_input_details()[0]["index"]
    crop = np.asarray(astronaut().resize((256, 256)), np.float32)[None] / 255

    def run() -> None:
        network.set_tensor(place, crop)
        network.invoke()

    return run


def photo(clock: Clock, quick: bool) -> list[Row]:
    """Photo to person, the first of a process and the next ones; a frame of a video."""
    begin = clock.now()
    model = Di2Pose.from_pretrained()
    model(astronaut())
    cold = clock.now() - begin
    two = beside(astronaut(), walker())
    frames = 6 if quick else ALONE_FRAMES
    people: dict[str, list[int]] = {}

    def film(name: str, source: Path) -> Job:
        def look() -> None:
            people[name] = [len(result.people) for result in islice(video_results(model, source), frames)]

        return look

    unit = unit_pass()
    jobs: dict[str, Job] = {
        "unit": unit,
        "one person": lambda: model(astronaut()),
        "one person, second_look=False": lambda: model(astronaut(), second_look=False),
        "two people": lambda: model(two),
        "two people, second_look=False": lambda: model(two, second_look=False),
        "a line of 1": lambda: model(line_of(1)),
        "a line of 4": lambda: model(line_of(4)),
    }
    if quick:
        jobs = {name: job for name, job in jobs.items() if name in ("unit", *list(jobs)[1:3])}
    times = clock.least(jobs)
    found = {name: spent / times["unit"] for name, spent in times.items() if name != "unit"}
    seen = {"one person": len(model(astronaut()).people), "two people": len(model(two).people)}
    seen |= {f"a line of {n}": len(model(line_of(n)).people) for n in (1, 4)}
    most = {"one person": 6.0, "one person, second_look=False": 4.0}
    rows = [Row("photo", "one person, model loaded and asked once (cold)", cold / times["unit"], UNIT)]
    for name, passes in found.items():
        who = f"{name} ({seen[name.partition(',')[0]]} found)"
        rows.append(Row("photo", who, passes, UNIT, most=most.get(name)))
    if not quick:
        further = (found["a line of 4"] - found["a line of 1"]) / (seen["a line of 4"] - seen["a line of 1"])
        rows.append(Row("photo", "each further person, of the line", further, UNIT, most=3.0))
    with tempfile.TemporaryDirectory() as folder:
        alone = alone_clip(Path(folder) / "alone.mp4", frames)
        films = {"unit": unit, "alone": film("alone", alone), "several": film("several", clip())}
        spent = clock.least(films, 1 if quick else 2)
    for name, bound in (("alone", 3.0), ("several", None)):
        what = f"video frame, {np.mean(people[name]):.1f} people each"
        rows.append(Row("photo", what, spent[name] / len(people[name]) / spent["unit"], UNIT, most=bound))
    return rows


def lifting(clock: Clock, quick: bool) -> list[Row]:
    """A frame of `di2pose lift`: the walker's keypoints, with the noise of a detector, as a motion of one person."""
    model, frames = Di2Pose.from_pretrained("lift"), 24 if quick else 120
    points = Di2Pose.from_pretrained()(walker()).people[0].convert("coco17").joints_2d
    noise = np.random.default_rng(0).normal(scale=2, size=(frames, 1, 17, 2))
    keypoints = list(np.concatenate([points + noise, np.ones((frames, 1, 17, 1))], axis=-1))
    jobs: dict[str, Job] = {"unit": unit_pass()}
    for count in (1, 8):
        jobs[f"{count}"] = lambda count=count: lift_video(model, keypoints, 30.0, walker().size, hypotheses=count)
    found, rows = clock.least(jobs, min(clock.repeats, 3)), []
    for count, least in (("1", 100.0), ("8", 20.0)):
        frame = found[count] / frames
        rows.append(Row("lift", f"frame, hypotheses: {count}", frame / found["unit"], UNIT))
        rows.append(Row("lift", f"frames a second on this machine, hypotheses: {count}", 1 / frame, "", least=least))
    return rows


def stations(clock: Clock, quick: bool) -> list[Row]:
    """What a photo of one person is made of."""
    model, picture = Di2Pose.from_pretrained(), astronaut()
    detector, camera = model.load_detector(), assumed_camera(picture.size)
    crop = model.crop(picture, detector.detect(picture, max_people=1)[0], camera)
    encoded = model.encode([crop])

    def draw() -> Any:
        return model.estimate(encoded, 8, model.config.sample_steps, hypothesis_generators(0, [0], 8))

    estimate = draw()
    jobs: dict[str, Job] = {
        "unit": unit_pass(),
        "detector": lambda: detector.detect(picture, max_people=1),
        "encoder, one crop": lambda: model.encode([crop]),
        "encoder, crop and mirror image": lambda: model.encode([crop], flip_test=True),
        "diffusion, 8 hypotheses": draw,
        "distance, for the lens (up to three times)": lambda: fit_people(
            observe(encoded, model.encoder, model.skeleton), estimate, model._calibration(), only_mean=True
        ),
        "body, fitted": lambda: model.place(encoded, estimate),
    }
    found = clock.least(jobs)
    return [Row("stations", name, found[name] / found["unit"], UNIT) for name in list(jobs)[1:]]


def growth(clock: Clock, quick: bool) -> list[Row]:
    """Cost as things grow, over the cost of the least of them."""
    model = Di2Pose.from_pretrained()
    rows: list[Row] = []

    def compare(what: str, jobs: dict[str, Job], most: dict[str, float] | None = None) -> None:
        found = clock.least(jobs, min(clock.repeats, 3))
        first = next(iter(jobs))
        for name in list(jobs)[1:]:
            ratio, bound = found[name] / found[first], (most or {}).get(name)
            rows.append(Row("growth", f"{what}: {name} over {first}", ratio, "times", most=bound))

    features = model.encode([_crop(model)]).output.features

    def draw(hypotheses: int, steps: int) -> Job:
        return lambda: model.numpy_model.predict(
            features, hypotheses, steps, hypothesis_generators(0, ["image"], hypotheses)
        )

    counts = (1, 8) if quick else (1, 2, 4, 8, 16, 32, 64)
    picture, boxes = mosaic(16)
    usual = model.config.sample_steps
    photos = {f"{h}": (lambda h=h: model(walker(), hypotheses=h)) for h in counts}
    compare("hypotheses, photo", photos, {"64": 5.0})
    compare("hypotheses, sampler alone", {f"{h}": draw(h, usual) for h in counts})
    compare("steps, sampler alone", {f"{n}": draw(8, n) for n in ((1, 4) if quick else (1, 2, 4, 10, 25, 50, 100))})
    groups = (1, 2) if quick else (1, 2, 4, 8, 16)
    compare("people", {f"{n}": (lambda n=n: model(picture, boxes=boxes[:n], max_people=16)) for n in groups})
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for megapixels in (0.3, 1.0) if quick else (0.3, 1.0, 3.0, 12.0, 50.0):
            side = round((megapixels * 1e6) ** 0.5)
            path = Path(folder) / f"{megapixels}.jpg"
            astronaut().resize((side, side)).save(path, quality=90)
            files[f"{megapixels:g} MP"] = lambda path=path: model(path)
        compare("picture", files)
    lengths = (4, 8) if quick else (60, 120, 240)
    measured = [_video_in_a_process(frames) for frames in lengths]
    for (seconds, peak), frames in list(zip(measured, lengths, strict=True))[1:]:
        ratio = frames / lengths[0]
        what = f"video of {ratio:g} times as many frames"
        rows.append(Row("growth", f"{what}: time a frame", seconds / measured[0][0] / ratio, "times"))
        rows.append(Row("growth", f"{what}: peak memory", peak / measured[0][1], "times"))
    return rows


def _crop(model: Di2Pose) -> Any:
    from di2pose.image.detect import from_boxes

    return model.crop(astronaut(), from_boxes([(80.0, 0.0, 420.0, 512.0)])[0], assumed_camera(astronaut().size))


def _video_in_a_process(frames: int) -> tuple[float, int]:
    """Seconds of all frames and peak memory, of a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        film = alone_clip(Path(folder) / "film.mp4", frames)
        command = [sys.executable, __file__, str(film)]
        done = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    seconds, peak = done.split()[-2:]
    return float(seconds), int(peak)


def video_child(film: Path) -> None:
    torch.set_num_threads(1)
    model = Di2Pose.from_pretrained()
    list(islice(video_results(model, film), 2))  # everything loaded
    begin = time.process_time()
    for _ in video_results(model, film):
        pass
    print(time.process_time() - begin, peak_bytes())


def features(clock: Clock, quick: bool) -> list[Row]:
    """Encoding a crop, by encoder."""
    crop = np.asarray(astronaut().resize((256, 256))).copy()[None]
    jobs: dict[str, Job] = {"unit": unit_pass()}
    for name in ("blazepose-heavy",) if quick else ("blazepose-heavy", "blazepose-heavy+movenet"):
        encoder = load_encoder(name)
        jobs[f"{name}, litert"] = lambda encoder=encoder: encoder.cache_parts(crop)
    found = clock.least(jobs)
    return [Row("features", name, found[name] / found["unit"], UNIT) for name in list(jobs)[1:]]


def startup(clock: Clock, quick: bool) -> list[Row]:
    """Processes from start to end, over one that imports torch."""
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "photo.png"
        astronaut().save(picture)
        python = sys.executable
        commands = {
            "import torch": [python, "-c", "import torch"],
            "import di2pose": [python, "-c", "import di2pose"],
            "from di2pose import Di2Pose": [python, "-c", "from di2pose import Di2Pose"],
            "di2pose --help": [python, "-m", "di2pose", "--help"],
            "di2pose predict PHOTO": [python, "-m", "di2pose", "predict", str(picture), "--out", f"{folder}/out"],
        }

        def start(command: list[str]) -> Job:
            return lambda: subprocess.run(command, capture_output=True, check=True)

        wall = Clock(clock.repeats)  # other processes' time is not this one's
        found = wall.least({name: start(command) for name, command in commands.items()}, 1 if quick else None)
    torch_alone = found["import torch"]
    most = {"di2pose predict PHOTO": 1.6}
    ratios = {name: found[name] / torch_alone for name in list(commands)[1:]}
    return [Row("startup", name, ratio, "times import torch", most=most.get(name)) for name, ratio in ratios.items()]


if __name__ == "__main__":
    video_child(Path(sys.argv[1]))
