"""The sign of the entropy bonus of a policy gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.survey import policy_entropy
from steadytrain.survey.policy_entropy import PolicyEntropy
from trial_cases import finite_case

Loss = Callable[[Tensor, Tensor], Tensor]


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    kinds = list(policy_entropy._kinds(Distribution))
    kept = [(kind, name, vars(kind)[name]) for kind in kinds for name in ("entropy", "log_prob") if name in vars(kind)]
    yield
    for kind, name, function in kept:
        setattr(kind, name, function)


def _seen(loss: Callable[[Categorical, Tensor], Tensor], steps: int = 4) -> dict[str, Any] | None:
    torch.manual_seed(0)
    watched = PolicyEntropy(lambda: True)
    watched.watch()
    logits = torch.randn(16, 3, requires_grad=True)
    for _ in range(steps):
        policy = Categorical(logits=logits)
        loss(policy, policy.sample()).backward()  # type: ignore[no-untyped-call]
        watched.step_ended()
    return watched.found


def _gains(action: Tensor) -> Tensor:
    return action.float() - 1.0


def test_an_entropy_that_the_loss_lowers_is_seen_and_named() -> None:
    found = _seen(lambda policy, a: -(policy.log_prob(a) * _gains(a)).mean() + 0.1 * policy.entropy().mean())
    assert found is not None
    assert found["lowered"] == found["steps"] == 4
    assert "policy.entropy()" in found["line"]
    seen = Symptom("no-learning", "warning", 1, 90, "the loss does not fall")
    case = finite_case(symptom=seen, symptoms=(seen,), facts={"optimizer": "Adam", "policy_entropy": found})
    order = list(weigh([Suspect(name, one, one.signature(case)) for name, one in causes().items()], ()))
    assert order[0] == "loss-function-misuse"


def test_a_bonus_that_is_subtracted_is_healthy() -> None:
    found = _seen(lambda policy, a: -(policy.log_prob(a) * _gains(a)).mean() - 0.1 * policy.entropy().mean())
    assert found is not None
    assert found["lowered"] == 0


def test_a_likelihood_may_lower_the_entropy() -> None:
    """Sharpening predictions is a method of its own; only a policy gradient explores."""
    assert _seen(lambda policy, a: -policy.log_prob(a).mean() + 0.1 * policy.entropy().mean()) is None
    assert _seen(lambda policy, a: policy.entropy().mean()) is None
