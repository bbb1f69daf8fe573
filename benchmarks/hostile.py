"""Hostile requests against a real server: none may end it, none may get a 5xx but 503, and the next good one counts.

    python benchmarks/hostile.py --count 2000 --seed 0

Pictures and videos cut off, with bits flipped, made to unpack to gigabytes; fields of wrong types, sizes and depths;
paths for names, broken forms, broken HTTP, heads that never end. The same seed sends the same requests.
"""

import collections
import io
import json
import random
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import tyro
from PIL import Image
from server_process import Server, form

from di2pose.text_table import markdown

KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF")
QUICK = {"hypotheses": 1, "steps": 1, "second_look": False, "boxes": [[20, 10, 100, 110]]}
FIELDS = (
    "boxes", "occluded", "pin", "hypotheses", "steps", "seed", "max_people", "second_look", "min_score", "height_m",
    "field_of_view", "keep_tokens",
)  # fmt: skip
VALUES = (
    "null", "true", "-1", "0", "1e400", "-1e308", "9" * 400, "1" * 6000, "NaN", "Infinity", '"8"', "[]", "{}", "[[]]",
    "[[1,2,3]]", "[[1,2,3,4,5]]", "[[1,2,1e9,1e9]]", "[[0,0,1e-300,1e-300]]", "[[5,5,1,1]]", "[[null,0,1,1]]",
    "[" * 50_000, "[" * 900 + "]" * 900, '{"a":' * 2000 + "1" + "}" * 2000, '{"left_wrist":[1e300,0,0]}',
    '{"left_wrist":[1,2]}', '{"nose":["x",1,2]}', '{"../../etc/passwd":[1,2,3]}', '{"3":99999999}', '{"-1":3}',
    '{"9999999999":1}', "[[1,2,30,40]," * 500 + "[1,2,30,40]" + "]", '"\\ud800"', "\x00", "{", "1 2", "",
)  # fmt: skip
NAMES = (
    "../../../etc/passwd",
    "/etc/shadow",
    "C:\\windows\\win.ini",
    "a\x00.jpg",
    "http://169.254.169.254/",
    "%2e%2e/x",
    "|ls",
)


class Attack(NamedTuple):
    """One connection: what is sent, and for how long it is held open afterwards."""

    name: str
    sent: bytes
    hold_s: float = 0.0


class Arsenal:
    """Makes attacks out of a real picture and a real video."""

    def __init__(self, picture: Image.Image, film: bytes, seed: int) -> None:
        self.random = random.Random(seed)
        self.film = film
        self.files = {}
        for kind in KINDS:
            data = io.BytesIO()
            picture.save(data, kind)
            self.files[kind] = data.getvalue()

    def attacks(self, count: int, slow: int = 4) -> Iterator[Attack]:
        """`slow`: how many of them hold a connection without ever finishing their head or their body."""
        kinds: list[Callable[[], Attack]] = [
            self.cut, self.flipped, self.shuffled, self.bomb, self.field, self.two_fields, self.whole_json, self.named, self.broken_form,
            self.head, self.path, self.video, self.other_type, self.garbage,
        ]  # fmt: skip
        for number in range(count):
            yield self.slow_loris() if number < slow else self.random.choice(kinds)()

    def cut(self) -> Attack:
        kind, content = self._file()
        return self._post("cut " + kind, content[: self.random.randrange(len(content))])

    def flipped(self) -> Attack:
        kind, content = self._file()
        return self._post("bits flipped " + kind, self._flip(content))

    def shuffled(self) -> Attack:
        """The head of one format, the body of another."""
        (one, head), (other, tail) = self._file(), self._file()
        return self._post(f"{one} head, {other} body", head[: self.random.randrange(4, 200)] + tail[100:])

    def bomb(self) -> Attack:
        side = self.random.choice((7200, 20_000, 65_000, 2**31 - 1))
        shape = struct.pack(">II", side, self.random.choice((side, 16, 1)))
        lines = zlib.compress(bytes(5_000_000), 9)
        png = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", shape + b"\x08\x02\0\0\0")
        bombs = {
            "PNG of many pixels": png + _chunk(b"IDAT", lines) + _chunk(b"IEND", b""),
            "PNG with a text bomb": png[:8]
            + _chunk(b"IHDR", struct.pack(">II", 64, 64) + b"\x08\x02\0\0\0")
            + _chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(80_000_000), 9)) * 4
            + _chunk(b"IDAT", lines),
            "GIF of many pixels": b"GIF89a" + struct.pack("<HH", 65_000, 65_000) + self.files["GIF"][10:],
            "BMP of many pixels": self.files["BMP"][:18] + struct.pack("<ii", side, side) + self.files["BMP"][26:],
            "JPEG of many pixels": _with_size(self.files["JPEG"], 65_000, 65_000),
        }
        name = self.random.choice(list(bombs))
        return self._post(name, bombs[name])

    def field(self) -> Attack:
        name, value = self.random.choice(FIELDS), self.random.choice(VALUES)
        return self._post(f"{name} of a wrong kind", self.files["JPEG"], {name: value.encode("utf-8", "replace")})

    def two_fields(self) -> Attack:
        name = self.random.choice(("detector", "camera", "images", "__class__", "x" * 5000, "IMAGE", "seed\r\n\r\n"))
        return self._post("unknown field", self.files["JPEG"], {name: b"1", "seed": b"1"})

    def whole_json(self) -> Attack:
        body = self.random.choice(
            (*(value.encode("utf-8", "replace") for value in VALUES), b'{"image": 5}', b'{"image": "data:image/png;base64,AAAA"}',
             b'{"image": "!!!!"}', b'{"image": ""}', b'{"image": null, "video": "AAAA"}', b'{"image": "AAAA", "image": "AAAB"}',
             b'\xff\xfe{\x00}\x00', b'{"image": "' + b"A" * 3_000_000 + b'"}')
        )  # fmt: skip
        return Attack(
            "JSON of a wrong kind", _request("POST", self._route(), {"Content-Type": "application/json"}, body)
        )

    def named(self) -> Attack:
        name = self.random.choice(NAMES)
        body = form(
            {"image": self._flip(self.files["PNG"])}, {k: json.dumps(v).encode() for k, v in QUICK.items()}, name
        )
        return Attack("a path for a name", _request("POST", self._route(), _multipart(), body))

    def broken_form(self) -> Attack:
        body = form({"image": self.files["JPEG"]}, {"seed": b"1"})
        where = self.random.randrange(len(body))
        broken = self.random.choice(
            (body[:where], self._flip(body), body.replace(b"\r\n", b"\n"), body * 2, b"", b"--" * 50_000, b"\r\n" * 100_000,
             body.replace(b'name="image"', b""), body.replace(b'"image"', b'"im\0age"'), form({"image": b""}, {}),
             form({}, {f"f{k}": b"1" for k in range(300)}), form({"image": b"x", "video": b"y"}, {}))
        )  # fmt: skip
        headers = self.random.choice(
            (_multipart(), {"Content-Type": "multipart/form-data"}, {"Content-Type": "multipart/form-data; boundary="},
             {"Content-Type": "multipart/form-data; boundary=" + "b" * 5000}, {"Content-Type": 'multipart/form-data; boundary="'})
        )  # fmt: skip
        return Attack("a broken form", _request("POST", self._route(), headers, broken))

    def head(self) -> Attack:
        wrong: list[dict[str, str]] = [
            {"X-Long": "a" * self.random.choice((10_000, 70_000, 1_000_000))}, {f"X-{k}": "b" for k in range(3000)},
            {"Content-Length": "99999999999999999999"}, {"Content-Length": "-5"}, {"Content-Length": "12, 13"},
            {"Transfer-Encoding": "chunked", "Content-Length": "4"}, {"Transfer-Encoding": "gzip"}, {"Host": "evil.example"},
            {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Authorization": "Bearer \xff" * 50},
            {"Expect": "100-continue", "Content-Length": "30000000"}, {"Upgrade": "websocket", "Connection": "upgrade"},
            {"Content-Encoding": "gzip"}, {"Cookie": "a=" + "b" * 4000},
        ]  # fmt: skip
        body = form({"image": self.files["GIF"][:50]}, {})
        return Attack("a wrong head", _request("POST", self._route(), _multipart() | self.random.choice(wrong), body))

    def path(self) -> Attack:
        path = self.random.choice(
            ("/static/../app.py", "/static/%2e%2e%2fapp.py", "/static/..%5capp.py", "//etc/passwd", "/v1/files/..%2f..%2fetc%2fpasswd",
             "/v1/examples/../../etc/passwd", "/v1/examples/%00", "/static/" + "a" * 20_000, "/v1/predict/", "/V1/PREDICT", "*",
             "http://evil.example/", "/v1/files/exe", "/?" + "q=1&" * 5000, "/%ff%fe", "/v1/files/")
        )  # fmt: skip
        return Attack(
            "a path that leads out",
            _request(self.random.choice(("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE")), path, {}, b""),
        )

    def video(self) -> Attack:
        content = self.random.choice(
            (self.film[: self.random.randrange(len(self.film))], self._flip(self.film), self.film[:40] + self._flip(self.film[40:]),
             b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", b"RIFF" + self.random.randbytes(3000), b"\x1aE\xdf\xa3" + self.random.randbytes(3000),
             b"\0\0\0\x18ftypmp42" + self.random.randbytes(3000), self.files["JPEG"])
        )  # fmt: skip
        body = form({"video": content}, {"hypotheses": b"1", "steps": b"1"})
        route = self.random.choice(("/v1/video", "/v1/files/html", "/v1/files/bvh"))
        return Attack("a hostile video", _request("POST", route, _multipart(), body))

    def other_type(self) -> Attack:
        content = self.random.choice(
            (b"%PDF-1.7\n%%EOF", b"PK\x03\x04" + bytes(500), b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%id) (w) file\n",
             b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>", b"\x80\x04\x95cposix\nsystem\n(S'id'\ntR.",
             b"II*\0" + self.random.randbytes(4000), b"\x93NUMPY\x01\0", b"push graphic-context\nimage over 0,0 0,0 'ephemeral:/tmp/x'\n",
             self.random.randbytes(2000), b"\0" * 100_000)
        )  # fmt: skip
        return self._post("another kind of file", content)

    def garbage(self) -> Attack:
        sent = self.random.choice(
            (self.random.randbytes(3000), b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(200), b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 5000,
             b"GET /\r\n\r\n", b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
             b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n")
        )  # fmt: skip
        return Attack("no HTTP", sent)

    def slow_loris(self) -> Attack:
        head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\n"
        body = b"Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"
        return Attack("held open", head + self.random.choice((b"", body)), 3.0)

    def _file(self) -> tuple[str, bytes]:
        return self.random.choice(list(self.files.items()))

    def _flip(self, content: bytes) -> bytes:
        data = bytearray(content)
        for _ in range(self.random.choice((1, 3, 10, 100))):
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return bytes(data)

    def _post(self, name: str, content: bytes, fields: dict[str, bytes] | None = None) -> Attack:
        whole = {key: json.dumps(value).encode() for key, value in QUICK.items()} | (fields or {})
        return Attack(name, _request("POST", self._route(), _multipart(), form({"image": content}, whole)))

    def _route(self) -> str:
        return self.random.choice(
            ("/v1/predict", "/v1/predict", "/v1/predict", "/v1/files/csv", "/v1/reveal", "/v1/lab")
        )


def _multipart() -> dict[str, str]:
    return {"Content-Type": "multipart/form-data; boundary=----di2pose-form"}


def _request(method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    whole = {"Host": "localhost", "Connection": "close", "Content-Length": str(len(body))} | headers
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in whole.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _with_size(jpeg: bytes, width: int, height: int) -> bytes:
    """The same JPEG, with other numbers in its frame header."""
    at = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:at] + struct.pack(">HH", height, width) + jpeg[at + 4 :]


def strike(port: int, attack: Attack, timeout_s: float = 180.0) -> str:
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
        before = server.memory()

        def one(attack: Attack) -> None:
            status = strike(server.port, attack)
            with lock:
                told[
                    attack.name.split(" of a wrong kind")[0] if attack.name.startswith("JSON") else attack.name, status
                ] += 1
                if not is_right(status):
                    wrong.append((attack.name, status))

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(one, arsenal.attacks(count)))
        last = server.ask("/v1/predict", good)
        alive, after = server.alive, server.memory()
    names = sorted({name for name, _ in told})
    statuses = sorted({status for _, status in told})
    rows = [[name, *(str(told[name, status] or "") for status in statuses)] for name in names]
    print(markdown(["hostile request", *statuses], rows))
    print(f"{sum(told.values())} requests; {len(wrong)} wrong answers {wrong[:10]}; server alive: {alive}")
    print(f"the good request after them: {'the same answer' if last == first and first[0] == 200 else 'OTHER'}")
    print(f"memory afterwards over before: {after / before:.2f}")
    return 0 if not wrong and alive and last == first and first[0] == 200 else 1


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
