"""Options that several commands share, and a decorator that gathers many into one value."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from steadytrain.cli._settings import SharedOption, made_with_source
from steadytrain.core.errors import UsageError
from steadytrain.replay.programs import NETWORK_VARIABLE
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case
    from steadytrain.trial_runs.trial_session import How

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

runs_dir = click.option(
    "--runs-dir",
    cls=SharedOption,
    type=click.Path(path_type=Path),
    default=RUNS_DIR_DEFAULT,
    show_default=True,
    help="Folder that holds the runs.",
)
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print the JSON document (docs/schemas.md) and nothing else."
)


def writable(context: click.Context, _: click.Parameter, output: Path | None) -> Path | None:
    """Refuse what is no file before the work that the page would show."""
    if output == Path("-"):
        raise UsageError("-o -: the result in words goes to standard output; name a file with -o FILE.html")
    if output is not None and output.is_dir():
        raise UsageError(f"{output}: this is a folder; name a file with -o FILE.html")
    if output is not None and not output.absolute().parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder to write {output.name} into; make it first")
    return output


page_output = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    callback=writable,
    help="Also write the result as one offline HTML page.",
)
tree = click.option(
    "--tree", "moved", default="-", metavar="OLD=NEW", help="Read the files under OLD from the folder NEW instead."
)
workers = click.option(
    "--workers",
    type=int,
    help="Trials to run at once; by default one per processor, fewer if the run used several threads, at most 4.",
)
engine = click.option(
    "--engine",
    type=click.Choice(["local", "ray", "slurm"]),
    default="local",
    show_default=True,
    help="Run trials in processes here, on Ray, or in job steps of SLURM.",
)
step_fn = click.option(
    "--step-fn",
    metavar="MODULE:NAME",
    help="Run the steps without the script: the function f(model, batch) that returns the loss.",
)
build = click.option(
    "--build",
    metavar="MODULE:NAME",
    help="With --step-fn: a function that returns (model, optimizer) or (model, optimizer, update).",
)
symptom = click.option("--symptom", metavar="NAME", help="Symptom to test; by default the first of the most severe.")
onset = click.option(
    "--onset", type=int, metavar="STEP", help="Step at which the symptom began; overrides the recorded one."
)


def typed() -> frozenset[str]:
    """The names of the parameters that stand on the command line."""
    context = click.get_current_context()
    return frozenset(
        name for name in context.params if context.get_parameter_source(name) == ParameterSource.COMMANDLINE
    )


def elsewhere(runs_dir: Path) -> tuple[str, ...]:
    """The words that name a folder of runs other than the usual one, for a next command."""
    return () if str(runs_dir) == RUNS_DIR_DEFAULT else ("--runs-dir", str(runs_dir))


def _allow_network(context: click.Context, _: click.Parameter, allowed: bool) -> None:
    """Let the processes that this command launches connect to other hosts; they read the environment."""
    if allowed and NETWORK_VARIABLE not in os.environ:
        os.environ[NETWORK_VARIABLE] = "1"
        context.call_on_close(lambda: os.environ.pop(NETWORK_VARIABLE, None))


allow_network = click.option(
    "--allow-network",
    is_flag=True,
    expose_value=False,
    callback=_allow_network,
    help="Let the launched script connect to other hosts and to servers of other processes. Trackers and job "
    "submissions stay off.",
)


@dataclass(frozen=True)
class TrialOptions:
    """Options of the commands that run trials. ``onset`` is a step, ``moved`` ``OLD=NEW`` or ``-``."""

    workers: int | None
    symptom: str | None
    onset: int | None
    moved: str
    engine: Literal["local", "ray", "slurm"]

    def __post_init__(self) -> None:
        if self.onset is not None and self.onset < 1:
            raise UsageError(f"--onset {self.onset}: steps count from 1")

    def case(self, path: Path) -> Case:
        """The case of the incident or run at ``path``, with the requested symptom and onset."""
        from steadytrain.diagnosis.case_with_run import open_story
        from steadytrain.experiments.facts import read_facts

        return open_story(path, facts=read_facts(path), onset=self.onset, symptom=self.symptom)

    def how(self, path: Path, tell: Callable[[str], None] | None, budget_s: float | None = None) -> How:
        from steadytrain.api.diagnoses import default_workers
        from steadytrain.trial_runs.trial_session import How

        return How(self.workers or default_workers(path), budget_s, self.moved, self.engine, tell)


def launches(body: Callable[..., int]) -> Callable[..., int]:
    """Decorate a command that launches processes: it ends them and removes its temporary folders, even if it is
    killed.
    """

    @wraps(body)
    def in_order(*arguments: Any, **options: Any) -> int:
        from steadytrain.replay.child_processes import ending_in_order

        with ending_in_order():
            return body(*arguments, **options)

    return in_order


OF_WORK = "It counts work, not the clock: on a busy machine a second of it takes up to four."
"""What the help of each ``--budget`` says, if ``core.work_time`` counts it."""


def seconds(budget: str) -> float:
    """A time such as ``90``, ``90s``, ``10m`` or ``1h``, in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", budget.strip())
    found = float(match[1]) * _UNITS[match[2] or ""] if match else 0.0
    if not found > 0:
        raise UsageError(f"--budget {budget}: must be a time above 0, such as 90s, 10m or 1h")
    return found


def gathered(kind: Callable[[], type[Any]], *, into: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Pass the command's parameters that are fields of the dataclass ``kind()`` as one value named ``into``.

    ``kind`` is called only when the command runs, so that ``--help`` does not import the dataclass's module.
    """

    def with_one_value(body: Callable[..., int]) -> Callable[..., int]:
        @wraps(body)
        def gathering(**parameters: Any) -> int:
            made = kind()
            own = {field.name: parameters.pop(field.name) for field in fields(made) if field.name in parameters}
            return body(**parameters, **{into: made_with_source(made, own)})

        return gathering

    return with_one_value


def not_blank(context: click.Context, option: click.Parameter, value: str) -> str:
    """``value`` as it is, unless somebody gave a blank one: a variable of a job that is not set.

    Raises:
        click.BadParameter: it is blank.
    """
    asked = context.get_parameter_source(str(option.name)) in (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
    if asked and not value.strip():
        raise click.BadParameter("the command is empty; is the variable set that it comes from?")
    return value
