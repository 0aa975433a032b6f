"""``steadytrain ctl``: command a live run by hand."""

from __future__ import annotations

from pathlib import Path

import click

from steadytrain.cli import _options
from steadytrain.cli._misspelt import no_option
from steadytrain.cli._next import say_next_of
from steadytrain.cli._output import say, say_document

ENDS = ("stop", "status")
"""Commands after which only a look at the run is left."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("target", metavar="RUN", callback=no_option)
@click.argument("words", nargs=-1, required=True, metavar="COMMAND", callback=no_option)
@_options.runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.ctl/1).")
def command(target: str, words: tuple[str, ...], runs_dir: Path, *, as_json: bool) -> None:
    """Command a live run of yours on this machine, between two of its steps.

    \b
    lr*0.3, lr=1e-4     multiply or set the learning rate; `lr off` gives it back
    clip 0.5            clip the global gradient norm; `clip off` ends it
    apply NAME [K=V]    make an intervention (steadytrain policy interventions)
    revert NAME         take it back
    snapshot            keep weights and optimizer state below the run folder
    capture N           measure the next N steps whole, and keep them as an incident
    level full          record more, or less: light, standard, full
    pause, resume       wait between two steps, and go on
    stop                end the run before its next update, with status 70
    status              say the step, the loss, and what holds

    RUN is a run folder or the name of a run under --runs-dir. Quote `lr*0.3` in a shell. Each command is in the run's
    ledger. Exits with 1 if the run refuses the command, with 2 if it cannot be reached.
    """
    from steadytrain.guard.commands import parse_command
    from steadytrain.guard.control_socket import ask
    from steadytrain.storage.run_search import find

    text = " ".join(words)
    parse_command(text)
    path = find(target, runs_dir)
    done, answer = ask(path, text)
    if as_json:
        say_document({"schema": "steadytrain.ctl/1", "run": path.name, "command": text, "done": done, "answer": answer})
    else:
        say(answer if done else f"refused: {answer}", err=not done)
        if text in ENDS:
            say_next_of("show", path, why="what was seen in the run")
        else:
            say_next_of("ctl", path, "status", why="what holds now")
    click.get_current_context().exit(0 if done else 1)
