"""Tables as text: Markdown, aligned columns for the terminal, LaTeX."""

from collections.abc import Sequence

from tabulate import tabulate

Cells = Sequence[str]


def markdown(head: Cells, rows: Sequence[Cells]) -> str:
    """A pipe table, words to the left, numbers to the right."""
    return _table(head, rows, "pipe")


def aligned(head: Cells, rows: Sequence[Cells]) -> str:
    """Columns under their headings, for a terminal."""
    return _table(head, rows, "plain")


def latex(head: Cells, rows: Sequence[Cells]) -> str:
    """A tabular for booktabs."""
    return _table(head, rows, "latex_booktabs")


def _table(head: Cells, rows: Sequence[Cells], style: str) -> str:
    columns = zip(*rows, strict=True)
    sides = ["right" if all(cell[:1] in "0123456789-+±" for cell in column) else "left" for column in columns]
    return tabulate([list(row) for row in rows], list(head), style, colalign=sides or None, disable_numparse=True)
