"""Which settings of ``run`` hold here and where each comes from, for ``steadytrain doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from steadytrain.cli import _settings
from steadytrain.core.errors import UsageError
from steadytrain.core.switch import VARIABLE, is_off


def settings_here(script: Path | None) -> dict[str, Any]:
    """The settings as a part of the document: each option with its value and source, and what is wrong with them."""
    from steadytrain.cli import run

    problems: list[str] = []
    off = False
    try:
        off = is_off()
    except UsageError as error:
        problems.append(str(error))
    try:
        found = _settings.settings(run.command, script=script, besides={})
    except UsageError as error:
        problems.append(str(error))
        found = _settings.Settings((), None, ())
    problems += [*found.warnings, *_settings.unknown_variables(run.command), *_wrong(run.command, found)]
    return {
        "switched_off": off,
        "file": str(found.file) if found.file is not None else None,
        "options": [_row(option, found) for option in _settings.options_of(run.command)],
        "problems": problems,
    }


def settings_lines(found: dict[str, Any]) -> list[str]:
    """The same as text; options at their default are counted only."""
    given = [row for row in found["options"] if row["source"] != "default"]
    lines = [f"Settings of `steadytrain run` (file: {found['file'] or 'none'}):"]
    if found["switched_off"]:
        lines.append(f"  everything is switched off by {VARIABLE} in the environment")
    lines += [f"  {row['option']:<18} {row['value']:<24} {row['from']}" for row in given]
    lines.append(f"  {len(found['options']) - len(given)} options have their default")
    return [*lines, *(f"  wrong: {problem}" for problem in found["problems"])]


def _row(option: click.Option, found: _settings.Settings) -> dict[str, Any]:
    given = next((one for one in found.given if one.name == option.name), None)
    name = _settings.name_of(option)
    source = given.source if given is not None else "default"
    places = {
        "environment": _settings.variable_of(option),
        "file": str(found.file),
        "default": "",
    }
    value = given.raw if given is not None else _default(option)
    return {"option": name, "value": _settings.shown(name, value), "source": source, "from": places[source]}


def _default(option: click.Option) -> Any:
    """The default as text; an option without one shows as an empty text."""
    value = option.default
    return "" if value is None or type(value).__name__ == "Sentinel" else value


def _wrong(command: click.Command, found: _settings.Settings) -> list[str]:
    """One line for each value that its option refuses, and one if the values do not go together."""
    from steadytrain.attach import Options

    wrong = []
    context = click.Context(command)
    for given in found.given:
        try:
            _settings.check(command, context, given)
        except UsageError as error:
            wrong.append(str(error))
    return wrong or _contradictions(command, context, found, Options)


def _contradictions(
    command: click.Command, context: click.Context, found: _settings.Settings, made: type[Any]
) -> list[str]:
    options = {option.name: option for option in _settings.options_of(command)}
    fields = made.__dataclass_fields__
    values = {
        given.name: options[given.name].type_cast_value(context, given.raw)
        for given in found.given
        if given.name in fields
    }
    with context:
        context.meta[_settings.META] = {given.name: given for given in found.given}
        try:
            _settings.made_with_source(made, values)
        except UsageError as error:
            return [str(error)]
    return []
