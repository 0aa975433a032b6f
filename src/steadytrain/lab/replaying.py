"""Launch replays of an incident, and as many more as it takes to say of what kind a difference is.

One replay that is exact is the answer. Else a second one is made; where the two differ, or nothing about the
environment explains them, two more write down every operation of the first step that differs. Torch-free: all that
runs the script does so in processes of their own.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.errors import UsageError
from steadytrain.lab.environment_changes import changes
from steadytrain.lab.judgement import Judgement, Replayed, differ, judge
from steadytrain.lab.moved import Moved, moved_bundle
from steadytrain.lab.relaunch import launch_again
from steadytrain.lab.trace_comparison import Part, TracedOperation, first_part
from steadytrain.store.bundle import Bundle

ONE_STEP_MODULE = "steadytrain.lab.replay_step"
TRACE_BYTES_MAX = 1 << 30


class CannotReplayError(Exception):
    """The recorded command was launched, but could not be brought to its step; the text says why."""


@dataclass(frozen=True)
class Launch:
    """How the recorded command is launched again; ``wait_s`` is for each launch."""

    bundle: Bundle
    moved: Moved
    wait_s: float


@dataclass(frozen=True)
class Output:
    """What one launch left."""

    replayed: Replayed
    environment: dict[str, Any]
    operations: tuple[TracedOperation, ...]
    notes: tuple[str, ...]


def replay(launch: Launch, *, times: int, explain: bool) -> tuple[list[Replayed], Judgement]:
    """Replay ``times`` times; where ``explain``, make those that it takes to name the kind of a difference, too.

    Raises:
        UsageError: the bundle lacks what is needed, or the script is gone.
        CannotReplayError: the launched script did not come to the step.
    """
    outputs = [_once(launch, traced=False) for _ in range(times)]
    replays = [output.replayed for output in outputs]
    changed = _changed(launch, outputs[0])
    if not explain or all(one.exact for one in replays):
        return replays, judge(replays, changed=changed)
    if len(replays) == 1:
        replays.append(_once(launch, traced=False).replayed)
    if not differ(replays) and changed:
        return replays, judge(replays, changed=changed)
    part, traced = _part(launch)
    return replays, judge(replays, changed=changed, traced=traced, part=part)


def _once(launch: Launch, *, traced: bool) -> Output:
    with tempfile.TemporaryDirectory(prefix="steadytrain-replay-") as scratch:
        result = Path(scratch) / "result.json"
        bundle = moved_bundle(launch.bundle, launch.moved)
        arguments = [str(result), str(launch.moved), "trace" if traced else "plain"]
        why = launch_again(bundle, ONE_STEP_MODULE, arguments, result, wait_s=launch.wait_s)
        if why is not None:
            raise CannotReplayError(why)
        document = _read(result)
        if "cannot" in document:
            raise CannotReplayError(str(document["cannot"]))
        trace = _read(result.parent / "trace.json") if traced else {"operations": [], "notes": []}
        return Output(
            Replayed.from_json(document["replayed"]),
            _read(result.parent / "environment.json"),
            tuple(TracedOperation.from_json(operation) for operation in trace["operations"]),
            tuple(trace["notes"]),
        )


def _part(launch: Launch) -> tuple[Part | None, bool]:
    """Where the traces of two more replays part; and whether there are two."""
    try:
        one, other = (_once(launch, traced=True) for _ in range(2))
    except CannotReplayError:
        return None, False
    return first_part(one.operations, other.operations), True


def _changed(launch: Launch, output: Output) -> Sequence[str]:
    return changes(launch.bundle.environment, output.environment, moved=launch.moved.pair)


def _read(path: Path) -> dict[str, Any]:
    if path.stat().st_size > TRACE_BYTES_MAX:
        raise UsageError(f"{path.name}: more than {TRACE_BYTES_MAX >> 20} MiB, which is too long a trace to be read")
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document
