"""``steadytrain.replay``: run recorded steps in a new process and compare them bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from steadytrain.api.targets import Target, needs_torch, recorded_source
from steadytrain.core.errors import UsageError
from steadytrain.core.signatures import chosen, takes_options
from steadytrain.experiments.command_results import keep_result
from steadytrain.experiments.device_facts import result_of_devices
from steadytrain.replay import launcher, verdict
from steadytrain.replay.child_processes import ending_in_order
from steadytrain.replay.devices import devices_of
from steadytrain.replay.hardware_verdict import OnDevice
from steadytrain.replay.loop_command import parse_loop, replacing_the_command
from steadytrain.replay.moved_files import NOT_MOVED, Moved
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT
from steadytrain.storage.secret_words import REDACTED

if TYPE_CHECKING:
    from typing_extensions import Unpack

TIMES_MAX = 1000
Tell = Callable[[str], None]
Function = Callable[..., object]


@dataclass(frozen=True)
class ReplayOptions:
    """How to replay.

    Args:
        first: first step; by default the one after the last snapshot.
        until: last step; by default that of the incident.
        times: number of replays.
        once: no further replays to find why a step differs.
        devices: replays on each GPU of the recorded kind, or on each core, to find one that computes wrong.
        step_fn: a function ``f(model, batch)`` of a module that returns the loss, or its ``MODULE:NAME``; replays
            without the script.
        build: another one, with ``step_fn``: returns ``(model, optimizer)`` or ``(model, optimizer, update)``.
        moved: ``OLD=NEW``: read the files under OLD from the folder NEW; ``-`` for none.
        lead_s: the script runs the steps before the first itself if they take at most this many seconds.
        runs_dir: folder of run folders.
        wait_s: time limit of each launched script, in seconds.

    Raises:
        UsageError: an argument is out of bounds; the text names the option of ``steadytrain replay``.
    """

    first: int | None = None
    until: int | None = None
    times: int = 1
    once: bool = False
    devices: bool = False
    step_fn: Function | str | None = None
    build: Function | str | None = None
    moved: str = NOT_MOVED
    lead_s: float = 120.0
    runs_dir: str | Path = RUNS_DIR_DEFAULT
    wait_s: float = 900.0

    def __post_init__(self) -> None:
        if self.wait_s <= 0:
            raise UsageError(f"--wait-s {self.wait_s}: must be more than 0")
        if not self.lead_s >= 0:
            raise UsageError(f"--lead-s {self.lead_s}: must not be negative")
        if not 1 <= self.times <= TIMES_MAX:
            raise UsageError(f"--times {self.times}: between 1 and {TIMES_MAX}")
        if self.devices and self.once:
            raise UsageError("--devices: each device that differs is asked twice; leave out --once")
        for option, step in (("--from", self.first), ("--until", self.until)):
            if step is not None and step < 1:
                raise UsageError(f"{option} {step}: steps count from 1")
        parse_loop(self.step_fn, self.build)

    @property
    def loop(self) -> tuple[str, str] | None:
        """What replaces the script, None if the recorded command is launched."""
        return parse_loop(self.step_fn, self.build)


class ReplayOptionsGiven(TypedDict, total=False):
    """The fields of :class:`ReplayOptions` as keywords; omitted ones have their default."""

    first: int | None
    until: int | None
    times: int
    once: bool
    devices: bool
    step_fn: Function | str | None
    build: Function | str | None
    moved: str
    lead_s: float
    runs_dir: str | Path
    wait_s: float


@dataclass(frozen=True)
class ReplayResult:
    """The result of replaying recorded steps."""

    source: Path
    replays: tuple[verdict.Replayed, ...]
    judgement: verdict.Judgement
    looked_for_symptom: bool
    devices: tuple[OnDevice, ...] = ()
    """Of each device, if several were compared."""

    @property
    def exact(self) -> bool:
        """Whether every replayed step was bit-identical, in each replay."""
        return all(replay.exact for replay in self.replays)

    @property
    def symptom(self) -> bool | None:
        """Whether the symptom recurred in any replay; None if undecided, or if there is no symptom."""
        symptom: bool | None = self.to_json()["symptom"]
        return symptom

    @property
    def status(self) -> int:
        """The exit status of ``steadytrain replay``, as ``git bisect run`` expects."""
        return verdict.status(self.replays, looked_for=self.looked_for_symptom)

    def to_json(self) -> dict[str, Any]:
        """The ``steadytrain.replay/1`` document."""
        devices = [one.to_json() for one in self.devices]
        return verdict.document(
            str(self.source), self.replays, self.judgement, looked_for=self.looked_for_symptom, devices=devices
        )


@takes_options(ReplayOptions)
def replay(target: Target = None, **options: Unpack[ReplayOptionsGiven]) -> ReplayResult:
    """Launch the recorded command again, replay the recorded steps, and compare them bit for bit.

    The script writes to a temporary folder; your files do not change.

    Args:
        target: a bundle or a run (its most severe incident; without one, the steps on its tape); None: the newest.
        options: the fields of :class:`steadytrain.api.replays.ReplayOptions`:

    Raises:
        UsageError: there is no such run, it has nothing to replay, or an option is out of bounds.
        CannotReplayError: the launched script did not reach the step.

    Examples:
        >>> result = steadytrain.replay("runs/stopped")
        >>> result.exact, result.symptom
        (True, True)
        >>> result.replays[0].until_step
        4
    """
    return replay_with(target, chosen(ReplayOptions, options, "replay"))


def replay_with(target: Target, options: ReplayOptions, *, tell: Tell = lambda line: None) -> ReplayResult:
    """Like :func:`replay`, with the options as one value. ``tell`` gets notes before the script runs."""
    moved = Moved.parse(options.moved)
    source = recorded_source(target, options.runs_dir)
    needs_torch("replay needs PyTorch to run the steps again")
    with replacing_the_command(options.loop):
        plan = launcher.plan(
            source, first=options.first, until=options.until, moved=moved, wait_s=options.wait_s, lead_s=options.lead_s
        )
        if options.loop is not None and plan.group is not None:
            raise UsageError(f"--step-fn: {source} has {plan.group.world} ranks, which only their script can launch")
        if options.devices and plan.group is not None:
            raise UsageError(f"--devices: {source} has {plan.group.world} ranks; only a run of one is moved to others")
        choices = devices_of(plan.environment) if options.devices else ()
        devices: list[OnDevice] = []
        if options.loop is None and any(REDACTED in str(argument) for argument in plan.environment.get("argv") or ()):
            tell(f"note: a secret among the arguments was not stored; the script gets {REDACTED}...]")
        with ending_in_order():
            if options.devices:
                replays, judgement, devices = launcher.replay_on(plan, choices, times=options.times, tell=tell)
            else:
                replays, judgement = launcher.replay(plan, times=options.times, explain=not options.once)
    result = ReplayResult(source, tuple(replays), judgement, plan.looked_for, tuple(devices))
    document = result.to_json()
    kept = [verdict.command_result(document), *([result_of_devices(document)] if devices else [])]
    keep_result(source, *kept)
    return result
