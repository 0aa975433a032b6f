"""How most trials are planned: the recorded steps from the snapshot on, with a change. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


def planned(
    trial: Trial,
    case: Case,
    *changes: Change,
    steps: Sequence[int | None] | None = None,
    refused: Collection[int] = (),
    begin: int | None = None,
) -> tuple[Spec, ...] | NotApplicable:
    """One spec from the case's snapshot (or ``begin``), ``changes`` made from there on.

    Without a snapshot before the onset, the script's own first steps run instead, which is only the same where the
    recorded run began with them, too; what needs recorded steps does not apply there.
    """
    if case.facts.get("ranks", 1) > 1:
        return NotApplicable("a script of several ranks is not launched again")
    start = begin if begin is not None else case.begin
    if start is None or case.replayable is not None:
        if steps is not None or refused:
            return NotApplicable(case.replayable or "there is no snapshot before the onset, so no step can be chosen")
        return from_the_beginning(trial, case, *changes)
    schedule = case.schedule(start, steps, refused=refused)
    return (Spec(trial.name, 0, start, schedule, changes, case.lead(start)),)


def from_the_beginning(trial: Trial, case: Case, *changes: Change) -> tuple[Spec, ...] | NotApplicable:
    """The script from its own beginning to some steps after the onset, its own batches, nothing restored."""
    count = case.onset + case.steps_after
    if count * case.step_s > OWN_S_MAX:
        return NotApplicable(f"it takes {count} steps from the script's beginning, more than {OWN_S_MAX:g} s")
    return (Spec(trial.name, 0, None, case.own_schedule(count), changes),)


def in_half(case: Case) -> bool:
    """Whether anything is computed in 16 bits; True as well where that is not known."""
    autocast, dtypes = case.facts.get("autocast_dtype"), case.facts.get("parameter_dtypes")
    if autocast is None and dtypes is None:
        return True
    halves = ("float16", "bfloat16")
    return any(half in f"{autocast} {dtypes}" for half in halves)


def suspect_module(case: Case) -> str | None:
    """The module of the first bad operation, or the first one that the symptom names."""
    located = case.finding.located if case.finding is not None else None
    if located is not None and located.module:
        return located.module
    tensors = case.symptom.tensors if case.symptom is not None else ()
    return tensors[0].rpartition(".")[0] or tensors[0] if tensors else None


OWN_S_MAX = 120.0
"""Longest time of a trial that begins with the script itself."""

REWARM_STEPS = 10
"""As in the measured matrix, whose incident came ten steps after the snapshot: of ``reset-moments`` and its control."""
