"""How likely each cause is: base rates times signs times what the trials did, and ``unknown`` beside all of them.

``unknown`` expects nothing, so every outcome has one half of a chance under it: outcomes that fit no cause's table lift
it above all. Trials that change nearly the same thing count together as one, or three ways to take smaller steps would
be three proofs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from steadytrain.diagnosis.answer import UNKNOWN
from steadytrain.diagnosis.cause import Cause, Expectation, Signature
from steadytrain.diagnosis.trial_effects import alike
from steadytrain.experiments.specs import Verdict

UNKNOWN_SHARE = 0.1
"""Of all cases before anything is known: sick runs of the zoo and of public threads whose cause is on no list."""

AS_EXPECTED, OTHERWISE, EITHER = 0.9, 0.1, 0.5
"""Chance of an outcome under ``+`` and ``-`` of the table, under the contrary, and under ``o``."""

Plain = Literal["removed", "persists"]
_PLAIN: Mapping[str, Plain] = {"removed": "removed", "persists": "persists", "worse": "persists"}


@dataclass(frozen=True)
class Suspect:
    """A cause with its name and what the case shows of it."""

    name: str
    cause: Cause
    signature: Signature


def plain(effect: str) -> Plain | None:
    """What an effect says about removal, None where it says nothing (delayed, inconclusive, not run)."""
    return _PLAIN.get(effect)


def chance(outcome: Plain, expected: Expectation) -> float:
    """Likelihood of an outcome where the table says ``expected``."""
    if expected == "either":
        return EITHER
    return AS_EXPECTED if outcome == expected else OTHERWISE


def weigh(suspects: Sequence[Suspect], verdicts: Iterable[Verdict]) -> dict[str, float]:
    """The probability of each suspect and of ``unknown``, adding up to 1; most probable first, then by name."""
    outcomes = {verdict.trial: result for verdict in verdicts if (result := plain(verdict.effect)) is not None}
    total = sum(suspect.cause.base_rate for suspect in suspects) or 1.0
    logs = {
        suspect.name: math.log(suspect.cause.base_rate / total * (1.0 - UNKNOWN_SHARE))
        + suspect.signature.weight
        + _log_likelihood(suspect.cause, outcomes)
        for suspect in suspects
    }
    logs[UNKNOWN] = math.log(UNKNOWN_SHARE) + _log_likelihood(None, outcomes)
    highest = max(logs.values())
    weights = {name: math.exp(value - highest) for name, value in logs.items()}
    whole = sum(weights.values())
    return {name: weight / whole for name, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0]))}


def _log_likelihood(cause: Cause | None, outcomes: Mapping[str, Plain]) -> float:
    """Sum over kinds of trials of the mean log-likelihood within a kind."""
    kinds: dict[str, list[float]] = {}
    for trial, outcome in sorted(outcomes.items()):
        expected: Expectation = "either" if cause is None else cause.expected(trial)
        kinds.setdefault(alike(trial), []).append(math.log(chance(outcome, expected)))
    return sum(sum(logs) / len(logs) for logs in kinds.values())
