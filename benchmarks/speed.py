"""How near is it to what the machine can do? Everything a ratio inside one run, taken in turns.

    python benchmarks/speed.py --out speed.json                 # all sections, some ten minutes on two quiet cores
    python benchmarks/speed.py --only sampler,photo
    python benchmarks/speed.py --quick                          # small sizes, under a minute on a quiet machine
    python benchmarks/speed.py --threads 1 --cpu-time           # on a machine that does other work, too

denoiser    a pass beside its matrix multiplications alone, and its rate beside that of a large square one
sampler     the reference (`reference_sampler.py`) over ours, a step each from steps 5, 15, .. 95 of 100 (at the paper's
            size three of these); what of a step is not the network, ours and the reference's
photo       photo to person, and a frame of a video, in passes of BlazePose heavy over a crop in its own runtime
lift        a frame of keypoints alone, in the same unit and in frames a second (the one figure that is no ratio)
stations    what a photo is made of, in the same unit
growth      cost as hypotheses, steps, people, pixels and frames become more
training    a training step: time and peak memory, the public way over ours
features    encoding a crop, in the same unit
startup     whole processes over `import torch`

One table at the end, with the targets of those figures that have one; the JSON file grows with every section.
"""

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import speed_network
import speed_pictures
import torch
import tyro
from clock import Clock, Row

from di2pose.errors import InputError
from di2pose.files import replacing
from di2pose.text_table import aligned

SECTIONS: dict[str, Callable[[Clock, bool], list[Row]]] = {
    "denoiser": speed_network.denoiser,
    "sampler": speed_network.sampler,
    "photo": speed_pictures.photo,
    "lift": speed_pictures.lifting,
    "stations": speed_pictures.stations,
    "growth": speed_pictures.growth,
    "training": speed_network.training,
    "features": speed_pictures.features,
    "startup": speed_pictures.startup,
}
SLOW = ("growth",)
"""Left out of --quick, unless it is asked for by name."""


def main(
    only: str = "",
    out: Annotated[Path | None, tyro.conf.arg(metavar="JSON")] = None,
    threads: int = 0,
    repeats: int = 7,
    quick: bool = False,
    cpu_time: bool = False,
) -> None:
    """Measure it.

    Args:
        only: sections, with commas between them; left out: all of them
        out: write the rows there, too
        threads: of PyTorch; 0 is all cores
        repeats: of each measurement; the least counts
        quick: small sizes, a few repeats: whether it works, not how fast it is
        cpu_time: count the process's own time instead of the wall's; with --threads 1
    """
    chosen = only.split(",") if only else [name for name in SECTIONS if not (quick and name in SLOW)]
    if unknown := sorted(set(chosen) - SECTIONS.keys()):
        raise InputError(f"no section is called {', '.join(unknown)}: choose from {', '.join(SECTIONS)}")
    if threads:
        torch.set_num_threads(threads)
    clock = Clock(2 if quick else repeats, cpu_time)
    machine = {"machine": platform.machine(), "threads": torch.get_num_threads(), "torch": torch.__version__}
    settings = machine | {"quick": quick, "repeats": clock.repeats, "cpu_time": cpu_time}
    rows: list[Row] = []
    for name in chosen:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += SECTIONS[name](clock, quick)
        if out is not None:
            written = [vars(row) | {"verdict": row.verdict} for row in rows]
            with replacing(out) as temporary:
                temporary.write_text(json.dumps({"settings": settings, "rows": written}, indent=1))
    print(aligned(["section", "what", "value", "", "wanted"], [_cells(row) for row in rows]))


def _cells(row: Row) -> list[str]:
    value = f"{row.value:.2f}" if abs(row.value) < 10 else f"{row.value:.0f}"
    return [row.section, row.what, value, row.unit, row.verdict]


if __name__ == "__main__":
    tyro.cli(main)
