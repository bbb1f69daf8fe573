"""Damaged and hostile inputs for every parser: InputError or a good answer, never another exception, hang or crash."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import handed_in, media, own  # noqa: F401  # they fill PARSERS
from fuzz.corpus import PARSERS
from fuzz.damage import broken_bytes, broken_json


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """Parser -> what failed, from one run of all of them in a process of its own."""
    program = [sys.executable, str(Path(__file__).with_name("run.py")), str(tmp_path_factory.mktemp("fuzz"))]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {line["parser"]: line["failures"] for line in lines if "failures" in line}
    if done.returncode:  # which input it was that ended the process
        last = lines[-1] if lines else {"parser": "", "case": "start"}
        found[last["parser"]] = [f"{last.get('case')} ended the run: {done.stderr[-2000:]}"]
    return found


@pytest.mark.parametrize("name", [parser.name for parser in PARSERS])
def test_bad_input_is_refused_or_read(failures, name):
    assert failures.get(name, ["it was not reached"]) == []


def test_the_corpus_is_the_same_every_time_and_differs_from_what_is_good():
    raw = bytes(range(256)) * 4
    first, again = (list(broken_bytes(raw, 7, 60)) for _ in range(2))
    assert first == again
    assert len(first) == 60
    assert sum(data == raw for _, data in first) <= 3
    value = {"a": [1, 2, {"b": "c"}], "d": None}
    texts = list(broken_json(value, 3, 60))
    assert texts == list(broken_json(value, 3, 60))
    assert len({data for _, data in texts}) > 45


def test_every_file_that_is_written_and_read_again_is_in_the_corpus():
    """A new parser is added to the corpus, too."""
    assert len({parser.name for parser in PARSERS}) == len(PARSERS) >= 40
