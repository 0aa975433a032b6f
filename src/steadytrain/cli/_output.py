"""Everything that a command prints goes through here, without secrets."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Collection, Sequence
from typing import Any

import click

from steadytrain.storage.documents import as_json
from steadytrain.storage.redaction import redact_text


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print redacted text."""
    click.echo(redact_text(text), err=err, nl=nl)


WIDTH_MIN = 40
"""A terminal narrower than this breaks lines by itself."""

_COMMAND = re.compile(r"\s*next:? ")
_SECOND_COLUMN = re.compile(r"\s*\S+(?: \S+)*?(?:  +)(?=\S)")


def say_lines(text: str, *, err: bool = False) -> None:
    """Print redacted text; a terminal gets each line broken between words, a file or a pipe as it is."""
    width = terminal_width(err=err)
    say(text if width is None else "\n".join(fit(line, width) for line in text.split("\n")), err=err)


def terminal_width(*, err: bool = False) -> int | None:
    """The width of the terminal that the text goes to, None for a file, a pipe and a very narrow terminal."""
    stream = sys.stderr if err else sys.stdout
    width = shutil.get_terminal_size().columns
    return width if stream is not None and stream.isatty() and width >= WIDTH_MIN else None


def fit(line: str, width: int) -> str:
    """``line`` in lines of ``width`` characters, which begin below its text or its second column. A command stays
    whole.
    """
    if len(line) <= width or _COMMAND.match(line):
        return line
    from steadytrain.core.plugin_pages import wrapped

    column = _SECOND_COLUMN.match(line)
    hanging = len(line) - len(line.lstrip()) + 2
    if column is not None and column.end() <= width // 2:
        hanging = column.end()
    return wrapped(line, width, hanging=" " * hanging)


def in_columns(rows: Sequence[Sequence[str]], numbers: Collection[str]) -> str:
    """``rows`` as lines with aligned columns; those whose head, in the first row, is in ``numbers`` on the right."""
    head, widths = rows[0], [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for cell, width, name in zip(row, widths, head, strict=True)
        ).rstrip()
        for row in rows
    )


def say_document(document: Any, *, indent: int = 1, ensure_ascii: bool = False) -> None:
    """Print a document as redacted JSON."""
    click.echo(as_json(document, indent=indent, ensure_ascii=ensure_ascii))


def say_with_own_secret(text: str) -> None:
    """Print text that holds a secret which this command made for the user: redacted it would be of no use."""
    click.echo(text)
