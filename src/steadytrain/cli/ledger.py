"""``steadytrain ledger``: what steadytrain did to a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli import _options
from steadytrain.cli._output import say_document, say_lines
from steadytrain.core.errors import UsageError

if TYPE_CHECKING:
    from steadytrain.core.incident import Action
    from steadytrain.storage.run_folder import Run


@click.command()
@click.argument("target", required=False, metavar="[RUN]")
@_options.runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.ledger/1).")
def command(target: str | None, runs_dir: Path, as_json: bool) -> None:
    """List what steadytrain did to a run: refused and skipped updates, roll-backs, interventions, with their reasons.

    RUN is a run folder or the name of a run under --runs-dir, by default the newest. Reads only what is on disk and
    needs no PyTorch. Exits with 0 whether or not the run was touched.
    """
    from steadytrain.storage.bundle import is_bundle
    from steadytrain.storage.run_folder import open_run
    from steadytrain.storage.run_search import find

    path = find(target, runs_dir)
    if is_bundle(path):
        raise UsageError(f"{path} is an incident; the ledger is the run's: steadytrain ledger {path.parent.parent}")
    run = open_run(path)
    ranks = [(rank.name, open_run(rank)) for rank in run.ranks]
    entries = [("", action) for action in run.actions]
    entries += [(name, action) for name, rank in ranks for action in rank.actions]
    if as_json:
        say_document(_document(run, entries), ensure_ascii=True)
    else:
        say_lines("\n".join(_lines(run, entries)))


def _document(run: Run, entries: list[tuple[str, Action]]) -> dict[str, Any]:
    return {
        "schema": "steadytrain.ledger/1",
        "run": run.name,
        "path": str(run.path),
        "policy": run.description.get("policy"),
        "touched": any(action.touched for _, action in entries),
        "actions": [{**action.to_json(), "rank": rank or None} for rank, action in entries],
    }


def _lines(run: Run, entries: list[tuple[str, Action]]) -> list[str]:
    from steadytrain.report.action_words import action_words
    from steadytrain.report.wording import clean

    policy = clean(str(run.description.get("policy", "unknown")))
    if not entries:
        return [f"{clean(run.name)} (policy {policy}): steadytrain changed nothing in this run"]
    lines = [f"{clean(run.name)} (policy {policy})"]
    for rank, action in entries:
        where = f"{clean(rank)}  " if rank else ""
        lines.append(f"  {where}step {action.step:,}  {clean(action_words(action))}: {clean(action.reason)}")
    touched = sum(action.touched for _, action in entries)
    return [*lines, f"{touched:,} of {len(entries):,} entries changed the run"]
