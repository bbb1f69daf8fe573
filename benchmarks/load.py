"""Many clients at once: is every request answered, with its own answer; does memory stay?

    python benchmarks/load.py --clients 64 --seconds 120

A server in a process of its own; clients that ask again as soon as they are answered, or, where they are told to come
again, as late as that. On a machine that is busy with other things the last column, by the server's own CPU time, is
the one to believe. Pictures are parts of the demo's frames, no two alike; what each answer must be is computed by
the library beforehand.
"""

import io
import json
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tyro
from PIL import Image
from server_process import Server, form

from di2pose import Di2Pose
from di2pose.assets import extract
from di2pose.data.frames import Video
from di2pose.text_table import markdown

CLIP = "Sports2D/Demo/demo.mp4"
SAME_MM = 1.0
"""Farther from the library's answer than this is another answer."""


@dataclass
class Tally:
    """What became of the requests of one run."""

    answered: int = 0
    told_to_come_again: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def growth(self) -> float:
        """Memory at the end over memory after a third of the time, by a line through what lies between."""
        times, sizes = np.array(self.memory[len(self.memory) // 3 :]).T
        slope, start = np.polyfit(times - times[0], sizes, 1)
        return float((start + slope * (times[-1] - times[0])) / start)


def main(
    clients: int = 64,
    seconds: float = 120.0,
    pictures: int = 12,
    max_waiting: int = 48,
    hypotheses: int = 8,
    second_look: bool = False,
    boxes: bool = False,
) -> int:
    """Measure it.

    Args:
        clients: at once
        seconds: of each run
        pictures: how many different ones
        max_waiting: of the server; with fewer than clients some are told to come again
        hypotheses: as in a request
        second_look: as in a request
        boxes: say where the people are, so that no detector looks
    """
    files = photos(pictures)
    model = Di2Pose.from_pretrained()
    wanted, bodies = [], []
    for content in files:
        options: dict[str, Any] = {"hypotheses": hypotheses, "second_look": second_look}
        picture = Image.open(io.BytesIO(content))
        if boxes:
            options["boxes"] = [model(picture, **options).people[0].box]
        wanted.append(answer_of(json.loads(model(picture, **options).to_files("x.json")["x.json"])))
        bodies.append(form({"image": content}, {name: json.dumps(value).encode() for name, value in options.items()}))
    del model
    least = min(apart(a, b) for i, a in enumerate(wanted) for b in wanted[:i])
    print(f"{pictures} pictures; the nearest two answers are {least:.0f} mm apart")
    with Server("--max-waiting", str(max_waiting)) as server:
        server.ask("/v1/predict", bodies[0])
        began, cpu = time.monotonic(), server.cpu_seconds()
        tally = run(server, bodies, wanted, clients, seconds)
        spent = (time.monotonic() - began, server.cpu_seconds() - cpu)
        alive = server.alive
    for each in (*tally.wrong[:5], *tally.lost[:5]):
        print(each)
    counts = (tally.answered, tally.told_to_come_again, len(tally.lost), len(tally.wrong))
    head = ["answered", "told to come again", "lost", "wrong", "memory, end / first third"]
    head += ["answers a second", "answers a CPU second"]
    row = [*map(str, counts), f"{tally.growth():.3f}", *(f"{tally.answered / each:.2f}" for each in spent)]
    print(markdown(head, [row]))
    return 0 if alive and not tally.wrong and not tally.lost and tally.answered > 0 else 1


def run(server: Server, bodies: list[bytes], wanted: list[Any], clients: int, seconds: float) -> Tally:
    """All clients for so long; what they began they finish."""
    tally, end = Tally(), time.monotonic() + seconds

    def client(number: int) -> None:
        order, address = np.random.default_rng(number), f"127.0.{1 + number // 250}.{1 + number % 250}"
        while time.monotonic() < end:
            k = int(order.integers(len(bodies)))
            try:
                status, body, retry_after_s = server.ask_again("/v1/predict", bodies[k], client=address)
            except OSError as error:
                with tally.lock:
                    tally.lost.append(f"lost: {type(error).__name__} {error}")
                continue
            with tally.lock:
                if status == 200:
                    tally.answered += 1
                    if apart(answer_of(json.loads(body)), wanted[k]) > SAME_MM:
                        tally.wrong.append(f"wrong: not the answer of picture {k}")
                elif status in (429, 503) and retry_after_s is not None:
                    tally.told_to_come_again += 1
                else:
                    tally.wrong.append(f"wrong: status {status} {body[:200]!r}")
            if retry_after_s is not None:
                time.sleep(min(retry_after_s, max(0.0, end - time.monotonic())))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        tally.memory.append((time.monotonic(), server.memory()))
        time.sleep(1)
    return tally


def photos(count: int) -> list[bytes]:
    """Files of frames of the demo: no two poses alike, two of each size."""
    found = []
    with closing(Video(extract("sports2d-demo", CLIP) / CLIP)) as video:
        for k in range(count):
            x0, y0, x1, y1 = 510 - 5 * (k // 2), 464 - 3 * (k // 2), 1160 - 4 * (k // 2), 994
            data = io.BytesIO()
            video.frame(100 + 3 * k).crop((x0, y0, x1, y1)).save(data, "JPEG", quality=92)
            found.append(data.getvalue())
    return found


def answer_of(record: dict[str, Any]) -> tuple[list[int], np.ndarray]:
    """Size of the picture, and everybody's joints in the camera frame."""
    (frame,) = record["frames"]
    joints = [
        np.array([joint["xyz_mm"] for joint in person["joints"].values()]) + person["root_mm"]
        for person in frame["people"]
    ]
    return frame["size_px"], np.array(joints)


def apart(a: tuple[list[int], np.ndarray], b: tuple[list[int], np.ndarray]) -> float:
    """The largest distance of two joints in mm; infinite where the pictures or the numbers of people differ."""
    if a[0] != b[0] or a[1].shape != b[1].shape:
        return float("inf")
    return float(np.linalg.norm(a[1] - b[1], axis=-1).max(initial=0.0))


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
