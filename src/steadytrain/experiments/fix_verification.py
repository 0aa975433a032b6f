"""Verify a fix: compare it with the unchanged replay for long enough, and measure its price. Pure.

"Long enough" is max(10, 3 x lead, 1/(1-beta2)) steps after the onset, with the lead counted from the snapshot: a quiet
run proves nothing until a poisoned moment has decayed. A fix that acts within a single step that was not finite starts
right before it: the update was refused, so no moment is poisoned. The price is the change of the probe loss where
nothing is wrong yet: in the last probes before the onset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import unchanged
from steadytrain.experiments.specs import MEANINGS, PRICE, SCRIPT_FAILED, Change, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_catalog import trial
from steadytrain.experiments.watched_rules import broken_rule, shows_rule

SCHEMA = "steadytrain.verify/1"
FOLLOWED_MIN, FOLLOWED_MAX = 10, 2000
CHANGE_CHARACTERS_MAX = 200


@dataclass(frozen=True)
class Verified:
    """The effect of the fix on the symptom. ``price`` is the probe loss with the fix minus without it, before the onset
    and at the end (nats of the script's own loss), None without a probe there."""

    intervention: str
    verdict: Verdict
    price_before: float | None
    price_end: float | None
    followed: int
    exact: bool | None
    changed: tuple[str, ...] = ()
    """What the fix changed, each with its numbers; a step that was left out, too."""

    ended: str | None = None
    """Why the fix was followed for fewer steps than planned, None if it was not."""

    @property
    def crashed(self) -> bool:
        """Whether the script itself failed with the fix."""
        return self.verdict.effect == "not-run" and SCRIPT_FAILED in self.verdict.why

    @property
    def meaning(self) -> str:
        """The result in words."""
        return "the script itself failed with it" if self.crashed else MEANINGS[self.verdict.effect]

    def to_json(self, incident: str) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "incident": incident,
            "intervention": self.intervention,
            "result": MEANINGS[self.verdict.effect],
            "effect": self.verdict.effect,
            "why": self.verdict.why,
            "numbers": self.verdict.to_json()["numbers"],
            "price_before_onset": _finite(self.price_before),
            "price_at_end": _finite(self.price_end),
            "steps_followed": self.followed,
            "control_exact": self.exact,
            "changed": list(self.changed),
            "ended": self.ended,
            "script_failed": self.crashed,
        }


def steps_to_follow(case: Case, beta2: float | None) -> int:
    """Number of steps after the onset for which a fix is followed."""
    lead = case.onset - (case.begin or 0)
    memory = math.ceil(1 / (1 - beta2)) if beta2 is not None and 0 < beta2 < 1 else 0
    return min(FOLLOWED_MAX, max(FOLLOWED_MIN, 3 * lead, memory))


def plan_fix(case: Case, name: str, value: float | None) -> tuple[Spec, ...]:
    """The specs of a trial as a fix, with another value if one is given.

    Raises:
        UsageError: the trial does not exist or does not apply, or a value is given and it has no single number to
            change.
    """
    chosen = trial(name)
    plan = chosen.plan(case)
    if isinstance(plan, NotApplicable):
        raise UsageError(f"{name}: {plan.why}")
    if value is None:
        return plan
    return tuple(_with_value(name, spec, value) if spec.repeat == chosen.fix else spec for spec in plan)


def verified(
    case: Case, chosen: Trial, name: str, controls: Sequence[Outcome], outcomes: Sequence[Outcome]
) -> Verified:
    """Judge the outcomes of a fix against the controls."""
    verdict = _by_rule_alone(case, controls, chosen.judge(case, controls, outcomes))
    fixed = _fixed(chosen, outcomes)
    control = unchanged(controls, None if fixed is None else fixed.spec.begin)
    before, end = None, None
    if control is not None and fixed is not None and not chosen.other_loss:
        before, end = (one if one is not None and math.isfinite(one) else None for one in _prices(case, control, fixed))
    exact = None if control is None else control.exact
    planned = next((one.spec for one in outcomes if one.spec.repeat == chosen.fix), None)
    return Verified(
        name,
        verdict,
        before,
        end,
        0 if fixed is None else followed_steps(case, fixed),
        exact,
        changed=() if planned is None else changes_of(planned),
        ended=None if fixed is None else fixed.ended,
    )


def _by_rule_alone(case: Case, controls: Sequence[Outcome], verdict: Verdict) -> Verdict:
    """The verdict of a mend for a rule that no trial watches: that the loss stays as it was says nothing about it."""
    rule = broken_rule(case)
    if verdict.effect not in ("persists", "worse") or not rule or any(shows_rule(case, one) for one in controls):
        return verdict
    why = f"{verdict.why}; the loss need not show {rule}: `steadytrain fix` runs a patched script and looks for it"
    return replace(verdict, effect="inconclusive", why=why)


def followed_steps(case: Case, outcome: Outcome) -> int:
    """Number of steps after the onset that really ran: a script's loop may end before its trial does."""
    entries = [seen.entry for seen in outcome.steps] + [seen.entry for seen in outcome.probes]
    last = max(entries, default=-1)
    ran = sum(entry.role != "probe" for entry in outcome.spec.schedule[: last + 1])
    return max(0, ran - (case.onset - (outcome.spec.begin or 0)))


def changes_of(spec: Spec) -> tuple[str, ...]:
    """The changes of a spec in words: ``learning-rate (factor 0.5)``, ``left out: step 90``."""
    said = []
    for change in spec.changes:
        values = ", ".join(f"{name} {value}" for name, value in change.values.items())
        said.append(f"{change.kind} ({values})"[:CHANGE_CHARACTERS_MAX] if values else change.kind)
    refused = [str(entry.step) for entry in spec.schedule if entry.role == "refused"]
    return (*said, *([f"left out: step {', '.join(refused)}"] if refused else []))


def with_price(
    case: Case, chosen: Trial, controls: Sequence[Outcome], outcomes: Sequence[Outcome], verdict: Verdict
) -> Verdict:
    """The verdict with its price before the onset (``PRICE``). Without such a probe, and if the change makes the loss
    measure something else, the verdict as it is."""
    fixed = _fixed(chosen, outcomes)
    control = None if fixed is None else unchanged(controls, fixed.spec.begin)
    if control is None or fixed is None or chosen.other_loss or PRICE in verdict.numbers:
        return verdict
    before, _ = _prices(case, control, fixed)
    if before is None or not math.isfinite(before):
        return verdict
    return replace(verdict, numbers={**verdict.numbers, PRICE: before})


def _fixed(chosen: Trial, outcomes: Sequence[Outcome]) -> Outcome | None:
    """The run with the change as a fix, None if it did not run."""
    return next((one for one in outcomes if one.ran and one.spec.repeat == chosen.fix), None)


def _with_value(name: str, spec: Spec, value: float) -> Spec:
    places = [
        (at, key)
        for at, change in enumerate(spec.changes)
        for key, old in change.values.items()
        if isinstance(old, (int, float)) and not isinstance(old, bool)
    ]
    if len(places) != 1:
        raise UsageError(f"{name}={value:g}: this intervention has no single number; give it without a value")
    at, key = places[0]
    old = spec.changes[at].values[key]
    given: float = int(value) if isinstance(old, int) and value == int(value) else value
    changes = list(spec.changes)
    changes[at] = Change(changes[at].kind, {**changes[at].values, key: given})
    return replace(spec, changes=tuple(changes))


def _prices(case: Case, control: Outcome, fixed: Outcome) -> tuple[float | None, float | None]:
    there, here = _by_steps(control), _by_steps(fixed)
    common = [steps for steps in there if steps in here]
    lead = case.onset - (control.spec.begin or 0) - 1
    before = [steps for steps in common if 0 < steps <= lead]
    return (
        here[before[-1]] - there[before[-1]] if before else None,
        here[common[-1]] - there[common[-1]] if len(common) > 1 else None,
    )


def _by_steps(outcome: Outcome) -> dict[int, float]:
    """Mean probe loss by the number of preceding steps."""
    found: dict[int, list[float]] = {}
    for seen in outcome.probes:
        if seen.loss is not None:
            steps = sum(entry.role != "probe" for entry in outcome.spec.schedule[: seen.entry])
            found.setdefault(steps, []).append(seen.loss)
    return {steps: float(np.mean(losses)) for steps, losses in sorted(found.items())}


def _finite(value: float | None) -> float | str | None:
    from steadytrain.core.json_values import number_to_json

    return None if value is None else number_to_json(value)
