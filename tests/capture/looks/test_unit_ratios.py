"""Ratios of exactly 1 on rows that came before, and ratios that are 1 by design."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.looks.loss_graph import read_graph
from steadytrain.capture.looks.unit_ratios import UnitRatios

ROWS = 32
Advantages = Callable[[Tensor], Tensor]


def shown(*, stored: bool, fresh: bool = False, normalised: bool = False, redrawn: bool = False) -> list[float]:
    """The values of ``unit-ratio`` over four updates on one rollout, or on a fresh one each."""
    torch.manual_seed(0)
    policy, ratios, found = nn.Linear(6, 3), UnitRatios(), []
    states, actions, advantages = torch.randn(ROWS, 6), torch.randint(0, 3, (ROWS,)), torch.randn(ROWS)
    kept = torch.distributions.Categorical(logits=policy(states)).log_prob(actions).detach()
    for _ in range(4):
        states = torch.randn(ROWS, 6) if fresh else states
        advantages = torch.randn(ROWS) if redrawn else advantages
        order = torch.randperm(ROWS)
        log_prob = torch.distributions.Categorical(logits=policy(states[order])).log_prob(actions[order])
        old = kept[order] if stored else log_prob.detach()
        given = advantages[order]
        given = (given - given.mean()) / given.std() if normalised else given
        ratio = (log_prob - old).exp()
        loss = -torch.min(ratio * given, ratio.clamp(0.8, 1.2) * given).mean()
        call: Any = SimpleNamespace(args=(states[order],), kwargs={})
        found += [value for _, value in ratios.rows(read_graph(loss).surrogates, call)]
        policy.zero_grad()
        loss.backward()
        with torch.no_grad():
            for one in policy.parameters():
                one -= 0.1 * (one.grad if one.grad is not None else 0.0)
    return found


def test_the_old_policy_is_the_policy() -> None:
    assert shown(stored=False) == [1.0] * 3
    assert shown(stored=False, normalised=True) == [1.0] * 3


def test_the_old_policy_is_stored() -> None:
    assert shown(stored=True) == [0.0] * 3


def test_rows_that_are_drawn_anew() -> None:
    assert shown(stored=False, fresh=True) == []
    assert shown(stored=False, redrawn=True) == []


def test_other_minima() -> None:
    torch.manual_seed(0)
    ratio = (nn.Linear(6, 1)(torch.randn(ROWS, 6)).squeeze(1) - torch.randn(ROWS)).exp()
    weights = torch.randn(ROWS)
    for loss in (torch.min(ratio, ratio.clamp(0.8, 1.2)), torch.min(ratio * weights, 2 * ratio), ratio * weights):
        assert read_graph(loss.mean()).surrogates == []
