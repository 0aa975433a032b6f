"""Walks through the ten steps: runs what is missing, in the order of the method, within a budget.

Each action leaves its result beside the incident (``commands.json``, outcomes of trials, the diagnosis), and an action
whose result is there is not run again. So a walk that was interrupted, or had no time, goes on with the next call.
Torch-free: all that runs the script are launched processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from steadytrain.core.errors import UsageError
from steadytrain.core.json_values import JsonValue
from steadytrain.core.notebook import as_html
from steadytrain.diagnosis import next_command
from steadytrain.diagnosis.answer import UNKNOWN
from steadytrain.experiments.outcome_files import trials_folder
from steadytrain.method import actions
from steadytrain.method.actions import Request
from steadytrain.method.evidence import Evidence, evidence_of
from steadytrain.method.step_result import StepResult, Taken, found_step, is_sick
from steadytrain.method.step_results import step_results
from steadytrain.method.steps import STEPS, step_called
from steadytrain.method.ticks import named
from steadytrain.method.tried_steps import NO_TIME
from steadytrain.storage.bundle import write_json
from steadytrain.trial_runs import close_pools

SCHEMA = "steadytrain.debug/1"
FILE = "debug.json"
ACTION_S_MIN = 1.0
"""An action is not begun with less time."""

INTERRUPTED = "interrupted"
CHANGED_MAX = 3
CHANGED = "{} has changed since the run was recorded: earlier results are of the old file, replays run the new one"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Walk(JsonValue, schema=SCHEMA):
    """The ten steps of a run or incident. ``result`` is `found` (a confirmed or likely cause), `unknown`, or `quiet`
    (no symptom above a note). ``verdict`` is one line, ``next`` the one command to run now. ``seconds`` is the time of
    this call; ``interrupted`` says that it was ended by hand."""

    target: str
    run: str | None
    incident: str
    result: Literal["found", "unknown", "quiet"]
    verdict: str
    next: str
    steps: tuple[StepResult, ...]
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    interrupted: bool = False

    def __repr__(self) -> str:
        return f"<Walk of {self.target!r}: {self.verdict}>"

    def _repr_html_(self) -> str:
        shown = {f"{step.number} {step.title}": f"{step.status}: {step.means or step.why}" for step in self.steps}
        return as_html(self.verdict, {**shown, "next": self.next})


@dataclass
class _Way:
    """The state of one walk."""

    request: Request
    tell: Tell
    clock: Callable[[], float]
    until: float
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        return self.until - self.clock()


def walk(
    request: Request, *, tell: Tell, clock: Callable[[], float] = time.monotonic, notes: tuple[str, ...] = ()
) -> Walk:
    """Take the steps that were not taken yet, and say what all of them show.

    Raises:
        UsageError: the target is no run or bundle, or a damaged one.
    """
    began = clock()
    evidence_of(request.target)
    way = _Way(request, tell, clock, began + request.budget_s, notes=list(notes))
    interrupted = False
    waiting = list(actions.ACTIONS)
    try:
        while waiting:
            _take(way, waiting[0])
            waiting.pop(0)
    except KeyboardInterrupt:
        interrupted = True
        way.left_out.update({action.name: INTERRUPTED for action in waiting})
    finally:
        close_pools()
    found = _walked(way, seconds=clock() - began, interrupted=interrupted)
    try:
        folder = trials_folder(Path(found.incident))
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, found.to_json())
    except OSError as error:
        tell(f"the steps could not be stored: {error}")
    return found


def _take(way: _Way, action: actions.Action) -> None:
    """One action, if its result is missing and there is time."""
    evidence = evidence_of(way.request.target)
    if not action.wanted(evidence, way.request):
        return
    step = step_called(action.step)
    if way.left_s < ACTION_S_MIN:
        takes = actions.about(evidence)
        way.left_out[action.name] = f"{NO_TIME}; {action.words} takes {takes}"
        return
    way.tell(f"step {step.number} of {len(STEPS)}, {step.name}: {action.words} ({way.left_s:.0f} s left)")
    kept_back = actions.REPRO_SHARE * way.request.budget_s if action.name != "repro" else 0.0
    given = max(ACTION_S_MIN, way.left_s - kept_back)
    try:
        why = action.run(actions.Given(evidence, way.request, given, way.tell))
    except UsageError as error:
        why = str(error)
    if why is not None:
        way.left_out[action.name] = why


def _walked(way: _Way, *, seconds: float, interrupted: bool) -> Walk:
    evidence = evidence_of(way.request.target)
    script = " ".join(way.request.script.words) if way.request.script is not None else _command(evidence)
    steps = step_results(evidence, Taken(way.left_out, script))
    result, verdict, following = _conclusion(evidence, steps, way)
    return Walk(
        target=str(way.request.target),
        run=str(evidence.run.path) if evidence.run is not None else None,
        incident=str(evidence.source),
        result=result,
        verdict=verdict,
        next=following,
        steps=steps,
        notes=(*way.notes, *(CHANGED.format(name) for name in evidence.changed[:CHANGED_MAX])),
        seconds=round(seconds, 1),
        interrupted=interrupted,
    )


def _command(evidence: Evidence) -> str:
    return evidence.run.command if evidence.run is not None and evidence.run.command else "SCRIPT"


def _conclusion(
    evidence: Evidence, steps: tuple[StepResult, ...], way: _Way
) -> tuple[Literal["found", "unknown", "quiet"], str, str]:
    """The result, its line, and the one command to run next."""
    answer, where = evidence.answer, named(evidence.source)
    again = f"steadytrain debug {named(way.request.target)} --budget {max(1.0, 2 * way.request.budget_s / 60):.0f}m"
    if answer is not None and answer.verdict != UNKNOWN:
        step = step_called(found_step(evidence) or "isolate")
        share = next((one.confidence for one in answer.diagnoses if one.cause == answer.verdict), 0.0)
        line = f"found in step {step.number} ({step.name}): {answer.verdict}, {answer.status} ({share:.2f})"
        return "found", line, next_command.after(answer).of(where)
    found = next((step for step in steps if step.status == "found"), None)
    cut = [step for step in steps if NO_TIME in step.why or step.why == INTERRUPTED]
    if found is not None:
        line = f"found in step {found.number} ({found.name}): {found.showed[0]}"
        return "found", line, again if cut else found.next
    done = sum(step.status == "done" for step in steps)
    if not is_sick(evidence):
        line = f"no symptom above a note; {done} of {len(steps)} steps done"
        return "quiet", line, again if cut else f"steadytrain checklist {where}"
    line = f"cause unknown after {done} of {len(steps)} steps"
    if cut:
        return "unknown", f"{line}; {len(cut)} had no time", again
    return "unknown", line, f"steadytrain report {where}"
