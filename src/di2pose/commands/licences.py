"""`di2pose licences`: whose work this stands on, under which terms, and where each part comes from."""

import json as json_format
import re
from dataclasses import asdict, dataclass
from email import message_from_string
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution

from di2pose import __version__
from di2pose.assets import ASSETS
from di2pose.commands.extras import dependencies
from di2pose.data.prepare import READERS

SILENT = {
    "anny": "Apache-2.0 (code), CC0-1.0 (body data)",
    "ezc3d": "MIT",
    "tensorboard": "Apache-2.0",
}
"""Packages whose metadata does not say it, and those that are seldom installed."""
INSIDE = {
    "av": "its wheels carry FFmpeg (LGPL, with x264 GPL)",
    "transformers": "the ViTPose and RT-DETR weights that it can load have licences of their own, on the hub",
    "anny": "bodies of rendered people, for training",
}
"""What else a package brings along."""
OURS = (
    ("code", "Apache-2.0", f"di2pose {__version__}", ""),
    (
        "weights",
        "Apache-2.0",
        "the model inside the package",
        "trained by us on rendered people: the bodies, clothes and motion below; no registered data set",
    ),
)


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
        print(f"{title}")
        first, second = (
            max(len(text) for text in column) for column in ([r.part for r in rows], [r.source for r in rows])
        )
        for row in rows:
            note = f"  ({row.note})" if row.note else ""
            print(f"  {row.part:<{first}}  {row.source:<{second}}  {row.licence}{note}")
        print()
    print("Third-party files are fetched by package name when they are needed, and never redistributed.")


def everything() -> dict[str, list[Licence]]:
    """Title -> rows."""
    installed: dict[str, list[Licence]] = {"needed": [], "optional": []}
    for package, extras in dependencies().items():
        about = _metadata(package)
        version = f"PyPI {package} {about['Version']}" if about else f"PyPI {package}, not installed"
        note = "; ".join(filter(None, [f"extra {', '.join(extras)}" if extras else "", INSIDE.get(package, "")]))
        rows = installed["optional" if extras else "needed"]
        rows.append(Licence(package, licence_of(about, package), version, note))
    return {
        "This program": [Licence(*row) for row in OURS],
        "Files that are fetched when needed": [
            Licence(asset.name, asset.licence, f"{'PyPI' if asset.client == 'pip' else asset.client} {asset.source}",
                    asset.note)
            for asset in ASSETS.values()
        ],
        "Python packages that it needs": installed["needed"],
        "Python packages of its extras": installed["optional"],
        "Data sets that you may bring": [
            Licence(name, reader.licence, reader.origin) for name, reader in READERS.items() if reader.fetch is None
        ],
    }  # fmt: skip


def licence_of(about: Message | None, package: str) -> str:
    """From a package's own metadata: the expression, else a short text, else the classifiers."""
    if about is not None:
        if expression := about["License-Expression"]:
            return str(expression)
        text = str(about["License"] or "").strip().splitlines()
        if text and len(text[0]) < 40 and not text[0].lower().startswith("copyright"):
            return re.sub(r"\s+", " ", text[0])
        kinds = [line for line in about.get_all("Classifier", []) if line.startswith("License :: OSI Approved :")]
        if kinds:
            return ", ".join(line.rsplit(" :: ", 1)[1] for line in kinds)
    return SILENT.get(package, "see the package")


def _metadata(package: str) -> Message | None:
    """As a mail message, which it is; None where the package is not installed."""
    try:
        return message_from_string(distribution(package).read_text("METADATA") or "")
    except PackageNotFoundError:
        return None
