"""`di2pose` with a table of three cells that `tiny` can train; the third cannot: run by test_ablate.py as a process."""

import sys

from di2pose_experiments.tables import TABLES, Cell, Table, di2pose

from di2pose.cli import main

CELLS = (
    Cell("batch 8", di2pose("--batch", "8")),
    Cell("batch 4", di2pose("--batch", "4"), steps=3),
    Cell("broken", di2pose("--share", "2")),
)
TABLES["batch"] = Table("Batches", CELLS)

if __name__ == "__main__":
    sys.exit(main())
