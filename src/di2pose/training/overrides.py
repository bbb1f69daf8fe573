"""`--set KEY=VALUE`: one field of a configuration, by its path."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, TypeVar

from di2pose.config import Config, TokenizerConfig, from_json, to_json
from di2pose.errors import InputError

C = TypeVar("C")


def overridden(config: C, settings: Sequence[str]) -> C:
    """The configuration with the fields of `settings` replaced, each "path.to.field=value"; values are JSON, else text.
    Fields that are derived from others (`_derive`) are derived again, unless they are set, too."""
    if not settings:
        return config
    data, given = to_json(config), set()
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: expected KEY=VALUE, as in --set tokenizer.tokens=48")
        part: Any = config
        inner = data
        *groups, name = path.split(".")
        for group in groups:
            part, inner = _field(part, group, setting), inner[group]
        if dataclasses.is_dataclass(value := _field(part, name, setting)):
            raise InputError(f"--set {setting}: {path} is a group; name a field of it: {_names(value)}")
        inner[name] = _value(text)
        given.add(path)
    if isinstance(config, Config):
        _derive(data, given)
    return from_json(type(config), data)


def check_tokenizer(config: Any, tokenizer: TokenizerConfig, settings: Sequence[str]) -> None:
    """Refuse settings of the tokenizer that its own run has otherwise: a later stage takes it as it is."""
    for group, _, name in (setting.partition("=")[0].partition(".") for setting in settings):
        if group == "tokenizer" and getattr(config.tokenizer, name) != (there := getattr(tokenizer, name)):
            raise InputError(f"--set tokenizer.{name}: the tokenizer that was trained has {there}; leave it out")


def _derive(data: dict[str, Any], given: set[str]) -> None:
    """Fields of the denoiser that other parts determine."""
    tokenizer = from_json(TokenizerConfig, data["tokenizer"])
    denoiser, steps = data["denoiser"], data["diffusion"]["steps"]
    hint = tokenizer.channels if denoiser["hint_channels"] and denoiser["adapter_layers"] else 0
    derived = {"tokens": tokenizer.tokens, "codes": tokenizer.codes, "steps": steps, "hint_channels": hint}
    denoiser |= {name: value for name, value in derived.items() if f"denoiser.{name}" not in given}
    if "sample_steps" not in given and isinstance(steps, int):
        data["sample_steps"] = min(data["sample_steps"], steps)


def _field(part: object, name: str, setting: str) -> Any:
    if not dataclasses.is_dataclass(part):
        raise InputError(f"--set {setting}: nothing is below a plain value, '{name}' cannot be")
    if name not in {field.name for field in dataclasses.fields(part)}:
        raise InputError(f"--set {setting}: {type(part).__name__} has no '{name}'; it has {_names(part)}")
    return getattr(part, name)


def _names(part: Any) -> str:
    return ", ".join(field.name for field in dataclasses.fields(part))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
