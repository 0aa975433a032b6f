"""Before a recorded command runs again: says what runs, and asks if it was recorded elsewhere or by somebody else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli._output import say
from steadytrain.core.errors import UsageError

if TYPE_CHECKING:
    from steadytrain.replay.launch_notice import LaunchNotice

trust = click.option(
    "--trust", is_flag=True, help="Do not ask before running the script of a bundle that was recorded elsewhere."
)


def before_launch(body: Callable[..., int]) -> Callable[..., int]:
    """Decorate a command that runs a recorded command again; adds its option ``--trust``."""

    @wraps(body)
    def asking(*, trust: bool, **parameters: Any) -> int:
        if _runs_nothing_recorded(parameters):
            return body(**parameters)
        with _agreed(
            parameters.get("incident", parameters.get("target")),
            parameters["runs_dir"],
            moved=parameters.get("moved", "-"),
            trust=trust,
            quiet=parameters["as_json"],
        ):
            return body(**parameters)

    return trust(asking)


def _runs_nothing_recorded(parameters: dict[str, Any]) -> bool:
    """A step function or script that the user names is theirs; a trial without a name is only listed."""
    target = parameters.get("target")
    is_script = target is not None and Path(target).suffix == ".py"
    return bool(parameters.get("step_fn")) or is_script or parameters.get("names") == ()


@contextmanager
def _agreed(target: str | None, runs_dir: Path, *, moved: str, trust: bool, quiet: bool) -> Iterator[None]:
    """Ask at once, and tell when the first process is about to start: what cannot start is refused in one line."""
    from steadytrain.api.targets import incident_or_run_of, path_of
    from steadytrain.replay import child_processes
    from steadytrain.replay.launch_notice import launch_notice
    from steadytrain.replay.moved_files import Moved

    def notices() -> list[LaunchNotice]:
        place = Moved.parse(moved)
        paths = dict.fromkeys((incident_or_run_of(target, runs_dir), path_of(target, runs_dir)))
        return [notice for path in paths if (notice := launch_notice(path, place)) is not None]

    found: list[LaunchNotice] = []
    with suppress(UsageError):  # the command says it itself; if not, the notices are made again at its first launch
        found = notices()
        trust = trust or all(one.is_own for one in found)
    if found and not trust:
        _ask(found[0])
        trust, quiet = True, True

    def first_launch() -> None:
        shown = found or notices()
        if not trust and not all(one.is_own for one in shown):
            raise _refusal(shown[0])
        for line in shown[0].lines() if shown and not quiet else ():
            say(line if line.startswith("  ") else f"steadytrain: {line}", err=True)

    with child_processes.calling_before_the_first(first_launch):
        yield


def _ask(notice: LaunchNotice) -> None:
    """Raises ``UsageError`` if the user declines, or if there is no terminal to ask on."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise _refusal(notice)
    say(f"steadytrain: {notice.source} was not recorded on this machine by you; it", err=True)
    for line in notice.lines():
        say(line, err=True)
    if not click.confirm("Run it?", default=False, err=True):
        raise UsageError(f"{notice.source}: nothing was run")


def _refusal(notice: LaunchNotice) -> UsageError:
    return UsageError(
        f"{notice.source}: not recorded on this machine by you, and this runs `{notice.command}` "
        f"({notice.place}); read that code first, then give --trust"
    )
