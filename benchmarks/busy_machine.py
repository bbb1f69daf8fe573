"""Photos on a busy machine: the default threads over one thread, both beside the same busy loops, in one run.

    python benchmarks/busy_machine.py
    python benchmarks/busy_machine.py --loops 4 --rounds 15
    GOMP_SPINCOUNT=300000 python benchmarks/busy_machine.py        # threads that spin, as torch's do without us

Two processes with the shipped model each: one as it starts by default, the other with OMP_NUM_THREADS=1, which holds
for litert, too. They take turns at four photos; the figures are medians of the rounds.
"""

import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

import tyro
from clock import Row

LOOP = "while True: pass"
MOST = 1.3
"""Times the run of one thread, at most."""


def main(loops: int = 2, rounds: int = 9, quick: bool = False) -> None:
    """Measure it.

    Args:
        loops: processes that keep a core busy
        rounds: turns of each
        quick: one turn, one hypothesis and one step: only to see that it works
    """
    threads: dict[str, dict[str, str]] = {"default": {}, "one thread": {"OMP_NUM_THREADS": "1"}}
    plain = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    seconds: dict[str, list[float]] = {name: [] for name in threads}
    with ExitStack() as stack:
        children = {
            name: stack.enter_context(_Child([sys.executable, __file__, "photos", str(quick)], plain | more))
            for name, more in threads.items()
        }
        for child in children.values():
            _ask(child)  # everything loaded
        for _ in range(loops):
            stack.enter_context(_Child([sys.executable, "-c", LOOP], plain))
        for _ in range(1 if quick else rounds):
            for name, child in children.items():
                seconds[name].append(_ask(child))
    from di2pose.text_table import markdown  # not before the processes have their environment, which it would change

    default, one = (statistics.median(times) for times in seconds.values())
    row = Row("busy machine", f"four photos beside {loops} busy loops", default / one, "times one thread", most=MOST)
    spread = "; ".join(f"{name} {min(times):.1f}-{max(times):.1f} s" for name, times in seconds.items())
    print(markdown(["what", "value", "wanted"], [[row.what, f"{row.value:.2f} {row.unit}", row.verdict]]))
    print(f"\n{len(seconds['default'])} rounds: {spread}")


class _Child(subprocess.Popen):
    """A process that ends with the block."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        super().__init__(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __exit__(self, *error: object) -> None:
        self.kill()
        super().__exit__(*error)


def _ask(child: subprocess.Popen) -> float:
    """Seconds of a turn."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    return float(child.stdout.readline())


def photos(quick: bool) -> None:
    """The process that is measured: a turn for each line of stdin, its seconds to stdout."""
    from di2pose import Di2Pose
    from di2pose.assets import fetch
    from di2pose.data.demo_footage import walker as _walker
    from di2pose.image.read import read_image

    model, pictures = Di2Pose.from_pretrained(), [read_image(fetch("astronaut")), _walker()]
    options = {"hypotheses": 1, "steps": 1} if quick else {}
    for _ in sys.stdin:
        begin = time.perf_counter()
        for picture in 2 * pictures:
            assert model(picture, **options).people
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["photos"]:
        photos(sys.argv[2] == "True")
    else:
        tyro.cli(main)
