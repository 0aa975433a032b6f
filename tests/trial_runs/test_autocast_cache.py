"""Autocast contexts without their cache of weights, in a process of their own: the change stays for its lifetime."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import sys, torch
from steadytrain.trial_runs.changes.autocast_cache import UncachedAutocast
from steadytrain.trial_runs.launched_script import Launched

change = UncachedAutocast()
if sys.argv[1] == "changed":
    change.early(Launched())
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.randn(64, 4)


@torch.autocast("cpu", dtype=torch.bfloat16)
def train():
    for _ in range(20):
        loss = (model(rows).float() - rows.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


first = train()
print(first < 1.0, bool(change.touched), torch.is_autocast_cache_enabled())
"""


@pytest.mark.parametrize(("how", "said"), [("plain", "False False True"), ("changed", "True True True")])
def test_every_step_sees_the_weights_of_now(how: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == said
