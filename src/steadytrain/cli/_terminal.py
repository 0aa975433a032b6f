"""The single place where text goes to the terminal: control characters in it are made visible.

Names of runs, metrics, tensors, paths and columns may come from a stranger, and a terminal obeys escape sequences.
:func:`guarded` covers everything that a command prints, on both streams. :func:`show` prints styled text: the styles
are ours, the text in them is covered too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from steadytrain.core.visible_text import visible
from steadytrain.storage.redaction import redact_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


class Guarded:
    """A stream that writes out the control characters of the text it is given. All else is that of ``stream``."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Standard output and standard error with control characters written out."""
    before = sys.stdout, sys.stderr
    # A closed stream is None.
    sys.stdout, sys.stderr = (stream and Guarded(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def plain(stream: Any) -> Any:
    """The stream that ``stream`` guards, for a progress bar that moves the cursor; its texts must be made visible."""
    return stream.stream if isinstance(stream, Guarded) else stream


def console() -> Console:
    """A console for :func:`show` that takes text as it is: no markup, no emoji, no guessed colours."""
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False)


def show(*parts: RenderableType, on: Console | None = None, crop: bool = True) -> None:
    """Print what rich renders, without trailing blanks. A terminal gets its styles.

    Args:
        parts: what to print, one below the other.
        on: the console, for a width other than the terminal's.
        crop: cut lines off at the width of the console.
    """
    if hasattr(sys.stdout, "reconfigure"):
        # A terminal that cannot show a character shows a question mark instead of a traceback.
        sys.stdout.reconfigure(errors="replace")
    on = on or console()
    with on.capture() as printed:
        for part in parts:
            on.print(_Visible(part), crop=crop)
    text = redact_text("\n".join(line.rstrip() for line in printed.get().splitlines()))
    click.echo(text, file=plain(sys.stdout))


class _Visible:
    """Renders ``what`` with the control characters of its text written out."""

    def __init__(self, what: RenderableType) -> None:
        self.what = what

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.what, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))
