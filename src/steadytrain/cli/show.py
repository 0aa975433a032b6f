"""``steadytrain show``: a run or an incident on the terminal, or as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli import _options, _terminal
from steadytrain.cli._output import say, say_document

if TYPE_CHECKING:
    from steadytrain.storage.run_folder import Run


@click.command()
@click.argument("target", required=False, metavar="[RUN|INCIDENT]")
@_options.runs_dir
@_options.as_json
def command(target: str | None, runs_dir: Path, as_json: bool) -> None:
    """Show what happened in a run or an incident; by default the newest run.

    RUN is a run folder or the name of a run under --runs-dir, INCIDENT the folder of an incident bundle.
    """
    from steadytrain.storage.bundle import is_bundle, open_for_report
    from steadytrain.storage.run_folder import open_run
    from steadytrain.storage.run_search import find, newest_and_begun

    path, begun = (find(target, runs_dir), ()) if target is not None else newest_and_begun(runs_dir)
    bundle = open_for_report(path) if is_bundle(path) else None
    run = open_run(path) if bundle is None else None
    if as_json:
        document = bundle.incident.to_json() if bundle is not None else _run_document(run)
        say_document(document, ensure_ascii=True)
        return

    from steadytrain.report import build, text
    from steadytrain.storage.documents import redact_value

    if bundle is not None:
        report = build.from_bundle(bundle)
    else:
        assert run is not None
        report = build.from_run(run)
    _terminal.show(text.renderable(redact_value(report)), crop=False)
    for one in begun[:1]:
        say(f"steadytrain: {redact_value(one.sentence)}; this is the run before it", err=True)


def _run_document(run: Run | None) -> dict[str, Any]:
    """The ``steadytrain.run/1`` document."""
    from steadytrain.report.health import health
    from steadytrain.storage.rank_endings import first_end_of
    from steadytrain.storage.ranks_of_run import UNSEEN_RANKS, part_shown
    from steadytrain.storage.stalls import STALLS
    from steadytrain.storage.stopped_recording import read_stopped

    assert run is not None
    streams = [_stream(run, name) for name in run.streams()]
    first = first_end_of(run.path)
    return {
        "schema": "steadytrain.run/1",
        "run": run.name,
        "path": str(run.path),
        "argv": run.description.get("argv", []),
        "started": run.description.get("started"),
        "ended": run.ended,
        "exit_status": run.facts.get("exit_status"),
        "policy": run.description.get("policy"),
        "steps": streams[0]["steps"] if streams else 0,
        "streams": streams,
        "symptoms": [symptom.to_json() for symptom in run.symptoms],
        "incidents": [str(incident) for incident in run.incidents],
        "actions": [action.to_json() for action in run.actions],
        "detectors": run.facts.get("detectors"),
        "notes": run.facts.get("notes", []),
        "recording_stopped": read_stopped(run.path),
        "ranks": [str(rank) for rank in run.ranks],
        "unseen_ranks": run.facts.get(UNSEEN_RANKS, []),
        "part": part_shown(run) or None,
        "ended_first": {"rank": first.end.rank, "step": first.end.step, "how": first.sentence} if first else None,
        "stalls": run.facts.get(STALLS, []),
        "cost": run.facts.get("cost"),
        **(health(run, streams[0]["name"], run.scalars(streams[0]["name"])).to_json() if streams else {}),
    }


def _stream(run: Run, name: str) -> dict[str, Any]:
    window = run.scalars(name)
    return {
        "name": name,
        "steps": len(window),
        "first_step": int(window.steps[0]) if len(window) else None,
        "last_step": int(window.steps[-1]) if len(window) else None,
    }
