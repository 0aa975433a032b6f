"""Reruns the failing step in a new process and reports the finding. Torch-free: the script runs in launched processes.

With a tape, the steps before it are replayed from a snapshot (``locate/traced_replay.py``). Without one, if the replay
fails, and for one of several ranks, the step runs on the bundle's own state (``replay/failing_step.py``).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Finding
from steadytrain.replay import failing_step
from steadytrain.replay.moved_files import NOT_MOVED
from steadytrain.replay.verdict import Replayed
from steadytrain.storage.bundle import Bundle, is_bundle, open_bundle
from steadytrain.storage.rank_group import world_of
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.step_look import StepLook, keep_look
from steadytrain.storage.tape_files import Recording, find_recording

MODULE = "steadytrain.locate.traced_replay"
TAPE = "the recorded steps were replayed from a snapshot, the last one under the tracer, in a new process"
LADDER_STEPS = 5
"""Number of steps with activation maxima, the failing one included."""

LEAD_S = 120.0
UNEVENTFUL = "the re-run did not reproduce"
"""The start of a tracer's finding if everything came out finite."""


@dataclass(frozen=True)
class Found:
    """The result of the new process. ``replayed`` is None if there was no tape to replay."""

    finding: Finding
    look: StepLook | None
    replayed: Replayed | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """The step to inspect, of a bundle or of a run with a tape. ``bundle`` is None for a run."""

    path: Path
    step: int
    environment: Mapping[str, Any]
    recording: Recording
    bundle: Bundle | None

    @property
    def broke(self) -> bool:
        """Whether the recorded step was non-finite."""
        return self.bundle is not None and self.bundle.incident.kind == "nonfinite"

    @property
    def starts(self) -> list[int]:
        """The steps from which the tape reaches this one."""
        return [start for start in self.recording.starts() if start <= self.step <= self.recording.reaches(start)]


def target(path: Path, step: int | None) -> Target:
    """The target at ``path``. By default ``step`` is the incident's.

    Raises:
        UsageError: there is no such step, or no tape of it.
    """
    recording = find_recording(path)
    if is_bundle(path):
        bundle = open_bundle(path)
        recording = recording if world_of(bundle.environment) < 2 else replace(recording, snapshots=())
        own = bundle.incident.step
        found = Target(path, step or own, bundle.environment, recording, bundle if step in (None, own) else None)
    else:
        if step is None:
            raise UsageError(f"{path}: a run without an incident; use --step N to inspect a recorded step")
        found = Target(path, step, open_run(path).description, recording, None)
    if found.bundle is None and not found.starts:
        starts = recording.starts()
        reach = f"from {starts[0]} to {recording.reaches(starts[-1])}" if starts else "none"
        raise UsageError(f"--step {step}: not on the tape; steps that can be replayed: {reach}")
    return found


def find_again(asked: Target, *, wait_s: float) -> Found:
    """Launches the recorded command again and searches the step, each time for at most ``wait_s`` seconds.

    Weights that were bad before the step are traced to the update that broke them, with at most two more launches.

    Raises:
        UsageError: the bundle is incomplete, or the script is gone.
    """
    starts = asked.starts
    if not starts:
        assert asked.bundle is not None
        return _without_tape(asked.bundle, (), wait_s=wait_s)
    room = [start for start in starts if start <= asked.step - LADDER_STEPS + 1]
    first = room[-1] if room else starts[0]
    replay = _by_replay(asked, first, asked.step, wait_s=wait_s)
    if isinstance(replay, Replay) and replay.bad_at_start and first > starts[0]:
        replay = _by_replay(asked, starts[0], asked.step, wait_s=wait_s)
    if isinstance(replay, str):
        if asked.bundle is None:
            return Found(Finding(None, f"not searched: {replay}"), None, None, ())
        return _without_tape(asked.bundle, (f"the tape could not be replayed: {replay}",), wait_s=wait_s)
    bad_after = replay.bad_after
    if bad_after is not None and starts[0] <= bad_after + 1 < asked.step:
        begin = [start for start in starts if start <= bad_after]
        update = _by_replay(asked, begin[-1] if begin else starts[0], bad_after + 1, wait_s=wait_s)
        if isinstance(update, Replay) and update.found.finding.located is not None:
            return update.found
    found = replay.found
    if not asked.broke and found.finding.why.startswith(UNEVENTFUL):
        return replace(found, finding=Finding(None, "loss and gradients of this step are finite"))
    if asked.bundle is None or _tells(found.finding) or not (replay.parted_before(asked.step) or replay.uneventful):
        return found
    # The replay reached another step than the one that failed. The bundle's own state may do better.
    try:
        again = _without_tape(asked.bundle, found.notes, wait_s=wait_s)
    except UsageError:
        return found
    return again if _tells(again.finding) else found


def keep(asked: Target, found: Found) -> None:
    """Keep in the bundle what was found, if it is better than what the bundle has."""
    if asked.bundle is None:
        return
    failing_step.keep_better(asked.bundle, found.finding)
    if found.look is not None:
        keep_look(asked.path, found.look)


def _tells(finding: Finding) -> bool:
    return finding.located is not None or failing_step.is_named_input(finding)


@dataclass(frozen=True)
class Replay:
    """One launch. ``bad_after`` is the first step whose update left non-finite weights."""

    found: Found
    replayed: Replayed
    bad_after: int | None
    bad_at_start: bool

    @property
    def uneventful(self) -> bool:
        """Whether everything came out finite, both eagerly and as the script compiles it."""
        backends = self.found.look.backends if self.found.look is not None else None
        to_blame = backends is not None and backends.to_blame is not None
        return self.found.finding.why.startswith(UNEVENTFUL) and not to_blame

    def parted_before(self, step: int) -> bool:
        first = self.replayed.first_difference
        return first is not None and first.step < step


def _by_replay(asked: Target, first: int, step: int, *, wait_s: float) -> Replay | str:
    """Returns the reason as text if the replay failed."""
    folder = failing_step.folder_to_run_in(asked.path, asked.environment)
    with tempfile.TemporaryDirectory(prefix="steadytrain-locate-") as scratch:
        result = Path(scratch) / "result.json"
        places = [str(asked.path.absolute()), str(result), NOT_MOVED]
        arguments = ["-m", MODULE, *places, str(first), str(step), str(LEAD_S)]
        why = failing_step.launch(arguments, result, asked.environment, folder=folder, wait_s=wait_s)
        if why is not None:
            return why
        document: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    if "cannot" in document:
        return str(document["cannot"])
    replayed = Replayed.from_json(document["replayed"])
    look = StepLook.from_json(document["look"])
    found = Found(Finding.from_json(document["finding"]), look, replayed, _replay_notes(replayed, step))
    return Replay(found, replayed, document["weights_bad_after"], document["weights_bad_at_start"])


def _replay_notes(replayed: Replayed, step: int) -> tuple[str, ...]:
    first = replayed.first_difference
    if first is None or first.step >= step:  # the step itself runs eagerly, under the tracer
        return replayed.notes
    different = f"the replay differs from the run at step {first.step} ({first.phase}: {first.tensor}), before the step"
    return (different, *replayed.notes)


def _without_tape(bundle: Bundle, notes: tuple[str, ...], *, wait_s: float) -> Found:
    finding, look = failing_step.locate_again(bundle, wait_s=wait_s)
    return Found(finding, look, None, notes)


def document(path: Path, recorded: Finding, found: Found) -> Mapping[str, Any]:
    look = found.look.to_json() if found.look is not None else {"ladder": None, "float64": None, "compiled": None}
    replayed = found.replayed
    return {
        "schema": "steadytrain.locate/1",
        "incident": str(path),
        **failing_step.best(recorded, found.finding).to_json(),
        "recorded": recorded.to_json(),
        "again": found.finding.to_json(),
        "verdict": failing_step.verdict(recorded, found.finding),
        "replayed": None
        if replayed is None
        else {
            "from_step": replayed.from_step,
            "until_step": replayed.until_step,
            "exact": replayed.first_difference is None or replayed.first_difference.step >= replayed.until_step,
        },
        "step": look.get("step"),
        "ladder": look["ladder"],
        "float64": look["float64"],
        "compiled": look["compiled"],
        "notes": [*(found.look.notes if found.look else ()), *found.notes],
    }
