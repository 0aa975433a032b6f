"""``steadytrain run``: run a training script under watch."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _options
from steadytrain.cli.main import ENTERED
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import MAX_SKIPS_DEFAULT

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
    "skip: skip such an update and go on. steady: also roll back, clip, and lower the learning rate when the run "
    "leaves its course. observe: record only, never touch the run. Or a TOML file: see `steadytrain policy show`.",
)
@click.option(
    "--max-skips",
    type=int,
    default=MAX_SKIPS_DEFAULT,
    show_default=True,
    help="Under the policy skip, stop the run after so many skipped updates in a row; under steady, roll back.",
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
@click.option(
    "--resume-from",
    default=None,
    metavar="INCIDENT",
    help="Go on from the state before this incident: it is loaded at the script's first step, and steps count on.",
)
@click.option(
    "--with",
    "fixes",
    multiple=True,
    metavar="FIX",
    help="With --resume-from: an intervention, or a fix of `steadytrain verify`, that holds from the first step on.",
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
@click.option(
    "--checkpoints-mb",
    default=4096,
    show_default=True,
    help="Disk space (10^6 bytes) that keeps the last good checkpoints of SCRIPT after it has removed them; 0: none.",
)
@click.option("--keep-rewind", is_flag=True, help="Keep tape and snapshots also when the run ends well.")
@click.option(
    "--every-step",
    is_flag=True,
    help="Record every step also in a long run of very short steps. Otherwise such a run is recorded in bursts, to "
    "take less than 10 % of its time.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    metavar="N",
    help="Seed Python, NumPy, torch on all devices, loader workers and string hashes before SCRIPT starts; its own "
    "seeds still hold.",
)
@click.option(
    "--deterministic",
    is_flag=True,
    help="Use torch's deterministic operations; the end of the run names those that have no such version.",
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
    as_module: bool,
    seed: int | None,
    deterministic: bool,
    fail_on: Severity | None,
    script: str,
    arguments: tuple[str, ...],
    options: Options,
) -> int:
    """Run SCRIPT, unchanged, under watch.

    The script keeps its own arguments, output, signals and exit status. Its loss and gradients are checked between
    backward and the update: a NaN or Inf never reaches the weights. Put options before SCRIPT.
    """
    from steadytrain.attach import run_target
    from steadytrain.capture.hooks.launch import module_target, script_target
    from steadytrain.capture.hooks.seeding import Randomness

    target = module_target(script, arguments) if as_module else script_target(script, arguments)
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            f"run needs PyTorch and {sys.executable} has none; install torch in this environment, "
            "or use the steadytrain of the environment that has it"
        )
    if seed is not None:
        _seed_hashes(seed)
    return run_target(target, options, fail_on=fail_on, randomness=Randomness(seed, deterministic))


def _seed_hashes(seed: int) -> None:
    """Start this command again with the hashes of strings seeded, which Python allows only before its start.

    Only where this process is this command and nothing else: its arguments are those that Python was started with.
    """
    from steadytrain.capture.hooks.seeding import HASH_VARIABLE, SMALL_SEED_MAX, hash_seed_is_fixed

    own = click.get_current_context().find_root().obj == ENTERED
    words = sys.argv[1:]
    if hash_seed_is_fixed() or not own or not words or sys.orig_argv[-len(words) :] != words:
        return
    os.environ[HASH_VARIABLE] = str(seed % SMALL_SEED_MAX)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
