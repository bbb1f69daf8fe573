"""Hand every parser its good input and many bad ones. Run as a program, since what it looks for may end the process:

    python run.py FOLDER [NAME ...]

Prints a JSON line for each parser when it begins and when it is done; the latter with what failed. A bad input must
give InputError or an answer; the good one an answer. What hangs is stopped after LIMIT_S seconds and failed.
"""

import faulthandler
import json
import random
import resource
import shutil
import signal
import sys
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz import handed_in, media, own  # noqa: F401  # they fill PARSERS
from fuzz.corpus import PARSERS, Parser
from fuzz.damage import broken_bytes, broken_json

from di2pose.errors import InputError

LIMIT_S = 20
"""Of one bad input, wall time: generous, for the machine may be busy."""
MEMORY = 16 << 30
"""Address space: who believes a header that asks for more gets a MemoryError, and not the machine's whole memory."""


class Hangs(BaseException):
    """Not an Exception: no parser may catch it."""


def stop(*_: object) -> None:
    raise Hangs


def try_one(parser: Parser, folder: Path) -> str | None:
    """None where all is well, else what went wrong."""
    signal.alarm(LIMIT_S)
    try:
        parser.read(folder)
    except (InputError, *parser.also):
        return None
    except BaseException as error:
        steps = traceback.extract_tb(error.__traceback__)
        places = [f"{Path(step.filename).name}:{step.lineno}" for step in steps]
        what = f"hangs for {LIMIT_S} s" if isinstance(error, Hangs) else f"{type(error).__name__}: {str(error)[:150]}"
        return f"{what} at {' '.join(places[-5:])}"
    finally:
        signal.alarm(0)
    return None


def fuzz(parser: Parser, folder: Path) -> list[str]:
    good = folder / "good"
    good.mkdir(parents=True)
    parser.make(good)
    parser.read(good)  # raises where the corpus itself is wrong
    raw = (good / parser.file).read_bytes()
    seed = random.Random(parser.name).randrange(2**32)
    if parser.kind == "json":
        cases = broken_json(json.loads(raw), seed, parser.count)
    else:
        cases = broken_bytes(raw, seed, parser.count)
    failures = []
    for name, data in cases:
        (good / parser.file).write_bytes(data)
        if parser.fix is not None:
            parser.fix(good)
        print(json.dumps({"parser": parser.name, "case": name}), flush=True)
        if (wrong := try_one(parser, good)) is not None:
            failures.append(f"{name}: {wrong}")
    (good / parser.file).unlink()
    if (wrong := try_one(parser, good)) is not None:
        failures.append(f"missing: {wrong}")
    shutil.rmtree(folder)
    return failures


def main(folder: Path, names: list[str]) -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number, parser in enumerate(PARSERS):
        if not names or parser.name in names:
            failures = fuzz(parser, folder / str(number))
            print(json.dumps({"parser": parser.name, "failures": failures}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
