"""The launched side of a replay: runs the recorded command under an observer that replays recorded steps.

The process ends at the gate of the last step, without the script's exit code, so it overwrites nothing that the real
run saved. Run as ``python -m steadytrain.replay.from_script SOURCE RESULT.json OLD=NEW|- FROM|- UNTIL|- STEP|-
LEAD_S [stay]``:
a bundle or a run folder, the moved folder, the first and the last step, the step to trace, and the time in seconds for
the script's own steps (if they need more, it computes only one). With ``stay``, as one of several ranks, it waits to be
ended once it has its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Incident
from steadytrain.core.model import Window
from steadytrain.replay.command_runner import as_program, leave, run_followed, stay
from steadytrain.replay.loop_command import with_loop
from steadytrain.replay.moved_files import Moved, moved_bundle, moved_environment
from steadytrain.replay.own_steps import OwnSteps, own_steps, steps_before, updates_passed_over
from steadytrain.replay.step_bound import gates_bound
from steadytrain.storage.bundle import Bundle, is_bundle, open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.tape_files import Recording, Snapshot, find_recording, read_snapshot

if TYPE_CHECKING:
    from steadytrain.capture.step.observers import StepObserver
    from steadytrain.replay.step_trace import StepTrace
    from steadytrain.replay.symptom_recurrence import StepNumbers
    from steadytrain.replay.verdict import Replayed

STEPS_MODULE = "steadytrain.replay.from_script"
NOT_GIVEN = "-"
STAY = "stay"
CameAgain = Callable[["Mapping[int, StepNumbers]"], "bool | None"]


@dataclass(frozen=True)
class Source:
    """What is replayed: a bundle, whose incident is the last step, or a run folder."""

    path: Path
    environment: Mapping[str, Any]
    recording: Recording
    incident: Incident | None
    came_again: CameAgain | None
    """For a finite symptom: decides from the replayed numbers whether it recurred."""

    step_s: float
    """Median step time of the recorded run in seconds; infinite if unknown."""

    @property
    def incident_step(self) -> int | None:
        return self.incident.step if self.incident is not None else None

    @property
    def stream(self) -> str:
        """The name of the optimizer whose steps are counted."""
        return self.incident.stream if self.incident is not None else "main"

    def own_steps(self, until: int, lead_s: float) -> OwnSteps:
        """The steps that the launched script computes itself: all up to ``until``, if they fit into ``lead_s``
        seconds."""
        passed = updates_passed_over(self.environment)
        least = least_own_steps(self.recording.snapshot_after(until)) + passed
        before = until - steps_before(self.environment) + passed
        return own_steps(before, step_s=self.step_s, lead_s=lead_s, least=least)


def least_own_steps(snapshot: Snapshot | None) -> int:
    """How many steps the launched script makes until all optimizers exist whose state the snapshot holds."""
    others = read_snapshot(snapshot).get("others", ()) if snapshot is not None else ()
    return max((int(one["joined_at"]) for one in others), default=1)


def open_source(path: Path, moved: Moved) -> Source:
    """Opens a bundle or a run folder.

    Raises:
        UsageError: it is neither, or damaged.
    """
    recording = find_recording(path)
    if is_bundle(path):
        bundle = moved_bundle(open_bundle(path), moved)
        incident = bundle.incident
        environment = with_loop(bundle.environment)
        return Source(path, environment, recording, incident, _came_again(bundle), _step_s(bundle.window))
    run = open_run(path)
    environment = with_loop(moved_environment(run.description, moved))
    return Source(path, environment, recording, None, None, _step_s(run.scalars()))


def _came_again(bundle: Bundle) -> CameAgain | None:
    if bundle.incident.kind != "symptom":
        return None

    def judge(replayed: Mapping[int, StepNumbers]) -> bool | None:
        from steadytrain.replay.symptom_recurrence import came_again

        return came_again(bundle.incident.symptoms[0], bundle.scalars, bundle.window, replayed)

    return judge


def _step_s(window: Window) -> float:
    seconds = window.series("step_s").values
    return float(np.median(seconds)) if len(seconds) else math.inf


def main(source: str, result: str, moved: str, first: str, until: str, trace: str, lead_s: str, end: str = "") -> int:
    place = Moved.parse(moved)
    opened = open_source(Path(source), place)
    snapshot, last = opened.recording.choose(first=_step(first), until=_step(until) or opened.incident_step)
    place.put_on_path()
    result_path = Path(result)

    def done(outcome: Replayed | str, traced: StepTrace | None) -> None:
        from steadytrain.replay.result_files import write_output

        write_output(result_path, outcome, traced)
        stay() if end == STAY else leave()

    def replayer() -> StepObserver:
        from steadytrain.replay.engine import Replayer
        from steadytrain.replay.recorded_steps import Tensors

        weights = opened.path / "model.safetensors"
        final = Tensors(weights, {}) if last == opened.incident_step and weights.is_file() else None
        made = Replayer(
            opened.recording,
            snapshot=snapshot,
            until=last,
            own_steps=opened.own_steps(snapshot.step, float(lead_s)),
            final=final,
            done=done,
            trace_step=_step(trace),
            came_again=opened.came_again if last == opened.incident_step else None,
        )
        made.gates_max = gates_bound(last)
        return made

    return run_followed(opened, replayer, name="replay", scratch=result_path.parent)


def _step(text: str) -> int | None:
    if text == NOT_GIVEN:
        return None
    if not text.isdigit():
        raise UsageError(f"{text!r}: not the number of a step")
    return int(text)


if __name__ == "__main__":
    as_program(main)
