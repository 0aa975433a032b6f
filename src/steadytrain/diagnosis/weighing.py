"""The probability of each cause and of ``unknown``: base rates times signs times trial outcomes.

``unknown`` predicts nothing, so every outcome has probability one half under it. Outcomes that fit no cause therefore
raise it above all. Trials with nearly the same change count together as one; otherwise three ways to take smaller steps
would be three proofs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from steadytrain.diagnosis.answer import UNKNOWN
from steadytrain.diagnosis.cause import Cause, Expectation, Signature
from steadytrain.diagnosis.trial_effects import alike
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.specs import Verdict
from steadytrain.experiments.trial_tables.updates import RATE_CUTS

UNKNOWN_SHARE = 0.09
"""Prior share of all cases: sick runs of the zoo and of public threads whose cause is on no list."""

TOTAL_RATE_MAX = 600.0
"""The base rates of all causes add up to no more than this: so a new cause takes nothing from the others."""

AS_EXPECTED, OTHERWISE, EITHER = 0.9, 0.1, 0.5
"""Probability of an outcome that a cause expects, of the opposite one, and if it expects ``either``."""

NO_CONTRASTS: Mapping[str, Contrast] = MappingProxyType({})

Plain = Literal["removed", "persists"]
_PLAIN: Mapping[str, Plain] = {"removed": "removed", "persists": "persists", "worse": "persists"}


@dataclass(frozen=True)
class Suspect:
    """A cause with its name and its signs in the case."""

    name: str
    cause: Cause
    signature: Signature


def plain(effect: str) -> Plain | None:
    """The effect reduced to removed or persists, None if it shows neither (delayed, inconclusive, not run)."""
    return _PLAIN.get(effect)


def chance(outcome: Plain, expected: Expectation) -> float:
    """Likelihood of an outcome given the expected effect."""
    if expected == "either":
        return EITHER
    return AS_EXPECTED if outcome == expected else OTHERWISE


def weigh(
    suspects: Sequence[Suspect], verdicts: Iterable[Verdict], contrasts: Mapping[str, Contrast] = NO_CONTRASTS
) -> dict[str, float]:
    """The probability of each suspect and of ``unknown``, summing to 1; most probable first, then by name.

    A trial that removed the symptom with a second seed, too, while its placebo did not, is an outcome more.
    """
    outcomes = _of_series({one.trial: result for one in verdicts if (result := plain(one.effect)) is not None})
    again = {alike(trial): trial for trial, one in contrasts.items() if one.held and outcomes.get(trial) == "removed"}
    total = min(sum(suspect.cause.base_rate for suspect in suspects), TOTAL_RATE_MAX) or 1.0
    logs = {
        suspect.name: math.log(suspect.cause.base_rate / total * (1.0 - UNKNOWN_SHARE))
        + suspect.signature.weight
        + _log_likelihood(suspect.cause, outcomes, again)
        for suspect in suspects
    }
    logs[UNKNOWN] = math.log(UNKNOWN_SHARE) + _log_likelihood(None, outcomes, again)
    highest = max(logs.values())
    weights = {name: math.exp(value - highest) for name, value in logs.items()}
    whole = sum(weights.values())
    return {name: weight / whole for name, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0]))}


def _of_series(outcomes: dict[str, Plain]) -> dict[str, Plain]:
    """Without the cuts of the rate that were too small or too large, where one of another size removed the symptom."""
    if not any(outcomes.get(trial) == "removed" for trial in RATE_CUTS):
        return outcomes
    return {trial: one for trial, one in outcomes.items() if trial not in RATE_CUTS or one == "removed"}


def _log_likelihood(cause: Cause | None, outcomes: Mapping[str, Plain], again: Mapping[str, str]) -> float:
    """Sum over groups of similar trials of the mean log-likelihood within a group, and of those seen ``again``."""

    def log_chance(trial: str, outcome: Plain) -> float:
        return math.log(chance(outcome, "either" if cause is None else cause.expected(trial)))

    kinds: dict[str, list[float]] = {}
    for trial, outcome in sorted(outcomes.items()):
        kinds.setdefault(alike(trial), []).append(log_chance(trial, outcome))
    seen = sum(sum(logs) / len(logs) for logs in kinds.values())
    return seen + sum(log_chance(trial, "removed") for trial in again.values())
