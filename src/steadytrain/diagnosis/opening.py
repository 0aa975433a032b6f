"""What a case is about, once everything that was seen in the run until then is known. Pure.

A bundle knows the symptom that it was made for. The run often has more: the weight that was not finite a step before
the loss, the update that grew with the gradient. Not here: reading either from disk, which is ``lab/diagnose``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.proof import Control
from steadytrain.experiments.case import SAME_STORY_STEPS, Case
from steadytrain.experiments.specs import Json, Outcome
from steadytrain.grouping.catalog import declared, is_nonfinite


def with_symptoms(case: Case, more: Sequence[Symptom]) -> Case:
    """The case with ``more`` symptoms of its run: about the one that is nearest to the harm, from where it began."""
    symptoms = (*case.symptoms, *more)
    return replace(case, symptoms=symptoms, symptom=_nearest_to_harm(case, symptoms), onset=_since(case, symptoms))


def _nearest_to_harm(case: Case, symptoms: Sequence[Symptom]) -> Symptom | None:
    """The symptom to try to remove. Of a gradient that grew and the update that grew with it, the update: most
    optimizers divide the size of a gradient out, and no trial can make the gradient itself smaller."""
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
    """The onset; of a loss that is not finite, when the first weight or moment was not: the loss only shows it."""
    if case.aim != "finite":
        return case.onset
    near = range(case.onset - SAME_STORY_STEPS, case.onset + 1)
    return min(
        (one.first_step for one in symptoms if is_nonfinite(one) and one.first_step in near),
        default=case.onset,
    )


def looked(facts: Mapping[str, Json]) -> Control:
    """Without a symptom the survey is the control: its recorded steps were the same again."""
    exact = facts.get("replay_exact")
    note = "no symptom was raised, so no trial was judged"
    return Control(facts.get("survey_replayed") is True, False, exact if isinstance(exact, bool) else None, note)


def as_recorded(case: Case, outcome: Outcome) -> bool | None:
    """Whether a re-run from the script's own beginning has the recorded losses to the last bit; None where none are."""
    series = case.window.series("loss")
    recorded = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
    pairs = [
        (seen.loss, recorded[step])
        for step, seen in enumerate(outcome.steps, 1)
        if seen.loss is not None and step in recorded
    ]
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in pairs) if pairs else None
