"""Good files made bad, by a seed: cut, flipped, overwritten, spliced bytes; and JSON with values of other kinds."""

import copy
import json
import random
import struct
from collections.abc import Iterator
from typing import Any

HUGE = [struct.pack(form, value) for form, value in (
    ("<I", 0xFFFFFFFF), (">I", 0xFFFFFFFF), ("<I", 0x7FFFFFFF), (">I", 0x7FFFFFFF), ("<Q", 2**63 - 1), (">Q", 2**40),
    ("<H", 0xFFFF), ("<I", 0), ("<Q", 0),
)]  # fmt: skip
"""Numbers that a header may claim."""
VALUES: list[Any] = [
    None, True, 0, -1, 2**31, 2**63, 10**30, 1.5, -0.0, float("nan"), float("inf"), 1e308, "", "x", "0", "\ud800",
    "a" * 3000, [], [[]], [None], {}, {"": None}, {"a": {"b": []}}, [1, 2, 3], [[1.0] * 3] * 3,
]  # fmt: skip
"""What stands in the place of another value."""
DEPTH = 100_000


def broken_bytes(raw: bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """(what was done, the bytes) of `count` bad ones, the first few always the same kinds."""
    rng = random.Random(seed)
    yield "empty", b""
    yield "zeros", b"\0" * len(raw)
    yield "noise", rng.randbytes(min(len(raw), 5000))
    for share in (0.02, 0.3, 0.7, 0.98):
        yield f"cut at {share}", raw[: int(share * len(raw))]
    yield "cut by a byte", raw[:-1]
    yield "twice", raw + raw
    for number in range(count - 9):
        data, head = bytearray(raw), rng.random() < 0.6  # headers are where it hurts
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            at = rng.randrange(min(len(data), 400) if head else len(data))
            kind = rng.choice(("flip", "byte", "huge", "zero", "drop", "insert", "splice"))
            if kind == "flip":
                data[at] ^= 1 << rng.randrange(8)
            elif kind == "byte":
                data[at] = rng.randrange(256)
            elif kind == "huge":
                claim = rng.choice(HUGE)
                data[at : at + len(claim)] = claim
            elif kind == "zero":
                data[at : at + rng.choice((1, 4, 32))] = b"\0" * rng.choice((1, 4, 32))
            elif kind == "drop":
                del data[at : at + rng.choice((1, 4, 40))]
            elif kind == "insert":
                data[at:at] = rng.randbytes(rng.choice((1, 4, 40)))
            else:
                start = rng.randrange(len(raw))
                data[at:at] = raw[start : start + rng.randrange(1, 200)]
            if not data:
                break
        yield f"bytes {number}", bytes(data)


def broken_json(value: Any, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Texts that are no JSON, and JSON of the wrong shape: one to three places changed, deleted or repeated."""
    rng = random.Random(seed)
    text = json.dumps(value)
    yield "not text", b"\xff\xfe\x00" + text.encode("utf-16-le")[:100]
    yield "latin-1", b'{"\xe9": 1}'
    yield "deep list", b"[" * DEPTH + b"]" * DEPTH
    yield "deep object", b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
    yield "long number", b"1" * 10_000
    yield "mark", b"\xef\xbb\xbf" + text.encode()
    for whole in (None, [], {}, 3, "x", [value], {"a": value}):
        yield f"whole {json.dumps(whole)[:20]}", json.dumps(whole).encode()
    for name, data in broken_bytes(text.encode(), seed, max(count // 3, 9)):
        yield f"text, {name}", data
    for number in range(count - count // 3):
        changed = copy.deepcopy(value)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            changed = _changed(changed, rng)
        yield f"value {number}", json.dumps(changed).encode("utf-8", "surrogatepass")


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(inner)[:30]:
        yield from _places(part, (*path, key))


def _changed(value: Any, rng: random.Random) -> Any:
    places = list(_places(value))
    shallow = [place for place in places if len(place) <= 2]
    place = rng.choice(shallow if rng.random() < 0.5 else places)
    if not place:
        return copy.deepcopy(rng.choice(VALUES)) if rng.random() < 0.2 else value
    parent = value
    for key in place[:-1]:
        parent = parent[key]
    kind, last = rng.choice(("put", "put", "put", "delete", "add")), place[-1]
    if kind == "put":
        parent[last] = copy.deepcopy(rng.choice(VALUES))
    elif kind == "delete":
        del parent[last]
    elif isinstance(parent, dict):
        parent[rng.choice(("", "unknown", str(last).upper()))] = copy.deepcopy(parent[last])
    else:
        parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(rng.choice(VALUES)))
    return value
