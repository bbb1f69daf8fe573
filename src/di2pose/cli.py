"""`di2pose COMMAND`: one table, command -> function. The functions' own signatures are the flags."""

import sys
from importlib import import_module
from importlib.metadata import entry_points

import tyro

from di2pose import __version__
from di2pose.errors import InputError, MissingExtra
from di2pose.files import printable
from di2pose.garbage import freeze_gc, gc_disabled

COMMANDS: dict[str, tuple[str, str]] = {
    "predict": ("di2pose.commands.predict:predict", "photos and videos to 3D poses, pages and files"),
    "lift": ("di2pose.commands.lift:lift", "2D keypoints of another program to 3D poses and files, without pictures"),
    "demo": ("di2pose.commands.demo:demo", "a real photo to a 3D pose and a page to look at"),
    "serve": ("di2pose.serve.command:serve", "a page and a REST service: drop a photo, turn the pose"),
    "doctor": ("di2pose.commands.doctor:doctor", "what works on this machine, and how to mend what does not"),
    "data prepare": ("di2pose.data.prepare:prepare", "bring a dataset into the one prepared form"),
    "data check": ("di2pose.data.check:check", "counts, ranges, bone lengths, reprojection, contact sheet"),
    "data lift": ("di2pose.data.lift:lift", "poses as simulated 2D keypoints, to compare lifting methods on"),
    "evaluate": ("di2pose.evaluation.run:evaluate", "named protocols on models or a prediction file"),
    "compare": ("di2pose.evaluation.compare:compare", "paired differences of two evaluations"),
    "export": ("di2pose.commands.export:export", "a trained model in 16 bits, for use"),
    "calibrate": ("di2pose.evaluation.calibrate:calibrate", "learn what the spread of a model's hypotheses means"),
    "features": ("di2pose.training.features:features", "cache a frozen backbone's features"),
    "train tokenizer": ("di2pose.training.command:train_tokenizer", "stage 1: poses to tokens and back"),
    "train adapter": ("di2pose.training.command:train_adapter", "before stage 2: poses read off image features"),
    "train denoiser": ("di2pose.training.command:train_denoiser", "stage 2: tokens from noise and image features"),
    "train model": ("di2pose.training.command:train_model", "a model of another kind: regression, gaussian, pct"),
    "evaluate tokenizer": ("di2pose.evaluation.tokenizer:evaluate_tokenizer", "what tokens lose, and codes used"),
}

BUILT_IN = {name.split()[0] for name in COMMANDS}
ADDED = {"people": "packages/people", "ablate": "experiments", "ledger": "experiments"}
"""First words of commands that another distribution of this repository adds -> its folder."""


def all_commands() -> dict[str, tuple[str, str]]:
    """COMMANDS and those of installed distributions (entry points `di2pose.commands`: a dict like COMMANDS)."""
    found = dict(COMMANDS)
    for point in entry_points(group="di2pose.commands"):
        found |= point.load()
    return found


def usage(group: str = "") -> str:
    """Of all commands, or of those of a group ("data")."""
    commands = {name: text for name, (_, text) in all_commands().items() if not group or name.startswith(f"{group} ")}
    width = max(map(len, commands))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, text in commands.items())
    return f"di2pose {__version__}: occluded 3D human pose estimation\n\nusage: di2pose COMMAND [--help] ...\n\n{rows}"


def main(arguments: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--version"]:
        print(__version__)
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0
    commands = COMMANDS if words[0] in BUILT_IN else all_commands()
    name = next((name for count in (2, 1) if (name := " ".join(words[:count])) in commands), None)
    if name is None and words[0] in {each.split()[0] for each in commands} and words[1:2] in ([], ["-h"], ["--help"]):
        print(usage(words[0]))
        return 0
    if name is None:
        lacking = f"a clone of the repository has it: pip install -e {ADDED[words[0]]}" if words[0] in ADDED else ""
        print(f"error: no command '{' '.join(words[:2])}'\n\n{lacking or usage()}", file=sys.stderr)
        return 2
    module, function = commands[name][0].split(":")
    try:
        with gc_disabled():
            command = getattr(import_module(module), function)
        if arguments is None:
            freeze_gc()
        code = tyro.cli(command, args=words[len(name.split()):], prog=f"di2pose {name}")
    except (InputError, MissingExtra) as error:
        print(f"error: {printable(error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 141
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return code if isinstance(code, int) else 0
