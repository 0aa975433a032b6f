"""``steadytrain run``: run a training script under watch."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli import _options
from steadytrain.cli._misspelt import no_option
from steadytrain.cli._output import say
from steadytrain.cli._settings import ConfiguredCommand
from steadytrain.cli.main import ENTERED
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import MAX_SKIPS_DEFAULT
from steadytrain.core.switch import VARIABLE, is_off

if TYPE_CHECKING:
    from steadytrain.attach import Options, Wanted
    from steadytrain.capture.hooks.launch import Target


def _options_of_a_run() -> type[Options]:
    from steadytrain.attach import Options

    return Options


def _wanted_of_a_run() -> type[Wanted]:
    from steadytrain.attach import Wanted

    return Wanted


def _bare_when_off(body: Callable[..., int]) -> Callable[..., int]:
    """Run SCRIPT without us where everything is switched off: then no option holds, and none is judged."""

    @wraps(body)
    def deciding(**parameters: Any) -> int:
        if not is_off():
            return body(**parameters)
        from steadytrain.attach.launched_script import run_bare

        target = _target(parameters["as_module"], parameters["script"], parameters["arguments"])
        say(f"steadytrain: switched off by {VARIABLE}={os.environ[VARIABLE]}; nothing is watched", err=True)
        return run_bare(target)

    return deciding


def _target(as_module: bool, script: str, arguments: tuple[str, ...]) -> Target:
    from steadytrain.capture.hooks.launch import module_target, script_target

    return module_target(script, arguments) if as_module else script_target(script, arguments)


@click.command(
    cls=ConfiguredCommand,
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
    help="Tools that also get the run: tensorboard, wandb, mlflow, prometheus, otel, several with commas. auto: any of "
    "them in which the script has started a run itself; none: no tool.",
)
@click.option(
    "--notify",
    multiple=True,
    metavar="URL",
    envvar="STEADYTRAIN_NOTIFY",
    help="Alert this address of a chat, a mail server or a web hook (see docs/alerts.md), with the extra `notify`. "
    "Repeatable; also STEADYTRAIN_NOTIFY, with spaces between addresses.",
)
@click.option(
    "--on-incident",
    default="",
    callback=_options.not_blank,
    metavar="COMMAND",
    help="Run this shell command with each alert as JSON on its standard input.",
)
@click.option(
    "--notify-at",
    type=click.Choice(["warning", "critical"]),
    default="critical",
    show_default=True,
    help="Lowest severity of a symptom that is alerted. A stop and the end of the run always are.",
)
@click.option(
    "--notify-quiet",
    default="",
    metavar="HH:MM-HH:MM",
    help="Local hours in which addresses get nothing but the end of the run; the rest waits for their end.",
)
@click.option(
    "--notify-per-hour",
    type=int,
    default=12,
    show_default=True,
    help="Most messages to one address within an hour; more are gathered into the next one.",
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
    "from there, and detectors use that run's history as their baseline. By default, a SLURM job that was started "
    "again continues its own run; none: a new run.",
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
    help="Exit with 71 if a symptom of this severity or above was found and the script itself ended with 0.",
)
@click.option(
    "--require-training",
    is_flag=True,
    help="Exit with 71 if no step of a training was seen and the script itself ended with 0.",
)
@click.option("--top", is_flag=True, help="Show the run live under the output of SCRIPT, as `steadytrain top` does.")
@click.argument("script", callback=no_option)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@_bare_when_off
@_options.gathered(_wanted_of_a_run, into="wanted")
@_options.gathered(_options_of_a_run, into="options")
def command(
    as_module: bool,
    seed: int | None,
    deterministic: bool,
    top: bool,
    script: str,
    arguments: tuple[str, ...],
    wanted: Wanted,
    options: Options,
) -> int:
    """Run SCRIPT, unchanged, under watch.

    The script keeps its own arguments, output, signals and exit status. Its loss and gradients are checked between
    backward and the update: a NaN or Inf never reaches the weights. Put options before SCRIPT.

    Each option is also read from STEADYTRAIN_<OPTION> in the environment, and from [run] in steadytrain.toml or
    [tool.steadytrain.run] in pyproject.toml. STEADYTRAIN=0 switches everything off. `steadytrain doctor` shows what
    holds.
    """
    from steadytrain.attach import run_target
    from steadytrain.attach.idle_options import refuse_idle
    from steadytrain.capture.hooks.seeding import Randomness

    try:
        refuse_idle(options, _options.typed())
    except UsageError:
        raise
    except Exception as error:  # a check of ours that fails keeps no script from running
        say(f"steadytrain: warning: the options could not be checked ({type(error).__name__})", err=True)
    target = _target(as_module, script, arguments)
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            f"run needs PyTorch and {sys.executable} has none; install torch in this environment, "
            "or use the steadytrain of the environment that has it"
        )
    if seed is not None:
        _seed_hashes(seed)
    with _shown(options, top=top):
        return run_target(target, options, wanted=wanted, randomness=Randomness(seed, deterministic))


def _shown(options: Options, *, top: bool) -> AbstractContextManager[None]:
    if not top:
        return nullcontext()
    from steadytrain.cli._top_under import picture_under

    return picture_under(Path(options.runs_dir))


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
