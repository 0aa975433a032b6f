"""A backward that runs into a used graph leaves which step built it, what carries it, and what was updated since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from test_crash_index import folder_of  # noqa: E402

from scripts import Ended, run_script, write_script  # noqa: E402
from steadytrain.capture.incident.crash import Moment, evidence_of, write_evidence  # noqa: E402
from steadytrain.diagnosis.cause import CERTAIN  # noqa: E402
from steadytrain.diagnosis.cause_catalog import causes  # noqa: E402
from steadytrain.experiments.crash_facts import facts_of_crash  # noqa: E402
from trial_cases import finite_case  # noqa: E402

HEAD = """
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(4, 3)
model = nn.RNNCell(3, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
state = torch.zeros(4, 5)
total = 0.0
"""

FREED_STATE = """
for step in range(4):
    state = model(x, state)
    loss = state.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

UPDATED_STATE = FREED_STATE.replace("backward()", "backward(retain_graph=True)")

SUMMED_LOSS = """
for step in range(4):
    total = total + model(x, state).square().mean()
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
"""

IN_A_FUNCTION = """
def train(state):
    for step in range(4):
        state = model(x, state)
        loss = state.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

train(state)
"""

BEFORE_THE_LOOP = """
weights = model.weight_ih.square()
for step in range(4):
    loss = model(x, state).square().mean() + weights.square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

ON_A_MODULE = """
class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.hidden = nn.RNNCell(3, 5), torch.zeros(4, 5)

    def forward(self, x):
        self.hidden = self.cell(x, self.hidden)
        return self.hidden

model = Keeps()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

TWO_LOSSES = """
for step in range(4):
    out = model(x, state)
    optimizer.zero_grad()
    out.square().mean().backward()
    out.abs().exp().mean().backward()
    optimizer.step()
"""

STEPS_BETWEEN = """
head = nn.Linear(5, 1)
other = torch.optim.SGD(head.parameters(), lr=0.1)
for step in range(4):
    out = head(model(x, state).tanh())
    first, second = out.square().mean(), out.exp().mean()
    first.backward(retain_graph=True)
    other.step()
    second.backward()
    optimizer.step()
"""

MEAN_OF_LOSSES = FREED_STATE.replace("    optimizer.zero", "    total = 0.9 * total + 0.1 * loss\n    optimizer.zero")

ADVERSARIAL = """
critic = nn.Linear(5, 1)
other = torch.optim.SGD(critic.parameters(), lr=0.1)
for step in range(4):
    fake = model(x, state)
    other.zero_grad()
    critic(fake).square().mean().backward()
    other.step()
    optimizer.zero_grad()
    (-critic(fake)).exp().mean().backward()
    optimizer.step()
"""


def trained(folder: Path, loop: str) -> Ended:
    return run_script(folder, write_script(folder, HEAD + loop))


@pytest.mark.parametrize(
    ("loop", "kind", "steps", "told"),
    [
        pytest.param(FREED_STATE, "freed", (1, 2), "graph of an earlier step, which state carries", id="freed state"),
        pytest.param(UPDATED_STATE, "updated", (2, 3), "an earlier step, which state carries", id="updated state"),
        pytest.param(SUMMED_LOSS, "freed", (1, 2), "an earlier step, which total carries", id="summed loss"),
        pytest.param(IN_A_FUNCTION, "freed", (1, 2), "an earlier step, which state carries", id="in a function"),
        pytest.param(BEFORE_THE_LOOP, "freed", (1, 2), "another backward has used, through weights", id="before it"),
        pytest.param(ON_A_MODULE, "freed", (1, 2), "backward has used, through model.hidden", id="on a module"),
        pytest.param(TWO_LOSSES, "freed", (1, 1), "another backward has used, through out", id="two losses"),
        pytest.param(STEPS_BETWEEN, "updated", (1, 2), "weight changed between the forward", id="steps between"),
        pytest.param(MEAN_OF_LOSSES, "freed", (1, 2), "which state carries: the evidence", id="mean of losses"),
        pytest.param(ADVERSARIAL, "freed", (1, 2), "another backward has used, through fake", id="adversarial"),
    ],
)
def test_what_leads_into_the_old_graph(tmp_path: Path, loop: str, kind: str, steps: tuple[int, int], told: str) -> None:
    ended = trained(tmp_path, loop)
    assert ended.status == 1
    assert told in ended.err
    document = json.loads((ended.run_dir / "evidence" / "reused-graph.json").read_text())
    assert (document["kind"], (document["from_step"], document["in_step"])) == (kind, steps)
    if kind == "updated":
        assert any("weight" in name for name in document["parameters"])


OVERWRITES = """
for step in range(4):
    out = model(x, state).exp()
    loss = out.square().mean()
    out.add_(1)
    loss.backward()
"""
RETAINED = """
for step in range(4):
    out = model(x, state)
    optimizer.zero_grad()
    out.square().mean().backward(retain_graph=True)
    out.exp().mean().backward()
    optimizer.step()
    state = out.detach()
"""


@pytest.mark.parametrize(("loop", "status"), [(OVERWRITES, 1), (RETAINED, 0)], ids=["an activation", "on purpose"])
def test_other_loops_leave_nothing(tmp_path: Path, loop: str, status: int) -> None:
    ended = trained(tmp_path, loop)
    assert ended.status == status
    assert not (ended.run_dir / "evidence").exists()


def test_the_diagnosis_names_what_carries_it(tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.sum().backward()
    try:
        y.sum().backward()
    except RuntimeError as error:
        documents: dict[str, dict[str, Any]] = evidence_of(error, Moment("now", 0.0, step=3), disk=tmp_path)
    (line,) = write_evidence(tmp_path, documents)
    assert "the backward ran into" in line
    facts = facts_of_crash(folder_of(tmp_path))
    assert facts["reused_graph"]["from_step"] is None  # no backward was seen
    facts["reused_graph"] |= {"from_step": 2, "in_step": 3, "carried": ["state"]}
    signs = causes()["reused-graph"].signature(finite_case(facts=facts)).signs
    (sign,) = (one for one in signs if one.weight >= CERTAIN)
    assert sign.invariant
    assert "goes through state into the graph of an earlier step" in sign.what
    (tmp_path / "evidence" / "reused-graph.json").write_text('{"schema": "steadytrain.reused-graph/1"}')
    assert facts_of_crash(folder_of(tmp_path)) == {}
