"""The one renderer of tables: Markdown for people and docs, aligned columns for the terminal, LaTeX for papers."""

from collections.abc import Sequence

from tabulate import tabulate

Cells = Sequence[str]


def markdown(head: Cells, rows: Sequence[Cells]) -> str:
    """A pipe table, the first column to the left, numbers to the right."""
    return _table(head, rows, "pipe")


def aligned(head: Cells, rows: Sequence[Cells]) -> str:
    """Columns under their headings, for a terminal."""
    return _table(head, rows, "plain")


def latex(head: Cells, rows: Sequence[Cells]) -> str:
    """A tabular for booktabs."""
    return _table(head, rows, "latex_booktabs")


def _table(head: Cells, rows: Sequence[Cells], style: str) -> str:
    sides = ("left", *("right" for _ in head[1:]))
    return tabulate(
        [list(row) for row in rows], list(head), style, colalign=sides if rows else None, disable_numparse=True
    )
