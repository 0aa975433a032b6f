"""``steadytrain bisect``: find the commit that introduced the symptom of an incident."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from steadytrain.cli import _consent, _options
from steadytrain.cli._output import say, say_document
from steadytrain.core.errors import UsageError

NOT_FOUND_STATUS = 125


@click.command()
@click.argument("incident", required=False)
@click.option("--good", required=True, help="Revision without the symptom.")
@click.option("--bad", default=None, help="Revision with the symptom; by default the commit of the recorded run.")
@_options.runs_dir
@_options.allow_network
@click.option("--wait-s", default=900.0, show_default=True, help="Time limit of the script at each commit.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.bisect/1).")
@_consent.before_launch
@_options.launches
def command(incident: str | None, good: str, bad: str | None, runs_dir: Path, wait_s: float, as_json: bool) -> int:
    """Find the first commit with the symptom of INCIDENT by git bisect and replay.

    INCIDENT is a bundle, or a run (its most severe incident); by default the newest run. The command works in a
    temporary work tree, with links to files that git does not track. It skips commits at which the replay fails to run.
    Exits with 0 if it finds one commit, 125 if skipped commits leave several.
    """
    from steadytrain.grouping.gravest import gravest_incident
    from steadytrain.replay import bisection
    from steadytrain.storage.bundle import open_bundle
    from steadytrain.storage.run_search import find

    if wait_s <= 0:
        raise UsageError(f"--wait-s {wait_s}: must be more than 0")
    path = gravest_incident(find(incident or None, runs_dir))
    environment = open_bundle(path).environment
    repository = bisection.repository_of(environment)
    recorded = environment.get("git") or {}
    bad = bad or recorded.get("commit")
    if bad is None:
        raise UsageError(f"{path}: the bundle does not record the run's commit; name one with the symptom by --bad")
    ends = [bisection.commit_of(repository, revision) for revision in (good, bad)]
    if recorded.get("dirty"):
        say("steadytrain: note: the run had uncommitted changes; commits are tested without them", err=True)
    run = [sys.executable, "-m", "steadytrain.replay.bisection", str(repository), str(wait_s), str(path.absolute())]
    found = bisection.bisect(repository, good=ends[0], bad=ends[1], command=run)
    if as_json:
        document = {
            "schema": "steadytrain.bisect/1",
            "incident": str(path),
            "repository": str(repository),
            "good": ends[0],
            "bad": ends[1],
            "first_bad": found.first_bad,
            "subject": found.subject or None,
            "candidates": list(found.candidates),
            "tested": found.tested,
        }
        say_document(document)
    elif found.first_bad is not None:
        say(f"first bad commit  {found.first_bad} {found.subject}")
        say(f"  in              {repository}")
    else:
        say("not found: no replay could decide at these commits; the first bad one is among")
        for candidate in found.candidates:
            say(f"  {candidate}")
    return 0 if found.first_bad is not None else NOT_FOUND_STATUS
