"""``steadytrain diagnose``: find by trials on a replay why a run went wrong."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _consent, _options, _terminal
from steadytrain.cli._next import say_next_line
from steadytrain.cli._output import say, say_document
from steadytrain.cli._progress import progress
from steadytrain.storage.documents import redact_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steadytrain.diagnosis.answer import Diagnosis

INTERRUPTED_STATUS = 130


@click.command()
@click.argument("incident", required=False, metavar="[INCIDENT|RUN]")
@click.option(
    "--budget",
    default="10m",
    show_default=True,
    metavar="TIME",
    help=f"Time for the survey and all trials: 90s, 10m. {_options.OF_WORK}",
)
@_options.symptom
@_options.onset
@_options.workers
@_options.engine
@_options.step_fn
@_options.build
@_options.tree
@_options.runs_dir
@_options.allow_network
@click.option("--all", "whole", is_flag=True, help="Also print every trial, the refuted causes and all fixes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.diagnosis/1).")
@_consent.before_launch
@_options.gathered(lambda: _options.TrialOptions, into="options")
def command(
    incident: str | None,
    budget: str,
    runs_dir: Path,
    step_fn: str | None,
    build: str | None,
    as_json: bool,
    whole: bool,
    options: _options.TrialOptions,
) -> int:
    """Find out by trials on a replay why a run went wrong.

    INCIDENT is a bundle, or a run (its most severe incident, or the run itself if it has none); by default the newest
    run. Each trial replays the recorded steps with one change. A cause is confirmed only if the unchanged replay shows
    the symptom, the change removes it, and the changes for rival causes do not; else it is likely or possible, or the
    answer is unknown. If you see a symptom that no detector raised, name it: with --symptom no-learning, trials run the
    script from its start. Finished trials are saved with the incident, so an interrupted diagnosis continues where it
    stopped. Exits with 0 whatever the answer, with 130 if it is interrupted.
    """
    from steadytrain.api.diagnoses import diagnose

    budget_s = _options.seconds(budget)
    try:
        with progress() as tell:
            answer = diagnose(
                incident,
                budget_s=budget_s,
                symptom=options.symptom if options.onset is None else (options.symptom, options.onset),
                workers=options.workers,
                engine=options.engine,
                moved=options.moved,
                runs_dir=runs_dir,
                step_fn=step_fn,
                build=build,
                tell=tell,
            )
    except KeyboardInterrupt as interrupt:
        say(f"steadytrain: {interrupt or 'interrupted: nothing was tried yet'}", err=True)
        return INTERRUPTED_STATUS
    if as_json:
        say_document(answer.to_json())
    else:
        given = {"--symptom": options.symptom, "--onset": options.onset}
        again = [word for name, value in given.items() if value is not None for word in (name, str(value))]
        _print(answer, again, whole=whole)
    return 0


def _print(answer: Diagnosis, again: Sequence[str], *, whole: bool) -> None:
    """``again`` are the options that ask for the same diagnosis."""
    from steadytrain.core.own_command import own_command
    from steadytrain.diagnosis import next_command
    from steadytrain.report import diagnosis_shown, text
    from steadytrain.storage.run_search import short_name

    shown, name = redact_value(diagnosis_shown.part(answer)), short_name(Path(answer.incident))
    every = f"{own_command()} diagnose {name} {shlex.join([*again, '--all'])}"
    _terminal.show(text.diagnosis(shown) if whole else text.short_diagnosis(shown, every), crop=False)
    following = next_command.after(answer)
    say_next_line(following.of(name), following.purpose)
