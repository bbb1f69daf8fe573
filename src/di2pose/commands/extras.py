"""The packages that di2pose needs, and those of each extra, by its own metadata."""

import re
from importlib.metadata import requires

IMPORTED_AS = {"pillow": "PIL", "ai-edge-litert": "ai_edge_litert"}
"""Package -> module, where they differ."""
NOT_FOR_USERS = ("dev",)
"""Extras for those who work on the project itself."""


def dependencies() -> dict[str, list[str]]:
    """Package -> the extras that bring it; none for one that is always needed. Needed ones first."""
    needed: dict[str, list[str]] = {}
    optional: dict[str, list[str]] = {}
    for line in requires("di2pose") or []:
        name = re.match(r"[A-Za-z0-9._-]+", line)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        if name is None or name[0] == "di2pose":
            continue
        if extra is None:
            needed[name[0]] = []
        elif extra[1] not in NOT_FOR_USERS:
            optional.setdefault(name[0], []).append(extra[1])
    return dict(sorted(needed.items())) | dict(sorted(optional.items()))


def module_of(package: str) -> str:
    """What one writes after `import`."""
    return IMPORTED_AS.get(package, package.replace("-", "_"))
