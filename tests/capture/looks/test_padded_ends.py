"""Answers that are read at a place of padding, and rows that only end alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.looks.padded_ends import padded_end_rows
from watching import watching

LENGTHS = torch.tensor([3, 5, 8, 4, 10, 6, 9, 7])


def padded(width: int = 12) -> Tensor:
    ids = torch.randint(1, 50, (len(LENGTHS), width), generator=torch.Generator().manual_seed(0))
    return ids * (torch.arange(width) < LENGTHS[:, None])


def shares(values: Tensor, *ends: tuple[int, int]) -> dict[str, float]:
    return dict(padded_end_rows(ends or [(8, values.shape[1])], [values]))


def test_the_share_of_rows_that_end_in_padding() -> None:
    assert shares(padded()) == {"padded-end": 1.0}
    assert shares(padded(10)) == {"padded-end": 0.75}
    features = torch.randn(8, 12, 4) * (torch.arange(12) < LENGTHS[:, None])[..., None]
    assert shares(features) == {"padded-end": 1.0}


def test_a_packed_sequence_is_as_long_as_its_longest_row() -> None:
    assert shares(padded(), (8, 10)) == {"padded-end": 0.75}


def test_quiet() -> None:
    full = torch.randint(1, 50, (8, 12))
    left = padded().flip(1)
    one_length = full * (torch.arange(12) < 6)
    assert shares(full) == shares(left) == shares(one_length) == shares(torch.zeros(8, 12, dtype=torch.long)) == {}
    assert shares(padded(), (8, 13)) == shares(padded(), (4, 12)) == shares(padded().bool()) == {}
    assert list(padded_end_rows([(8, 12)], [torch.randn(8, 12), torch.randn(8), torch.tensor(1.0)])) == []


def test_margins_of_pictures_that_are_read_line_by_line_are_none() -> None:
    lines = torch.arange(12)
    inside = (lines >= 2) & (lines < LENGTHS[:, None] + 1)
    assert shares(torch.randn(8, 12, 4) * inside[..., None]) == {}


class Reader(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.table, self.head = way, nn.Embedding(50, 8), nn.Linear(8, 3)
        self.read = nn.GRU(8, 8, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        given = self.table(ids)
        if self.way == "packed":
            given = nn.utils.rnn.pack_padded_sequence(given, LENGTHS, batch_first=True, enforce_sorted=False)
        states, last = self.read(given)
        if self.way == "packed":
            states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
        if self.way == "at its length":
            return self.head(states[torch.arange(len(ids)), LENGTHS - 1])
        return self.head(last[-1] if self.way == "last state" else states[:, -1])


@pytest.mark.parametrize(
    ("way", "told"), [("last place", True), ("packed", True), ("at its length", False), ("last state", False)]
)
def test_a_recurrent_model(way: str, told: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Reader(way)
    with watching(tmp_path, "observe") as watcher:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(10):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(padded()), torch.arange(8) % 3).backward()
            optimizer.step()
    assert ("read-padding" in {one.name for one in watcher.symptoms}) == told
