"""The ``steadytrain`` command: finds its subcommands in this folder, and prints all errors.

A subcommand is a module of this package with a click command named ``command``. Modules import slow packages inside the
command, so that ``steadytrain --help`` stays fast.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click

import steadytrain.cli
from steadytrain.cli._terminal import guarded
from steadytrain.core.errors import UsageError
from steadytrain.core.own_command import with_pasteable
from steadytrain.core.plugins import module_names, nearest
from steadytrain.core.version import __version__
from steadytrain.core.visible_text import visible
from steadytrain.storage.redaction import redact_text

USAGE_STATUS = 2
RUN_SCRIPTS = ("run", "preflight")
"""Commands whose process runs the user's script, the first word after ``steadytrain``."""

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Watch": ("run", "show", "report", "runs", "top", "ui", "ctl", "policy", "ledger", "checkpoints", "query"),
    "After a fault": (
        *("debug", "diagnose", "fix", "verify", "trial", "replay", "onset", "locate", "repro", "bisect"),
        *("explain", "checklist", "compare", "audit", "collectives"),
    ),
    "Before a run": ("preflight", "check-data"),
    "CI and pipelines": ("gate", "analyze", "export", "notify"),
    "Administration": ("doctor", "bundle", "completion"),
}
"""The sections of ``steadytrain --help``, with their commands in the order of use."""

SUMMARY_MAX = 1000
"""Characters of a command's summary: far more than any has, so none is cut."""

COMPLETION_VARIABLE = "_STEADYTRAIN_COMPLETE"
"""Set by the shell that asks for completions."""

ENTERED = "entered"
"""Object of the outermost click context where the whole process is this command."""


class Commands(click.Group):
    """The modules of this package as subcommands."""

    def list_commands(self, context: click.Context) -> list[str]:
        here = [name.replace("_", "-") for name in module_names(steadytrain.cli, besides=("main",))]
        ordered = [name for names in SECTIONS.values() for name in names]
        return sorted(here, key=lambda name: ordered.index(name) if name in ordered else len(ordered))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(context):
            return None
        module = importlib.import_module(f"steadytrain.cli.{name.replace('-', '_')}")
        command: click.Command = module.command
        if os.environ.get(COMPLETION_VARIABLE):
            from steadytrain.cli._completion import completing

            return completing(command, name)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(context, name) is None and not name.startswith("-"):
            near = nearest(name, self.list_commands(context), otherwise="`steadytrain --help` lists all")
            raise UsageError(f"{name}: no such command; {near}")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with its whole first sentence: a summary that is cut says less than none."""
        width = max(map(len, self.list_commands(context)))
        for section, names in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), self._sentence(context, name)) for name in names])

    def _sentence(self, context: click.Context, name: str) -> str:
        command = self.get_command(context, name)
        assert command is not None
        return command.get_short_help_str(limit=SUMMARY_MAX)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="steadytrain")
def commands() -> None:
    """Find out why a PyTorch training run went wrong.

    Put `steadytrain run` before your training script. It stops a non-finite loss or gradient before it reaches the
    weights, and names the first bad operation.
    """


def entry() -> None:
    """Run the command line. An error of the user's, or of a file, becomes one line on stderr and exit status 2."""
    if sys.stdout is None:  # `>&-`: there is no output to write
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    if sys.argv[1:2] in [[name] for name in RUN_SCRIPTS]:
        _run(of_script=True)
    with guarded():
        _run()


def _run(*, of_script: bool = False) -> NoReturn:
    """Run the command. With ``of_script`` the user's script runs in this process, and its errors are its own."""
    typed = tuple(sys.argv[1:])
    try:
        try:
            status = commands.main(prog_name="steadytrain", standalone_mode=False, obj=ENTERED)
        finally:
            _tell_written()
    except UsageError as error:
        _refuse(str(error), typed)
    except click.ClickException as error:
        _refuse(error.format_message(), typed)
    except click.Abort:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except MemoryError:
        if of_script:
            raise
        _refuse("not enough memory for this")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _refuse(f"the output cannot be written ({error.strerror})")
        if error.errno is None or (of_script and error.errno != errno.ENAMETOOLONG):  # that is a name in an option
            raise
        _refuse(f"{error.filename or 'a file'}: cannot be read or written ({error.strerror})", typed)
    sys.exit(status if isinstance(status, int) else 0)


def _tell_written() -> None:
    """Say what a relaunched script wrote to a scratch folder, where a command has launched one."""
    launched = sys.modules.get("steadytrain.replay.written_files")
    line = launched.take_line() if launched is not None else None
    if line is not None:
        print(f"steadytrain: {line}", file=sys.stderr)


def _refuse(why: str, typed: Sequence[str] = ()) -> NoReturn:
    """Say why in one line, and end. ``typed`` are the words of the command line."""
    print(f"steadytrain: {visible(_without_secrets(with_pasteable(why), typed))}", file=sys.stderr)
    sys.exit(USAGE_STATUS)


def _without_secrets(why: str, typed: Sequence[str]) -> str:
    """``why`` redacted. The first word is no name of a secret if the user typed it: ``passwd: no such run``."""
    subject, colon, rest = why.partition(": ")
    name = _LINE_NUMBER.sub("", subject)
    word = name.rpartition(" ")[2].strip("'\"")
    if colon and word in typed and not word.startswith("-") and redact_text(name) == name:
        return f"{subject}: {redact_text(rest)}"
    return redact_text(why)


_LINE_NUMBER = re.compile(r":\d{1,9}$")
