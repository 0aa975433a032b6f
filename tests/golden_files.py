"""The public API and every command's help as text, frozen under ``tests/golden``.

``make golden`` (this file as a program) writes them again after a change that was meant.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType

import click

import steadytrain
from steadytrain.cli.main import commands

FOLDER = Path(__file__).parent / "golden"
HELP_WIDTH = 100


@functools.cache  # a test asks for each text
def current() -> dict[str, str]:
    """The texts as they are now, by the name of their file."""
    pages = {f"help/{name}.txt": text for name, text in _help_pages()}
    return {"public_api.txt": "\n".join(_api_lines()) + "\n", **pages}


@functools.cache
def frozen() -> dict[str, str]:
    """The texts as they were written."""
    files = sorted(FOLDER.rglob("*.txt"))
    return {file.relative_to(FOLDER).as_posix(): file.read_text(encoding="utf-8") for file in files}


def _help_pages() -> Iterator[tuple[str, str]]:
    outer = click.Context(commands, info_name="steadytrain", terminal_width=HELP_WIDTH)
    yield "steadytrain", commands.get_help(outer) + "\n"
    for name in commands.list_commands(outer):
        command = commands.get_command(outer, name)
        assert command is not None
        context = click.Context(command, parent=outer, info_name=name, terminal_width=HELP_WIDTH)
        yield name, command.get_help(context) + "\n"


def _api_lines() -> Iterator[str]:
    for name in sorted(steadytrain.__all__):
        value = getattr(steadytrain, name)
        if inspect.isclass(value):
            yield from _class_lines(name, value)
        elif callable(value):
            yield f"{name}{_signature(value)}"
        else:
            yield f"{name}: {type(value).__name__}"


def _class_lines(name: str, kind: type) -> Iterator[str]:
    yield f"class {name}({', '.join(base.__name__ for base in kind.__bases__)})"
    own = {field.name: field.type for field in fields(kind)} if is_dataclass(kind) else {}
    yield from (f"    {field}: {kind_of}" for field, kind_of in own.items())
    for member, value in sorted(_members(kind).items()):
        if member in own or isinstance(value, ModuleType):
            continue
        if isinstance(value, property):
            yield f"    {member} -> {inspect.signature(value.fget).return_annotation}"
        elif callable(value) or isinstance(value, (staticmethod, classmethod)):
            yield f"    {member}{_signature(getattr(kind, member))}"


def _members(kind: type) -> dict[str, object]:
    """Public members that the package itself defines, inherited ones included."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("steadytrain.")]
    return {name: value for base in reversed(ours) for name, value in vars(base).items() if not name.startswith("_")}


class _Written(str):
    """An annotation as it is written in the source, without quotes around it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(function: object) -> str:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    parameters = [one.replace(annotation=_written(one.annotation)) for one in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=_written(signature.return_annotation)))


def _written(annotation: object) -> object:
    return _Written(annotation) if isinstance(annotation, str) else annotation


if __name__ == "__main__":
    for old in frozen():
        (FOLDER / old).unlink()
    for file, text in current().items():
        (FOLDER / file).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / file).write_text(text, encoding="utf-8")
    print(f"{FOLDER}: {len(current())} files")
