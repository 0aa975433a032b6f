"""One of the ten steps as taken: the value, and what the descriptions of all steps share. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from steadytrain.core.json_values import JsonValue
from steadytrain.diagnosis.answer import UNKNOWN
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.method.evidence import NOT_JUDGED, Evidence, Tried
from steadytrain.method.steps import Step, step_of_trial

Status = Literal["done", "skipped", "not possible", "found"]


SHOWN_MAX = 4


_OF_AXIS: Mapping[str, str] = {
    "data": "data",
    "model": "architecture",
    "loss": "isolate",
    "precision": "precision",
    "distributed": "distributed",
    "hardware": "reproduce",
    "harness": "isolate",
}
"""The step of a fault on this axis. One of the optimizer lies in the step of the trial that proves it."""


@dataclass(frozen=True)
class StepResult(JsonValue):
    """One step as taken. ``why`` is the reason of a step that was skipped or not possible, "" otherwise."""

    number: int
    name: str
    title: str
    status: Status
    why: str
    did: str
    showed: tuple[str, ...]
    means: str
    next: str


@dataclass(frozen=True)
class Taken:
    """What a walk knows beside the evidence: the reasons why actions were left out, by the name of the action
    (``replay``, ``preflight``, ``onset``, ``diagnose``, ``usual``, ``repro``), and the script's command line."""

    left_out: Mapping[str, str]
    script: str = "SCRIPT"


def is_sick(evidence: Evidence) -> bool:
    """Whether there is a symptom above a note, or an incident without its run."""
    return evidence.run is None or any(one.severity != "note" for one in evidence.run.symptoms)


def found_step(evidence: Evidence) -> str | None:
    """The step in which the confirmed or likely cause lies; None if the cause is unknown."""
    answer = evidence.answer
    if answer is None or answer.verdict == UNKNOWN:
        return None
    cause = causes().get(answer.verdict)
    proofs = [trial for trial in (cause.confirming if cause is not None else ()) if _effect(evidence, trial)]
    removing = [trial for trial in proofs if _effect(evidence, trial) == "removed"] or proofs
    axis = answer.axis.name if answer.axis is not None else ""
    if axis in _OF_AXIS:
        return _OF_AXIS[axis]
    return step_of_trial(removing[0]) if removing else "isolate"


def _effect(evidence: Evidence, trial: str) -> str:
    return evidence.tried[trial].effect if trial in evidence.tried and evidence.tried[trial].ran else ""


def short(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def ran_in(step: Step, evidence: Evidence) -> list[Tried]:
    """The trials of a step that ran, those that removed the symptom first."""
    found = [one for one in evidence.tried.values() if one.ran and step_of_trial(one.trial) == step.name]
    return sorted(found, key=lambda one: (one.effect != "removed", one.trial))[:SHOWN_MAX]


def counted(trials: Sequence[object]) -> str:
    return f"{len(trials)} trial{'s' if len(trials) != 1 else ''}"


def trial_line(tried: Tried) -> str:
    effect = "run, not judged yet" if tried.effect == NOT_JUDGED else tried.effect
    why = tried.why.split("; ")[0]
    return f"{tried.trial}: {effect}" + (f" ({why})" if why else "")


def remedy(evidence: Evidence) -> str | None:
    """The command of the first fix of the leading cause: one that was seen to work, else the quickest."""
    answer = evidence.answer
    leading = (one for one in answer.diagnoses if one.cause == answer.verdict) if answer is not None else ()
    fixes = [one for cause in leading for one in cause.interventions if one.command]
    seen = [one for one in fixes if one.tried == "removed"]
    return next((one.command for one in (*seen, *fixes)), None)


def cause_line(evidence: Evidence) -> str:
    answer = evidence.answer
    if answer is None or answer.verdict == UNKNOWN:
        return ""
    share = next((one.confidence for one in answer.diagnoses if one.cause == answer.verdict), 0.0)
    return f"{answer.verdict}, {answer.status} ({share:.2f})"


def result_of(
    step: Step, status: Status, why: str, did: str, showed: Sequence[str], means: str, command: str
) -> StepResult:
    return StepResult(
        step.number, step.name, step.title, status, why, did, tuple(showed)[: SHOWN_MAX + 2], means, command
    )
