"""Hostile requests, made of a real picture and a real video. The same seed makes the same."""

import io
import json
import random
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from PIL import Image
from server_process import form

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
    """One connection: what it is ("kind: detail"), what is sent, and for how long it is held open afterwards."""

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
        self.many_scans = _many_scans(picture)

    def attacks(self, count: int, slow: int = 4) -> Iterator[Attack]:
        """`slow`: how many of them hold a connection without ever finishing their head or their body."""
        kinds: list[Callable[[], Attack]] = [
            self.cut, self.flipped, self.shuffled, self.bomb, self.field, self.two_fields, self.whole_json,
            self.named, self.broken_form,
            self.head, self.path, self.video, self.other_type, self.garbage,
        ]  # fmt: skip
        for number in range(count):
            yield self.slow_loris() if number < slow else self.random.choice(kinds)()

    def cut(self) -> Attack:
        kind, content = self._file()
        return self._post(f"picture cut off: {kind}", content[: self.random.randrange(len(content))])

    def flipped(self) -> Attack:
        kind, content = self._file()
        return self._post(f"bits flipped: {kind}", self._flip(content))

    def shuffled(self) -> Attack:
        """The head of one format, the body of another."""
        (one, head), (other, tail) = self._file(), self._file()
        return self._post(f"two formats in one: {one}, {other}", head[: self.random.randrange(4, 200)] + tail[100:])

    def bomb(self) -> Attack:
        side = self.random.choice((7200, 20_000, 65_000, 2**31 - 1))
        shape = struct.pack(">II", side, self.random.choice((side, 16, 1)))
        lines = _zeros(5_000_000)
        png = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", shape + b"\x08\x02\0\0\0")
        bombs = {
            "bomb: PNG of many pixels": png + _chunk(b"IDAT", lines) + _chunk(b"IEND", b""),
            "bomb: PNG with a text bomb": png[:8]
            + _chunk(b"IHDR", struct.pack(">II", 64, 64) + b"\x08\x02\0\0\0")
            + _chunk(b"zTXt", b"a\0\0" + _zeros(80_000_000)) * 4
            + _chunk(b"IDAT", lines),
            "bomb: GIF of many pixels": b"GIF89a" + struct.pack("<HH", 65_000, 65_000) + self.files["GIF"][10:],
            "bomb: BMP of many pixels": self.files["BMP"][:18]
            + struct.pack("<ii", side, side)
            + self.files["BMP"][26:],
            "bomb: JPEG of many pixels": _with_size(self.files["JPEG"], 65_000, 65_000),
            "bomb: JPEG of many scans": self.many_scans,
        }
        name = self.random.choice(list(bombs))
        return self._post(name, bombs[name])

    def field(self) -> Attack:
        name, value = self.random.choice(FIELDS), self.random.choice(VALUES)
        return self._post(
            f"field of a wrong kind: {name}", self.files["JPEG"], {name: value.encode("utf-8", "replace")}
        )

    def two_fields(self) -> Attack:
        name = self.random.choice(("detector", "camera", "images", "__class__", "x" * 5000, "IMAGE", "seed\r\n\r\n"))
        return self._post(f"unknown field: {name[:12]!r}", self.files["JPEG"], {name: b"1", "seed": b"1"})

    def whole_json(self) -> Attack:
        body = self.random.choice(
            (*(value.encode("utf-8", "replace") for value in VALUES), b'{"image": 5}',
             b'{"image": "data:image/png;base64,AAAA"}',
             b'{"image": "!!!!"}', b'{"image": ""}', b'{"image": null, "video": "AAAA"}',
             b'{"image": "AAAA", "image": "AAAB"}',
             b'\xff\xfe{\x00}\x00', b'{"image": "' + b"A" * 3_000_000 + b'"}')
        )  # fmt: skip
        return Attack(
            "JSON of a wrong kind", _request("POST", self._route(), {"Content-Type": "application/json"}, body)
        )

    def named(self) -> Attack:
        name = self.random.choice(NAMES)
        return self._post(f"path for a name: {name!r}", self._flip(self.files["PNG"]), filename=name)

    def broken_form(self) -> Attack:
        body = form({"image": self.files["JPEG"]}, {"seed": b"1"})
        where = self.random.randrange(len(body))
        broken = self.random.choice(
            (body[:where], self._flip(body), body.replace(b"\r\n", b"\n"), body * 2, b"", b"--" * 50_000,
             b"\r\n" * 100_000,
             body.replace(b'name="image"', b""), body.replace(b'"image"', b'"im\0age"'), form({"image": b""}, {}),
             form({}, {f"f{k}": b"1" for k in range(300)}), form({"image": b"x", "video": b"y"}, {}))
        )  # fmt: skip
        headers = self.random.choice(
            (_multipart(), {"Content-Type": "multipart/form-data"}, {"Content-Type": "multipart/form-data; boundary="},
             {"Content-Type": "multipart/form-data; boundary=" + "b" * 5000},
             {"Content-Type": 'multipart/form-data; boundary="'})
        )  # fmt: skip
        return Attack("broken form", _request("POST", self._route(), headers, broken))

    def head(self) -> Attack:
        wrong: list[dict[str, str]] = [
            {"X-Long": "a" * self.random.choice((10_000, 70_000, 1_000_000))}, {f"X-{k}": "b" for k in range(3000)},
            {"Content-Length": "99999999999999999999"}, {"Content-Length": "-5"}, {"Content-Length": "12, 13"},
            {"Transfer-Encoding": "chunked", "Content-Length": "4"}, {"Transfer-Encoding": "gzip"},
            {"Host": "evil.example"},
            {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Authorization": "Bearer \xff" * 50},
            {"Expect": "100-continue", "Content-Length": "30000000"}, {"Upgrade": "websocket", "Connection": "upgrade"},
            {"Content-Encoding": "gzip"}, {"Cookie": "a=" + "b" * 4000},
        ]  # fmt: skip
        body = form({"image": self.files["GIF"][:50]}, {})
        return Attack("wrong head", _request("POST", self._route(), _multipart() | self.random.choice(wrong), body))

    def path(self) -> Attack:
        path = self.random.choice(
            ("/static/../app.py", "/static/%2e%2e%2fapp.py", "/static/..%5capp.py", "//etc/passwd",
             "/v1/files/..%2f..%2fetc%2fpasswd",
             "/v1/examples/../../etc/passwd", "/v1/examples/%00", "/static/" + "a" * 20_000, "/v1/predict/",
             "/V1/PREDICT", "*",
             "http://evil.example/", "/v1/files/exe", "/?" + "q=1&" * 5000, "/%ff%fe", "/v1/files/")
        )  # fmt: skip
        return Attack(
            "path that leads out",
            _request(self.random.choice(("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE")), path, {}, b""),
        )

    def video(self) -> Attack:
        content = self.random.choice(
            (self.film[: self.random.randrange(len(self.film))], self._flip(self.film),
             self.film[:40] + self._flip(self.film[40:]),
             b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", b"RIFF" + self.random.randbytes(3000),
             b"\x1aE\xdf\xa3" + self.random.randbytes(3000),
             b"\0\0\0\x18ftypmp42" + self.random.randbytes(3000), self.files["JPEG"], _growing_video())
        )  # fmt: skip
        body = form({"video": content}, {"hypotheses": b"1", "steps": b"1"})
        route = self.random.choice(("/v1/video", "/v1/files/html", "/v1/files/bvh"))
        return Attack(f"hostile video: {content[:12]!r}", _request("POST", route, _multipart(), body))

    def other_type(self) -> Attack:
        content = self.random.choice(
            (b"%PDF-1.7\n%%EOF", b"PK\x03\x04" + bytes(500),
             b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%id) (w) file\n",
             b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
             b"\x80\x04\x95cposix\nsystem\n(S'id'\ntR.",
             b"II*\0" + self.random.randbytes(4000), b"\x93NUMPY\x01\0",
             b"push graphic-context\nimage over 0,0 0,0 'ephemeral:/tmp/x'\n",
             self.random.randbytes(2000), b"\0" * 100_000)
        )  # fmt: skip
        return self._post(f"another kind of file: {content[:12]!r}", content)

    def garbage(self) -> Attack:
        sent = self.random.choice(
            (self.random.randbytes(3000), b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(200),
             b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 5000,
             b"GET /\r\n\r\n",
             b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
             b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
             b"GET / HTTP/1.1\r\n\r\n")
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

    def _post(
        self, name: str, content: bytes, fields: dict[str, bytes] | None = None, filename: str = "a.jpg"
    ) -> Attack:
        whole = {key: json.dumps(value).encode() for key, value in QUICK.items()} | (fields or {})
        route = self._route()
        if route == "/v1/lab":  # pictures that can still be read should not take long
            whole["grid"] = b"2"
        return Attack(name, _request("POST", route, _multipart(), form({"image": content}, whole, filename)))

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


@cache
def _zeros(count: int) -> bytes:
    """So many, packed."""
    return zlib.compress(bytes(count), 9)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _many_scans(picture: Image.Image) -> bytes:
    """A small progressive JPEG that claims to be large; its last scan comes 8,000 times."""
    data = io.BytesIO()
    picture.resize((32, 32)).save(data, "JPEG", progressive=True)
    jpeg = _with_size(data.getvalue(), 7056, 7056)
    last = jpeg.rindex(b"\xff\xda")
    return jpeg[:last] + jpeg[last:-2] * 8000 + jpeg[-2:]


@cache
def _growing_video() -> bytes:
    """An AVI of JPEGs whose third frame has 16,000 x 16,000 pixels."""
    import av

    data = io.BytesIO()
    Image.new("L", (32, 32), 128).save(data, "JPEG")
    small = data.getvalue()
    scan = small.index(b"\xff\xda") + 10
    blocks = b"\x28\xa2\x8a" * (16_000 * 16_000 // 256)  # each is the same six bits
    large = _with_size(small[:scan], 16_000, 16_000) + blocks + b"\xff\xd9"
    data = io.BytesIO()
    with av.open(data, "w", format="avi") as container:
        stream = container.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuvj420p"
        for k, jpeg in enumerate((small, small, large, small)):
            packet = av.Packet(jpeg)
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, 10), True
            packet.pts = packet.dts = k
            container.mux(packet)
    return data.getvalue()


def _with_size(jpeg: bytes, width: int, height: int) -> bytes:
    """The same JPEG, plain or progressive, with other numbers in its frame header."""
    found = re.search(rb"\xff[\xc0\xc2]\0[\x0b\x11]\x08", jpeg)  # 8 bits, one component or three
    assert found is not None
    at = found.start() + 5
    return jpeg[:at] + struct.pack(">HH", height, width) + jpeg[at + 4 :]
