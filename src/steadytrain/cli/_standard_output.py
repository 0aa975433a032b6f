"""``-o -``: a page goes to standard output. A folder cannot."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from steadytrain.core.errors import UsageError

DASH = Path("-")


def is_standard_output(output: Path | None) -> bool:
    return output == DASH


@contextmanager
def page_at(output: Path | None) -> Iterator[Path | None]:
    """The file to write a page to: ``output``, or for ``-`` a temporary one that is copied to standard output."""
    if not is_standard_output(output):
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="steadytrain-page-") as folder:
        file = Path(folder) / "page.html"
        yield file
        click.echo(file.read_bytes(), nl=False)


def a_folder(context: click.Context, parameter: click.Parameter, output: Any) -> Any:
    """Refuse ``-o -`` where a folder is written."""
    if is_standard_output(output):
        raise UsageError("-o -: a folder is written, which standard output cannot take; name a folder")
    return output
