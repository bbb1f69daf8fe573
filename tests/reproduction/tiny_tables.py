"""`di2pose` with a table of three cells that `tiny` can train; the third cannot: run by test_ablate.py as a process."""

import sys

from di2pose.cli import main
from di2pose.reproduction.tables import TABLES, Cell, Stage, Table


def denoiser(batch):
    read = (("--tokenizer", Stage("tokenizer")), ("--adapter", Stage("adapter")))
    return Stage("denoiser", ("--batch", batch), read)


CELLS = (Cell("batch 8", denoiser("8")), Cell("batch 4", denoiser("4"), steps=3), Cell("broken", denoiser("none")))
TABLES["batch"] = Table("Batches", CELLS, tokenizers=True)

if __name__ == "__main__":
    sys.exit(main())
