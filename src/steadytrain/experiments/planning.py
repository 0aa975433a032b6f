"""The plan of most trials: the recorded steps from the snapshot on, with a change. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fnmatch import fnmatch

from steadytrain.core.model import FIRST_STREAM
from steadytrain.experiments.case import Case
from steadytrain.experiments.rank_plans import why_not_on_ranks
from steadytrain.experiments.specs import Change, NotApplicable, Placebo, Spec
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_starts import START


def planned(
    trial: Trial,
    case: Case,
    *changes: Change,
    steps: Sequence[int | None] | None = None,
    refused: Collection[int] = (),
    begin: int | None = None,
) -> tuple[Spec, ...] | NotApplicable:
    """One spec from the case's snapshot (or ``begin``), with ``changes`` from there on.

    Without a snapshot before the onset, the script's own first steps run instead. That is equivalent only if the
    recorded run began with them, too. A trial that needs recorded steps then does not apply.
    """
    if (why := why_not_on_ranks(case, changes)) is not None:
        return NotApplicable(why)
    if (why := _of_another_optimizer(case)) is not None:
        return NotApplicable(why)
    start = begin if begin is not None else case.begin
    if start is None or case.replayable is not None:
        if steps is not None or refused:
            return NotApplicable(case.replayable or "there is no snapshot before the onset, so no step can be chosen")
        return from_the_beginning(trial, case, *changes)
    schedule = case.schedule(start, steps, refused=refused)
    return (Spec(trial.name, 0, start, schedule, changes, case.lead(start)),)


def from_the_beginning(trial: Trial, case: Case, *changes: Change) -> tuple[Spec, ...] | NotApplicable:
    """The script from its own beginning to some steps after the onset, with its own batches and nothing restored."""
    if case.begin == START and case.replayable is None:
        return planned(trial, case, *changes)
    if (why := why_not_on_ranks(case, changes)) is not None:
        return NotApplicable(why)
    if (why := _of_another_optimizer(case)) is not None:
        return NotApplicable(why)
    if case.later:
        return NotApplicable("the symptom is in a later training of the script, and the script begins with another one")
    count = case.onset + case.steps_after
    if count * case.step_s > OWN_S_MAX:
        return NotApplicable(f"it takes {count} steps from the script's beginning, more than {OWN_S_MAX:g} s")
    return (Spec(trial.name, 0, None, case.own_schedule(count), changes),)


def _of_another_optimizer(case: Case) -> str | None:
    """Why the steps that can be run again are not those of the symptom; None if they are. Steps are counted for each
    optimizer: in a bundle those of the optimizer that it is about, in a run folder those of the first."""
    stream = case.symptom.stream if case.symptom is not None else FIRST_STREAM
    if stream == case.stream:
        return None
    return f"the symptom is in the steps of {stream}, and those that can be run again are of {case.stream}"


def in_half(case: Case) -> bool:
    """Whether the run computes anything in 16 bits. True also if unknown."""
    autocast, dtypes = case.facts.get("autocast_dtype"), case.facts.get("parameter_dtypes")
    if autocast is None and dtypes is None:
        return True
    halves = ("float16", "bfloat16")
    return any(half in f"{autocast} {dtypes}" for half in halves)


def suspect_module(case: Case) -> str | None:
    """The module of the first bad operation, or else of the first tensor that the symptom names."""
    located = case.finding.located if case.finding is not None else None
    if located is not None and located.module:
        return located.module
    tensors = case.symptom.tensors if case.symptom is not None else ()
    return tensors[0].rpartition(".")[0] or tensors[0] if tensors else None


def elsewhere(case: Case, *names: str) -> str | None:
    """A parameter of another layer: the last one that none of ``names`` (wildcards allowed) is part of, None if none is
    known."""
    apart = [name for name in case.window.tensor_names if not any(fnmatch(name, f"*{one}*") for one in names)]
    return apart[-1] if apart else None


def on_another_layer(trial: Trial, case: Case, other: str | None, what: str, change: Change) -> Placebo | None:
    """The placebo of a layer trial: ``change`` on the ``other`` layer, None if that is unknown or cannot run."""
    made = planned(trial, case, change) if other else None
    if made is None or isinstance(made, NotApplicable):
        return None
    return Placebo(f"{what} {other}", tuple(replace(one, trial=f"{trial.name}-placebo") for one in made))


OWN_S_MAX = 120.0
"""Longest time, in seconds, of a trial that starts at the script's beginning."""

REWARM_STEPS = 10
"""Warm-up steps of ``reset-moments`` and its control, as in the measured matrix, whose incident came ten steps after
the snapshot.
"""
