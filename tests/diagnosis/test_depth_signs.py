"""Gradients of the first and the last layer that part in training, and those that were both as good as zero."""

from __future__ import annotations

from typing import Any

import pytest

from steadytrain.diagnosis.cause import FAIR, STRONG
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.depth_signs import deepened
from steadytrain.experiments.specs import NotApplicable
from steadytrain.experiments.trial_catalog import trial
from trial_cases import finite_case

PARTED = {"surveyed_first_step": 1, "gradient_ratio": 3.8, "gradient_ratio_last": 1.8e-10}


def test_gradients_that_part_are_a_sign_only_where_a_signal_reached_the_last_layer() -> None:
    assert [sign.weight for sign in deepened(finite_case(facts={**PARTED, "activation_ratio": 0.5}))] == [STRONG]
    assert deepened(finite_case(facts={**PARTED, "activation_ratio": 1e-12})) == ()
    assert len(deepened(finite_case(facts=PARTED))) == 1


@pytest.mark.parametrize(("ratio", "weight"), [(1e-12, STRONG), (0.5, None), (0.0, FAIR)])
def test_an_output_that_lost_its_signal_is_an_initialisation_too_small(ratio: float, weight: float | None) -> None:
    signature = causes()["bad-initialization"].signature(finite_case(facts={**PARTED, "activation_ratio": ratio}))
    said = [sign.weight for sign in signature.signs if sign.source == "fact activation_ratio"]
    assert said == ([] if weight is None else [weight])


@pytest.mark.parametrize(
    ("facts", "why"),
    [({"activation_ratio": 1e-5}, None), ({"activation_ratio": 0.5}, "gets through"), ({}, "was not measured")],
)
def test_another_initialisation_is_tried_where_nothing_reaches_the_last_layer(
    facts: dict[str, Any], why: str | None
) -> None:
    plan = trial("he-initialization").plan(finite_case(facts=facts))
    if why is not None:
        assert isinstance(plan, NotApplicable)
        assert why in plan.why
    else:
        assert not isinstance(plan, NotApplicable)
        assert plan[0].changes[0].values == {"he": True}
