"""The probabilities of causes: how a prior and its signs make one."""

from __future__ import annotations

import pytest

from steadytrain.diagnosis.cause import CERTAIN, FAIR, Cause, Sign, Signature
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.weighing import UNKNOWN, Suspect, weigh
from steadytrain.experiments.specs import Effect, Verdict


def suspects(**weights: float) -> list[Suspect]:
    """Every cause, those that are named with a sign of this weight."""
    signs = {name.replace("_", "-"): Signature((Sign("seen", weight, "fact x"),)) for name, weight in weights.items()}
    return [Suspect(name, one, signs.get(name, Signature((Sign("no", -CERTAIN, "x"),)))) for name, one in _all()]


def _all() -> list[tuple[str, Cause]]:
    return list(causes().items())


def test_probabilities_add_up_and_the_one_with_the_sign_leads() -> None:
    weighed = weigh(suspects(bad_batch=CERTAIN), ())
    assert sum(weighed.values()) == pytest.approx(1.0)
    assert next(iter(weighed)) == "bad-batch"
    assert UNKNOWN in weighed


def test_a_cause_that_is_added_takes_nothing_from_the_others() -> None:
    here = suspects(bad_batch=FAIR)
    more = Suspect("a-new-cause", causes()["bad-batch"], Signature((Sign("no", -40.0, "x"),)))
    before, after = weigh(here, ()), weigh([*here, more], ())
    assert after["bad-batch"] == pytest.approx(before["bad-batch"])
    assert after[UNKNOWN] == pytest.approx(before[UNKNOWN])


def test_a_cut_of_the_rate_that_was_too_small_says_nothing_where_a_larger_one_helped() -> None:
    def share(*effects: tuple[str, Effect]) -> float:
        verdicts = [Verdict(trial, effect) for trial, effect in effects]
        return weigh(suspects(learning_rate_too_high=FAIR, bad_batch=FAIR), verdicts)["learning-rate-too-high"]

    helped: tuple[str, Effect] = ("learning-rate-hundredth", "removed")
    smaller: tuple[str, Effect] = ("learning-rate-third", "persists")
    assert share(helped, smaller) == pytest.approx(share(helped))
    assert share(smaller) < share() < share(helped)
