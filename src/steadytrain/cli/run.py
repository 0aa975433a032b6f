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
    help="How much is recorded: light, standard or full. Every level checks loss and gradients in every step.",
)
@click.option(
    "--to",
    default="auto",
    show_default=True,
    help="Where the run goes besides its folder: tensorboard, wandb, mlflow, several with commas. auto: into a run of "
    "theirs that the script has begun itself; none: nowhere.",
)
@click.option(
    "--compiled",
    default="edges",
    show_default=True,
    help="Where outputs of modules in compiled code are seen. edges: where that code ends; inside: the compiled "
    "graphs compute them too, which can change the last bits of the training.",
)
@click.option(
    "--continues",
    default=None,
    metavar="RUN[@STEP]",
    help="The run that this one goes on from, and the step of its checkpoint (by default its last). Steps are counted "
    "on from there, and detectors judge by what was usual there.",
)
@_options.runs_dir
@click.option("--name", default=None, help="Name of the run; by default the script's with the time.")
@click.option(
    "--state-mb",
    default=4096,
    show_default=True,
    help="Largest model and optimizer state (10^6 bytes) that an incident bundle keeps; 0 keeps none.",
)
@click.option(
    "--rewind-mb",
    default=4096,
    show_default=True,
    help="Disk (10^6 bytes) for the tape and the snapshots of the last steps, so that they can be replayed; 0: none.",
)
@click.option("--keep-rewind", is_flag=True, help="Keep them although the run ends well.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@_options.gathered(_options_of_a_run, into="options")
def command(as_module: bool, script: str, arguments: tuple[str, ...], options: Options) -> int:
    """Run SCRIPT, unchanged, under watch.

    The script keeps its own arguments, output, signals and exit status. Between backward and the update its loss and
    gradients are checked; a NaN or Inf never reaches the weights. Put options before SCRIPT.
    """
    from steadytrain.attach import run_target
    from steadytrain.capture.hooks.launch import module_target, script_target

    target = module_target(script, arguments) if as_module else script_target(script, arguments)
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            f"run needs PyTorch and {sys.executable} has none; install torch in this environment, "
            "or use the steadytrain of the environment that has it"
        )
    return run_target(target, options)
