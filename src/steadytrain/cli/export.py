"""``steadytrain export``: what was concluded about a run after its end, sent to the tools that have the run."""

from __future__ import annotations

from pathlib import Path

import click

from steadytrain.cli import _options
from steadytrain.cli._output import say
from steadytrain.core.errors import UsageError


@click.command()
@click.argument("target", required=False, metavar="[RUN]")
@click.option(
    "--to", default="", metavar="TOOL", help="tensorboard, wandb or mlflow, several with commas. [default: where it is]"
)
@_options.runs_dir
def command(target: str | None, to: str, runs_dir: Path) -> None:
    """Send the diagnoses, the ledger and the page of a run to TensorBoard, W&B or MLflow.

    RUN is a run folder or the name of a run under --runs-dir, by default the newest. `run --to` sends a run while it
    trains; a diagnosis is made after that. A tool that never had the run gets its incidents in words too. Nothing else
    sends anything after a run. Exits with 2 if a tool did not take all.
    """
    from steadytrain.api.exports import export

    names = tuple(filter(None, (name.strip() for name in to.split(","))))
    sent, failed = export(target, to=names, runs_dir=runs_dir)
    for one in sent:
        say(f"{one.tool}: {', '.join(one.documents)} -> {one.where}")
    if failed:
        raise UsageError("; ".join(failed))
