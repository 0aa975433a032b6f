"""A script that clips its gradients no more: the guard's own clip stands in for it until the script clips again."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import steadytrain
from gate_loops import recorded

STEPS, LOST, LEVEL = 420, 90, 0.5
LEARNED_FROM = 120
"""Until then updates are skipped."""


def watched(folder: Path, again_from: int) -> dict[int, float]:
    """A regression, 3,000 times as large from ``LOST`` on; returns the norms of the gradients after each update."""
    norms: dict[int, float] = {}
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with steadytrain.watch(model, optimizer, name="run", runs_dir=folder, policy="steady", to="none", every_step=True):
        for step in range(1, STEPS + 1):
            x = torch.randn(16, 8)
            y = x.sum(1, keepdim=True) * (3000.0 if step >= LOST else 1.0)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            if step < LOST or step >= again_from:
                nn.utils.clip_grad_norm_(model.parameters(), LEVEL)
            optimizer.step()
            norms[step] = float(nn.utils.get_total_norm([one.grad for one in model.parameters()]))
    return norms


def test_the_clip_is_held_when_the_rest_is_taken_back(tmp_path: Path) -> None:
    applied = watched(tmp_path, again_from=STEPS + 1)
    actions = recorded(tmp_path).actions
    assert ("applied", "clip") in [(action.what, action.intervention) for action in actions]
    assert ("reverted", "clip") in [(action.what, action.intervention) for action in actions]
    assert max(norm for step, norm in applied.items() if step > LEARNED_FROM) <= 1.01 * LEVEL


def test_it_ends_when_the_script_clips_again(tmp_path: Path) -> None:
    watched(tmp_path, again_from=300)
    ended = [
        action.step for action in recorded(tmp_path).actions if (action.what, action.intervention) == ("ended", "clip")
    ]
    assert ended == [300]
