"""Errors that a user can fix: bad input, and a missing optional dependency."""

from importlib import import_module
from types import ModuleType


class InputError(ValueError):
    """Says what was expected, what came, what to do. The command line prints it without a traceback."""


class MissingExtra(ImportError):
    """An optional dependency is not installed; the message holds the command that installs it."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency; MissingExtra names the extra that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"this needs the Python package '{module}', which is not installed: pip install 'di2pose[{extra}]'"
        ) from error
