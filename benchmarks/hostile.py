"""Hostile requests against a real server: none may end it, none may get a 5xx but 503, and the next good one counts.

    python benchmarks/hostile.py --count 2000 --seed 0

Pictures and videos cut off, with bits flipped, made to unpack to gigabytes; fields of wrong types, sizes and depths;
paths for names, broken forms, broken HTTP, heads that never end. The same seed sends the same requests.
"""

import collections
import io
import json
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tyro
from hostile_requests import QUICK, Arsenal, Attack
from PIL import Image
from server_process import Server, form

from di2pose.text_table import markdown


def strike(port: int, attack: Attack, timeout_s: float = 600.0) -> str:
    """The status that came back; 'closed' where the connection ended without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        answer = b""
        try:
            connection.sendall(attack.sent)
            if attack.hold_s:
                time.sleep(attack.hold_s)
                return "held"
            connection.shutdown(socket.SHUT_WR) if attack.name == "no HTTP" else None
            while part := connection.recv(65_536):
                answer += part
        except TimeoutError:
            return "no answer"
        except OSError:
            pass
    first = answer.split(b"\r\n", 1)[0].split(b" ")
    while first[1:2] == [b"100"]:  # it was asked to go on
        answer = answer.partition(b"\r\n\r\n")[2]
        first = answer.split(b"\r\n", 1)[0].split(b" ")
    return first[1].decode() if len(first) > 1 else "closed"


def is_right(status: str) -> bool:
    """Whether a status is one that a hostile request may get."""
    return status in ("200", "503", "closed", "held") or status.startswith("4")


def real_files() -> tuple[Image.Image, bytes]:
    """A small photo of a person, and a video of three frames of it."""
    import av

    from di2pose.assets import fetch

    with Image.open(fetch("astronaut")) as picture:
        photo = picture.convert("RGB").resize((128, 128))
    data = io.BytesIO()
    with av.open(data, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = *photo.size, "yuv420p"
        for k in range(3):
            frame = av.VideoFrame.from_ndarray(np.roll(np.asarray(photo), k, axis=1), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return photo, data.getvalue()


def main(count: int = 2000, seed: int = 0, clients: int = 8) -> int:
    """Strike.

    Args:
        count: hostile requests
        seed: the same seed sends the same
        clients: connections at once
    """
    photo, film = real_files()
    arsenal = Arsenal(photo, film, seed)
    told: collections.Counter[tuple[str, str]] = collections.Counter()
    wrong: list[tuple[str, str]] = []
    lock = threading.Lock()
    good = form({"image": arsenal.files["PNG"]}, {key: json.dumps(value).encode() for key, value in QUICK.items()})
    with Server() as server:
        first = server.ask("/v1/predict", good)
        memory: list[int] = []

        def one(attack: Attack) -> None:
            status = strike(server.port, attack)
            with lock:
                told[attack.name.partition(":")[0], status] += 1
                memory.append(server.memory())
                if not is_right(status):
                    wrong.append((attack.name, status))

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(one, arsenal.attacks(count)))
        last = server.ask("/v1/predict", good)
        alive = server.alive
    names = sorted({name for name, _ in told})
    statuses = sorted({status for _, status in told})
    rows = [[name, *(str(told[name, status] or "") for status in statuses)] for name in names]
    print(markdown(["hostile request", *statuses], rows))
    print(f"{sum(told.values())} requests; {len(wrong)} wrong answers {wrong[:10]}; server alive: {alive}")
    print(f"the good request after them: {'the same answer' if last == first and first[0] == 200 else 'OTHER'}")
    print(f"memory at the end over that half-way: {memory[-1] / memory[len(memory) // 2]:.2f}")
    return 0 if not wrong and alive and last == first and first[0] == 200 else 1


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
