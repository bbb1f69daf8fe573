"""Damaged files and odd text for every parser: InputError or an answer, never another exception, a hang or endless
memory."""

import copy
import json
import resource
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from fuzz.parsers import PARSERS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from di2pose.commands.inputs import BoxFile
from di2pose.commands.writing import endings, parse_formats
from di2pose.errors import InputError

LIMIT_S = 60
"""Of one damaged input, wall time: generous, for the machine may be busy."""
MEMORY = 24 << 30
"""Address space: a header that claims more gives a MemoryError instead of taking the machine's memory."""
HUGE = [bytes(count) for count in (1, 4, 8, 32)] + [b"\xff" * count for count in (2, 4, 8)]
HUGE += [b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\xff" * 7 + b"\x7f", bytes(2) + b"\x01" + bytes(5)]
"""Numbers that a damaged header may claim."""
DEPTH = 100_000
TEXTS = [b"", b"\xff\xfe\x00{", b'{"\xe9": 1}', b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH, b"1" * 10_000, b"null"]
VALUES = [
    None, True, 0, -1, 2**31, 2**63, 10**30, 1.5, float("nan"), float("inf"), 1e308, "", "x", "\ud800", "a" * 3000,
    [], [[]], [None], {}, {"": None}, {"a": {"b": []}}, [1, 2, 3], [[1.0] * 3] * 3,
]  # fmt: skip
"""What stands in the place of another value of JSON."""
WORDS = """HIERARCHY ROOT JOINT End Site { } OFFSET CHANNELS 3 6 Xrotation Zposition MOTION Frames: 1 Frame Time: 0.01
    -1 1e999 nan x [cam_01] size=[1,2] matrix=3 [] {"row":1} {"iteration":1} null file,x0,y0,x1,y1 a,1,2,3,4
    PathFileType"""
odd_text = st.text(max_size=200) | st.lists(st.sampled_from([*WORDS.split(), "\n", "\t"]), max_size=40).map(" ".join)
examined = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@st.composite
def damaged_bytes(draw, raw):
    """Cut, overwritten, shortened or extended at one to three places, most of them in the head."""
    data = bytearray(raw)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, min(len(data), 400)) | st.integers(0, len(data)))
        kind = draw(st.sampled_from(("cut", "overwrite", "overwrite", "drop", "insert", "repeat")))
        if kind == "cut":
            del data[at:]
        elif kind == "overwrite":
            new = draw(st.binary(min_size=1, max_size=4) | st.sampled_from(HUGE))
            data[at : at + len(new)] = new
        elif kind == "drop":
            del data[at : at + draw(st.integers(1, 40))]
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=40))
        else:
            start = draw(st.integers(0, len(raw)))
            data[at:at] = raw[start : start + 200]
    return bytes(data)


def places(value, path=()):
    """The paths of all values within a value of JSON, 30 of each list."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(inner)[:30]:
        yield (*path, key)
        yield from places(part, (*path, key))


@st.composite
def damaged_json(draw, value):
    """A value replaced, removed or renamed."""
    value = copy.deepcopy(value)
    *path, last = draw(st.sampled_from(list(places(value))))
    parent = value
    for key in path:
        parent = parent[key]
    kind = draw(st.sampled_from(("put", "put", "remove", "add")))
    if kind == "put":
        parent[last] = draw(st.sampled_from(VALUES))
    elif kind == "remove":
        del parent[last]
    elif isinstance(parent, dict):
        parent[draw(st.sampled_from(("", "unknown")))] = parent[last]
    else:
        parent.insert(last, draw(st.sampled_from(VALUES)))
    return json.dumps(value).encode("utf-8", "surrogatepass")


@pytest.fixture
def _limits():
    """Memory and time. What hangs raises out of a handler that is no Exception, so that no parser catches it."""

    class Hangs(BaseException):
        pass

    def stop(*_):
        raise Hangs

    before, old = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("_limits", "as_user")
@pytest.mark.parametrize("name", PARSERS)
def test_damaged_input_is_refused_or_read(tmp_path, name):
    parser = PARSERS[name]
    path = tmp_path / parser.file
    parser.make(path)
    parser.read(path)
    raw = path.read_bytes()
    cases = damaged_bytes(raw)
    if path.suffix == ".json":
        cases = st.sampled_from(TEXTS) | cases | damaged_json(json.loads(raw)) | damaged_json(json.loads(raw))
    elif path.suffix in (".bvh", ".trc", ".csv", ".toml", ".jsonl"):
        cases = cases | odd_text.map(lambda text: text.encode("utf-8", "surrogatepass"))

    def read():
        if parser.fix is not None:
            parser.fix(path)
        signal.alarm(LIMIT_S)
        with suppress(InputError):
            parser.read(path)

    @settings(examined, max_examples=parser.examples)
    @given(cases)
    def try_one(data):
        path.write_bytes(data)
        read()

    try_one()
    path.unlink()
    if parser.fix is None:
        read()


@settings(examined, max_examples=30)
@given(st.text(max_size=30) | st.lists(st.sampled_from([*endings(), ",", " "]), max_size=6).map("".join))
def test_formats_are_known_ones_or_refused(text):
    with suppress(InputError):
        names = parse_formats(text)
        assert names
        assert set(names) <= set(endings())


@settings(examined, max_examples=30)
@given(st.text(st.sampled_from("0123456789.,;+- "), max_size=30))
def test_typed_boxes_are_boxes_or_refused(text):
    with suppress(InputError):
        found = BoxFile(Path(text)).everywhere
        assert found is not None
        assert all(x0 < x1 and y0 < y1 for x0, y0, x1, y1 in found)
