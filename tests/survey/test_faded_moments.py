"""Second moments that round to zero where first moments do not: only epsilon divides."""

from __future__ import annotations

import pytest
import torch

from steadytrain.survey.moment_facts import MomentFacts


@pytest.mark.parametrize(
    ("gradient", "epsilon", "runs"),
    [(1e-24, 1e-30, True), (1e-24, 1e-8, False), (1.0, 1e-30, False), (1e-12, 1e-15, False), (0.0, 1e-30, False)],
    ids=["faint, no epsilon", "faint, usual epsilon", "usual", "small", "none"],
)
def test_updates_beyond_the_rate_are_those_of_faint_gradients(gradient: float, epsilon: float, runs: bool) -> None:
    weight = torch.nn.Parameter(torch.zeros(4, 3))
    optimizer = torch.optim.Adam([weight], lr=1e-3, eps=epsilon)
    for _ in range(5):
        weight.grad = torch.full_like(weight, 0.1)
        weight.grad[:, 0] = gradient
        optimizer.step()
    found = MomentFacts()
    found.add("weight", weight, optimizer.state[weight], optimizer.param_groups[0])
    facts = found.facts()
    assert ("update_beyond_rate" in facts) is runs
    if runs:
        assert facts["update_beyond_rate"]["weight"] > 1e5
