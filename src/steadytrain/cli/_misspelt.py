"""Names a misspelt option where a command passes unknown options on: before SCRIPT, none is meant for the script."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import click

from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import nearest

Given = TypeVar("Given", str, tuple[str, ...])


def no_option(context: click.Context, _: click.Parameter, given: Given) -> Given:
    """The callback of an argument that is no option: a script, a run, the words of a command.

    Raises:
        UsageError: a word begins as an option does, and no file has this name.
    """
    for word in (given,) if isinstance(given, str) else given:
        if word.startswith("--" if isinstance(given, tuple) else "-") and not Path(word).is_file():
            name = word.partition("=")[0]
            otherwise = f"`steadytrain {context.info_name} --help` lists all"
            raise UsageError(f"{name}: no such option; {nearest(name, _names(context), otherwise=otherwise)}")
    return given


def _names(context: click.Context) -> Iterable[str]:
    """The long names of the command's options."""
    named = (name for parameter in context.command.get_params(context) for name in _spelled(parameter))
    return [name for name in named if name.startswith("--")]


def _spelled(parameter: click.Parameter) -> Iterable[str]:
    return (*parameter.opts, *parameter.secondary_opts)
