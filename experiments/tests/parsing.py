"""Commands parsed without running them."""

import functools
from importlib import import_module

import tyro

from di2pose.cli import all_commands


def parsed(words):
    """What the command's function would be called with."""
    commands = all_commands()
    name = next(" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in commands)
    module, function = commands[name][0].split(":")
    command = getattr(import_module(module), function)

    @functools.wraps(command)
    def record(*positional, **named):
        return positional, named

    return tyro.cli(record, args=list(words[len(name.split()) :]), return_unknown_args=False)
