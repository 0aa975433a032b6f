"""``steadytrain.locate``: run the failing step again in a new process and find its first bad operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.api.targets import Target, incident_or_run_of, needs_torch, path_of
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Finding
from steadytrain.grouping.gravest import gravest_incident
from steadytrain.locate import locate_failure
from steadytrain.replay import failing_step
from steadytrain.replay.child_processes import ending_in_order
from steadytrain.replay.loop_command import parse_loop, replacing_the_command
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT

if TYPE_CHECKING:
    from steadytrain.storage.step_look import StepLook

NOT_SEARCHED = "no search ran when the step was recorded"


@dataclass(frozen=True)
class Location:
    """Where a step failed: ``recorded`` during the run, ``again`` in the new process; ``finding`` is the better of the
    two.
    """

    source: Path
    step: int
    recorded: Finding
    found: locate_failure.Found
    broke: bool
    kept: bool

    @property
    def again(self) -> Finding:
        return self.found.finding

    @property
    def finding(self) -> Finding:
        """The more informative of the two; ``finding.located`` is the operation, None if none was found."""
        return failing_step.best(self.recorded, self.again)

    @property
    def look(self) -> StepLook | None:
        """Further measurements of the step: float64, maxima of activations, compiled code."""
        return self.found.look

    @property
    def named(self) -> bool:
        """Whether an operation or a bad input was found."""
        both = (self.recorded, self.again)
        return any(one.located is not None or failing_step.is_named_input(one) for one in both)

    def to_json(self) -> dict[str, Any]:
        """The ``steadytrain.locate/1`` document."""
        return dict(locate_failure.document(self.source, self.recorded, self.found))


def locate(
    target: Target = None,
    *,
    step: int | None = None,
    wait_s: float = 900.0,
    runs_dir: str | Path = RUNS_DIR_DEFAULT,
    step_fn: Callable[..., object] | str | None = None,
    build: Callable[..., object] | str | None = None,
) -> Location:
    """Launch the recorded command again, replay the failing step, and name the first bad operation.

    The result is stored in the bundle; reports show it.

    Args:
        target: a bundle, or a run (its most severe incident); None: the newest run.
        step: the recorded optimizer step to replay; by default that of the incident. With it the run needs no incident,
            only its tape.
        wait_s: time limit of the launched script, in seconds.
        runs_dir: folder of run folders.
        step_fn: a function ``f(model, batch)`` of a module that returns the loss, or its ``MODULE:NAME``; replaces a
            script that cannot be launched.
        build: another one, with ``step_fn``: returns ``(model, optimizer)`` or ``(model, optimizer, update)``.

    Raises:
        UsageError: there is no such run or step, or it cannot be launched.

    Examples:
        >>> location = steadytrain.locate("runs/stopped")
        >>> location.finding.located.operation, location.step
        ('aten.log.default', 4)
    """
    if step is not None and step < 1:
        raise UsageError(f"--step {step}: steps count from 1")
    if wait_s <= 0:
        raise UsageError(f"--wait-s {wait_s}: must be more than 0")
    if step is None:
        path = gravest_incident(path_of(target, runs_dir))
    else:
        path = incident_or_run_of(target, runs_dir)
    loop = parse_loop(step_fn, build)
    asked = locate_failure.target(path, step)
    needs_torch("locate needs PyTorch to run the step again")
    recorded = asked.bundle.finding if asked.bundle is not None else Finding(None, NOT_SEARCHED)
    with ending_in_order(), replacing_the_command(loop):
        found = locate_failure.find_again(asked, wait_s=wait_s)
    locate_failure.keep(asked, found)
    return Location(path, asked.step, recorded, found, asked.broke, asked.bundle is not None)
