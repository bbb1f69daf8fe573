"""Comparisons and ablations: tables of trainings, and the ledger of the paper's claims."""

COMMANDS = {
    "ablate": ("di2pose_experiments.ablate:ablate", "methods or settings compared: train and evaluate every cell"),
    "ledger": ("di2pose_experiments.ledger:ledger", "every table of the paper beside ours, and what holds"),
}
"""Commands of `di2pose` that this distribution adds (entry point `di2pose.commands`)."""
