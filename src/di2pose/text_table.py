"""Tables as text: words to the left, numbers to the right."""

from collections.abc import Sequence
from functools import partial

from tabulate import tabulate

Cells = Sequence[str]


def table(style: str, head: Cells, rows: Sequence[Cells]) -> str:
    """A table in a style of `tabulate`."""
    columns = zip(*rows, strict=True)
    sides = ["right" if all(cell[:1] in "0123456789-+±" for cell in column) else "left" for column in columns]
    return tabulate([list(row) for row in rows], list(head), style, colalign=sides or None, disable_numparse=True)


markdown, aligned, latex = (partial(table, style) for style in ("pipe", "plain", "latex_booktabs"))
"""A Markdown pipe table; columns under their headings, for a terminal; a tabular for booktabs."""
