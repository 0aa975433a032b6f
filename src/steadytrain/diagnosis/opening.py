"""Complete a case with the other symptoms that the run recorded up to then. Pure.

A bundle knows the symptom that it was made for. The run often knows more: the weight that was non-finite a step before
the loss, or the update that grew with the gradient. Not here: reading either from disk (``answer_files``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.proof import Control
from steadytrain.experiments.case import SAME_STORY_STEPS, Case
from steadytrain.experiments.case_files import leap_after
from steadytrain.experiments.specs import Json, Outcome
from steadytrain.grouping.catalog import declared, is_nonfinite


def with_symptoms(case: Case, more: Sequence[Symptom]) -> Case:
    """The case with ``more`` symptoms of its run, which may change its symptom and its onset."""
    symptoms = (*case.symptoms, *more)
    return replace(case, symptoms=symptoms, symptom=_nearest_to_harm(case, symptoms), onset=_since(case, symptoms))


def _nearest_to_harm(case: Case, symptoms: Sequence[Symptom]) -> Symptom | None:
    """The symptom to remove. If a gradient and its update grew together, this is the update: most optimizers divide out
    the gradient's size, and no trial can make the gradient itself smaller."""
    led = case.symptom
    if led is None or not declared(led.name).yields_to_update:
        return led
    return next(
        (
            one
            for one in symptoms
            if declared(one.name).quantity == "update_ratio"
            and one.severity != "note"
            and abs(one.first_step - led.first_step) <= SAME_STORY_STEPS
        ),
        led,
    )


def _since(case: Case, symptoms: Sequence[Symptom]) -> int:
    """The onset. If a value is non-finite, this is the first step of any non-finite symptom nearby: the loss may only
    reveal it. If a symptom of tensors leads, it is the leap of the loss that follows.
    """
    if case.aim != "finite":
        after = leap_after(case.symptom, symptoms, case.window) if case.symptom is not None else None
        return after if after is not None and case.onset < after <= case.step else case.onset
    near = range(case.onset - SAME_STORY_STEPS, case.onset + 1)
    return min(
        (one.first_step for one in symptoms if is_nonfinite(one) and one.first_step in near),
        default=case.onset,
    )


def looked(facts: Mapping[str, Json]) -> Control:
    """The control of a case without a symptom: the survey, whose recorded steps ran again."""
    exact = facts.get("replay_exact")
    note = "no symptom was raised, so no trial was judged"
    return Control(facts.get("survey_replayed") is True, False, exact if isinstance(exact, bool) else None, note)


def as_recorded(case: Case, outcome: Outcome) -> bool | None:
    """Whether a re-run from the script's beginning has the recorded losses bit for bit, None if none can be
    compared.
    """
    series = case.window.series("loss")
    recorded = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
    pairs = [
        (seen.loss, recorded[step])
        for step, seen in enumerate(outcome.steps, 1)
        if seen.loss is not None and step in recorded
    ]
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in pairs) if pairs else None
