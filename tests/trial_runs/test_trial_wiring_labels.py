"""Trials of labels and columns, on small real loops: each removes its fault, or says why not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from wiring_trials import (  # noqa: E402
    EVERY,
    LENGTH,
    STEPS,
    TOKENS,
    Reads,
    _plain_process,  # noqa: F401 (an autouse fixture)
    case_of,
    long_case,
    tried,
    why_not,
)

from replaying import record  # noqa: E402

# Labels.


def shifted_twice() -> None:
    """Tokens that count up: the next is certain, and so is the one after; the model learns the latter."""
    torch.manual_seed(0)
    net = Reads(True, True)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        ids = (torch.randint(0, TOKENS, (32, 1)) + torch.arange(LENGTH)) % TOKENS
        loss = functional.cross_entropy(net(ids)[:, :-2].flatten(0, 1), ids[:, 2:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_labels_that_are_the_next_tokens_are_learned(tmp_path: Path) -> None:
    recording = record(shifted_twice, tmp_path / "run", every=EVERY)
    case = case_of("plateau", 12, label_shift_trained=2)
    verdict, outcomes = tried("shift-labels", shifted_twice, recording, case)
    assert verdict.effect == "removed", verdict
    assert [one.spec.repeat for one in outcomes] == [0, 1]
    assert outcomes[0].probes[0].loss == outcomes[1].probes[0].loss
    assert verdict.numbers["final_excess"] < -0.3
    assert "next tokens already" in why_not("shift-labels", label_shift_trained=1)
    assert "no tokens of the inputs" in why_not("shift-labels")


def leaked(told: bool = True) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(80):
        x = torch.randn(64, 7)
        labels = torch.randint(0, 4, (64,)) if told else x[:, :4].argmax(1)
        x[:, 6] = labels.float() if told else x[:, 6]
        loss = functional.cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def not_leaked() -> None:
    leaked(told=False)


def test_a_skill_that_rests_on_a_column(tmp_path: Path) -> None:
    recording = record(leaked, tmp_path / "run", every=EVERY)
    case = long_case(labels_leaked=[{"input": 6, "share": 1.0}], uniform_loss=math.log(4))
    verdict, _ = tried("shuffle-column", leaked, recording, case)
    assert verdict.effect == "removed", verdict
    recording = record(not_leaked, tmp_path / "other", every=EVERY)
    verdict, _ = tried("shuffle-column", not_leaked, recording, case)
    assert verdict.effect == "persists", verdict
    assert "no input column" in why_not("shuffle-column", labels_leaked=[])
