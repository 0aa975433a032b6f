"""A diagnosis takes a trial's own verdict, unless its batches could not be fed or its loss is another."""

from __future__ import annotations

from collections.abc import Sequence

from steadytrain.diagnosis.proof import Control
from steadytrain.experiments.case import Case
from steadytrain.experiments.fix_verification import with_price
from steadytrain.experiments.judging import measures
from steadytrain.experiments.specs import UNCHANGED, Effect, Outcome, Verdict
from steadytrain.experiments.trial import Trial

OWN_BATCH = "own batch was used"
"""Part of the note of a trial that could not feed its batches. Such a trial counts as not run."""


def verdict_of(
    case: Case, control: Control, trial: Trial, controls: Sequence[Outcome], outcomes: Sequence[Outcome]
) -> Verdict:
    """The verdict of a trial. That of the unchanged replay says whether it shows the symptom."""
    if trial.name != UNCHANGED:
        other = next((note for one in outcomes for note in one.notes if OWN_BATCH in note), None)
        if other is not None and all(one.ran for one in outcomes):
            return Verdict(trial.name, "not-run", why=other)
        judged = with_price(case, trial, controls, outcomes, trial.judge(case, controls, outcomes))
        if case.aim == "progress" and trial.other_loss and judged.effect in ("removed", "persists"):
            why = f"{judged.why}; it uses another loss, so that proves nothing"
            return Verdict(trial.name, "inconclusive", {}, why)
        return judged
    if not control.ran:
        return Verdict(UNCHANGED, "not-run", why=control.note)
    exact = {True: "the same to the last bit; ", False: "not the same to the last bit; ", None: ""}[control.exact]
    judged = trial.judge(case, controls, outcomes)
    # An exact replay has the recorded symptom, whether or not the probes show it.
    effect: Effect = "persists" if control.shown or control.exact else "removed"
    if effect == "removed" and not measures(case):
        effect = "inconclusive"
    return Verdict(UNCHANGED, effect, judged.numbers, f"{exact}{control.note}")
