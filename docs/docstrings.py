"""A griffe extension: the docstrings' lines "name: text" are shown as a list."""

import re
from typing import Any

from griffe import Extension, Object

ITEM = re.compile(r"\*?[a-z_]\w*(, [a-z_]\w*)*: ")


def with_lists(text: str) -> str:
    """A paragraph in which every line is an item, or the indented rest of one, becomes a Markdown list."""
    return "\n\n".join(map(_listed, text.split("\n\n")))


def _listed(paragraph: str) -> str:
    lines = paragraph.split("\n")
    if not all(ITEM.match(line) or line.startswith("    ") for line in lines) or lines[0].startswith(" "):
        return paragraph
    return "\n".join(re.sub(r"^(\*?\w[\w, ]*): ", r"- **\1**: ", line) for line in lines)


class Lists(Extension):
    """Applied to every object that is loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)
