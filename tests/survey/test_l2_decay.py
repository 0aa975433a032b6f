"""Weight decay that an optimizer adds to the gradient is measured against the gradient."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import nn

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.survey.training_state import State


def facts_of(kind: type[torch.optim.Optimizer], decay: float, gradient: float, **options: Any) -> dict[str, Any]:
    model = nn.Linear(4, 4, bias=False)
    nn.init.constant_(model.weight, 0.5)
    model.weight.grad = torch.full_like(model.weight, gradient)
    optimizer = kind(model.parameters(), lr=1e-3, weight_decay=decay, **options)  # type: ignore[call-arg]
    stream = Stream("main", cast(Any, None), parameters=list(model.parameters()))
    stream.join(optimizer)
    state = State()
    state.gate(stream, 1)
    optimizer.step()
    state.updated(stream)
    return state.facts


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_l2_is_a_share_of_the_gradient(kind: type[torch.optim.Optimizer]) -> None:
    facts = facts_of(kind, 0.1, 0.05)
    assert facts["decay_is_l2"] is True
    assert facts["decay_share_of_update"] == pytest.approx(0.5)  # 0.1 * 0.5 beside 0.05
    assert facts_of(kind, 1e-4, 0.05)["decay_share_of_update"] == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "options"), [(torch.optim.AdamW, {}), (torch.optim.NAdam, {"decoupled_weight_decay": True})]
)
def test_a_decoupled_decay_is_a_share_of_the_update(kind: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    facts = facts_of(kind, 0.1, 0.05, **options)
    assert "decay_is_l2" not in facts
    assert facts["decay_share_of_update"] < 0.1
