"""Do the failing step again in a new process and say what was found; torch-free, all that runs the script is launched.

With a tape the steps before it are replayed as well (``locate/traced_replay.py``), from a snapshot; without one, or
where the replay cannot be made, the bundle's own state is put before the step (``replay/failing_step.py``).
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
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.step_look import StepLook
from steadytrain.storage.tape_files import Recording, find_recording

MODULE = "steadytrain.locate.traced_replay"
TAPE = "the recorded steps were replayed from a snapshot, the last one under the tracer, in a new process"
LADDER_STEPS = 5
"""Steps of the ladder, the bad one among them."""

LEAD_S = 120.0
UNEVENTFUL = "the re-run did not reproduce"
"""How a tracer's finding begins where all came out finite."""


@dataclass(frozen=True)
class Found:
    """What the new process found. ``replayed`` is None where there was no tape to replay."""

    finding: Finding
    look: StepLook | None
    replayed: Replayed | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """The step to look at, of a bundle or of a run whose tape is there. ``bundle`` is None for a run."""

    path: Path
    step: int
    environment: Mapping[str, Any]
    recording: Recording
    bundle: Bundle | None

    @property
    def broke(self) -> bool:
        """Whether something was not finite in the step when it was recorded."""
        return self.bundle is not None and self.bundle.incident.kind == "nonfinite"

    @property
    def starts(self) -> list[int]:
        """The steps from which the tape reaches to this one."""
        return [start for start in self.recording.starts() if start <= self.step <= self.recording.reaches(start)]


def target(path: Path, step: int | None) -> Target:
    """What is at ``path``; ``step`` is by default that of the incident.

    Raises:
        UsageError: there is nothing to look at.
    """
    recording = find_recording(path)
    if is_bundle(path):
        bundle = open_bundle(path)
        own = bundle.incident.step
        found = Target(path, step or own, bundle.environment, recording, bundle if step in (None, own) else None)
    else:
        if step is None:
            raise UsageError(f"{path}: a run without an incident; --step N looks at a recorded step")
        found = Target(path, step, open_run(path).description, recording, None)
    if found.bundle is None and not found.starts:
        starts = recording.starts()
        reach = f"from {starts[0]} to {recording.reaches(starts[-1])}" if starts else "none"
        raise UsageError(f"--step {step}: no tape of it; steps that can be replayed: {reach}")
    return found


def find_again(asked: Target, *, wait_s: float) -> Found:
    """Launch the recorded command again and search the step; each launch takes at most ``wait_s`` seconds.

    Weights that were bad before the step are followed to the update that broke them, at most two launches further.

    Raises:
        UsageError: the bundle does not hold what is needed, or the script is gone.
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
    # It was another step than the one that failed: that one's own state, as far as the bundle has it, may do better.
    try:
        again = _without_tape(asked.bundle, found.notes, wait_s=wait_s)
    except UsageError:
        return found
    return again if _tells(again.finding) else found


def _tells(finding: Finding) -> bool:
    return finding.located is not None or failing_step.is_named_input(finding)


@dataclass(frozen=True)
class Replay:
    """One launch. ``bad_after`` is the first step whose update left weights that are not finite."""

    found: Found
    replayed: Replayed
    bad_after: int | None
    bad_at_start: bool

    @property
    def uneventful(self) -> bool:
        """Whether all came out finite, with compiled code run eagerly and as the script compiles it."""
        backends = self.found.look.backends if self.found.look is not None else None
        to_blame = backends is not None and backends.to_blame is not None
        return self.found.finding.why.startswith(UNEVENTFUL) and not to_blame

    def parted_before(self, step: int) -> bool:
        first = self.replayed.first_difference
        return first is not None and first.step < step


def _by_replay(asked: Target, first: int, step: int, *, wait_s: float) -> Replay | str:
    """The text says why it could not be."""
    folder = failing_step.folder_to_run_in(asked.path, asked.environment)
    with tempfile.TemporaryDirectory(prefix="steadytrain-locate-") as scratch:
        result = Path(scratch) / "result.json"
        places = [str(asked.path.absolute()), str(result), NOT_MOVED]
        arguments = ["-m", MODULE, *places, str(first), str(step), str(LEAD_S)]
        why = failing_step.launch(arguments, result, folder=folder, wait_s=wait_s)
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
    """The ``steadytrain.locate/1`` document."""
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
