"""A loss that is summed over the calls of a recurrent model before one backward, with a NaN in one of the calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from steadytrain.storage.bundle import open_bundle
from watching import stopping

BAD, CALLS = 12, 5


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(4, 8), nn.Linear(8, 3)
        self.step = 0

    def forward(self, rows: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = self.cell(rows, state)
        if self.step == BAD:
            state = state.index_fill(0, torch.tensor([3]), float("nan"))
        return self.head(state), state


def test_only_the_gate_judges_such_a_step(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = Cell()
    optimizer = torch.optim.Adam(model.parameters())
    with stopping(model, optimizer, tmp_path, to=("none",)):
        for model.step in range(1, 20):
            rows, labels = torch.randn(6, CALLS, 4), torch.randint(0, 3, (6, CALLS))
            state, loss = torch.zeros(6, 8), torch.zeros(())
            optimizer.zero_grad()
            for place in range(CALLS):
                scores, state = model(rows[:, place], state)
                loss = loss + nn.functional.cross_entropy(scores, labels[:, place])
            loss.backward()
            optimizer.step()
    (path,) = (tmp_path / "run" / "incidents").iterdir()
    assert open_bundle(path).incident.step == BAD
    assert path.name == f"step-{BAD:06d}"
    assert not (tmp_path / "run" / "evidence").exists()
    told = capfd.readouterr().err
    assert "NO UPDATE" not in told
    assert "graph that another backward has used" not in told
