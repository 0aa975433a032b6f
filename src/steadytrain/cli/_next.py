"""The last line of a command: the one command that comes next, ready to be pasted."""

from __future__ import annotations

import shlex
from pathlib import Path

from steadytrain.cli._output import say
from steadytrain.core.own_command import NAME, own_command, pasteable


def say_next_of(command: str, path: Path, *words: str, why: str = "", err: bool = False) -> None:
    """Print ``steadytrain COMMAND PATH WORDS``, with the shortest name of the run or incident."""
    from steadytrain.storage.run_search import short_name

    say_next_line(" ".join([NAME, command, short_name(path), *map(shlex.quote, words)]), why, err=err)


def say_next(*words: str, why: str = "", err: bool = False) -> None:
    """Print ``steadytrain WORDS`` as the next command, quoted; with ``err`` where a list goes into a pipe."""
    say(next_line(*words, why=why), err=err)


def next_line(*words: str, why: str = "") -> str:
    """The line of :func:`say_next`, for a command that writes its output by itself."""
    return f"\nnext  {own_command()} {shlex.join(words)}{_comment(why)}"


def say_next_line(line: str, why: str = "", *, err: bool = False) -> None:
    """Print a command line that is quoted already."""
    say(f"\nnext  {pasteable(line)}{_comment(why)}", err=err)


def _comment(why: str) -> str:
    return f"  # {why}" if why else ""
