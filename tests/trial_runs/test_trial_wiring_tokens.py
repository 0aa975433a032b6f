"""Trials of token ids: labels hidden from the inputs, and a constant taken off the ids."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from wiring_trials import (  # noqa: E402
    EVERY,
    LENGTH,
    STEPS,
    TOKENS,
    _plain_process,  # noqa: F401 (an autouse fixture)
    case_of,
    long_case,
    tried,
    why_not,
)

from replaying import record  # noqa: E402

SHIFTED_AT, ROWS = 31, 16


class Counts(nn.Module):
    def __init__(self, tokens: int = TOKENS) -> None:
        super().__init__()
        self.words, self.hints = nn.Embedding(tokens, 16), nn.Embedding(tokens, 16)
        self.head = nn.Linear(16, tokens)

    def forward(self, ids: Tensor, hints: Tensor | None = None) -> Tensor:
        return self.head(self.words(ids) + (0.0 if hints is None else self.hints(hints)))


def told(hinted: bool = True) -> None:
    """Random tokens: only the hint tells the next one."""
    torch.manual_seed(0)
    net = Counts()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(80):
        text = torch.randint(0, TOKENS, (16, LENGTH + 1))
        text = text if hinted else (text[:, :1] + torch.arange(LENGTH + 1)) % TOKENS
        loss = functional.cross_entropy(net(text[:, :-1], text[:, 1:]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_a_skill_that_rests_on_the_labels_among_the_inputs(tmp_path: Path) -> None:
    recording = record(told, tmp_path / "run", every=EVERY)
    verdict, _ = tried("hide-labels", told, recording, long_case(labels_read=1, uniform_loss=math.log(TOKENS)))
    assert verdict.effect == "removed", verdict
    assert "no input of ids is the labels" in why_not("hide-labels")


def off_by_one() -> None:
    torch.manual_seed(0)
    net = Counts(TOKENS + 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    text = (torch.randint(0, TOKENS, (STEPS * ROWS, 1)) + torch.arange(LENGTH + 1)) % TOKENS
    text[(SHIFTED_AT - 1) * ROWS :] += 1
    for (rows,) in DataLoader(TensorDataset(text), batch_size=ROWS):
        loss = functional.cross_entropy(net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_ids_without_the_constant_are_as_easy_as_before(tmp_path: Path) -> None:
    recording = record(off_by_one, tmp_path / "run", every=EVERY)
    case = case_of("divergence", SHIFTED_AT, token_offset=[1, 0.95], label_shift_trained=1)
    verdict, outcomes = tried("undo-offset", off_by_one, recording, case)
    assert verdict.effect == "removed", verdict
    assert max(seen.loss or math.inf for seen in outcomes[0].steps) < math.log(TOKENS)
    assert "not off by a constant" in why_not("undo-offset")
