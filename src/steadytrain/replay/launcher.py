"""Launches replays, and as many more as it takes to classify a difference.

One exact replay is the answer. Otherwise a second one runs. If the two differ, or the environment is unchanged, further
replays trace the first differing step, until two traces diverge. Torch-free: replays run in their own processes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadytrain.capture.hooks.seeding import hash_variables
from steadytrain.core.errors import UsageError
from steadytrain.replay.devices import Device, as_recorded, on
from steadytrain.replay.environment_changes import changes
from steadytrain.replay.failing_step import MOVED_HINT, NOT_RECORDED, Tell, check_batches, check_launch, run_logged
from steadytrain.replay.from_script import STEPS_MODULE
from steadytrain.replay.hardware_verdict import OnDevice, judge_devices
from steadytrain.replay.loop_command import with_loop
from steadytrain.replay.moved_files import Moved, moved_environment
from steadytrain.replay.rank_launch import run_ranks
from steadytrain.replay.rank_replay import commands, joined, why_not
from steadytrain.replay.trace_comparison import Part, TracedOperation, first_part
from steadytrain.replay.verdict import RUN_EAGERLY, Judgement, Replayed, differ, earliest, judge
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.rank_group import RankGroup, rank_group
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.tape_files import Recording, find_recording, recording_note

ONE_STEP_MODULE = "steadytrain.replay.from_bundle"
NOT_GIVEN = "-"
TRACES_MAX = 4
"""Bound on traced replays. An intermittent difference may need several until two traces diverge."""

TRACE_BYTES_MAX = 1 << 30
USAGE_STATUS, OURS = 2, "steadytrain: "
"""Exit status and prefix of the last line of a launched process that got an impossible request."""


class CannotReplayError(Exception):
    """The launched command did not reach the requested step; the text says why."""

    def _render_traceback_(self) -> list[str]:
        """The line that IPython prints in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True)
class Plan:
    """What to replay, and how to launch the command.

    ``environment`` is the document of the recorded run. ``first`` is None if only the incident's own step is replayed
    from its bundle. ``incident_step`` is None for a run. ``wait_s`` bounds each launch. The launched script computes
    the steps before ``first`` itself if they need at most ``lead_s`` seconds, else only its first. ``group`` are all
    ranks of a run of several. ``device``: where it runs; None: as the recorded run did.
    """

    source: Path
    environment: Mapping[str, Any]
    incident_step: int | None
    first: int | None
    until: int
    moved: Moved
    wait_s: float
    lead_s: float
    group: RankGroup | None = None
    device: Device | None = None

    @property
    def looked_for(self) -> bool:
        """Whether the replay reaches the step of the symptom."""
        return self.until == self.incident_step


@dataclass(frozen=True)
class Output:
    """The output of one launch."""

    replayed: Replayed
    environment: dict[str, Any]
    operations: tuple[TracedOperation, ...]
    notes: tuple[str, ...]


def plan(
    source: Path,
    *,
    first: int | None,
    until: int | None,
    moved: Moved,
    wait_s: float,
    lead_s: float,
) -> Plan:
    """Chooses the steps and checks that the command can be launched.

    A bundle without a tape can still replay its own step.

    Raises:
        UsageError: the steps do not exist, no snapshot precedes them, or the script is gone.
    """
    recording, group = find_recording(source), rank_group(source)
    if is_bundle(source):
        bundle = open_bundle(source)
        environment, step = bundle.environment, bundle.incident.step
        onset = bundle.incident.onset_step
        if bundle.incident.kind == "symptom" and not recording.starts():
            note = recording_note(source) or bundle.incident.state_note
            raise UsageError(f"{source}: it has no snapshot with the steps after it ({note}); nothing to replay from")
        if group is None and not recording.starts() and first in (None, step) and until in (None, step):
            _check_one_step(source, bundle.incident.state_note, recording)
            check_batches(source, bundle.incident.batch_note)
            _check_launch(moved_environment(environment, moved))
            return Plan(source, environment, step, None, step, moved, wait_s, lead_s)
    else:
        environment, step, onset = open_run(source).description, None, None
    snapshot, last = (group or recording).choose(first=first, until=until or step, onset=onset)
    _check_launch(moved_environment(environment, moved))
    return Plan(source, environment, step, snapshot.step + 1, last, moved, wait_s, lead_s, group)


def starts(source: Path) -> list[int]:
    """The steps from which a replay can start."""
    group = rank_group(source)
    return (find_recording(source) if group is None else group.common).starts()


def replay(asked: Plan, *, times: int, explain: bool) -> tuple[list[Replayed], Judgement]:
    """Replays ``times`` times. With ``explain``, adds the replays that classify a difference.

    Raises:
        CannotReplayError: the launched script did not reach the step.
    """
    outputs = [_once(asked, trace_step=None) for _ in range(times)]
    replays = [output.replayed for output in outputs]
    changed = changes(asked.environment, outputs[0].environment, moved=asked.moved.pair)
    if not explain or all(one.exact for one in replays):
        return replays, judge(replays, changed=changed)
    if len(replays) == 1:
        replays.append(_once(asked, trace_step=None).replayed)
    if not differ(replays) and changed:
        return replays, judge(replays, changed=changed)
    first = earliest(replays)
    assert first is not None
    part, traced, compiled = _part(asked, first.step)
    return replays, judge(replays, changed=changed, traced=traced, part=part, compiled=compiled)


def replay_on(
    asked: Plan, devices: Sequence[Device], *, times: int, tell: Tell
) -> tuple[list[Replayed], Judgement, list[OnDevice]]:
    """Replays ``times`` times on each of ``devices``, and once more where that is not exact. The judgement is about the
    devices.

    Raises:
        CannotReplayError: the launched script did not reach the step on one of them.
    """
    replays: dict[str, list[Replayed]] = {}
    changed: list[str] = []
    for number, device in enumerate(devices, start=1):
        tell(f"replay on {device.name} ({number} of {len(devices)})")
        there = replace(asked, device=device)
        outputs = [_once(there, trace_step=None) for _ in range(times)]
        if len(outputs) == 1 and not outputs[0].replayed.exact:
            outputs.append(_once(there, trace_step=None))
        replays[device.name] = [output.replayed for output in outputs]
        present = as_recorded(outputs[0].environment, asked.environment)
        changed = changed or changes(asked.environment, present, moved=asked.moved.pair)
    judgement, suspects = judge_devices(replays, changed)
    found = [
        OnDevice.of(one, replays[one.name], looked_for=asked.looked_for, suspect=one.name in suspects)
        for one in devices
    ]
    return [one for ones in replays.values() for one in ones], judgement, found


def _once(asked: Plan, *, trace_step: int | None) -> Output:
    with tempfile.TemporaryDirectory(prefix="steadytrain-replay-") as scratch:
        if asked.group is not None:
            return _ranks(asked, asked.group, Path(scratch), trace_step)
        result = Path(scratch) / "result.json"
        launch(asked, _command(asked, result, trace_step), result)
        return _output(result, trace_step)


def _output(result: Path, trace_step: int | None) -> Output:
    document = _read(result)
    if "cannot" in document:
        raise CannotReplayError(str(document["cannot"]))
    trace = _read(result.parent / "trace.json") if trace_step is not None else {"operations": [], "notes": []}
    return Output(
        Replayed.from_json(document["replayed"]),
        _read(result.parent / "environment.json"),
        tuple(TracedOperation.from_json(operation) for operation in trace["operations"]),
        tuple(trace["notes"]),
    )


def _ranks(asked: Plan, group: RankGroup, scratch: Path, trace_step: int | None) -> Output:
    """One launch of all ranks. Its trace is that of the rank whose first difference comes first."""
    assert asked.first is not None
    steps, trace = (asked.first, asked.until), NOT_GIVEN if trace_step is None else str(trace_step)
    launched = commands(group, scratch, steps, trace, moved=asked.moved, lead_s=asked.lead_s)
    failure = run_ranks(launched, wait_s=asked.wait_s)
    for rank, one in enumerate(launched):  # a rank that cannot go on says so, and the others wait for it in vain
        if one.result.is_file() and "cannot" in (document := _read(one.result)):
            raise CannotReplayError(f"rank {rank}: {document['cannot']}")
    if failure is not None:
        raise CannotReplayError(why_not(failure, group, wait_s=asked.wait_s))
    outputs = [_output(one.result, trace_step) for one in launched]
    found = joined([output.replayed for output in outputs], group)
    differs = found.first_difference.rank if found.first_difference is not None else None
    return replace(outputs[group.rank if differs is None else differs], replayed=found)


def _command(asked: Plan, result: Path, trace_step: int | None) -> list[str]:
    places = [str(asked.source.absolute()), str(result), str(asked.moved)]
    if asked.first is None:
        return ["-m", ONE_STEP_MODULE, *places, "plain" if trace_step is None else "trace"]
    steps = [str(asked.first), str(asked.until), NOT_GIVEN if trace_step is None else str(trace_step)]
    return ["-m", STEPS_MODULE, *places, *steps, str(asked.lead_s)]


def launch(asked: Plan, arguments: Sequence[str], result: Path) -> None:
    folder = with_loop(moved_environment(asked.environment, asked.moved)).get("cwd")
    log, variables = result.parent / "output.txt", hash_variables(asked.environment)
    with on(asked.device) as of_device:
        ended = run_logged(arguments, log, folder=folder, wait_s=asked.wait_s, variables={**variables, **of_device})
    if ended is None:
        raise CannotReplayError(f"the launched script took more than {asked.wait_s:g} s (--wait-s)")
    if not result.is_file():
        if ended.status == USAGE_STATUS and ended.said and ended.said[-1].startswith(OURS):
            raise UsageError(ended.said[-1].removeprefix(OURS))
        raise CannotReplayError(ended.before("last step", asked.environment))


def _part(asked: Plan, step: int) -> tuple[Part | None, bool, bool]:
    """Where two traces of ``step`` diverge, whether there were at least two, and whether the step runs compiled code,
    which a trace runs eagerly."""
    traces: list[tuple[TracedOperation, ...]] = []
    compiled = False
    while len(traces) < TRACES_MAX:
        try:
            output = _once(asked, trace_step=step)
        except CannotReplayError:
            break
        trace, compiled = output.operations, compiled or RUN_EAGERLY in output.notes
        for other in traces:
            part = first_part(other, trace)
            if part is not None:
                return part, True, compiled
        traces.append(trace)
    return None, len(traces) > 1 and all(traces), compiled


def _check_one_step(source: Path, state_note: str, recording: Recording) -> None:
    if not (source / "model.safetensors").is_file():
        none = "it has no tape" if not recording.chunks else "no snapshot of it is left"
        raise UsageError(
            f"{source}: nothing to replay from: {none}, and its weights are not there (they were {state_note}); the "
            "run's own folder may have both: name that"
        )


def _check_launch(environment: Mapping[str, Any]) -> None:
    unknown = f"{NOT_RECORDED} (--step-fn works without it)"
    check_launch(environment, unknown=unknown, script_hint=f"{MOVED_HINT}, or --step-fn to replay without it")


def _read(path: Path) -> dict[str, Any]:
    if path.stat().st_size > TRACE_BYTES_MAX:
        raise UsageError(f"{path.name}: more than {TRACE_BYTES_MAX >> 20} MiB, too large a trace to read")
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document
