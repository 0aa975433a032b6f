"""Which scripts read as those that train a policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import Started, bare, command, write
from steadytrain.capture.looks.policy_code import trains_policy

POLICY = """
import torch
from torch.distributions import Categorical
policy = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), 1e-2)

def play(state):
    action = Categorical(logits=policy(state)).sample()
    return action, 1.0 - (action - (state.sum(1) > 0).long()).abs().float()

for step in range(4):
    state = torch.randn(32, 4)
    action, reward = play(state)
    loss = -(Categorical(logits=policy(state)).log_prob(action) * (reward - reward.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
IMPORTED = POLICY.replace("for step in range(4):", "def update():")


@pytest.mark.parametrize(
    ("names", "is_policy"),
    [
        ({"dist", "sample", "log_prob", "rewards"}, True),
        ({"multinomial", "logp", "advantage"}, True),
        ({"rsample", "log_prob", "kl"}, False),  # a variational autoencoder
        ({"sample", "log_prob"}, False),  # a density
        ({"sample", "reward"}, False),  # Q-learning
    ],
)
def test_names(names: set[str], is_policy: bool) -> None:
    assert trains_policy(names) is is_policy


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["one file", "two files"])
def test_a_script_that_is_watched(layout: str, tmp_path: Path) -> None:
    if layout == "one file":
        write(tmp_path, POLICY, "train.py")
    else:
        write(tmp_path, IMPORTED, "agent.py")
        write(tmp_path, "import agent\nfor _ in range(4): agent.update()\n", "train.py")
    ended = Started(command("run", "--runs-dir", "runs", "--name", "run", "train.py"), tmp_path).end()
    assert ended.status == 0, ended.err
    said = "SELECT name FROM script WHERE name LIKE 'policy-code%' AND value = 1"
    found = Started(bare("-m", "steadytrain", "query", "--csv", "runs/run", said), tmp_path).end()
    assert found.out.split()[1:] == [f"policy-code:{'train.py' if layout == 'one file' else 'agent.py'}"]
