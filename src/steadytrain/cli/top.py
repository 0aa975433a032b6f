"""``steadytrain top``: a run, live in the terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _options
from steadytrain.cli._output import say, say_document

if TYPE_CHECKING:
    from steadytrain.cli._live_screen import Choices

EVERY_S_MIN, EVERY_S_MAX = 0.2, 3600.0
AWAITED_S = 0.5
"""Seconds between two looks for the first step of a run."""


@click.command()
@click.argument("target", required=False, metavar="[RUN]")
@click.option("--once", is_flag=True, help="Print one picture and end; also what a pipe gets.")
@click.option(
    "--every",
    type=click.FloatRange(EVERY_S_MIN, EVERY_S_MAX),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds between two pictures.",
)
@click.option(
    "--total",
    type=click.IntRange(min=1),
    metavar="STEPS",
    help="Steps that the run will make, for the time that is left; some trainers record it.",
)
@click.option("--stream", metavar="NAME", help="Steps of another optimizer than the first.")
@click.option("--under", hidden=True, metavar="PROCESS", help="Draw below the output of this process: `run --top`.")
@_options.runs_dir
@_options.as_json
def command(
    target: str | None,
    once: bool,
    every: float,
    total: int | None,
    stream: str | None,
    under: str | None,
    runs_dir: Path,
    as_json: bool,
) -> None:
    """Watch a run live in the terminal; by default the newest run.

    RUN is a run folder or the name of a run under --runs-dir. Shows loss and gradient norm, pace and time left,
    symptoms as they come, the worst layers, precision and machine. Ends when the run ends, or with q (a run that was
    over before stays until q); ? lists the keys. It only reads the run folder, which may lie on a disk that another
    machine writes.
    """
    from steadytrain.cli._live_screen import Choices, print_once, show_lines, show_live, terminal_kind
    from steadytrain.core.errors import UsageError
    from steadytrain.live.follower import RunFollower
    from steadytrain.storage.bundle import is_bundle
    from steadytrain.storage.run_search import find

    if under is not None:
        from steadytrain.cli._top_under import draw_under

        draw_under(under, runs_dir)
        return
    if target is None and not (once or as_json or terminal_kind() == "pipe"):
        _await_first_step(runs_dir)
    path = find(target, runs_dir)
    if is_bundle(path):
        raise UsageError(f"{path}: an incident does not go on; name its run, or use `steadytrain show {path}`")
    follower = RunFollower(path, stream=stream, total=total)
    if as_json:
        say_document(follower.poll(time.time()).to_json(), ensure_ascii=True)
        return
    choices: Choices = Choices(every, path)
    kind = terminal_kind()
    if once or kind == "pipe":
        print_once(follower)
    elif kind == "dumb":
        show_lines(follower, choices)
    else:
        show_live(follower, choices)


def _await_first_step(runs_dir: Path) -> None:
    """Wait while the newest run has no step yet."""
    from steadytrain.storage.begun_runs import begun_runs

    begun = begun_runs(runs_dir)
    if not begun:
        return
    say(f"steadytrain: {begun[0].sentence}; waiting for it, Ctrl-C ends", err=True)
    while any(one.path == begun[0].path for one in begun_runs(runs_dir)):
        time.sleep(AWAITED_S)
