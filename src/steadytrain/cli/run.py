"""``steadytrain run``: run a training script under watch."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _options
from steadytrain.core.errors import UsageError

if TYPE_CHECKING:
    from steadytrain.attach import Options
    from steadytrain.core.model import Severity


def _options_of_a_run() -> type[Options]:
    from steadytrain.attach import Options

    return Options


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is a module, run as `python -m` runs it.")
@click.option(
    "--policy",
    default="stop",
    show_default=True,
    help="stop: refuse an update whose loss or gradients are not finite and end with status 70. "
    "observe: record only, never touch the run.",
)
@click.option(
    "--level",
    default="standard",
    show_default=True,
    help="How much to record: light, standard or full. Every level checks loss and gradients in every step.",
)
@click.option(
    "--to",
    default="auto",
    show_default=True,
    help="Tools that also get the run: tensorboard, wandb, mlflow, several with commas. auto: any of them in which "
    "the script has started a run itself; none: no tool.",
)
@click.option(
    "--compiled",
    default="edges",
    show_default=True,
    help="Where to measure module outputs in compiled code. edges: at the boundary of that code; inside: in the "
    "compiled graphs too, which can change the last bits of the training.",
)
@click.option(
    "--continues",
    default=None,
    metavar="RUN[@STEP]",
    help="Run that this one continues, and the step of its checkpoint (by default its last). Steps count on "
    "from there, and detectors use that run's history as their baseline.",
)
@_options.runs_dir
@click.option("--name", default=None, help="Name of the run; by default the script's name with the time.")
@click.option(
    "--state-mb",
    default=4096,
    show_default=True,
    help="Largest model and optimizer state (10^6 bytes) that an incident bundle stores; 0 stores none.",
)
@click.option(
    "--rewind-mb",
    default=4096,
    show_default=True,
    help="Disk space (10^6 bytes) for the tape and the snapshots that allow a replay of the last steps; 0: none.",
)
@click.option("--keep-rewind", is_flag=True, help="Keep tape and snapshots also when the run ends well.")
@click.option(
    "--every-step",
    is_flag=True,
    help="Record every step also in a long run of very short steps. Otherwise such a run is recorded in bursts, to "
    "take less than 10 % of its time.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["warning", "critical"]),
    help="Exit with 1 if a symptom of this severity or above was found and the script itself ended with 0.",
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@_options.gathered(_options_of_a_run, into="options")
def command(
    as_module: bool, fail_on: Severity | None, script: str, arguments: tuple[str, ...], options: Options
) -> int:
    """Run SCRIPT, unchanged, under watch.

    The script keeps its own arguments, output, signals and exit status. Its loss and gradients are checked between
    backward and the update: a NaN or Inf never reaches the weights. Put options before SCRIPT.
    """
    from steadytrain.attach import run_target
    from steadytrain.capture.hooks.launch import module_target, script_target

    target = module_target(script, arguments) if as_module else script_target(script, arguments)
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            f"run needs PyTorch and {sys.executable} has none; install torch in this environment, "
            "or use the steadytrain of the environment that has it"
        )
    return run_target(target, options, fail_on=fail_on)
