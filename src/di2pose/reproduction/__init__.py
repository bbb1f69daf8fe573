"""The paper, tested: tables of comparisons, runs of the ordinary commands, and the ledger of what holds."""
