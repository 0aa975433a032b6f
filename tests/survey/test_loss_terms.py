"""The terms that a script adds up to its loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.survey.calls import Calls
from trial_cases import finite_case

TERMS = [
    {"line": "train.py:9: loss = rec - beta * kl", "place": "the first term of", "first": 9.0, "last": 29.0},
    {"line": "train.py:9: loss = rec - beta * kl", "place": "the second term of", "first": -0.1, "last": -41000.0},
]


def test_both_terms_of_a_loss_are_read_with_their_signs() -> None:
    calls, weight = Calls(), torch.ones(3, requires_grad=True)
    calls.look(True)
    try:
        for step in (1.0, 5.0):
            fit, penalty = (2 * weight).sum(), step * weight.square().sum()
            (fit - penalty).backward()  # type: ignore[no-untyped-call]
            torch.add(fit.detach(), penalty)  # no gradient passes through one of them: a number that is printed
    finally:
        calls.look(False)
    first, second = calls.terms.found
    assert (first["place"], first["first"], first["last"]) == ("the first term of", 6.0, 6.0)
    assert (second["place"], second["first"], second["last"]) == ("the second term of", -3.0, -15.0)
    assert second["line"].endswith("(fit - penalty).backward()  # type: ignore[no-untyped-call]")


def _signature(terms: Any, **numbers: float) -> Any:
    seen = Symptom("loss-turned-negative", "critical", 90, 92, "the loss sinks", numbers={"loss": -4e4, **numbers})
    case = finite_case(symptom=seen, symptoms=(seen,), facts={"loss_terms": terms, "optimizer": "Adam"})
    order = list(weigh([Suspect(name, one, one.signature(case)) for name, one in causes().items()], ()))
    return order[0], causes()["loss-function-misuse"].signature(case)


def test_the_term_that_sinks_is_named() -> None:
    first, signature = _signature(TERMS, without_bound=1.0)
    assert first == "loss-function-misuse"
    (said,) = [sign.what for sign in signature.signs]
    assert said.startswith("the loss has no lower bound: the second term of train.py:9: loss = rec - beta * kl goes")


@pytest.mark.parametrize("terms", [None, [{**TERMS[0]}]], ids=["unknown", "none sinks"])
def test_without_a_term_that_sinks_none_is_named(terms: Any) -> None:
    _, signature = _signature(terms, without_bound=1.0)
    (said,) = [sign.what for sign in signature.signs]
    assert said == "the loss has no lower bound: a term with the wrong sign, or without a hinge, is maximised"
