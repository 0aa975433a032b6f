"""The options of a command from the environment and from a TOML file: one mechanism, made of the command's own options.

The command line comes before the environment, the environment before the file, the file before the default. Every
option with a long name is a setting, so a new option is one too. Values are checked as those of the command line are,
and an error names where the value came from. Not here: what the options mean.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from click.core import ParameterSource

from steadytrain.cli import _settings_file
from steadytrain.cli._output import say
from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import nearest
from steadytrain.core.switch import is_off
from steadytrain.storage.redaction import redact_tree
from steadytrain.storage.secret_words import redacted

PREFIX = "STEADYTRAIN_"
OTHER_VARIABLES = frozenset(
    f"{PREFIX}{name}"
    for name in (
        *("ALLOW_NETWORK", "ATTACH", "COLD_TESTS", "LANDLOCK", "RAISE_OWN_ERRORS", "SANDBOX", "SCRATCH"),
        *("COMPLETE", "LOOP", "PROMETHEUS"),
        "RUNS_DIR",  # of every command that has the option
    )
)
"""Variables with our prefix that are no options of ``run``."""

FILES = ("policy",)
"""Options whose text may be the path of a TOML file."""

SHOWN_CHARS_MAX = 80
META = "steadytrain.settings"
Value = TypeVar("Value")


@dataclass(frozen=True)
class Given:
    """A value for the option ``name`` from outside the command line; ``where`` says from where, without secrets."""

    name: str
    option: str
    raw: Any
    source: str
    where: str


class ConfiguredCommand(click.Command):
    """A command whose options are also read from the environment and from a settings file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        asks_help = self.get_help_option(ctx)
        if ctx.resilient_parsing or is_off() or (asks_help is not None and typed.get(asks_help.name or "")):
            return super().parse_args(ctx, args)
        found = settings(self, script=_script_of(typed), besides=typed)
        for line in [*found.warnings, *unknown_variables(self)]:
            say(f"steadytrain: warning: {line}", err=True)
        for given in found.given:
            check(self, ctx, given)
        ctx.meta[META] = {given.name: given for given in found.given}
        ctx.default_map = {**(ctx.default_map or {}), **{given.name: given.raw for given in found.given}}
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:  # of an option that only the command itself can judge, such as the name of a run
            for given in _given_here().values():
                text = str(error).lstrip("'\"")
                if isinstance(given.raw, str) and re.match(rf"{re.escape(given.raw)}['\"]?(:|@)", text):
                    text = str(error).replace(given.raw, shown(given.option, given.raw))
                    raise UsageError(f"{given.where}: {text}") from None
            raise


class SharedOption(click.Option):
    """An option of many commands: each reads it from the environment, and from a settings file above its folder."""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        value, source = super().consume_value(ctx, opts)
        if source != ParameterSource.DEFAULT or ctx.resilient_parsing or isinstance(ctx.command, ConfiguredCommand):
            return value, source
        given = _from_environment(self) or _from_file(self, _settings_file.find([Path.cwd()])[0])
        return (value, source) if given is None else (given.raw, ParameterSource.DEFAULT_MAP)


@dataclass(frozen=True)
class Settings:
    """What holds outside the command line. ``file`` is the settings file, None if there is none."""

    given: tuple[Given, ...]
    file: Path | None
    warnings: tuple[str, ...]


def settings(command: click.Command, *, script: Path | None, besides: Mapping[str, Any]) -> Settings:
    """The values for the options of ``command`` that are not ``besides``: of the environment, else of the file.

    Raises:
        UsageError: a settings file cannot be read, or has an unknown option or a value of the wrong kind.
    """
    starts = [*([script.resolve().parent] if script is not None else []), Path.cwd()]
    file, warnings = _settings_file.find(starts)
    if file is not None:
        file.refuse_unknown([name_of(option) for option in options_of(command)])
    given = [
        found
        for option in options_of(command)
        if option.name not in besides and (found := _from_environment(option) or _from_file(option, file))
    ]
    return Settings(tuple(given), file.path if file is not None else None, tuple(warnings))


def options_of(command: click.Command) -> Iterator[click.Option]:
    """The options that are settings: those with a long name. ``-m`` says what SCRIPT is, and is none."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and any(name.startswith("--") for name in parameter.opts):
            yield parameter


def name_of(option: click.Option) -> str:
    """The name of an option in a settings file, such as ``max-skips``."""
    return next(name for name in option.opts if name.startswith("--"))[2:]


def variable_of(option: click.Option) -> str:
    return PREFIX + name_of(option).upper().replace("-", "_")


def unknown_variables(command: click.Command) -> list[str]:
    """One line for each variable with our prefix that no option has."""
    known = [variable_of(option) for option in options_of(command)]
    names = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in (*known, *OTHER_VARIABLES))
    return [f"{name}: no option has this name; {nearest_variable(name, known)}" for name in names]


def nearest_variable(name: str, known: Sequence[str]) -> str:
    """Advice for a variable that no option has."""
    options = [one.removeprefix(PREFIX).lower().replace("_", "-") for one in known]
    near = nearest(name.removeprefix(PREFIX), options, otherwise="`steadytrain doctor --json` lists the settings")
    for option in sorted(options, key=len, reverse=True):
        near = re.sub(rf"\b(?<![-_`]){option}\b(?![-_])", PREFIX + option.upper().replace("-", "_"), near)
    return near


def made_with_source(made: Callable[..., Value], values: Mapping[str, Any]) -> Value:
    """``made(**values)``. An error that a value from outside the command line causes names where it came from."""
    try:
        return made(**values)
    except UsageError as error:
        given = _given_here()
        guilty = [given[name] for name in values if name in given and _differs(made, values, name, error)]
        if not guilty:
            raise
        why = str(error)
        for one in guilty:
            # The variable or the key stands before it: the option of the command line was not given.
            why = re.sub(rf"^--{re.escape(one.option)} (?=['\"]?{re.escape(str(one.raw))}['\"]?:)", "", why)
            why = why.replace(str(one.raw), shown(one.option, one.raw))  # an address may hold a key
        raise UsageError(f"{', '.join(one.where for one in guilty)}: {why}") from None


def shown(option: str, value: Any) -> str:
    """A value in one short line, without secrets. An address is shown by its scheme: a key may stand anywhere in it."""
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    words = [
        f"{word.partition('://')[0]}://{redacted('address', word)}" if "://" in word else word
        for word in text.split(" ")
    ]
    text = str(redact_tree(" ".join(words), name=option))
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _given_here() -> dict[str, Given]:
    context = click.get_current_context(silent=True)
    found: dict[str, Given] = context.meta.get(META, {}) if context is not None else {}
    return found


def _differs(made: Callable[..., Any], values: Mapping[str, Any], name: str, error: UsageError) -> bool:
    """Whether the error goes away with the default in place of this value."""
    try:
        made(**{key: value for key, value in values.items() if key != name})
    except UsageError as other:
        return str(other) != str(error)
    return True


def _script_of(typed: Mapping[str, Any]) -> Path | None:
    script = typed.get("script")
    return Path(script) if isinstance(script, str) and not typed.get("as_module") else None


def _from_environment(option: click.Option) -> Given | None:
    variable = variable_of(option)
    text = os.environ.get(variable, "")
    if not text:
        return None
    assert option.name is not None
    raw = option.type.split_envvar_value(text) if option.multiple else text
    return Given(option.name, name_of(option), raw, "environment", f"{variable}={shown(name_of(option), text)}")


def _from_file(option: click.Option, file: _settings_file.SettingsFile | None) -> Given | None:
    name = name_of(option)
    if file is None or name not in file.values:
        return None
    assert option.name is not None
    value = file.values[name]
    quote = '"' if isinstance(value, str) else ""
    where = f"{file.path}: {name} = {quote}{shown(name, value)}{quote}"
    return Given(option.name, name, _of_kind(option, file, where), "file", where)


def _of_kind(option: click.Option, file: _settings_file.SettingsFile, where: str) -> Any:
    """The value of the file for this option, checked for its kind. A path counts from the folder of the file."""
    value = file.values[name_of(option)]
    if option.is_flag:
        return value if isinstance(value, bool) else _refuse(where, "must be true or false")
    if option.multiple:
        values = [value] if isinstance(value, str) else value
        texts = isinstance(values, list) and all(isinstance(one, str) for one in values)
        return values if texts else _refuse(where, "must be a text or a list of texts")
    if isinstance(option.type, (click.types.IntParamType, click.types.FloatParamType)):
        whole = isinstance(option.type, click.types.IntParamType)
        right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        return value if right else _refuse(where, f"must be a {'whole ' if whole else ''}number, without quotes")
    if not isinstance(value, str):
        _refuse(where, 'must be a text, in quotes, such as "' + str(option.default or "text") + '"')
    is_path = isinstance(option.type, click.Path) or (option.name in FILES and value.endswith(".toml"))
    return str(file.path.parent / Path(value).expanduser()) if is_path else value


def check(command: click.Command, ctx: click.Context, given: Given) -> None:
    """Convert the value as the command line would.

    Raises:
        UsageError: it cannot be converted.
    """
    (option,) = [one for one in options_of(command) if one.name == given.name]
    try:
        option.type_cast_value(ctx, given.raw)
    except click.BadParameter as error:
        why = error.message.rstrip(".").replace("a valid integer range", "a whole number")
        why = why.replace("Recognized values: , ", "one of ")
        _refuse(given.where, why.replace(str(given.raw), shown(given.option, given.raw)))


def _refuse(where: str, why: str) -> NoReturn:
    raise UsageError(f"{where}: {why}")
