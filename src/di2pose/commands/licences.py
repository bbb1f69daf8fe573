"""`di2pose licences`: whose work this stands on, under which terms, and where each part comes from."""

import json as json_format
import re
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, metadata
from textwrap import indent

from tabulate import tabulate

from di2pose import __version__
from di2pose.assets import ASSETS
from di2pose.commands.doctor import dependencies
from di2pose.data.prepare import READERS

SILENT = {
    "anny": "Apache-2.0 (code), CC0-1.0 (body data)",
    "ezc3d": "MIT",
    "pandas": "BSD-3-Clause",
    "pyarrow": "Apache-2.0",
    "ray": "Apache-2.0",
    "starlette": "BSD-3-Clause",
    "uvicorn": "BSD-3-Clause",
    "tensorboard": "Apache-2.0",
}
"""Packages whose metadata does not say it, and those that are seldom installed."""
INSIDE = {
    "av": "its wheels carry FFmpeg (LGPL, with x264 GPL)",
    "transformers": "the ViTPose and RT-DETR weights that it can load have licences of their own, on the hub",
    "anny": "bodies of rendered people, for training",
}
"""What else a package brings along."""
WEIGHTS_NOTE = "trained by us on rendered people: the bodies, clothes and motion below; no registered data set"


@dataclass(frozen=True)
class Licence:
    """One part and its terms."""

    part: str
    licence: str
    source: str
    note: str = ""


def licences(json: bool = False) -> None:
    """Print the licence and source of this program, of its weights and of everything that it uses or fetches.

    Args:
        json: Print one JSON object instead of tables.
    """
    sections = everything()
    if json:
        print(json_format.dumps({title: [asdict(row) for row in rows] for title, rows in sections.items()}, indent=1))
        return
    for title, rows in sections.items():
        cells = [[row.part, row.source, row.licence + (f"  ({row.note})" if row.note else "")] for row in rows]
        print(f"{title}\n{indent(tabulate(cells, tablefmt='plain', disable_numparse=True), '  ')}\n")
    print("Third-party files are fetched by package name when they are needed, and never redistributed.")


def everything() -> dict[str, list[Licence]]:
    """Title -> rows."""
    needed: list[Licence] = []
    optional: list[Licence] = []
    for package, extras in dependencies().items():
        about = _about(package)
        source = f"PyPI {package} {about['version']}" if about else f"PyPI {package}, not installed"
        notes = [f"extra {', '.join(extras)}" if extras else "", INSIDE.get(package, "")]
        row = Licence(package, _licence(package, about), source, "; ".join(filter(None, notes)))
        (optional if extras else needed).append(row)
    registry = {"pip": "PyPI", "npm": "npm"}
    fetched = [Licence(a.name, a.licence, f"{registry[a.client]} {a.source}", a.note) for a in ASSETS.values()]
    brought = [Licence(name, reader.licence, reader.origin) for name, reader in READERS.items() if reader.fetch is None]
    return {
        "This program": [
            Licence("code", "Apache-2.0", f"di2pose {__version__}"),
            Licence("weights", "Apache-2.0", "the model inside the package", WEIGHTS_NOTE),
        ],
        "Files that are fetched when needed": fetched,
        "Python packages that it needs": needed,
        "Python packages of its extras": optional,
        "Data sets that you may bring": brought,
    }


def _about(package: str) -> dict[str, str | list[str]]:
    """A package's own metadata; nothing where it is not installed."""
    try:
        return metadata(package).json
    except PackageNotFoundError:
        return {}


def _licence(package: str, about: dict[str, str | list[str]]) -> str:
    """As the metadata has it: the expression, else a short text, else the classifiers."""
    if expression := about.get("license_expression"):
        return str(expression)
    text = str(about.get("license", "")).strip().splitlines()
    if text and len(text[0]) < 40 and not text[0].lower().startswith("copyright"):
        return re.sub(r"\s+", " ", text[0])
    kinds = [line for line in about.get("classifier", []) if line.startswith("License :: OSI Approved :")]
    return ", ".join(line.rsplit(" :: ", 1)[1] for line in kinds) or SILENT.get(package, "see the package")
