"""``steadytrain repro``: write a standalone script that reproduces the fault of an incident."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from steadytrain.cli import _consent, _options
from steadytrain.cli._next import say_next_of
from steadytrain.cli._output import say, say_document
from steadytrain.cli._standard_output import a_folder
from steadytrain.core.errors import UsageError

NOT_MADE_STATUS = 1
BEFORE_MAX = 64
"""A script with more operations than this is not short."""


@click.command()
@click.argument("incident", required=False)
@click.option(
    "-o",
    "--output",
    "folder",
    required=True,
    type=click.Path(path_type=Path),
    callback=a_folder,
    help="Folder to write into; new or empty.",
)
@_options.runs_dir
@_options.allow_network
@click.option("--wait-s", default=900.0, show_default=True, help="Time limit of capturing and shrinking.")
@click.option(
    "--compiled-wait-s",
    default=30.0,
    show_default=True,
    help="Time limit of trying the script in float64 and compiled; 0 skips that.",
)
@click.option("--before", default=0, show_default=True, help="Number of operations before the first bad one to keep.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.repro/1).")
@_consent.before_launch
@_options.launches
def command(
    incident: str | None,
    folder: Path,
    runs_dir: Path,
    wait_s: float,
    compiled_wait_s: float,
    before: int,
    as_json: bool,
) -> int:
    """Write a short script that reproduces an incident's fault with torch alone.

    INCIDENT is a bundle, or a run (its most severe incident); by default the newest run. Replays the failing step as
    `locate` does, extracts the failing operation with its inputs, and shrinks it. If all values are finite but the loss
    rises, it extracts the batch or the update that raises it. Writes the script, with a draft bug report, only after it
    has failed in a fresh process. Exits with 0 if it writes a script, 1 if not (if the batch itself holds NaN, it
    writes the bad rows).
    """
    from steadytrain.experiments.command_results import CommandResult, keep_result
    from steadytrain.grouping.gravest import incident_or_run
    from steadytrain.storage.bundle import is_bundle, open_bundle
    from steadytrain.storage.run_search import find

    if wait_s <= 0:
        raise UsageError(f"--wait-s {wait_s}: must be more than 0")
    if compiled_wait_s < 0:
        raise UsageError(f"--compiled-wait-s {compiled_wait_s}: must not be negative")
    if not 0 <= before <= BEFORE_MAX:
        raise UsageError(f"--before {before}: must be 0 to {BEFORE_MAX}")
    path = incident_or_run(find(incident or None, runs_dir))
    bundle = open_bundle(path) if is_bundle(path) else None
    if importlib.util.find_spec("torch") is None:
        raise UsageError("repro needs PyTorch to run the step again; `steadytrain show` works without it")
    from steadytrain.repro.operation_repro import is_finite, make_repro, repro_document
    from steadytrain.repro.rising_loss_repro import make_rising_repro, of_bundle, of_run

    if bundle is not None and not is_finite(bundle):
        repro = make_repro(bundle, folder, wait_s=wait_s, compiled_wait_s=compiled_wait_s, before=before)
        source, step, run = bundle.path, bundle.incident.step, bundle.incident.run
    else:
        if before:
            raise UsageError(f"--before {before}: only for a NaN or Inf; a rising loss has no first bad operation")
        subject = of_bundle(bundle) if bundle is not None else of_run(path)
        repro = make_rising_repro(subject, folder, wait_s=wait_s)
        source, step, run = subject.source, subject.symptom.first_step, subject.run
    place = f" ({folder / 'repro.py'}, {repro.lines} lines)" if repro.made else ""
    keep_result(source, CommandResult("repro", repro.made, f"{repro.why}{place}", repro.effect))
    if as_json:
        say_document(repro_document(source, folder, repro))
        return 0 if repro.made else NOT_MADE_STATUS
    say(f"step {step} of {run}: {repro.why}")
    for name, size in repro.files.items():
        lines = f", {repro.lines} lines" if name == "repro.py" else ""
        say(f"  {folder / name}   {size:,} bytes{lines}")
    for name, result in repro.variants.items():
        say(f"  {name:<20} {result}")
    say_next_of("diagnose", source, why="find the cause by trials")
    return 0 if repro.made else NOT_MADE_STATUS
