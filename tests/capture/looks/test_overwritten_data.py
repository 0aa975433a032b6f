"""Stored rows that reading changes, in real loops; and data sets that change for other reasons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from watching import watching

ROWS, WIDTH, EPOCHS = 32, 24, 6
Read = Callable[[Any], Any]


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """A data set that reads its stored rows by ``read``; ``kept`` is where it keeps what was read last."""

    def __init__(self, stored: Any, read: Read, *, keeps: bool = False) -> None:
        self.stored, self._read = stored, read
        self.newest = np.zeros((ROWS, WIDTH), np.float32)
        self.counts = np.zeros((ROWS, 16))
        self._keeps = keeps

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.counts[index, 0] += 1.0
        row = self._read(self.stored[index])
        if self._keeps:
            self.newest[index] = row
        return torch.as_tensor(row, dtype=torch.float32), torch.tensor(index % 3)


class Filled(Rows):
    """A cache whose first read of a row fills it."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not self.newest[index].any():
            self.newest[index] = self._read(self.stored[index])
        return torch.from_numpy(self.newest[index].copy()), torch.tensor(index % 3)


def tensors() -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))


def arrays() -> Any:
    return tensors().numpy().copy()


def masked(row: Any) -> Any:
    at = int(torch.randint(WIDTH - 4, ()))
    row[at : at + 4] = 0.0
    return row


def noisy(row: Any) -> Any:
    row += 0.1 * np.random.default_rng(int(torch.randint(1 << 30, ()))).standard_normal(WIDTH).astype(np.float32)
    return row


def scaled(row: Any) -> Any:
    row /= 2.0
    return row


def turned(row: Any) -> Any:
    row[:] = row.flip(0) if isinstance(row, Tensor) else row[::-1].copy()
    return row


def found(folder: Path, dataset: Any, *, collate: Any = None, workers: int = 0) -> str:
    """What is said of the data of a training."""
    torch.manual_seed(0)
    loader = DataLoader(dataset, batch_size=8, shuffle=True, collate_fn=collate, num_workers=workers)
    model = nn.Linear(WIDTH, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with watching(folder, "observe") as watcher:
        for _ in range(EPOCHS):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    return next((one.message for one in watcher.symptoms if one.name == "overwritten-rows"), "")


def in_place(rows: list[Any]) -> tuple[Tensor, Tensor]:
    for x, _ in rows:
        x[int(torch.randint(WIDTH, ()))] = 0.0
    return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])


@pytest.mark.parametrize(
    ("dataset", "place"),
    [
        (lambda: Rows(tensors(), masked), "Rows.stored"),
        (lambda: Rows(arrays(), noisy), "Rows.stored"),
        (lambda: Rows([row.clone() for row in tensors()], scaled), "Rows.stored"),
        (lambda: Subset(Rows(tensors(), masked), range(4, ROWS)), "Rows.stored"),
        (lambda: Rows(dict(enumerate(arrays())), noisy), "Rows.stored"),
    ],
)
def test_rows_that_reading_changes_are_named_with_their_place(
    tmp_path: Path, dataset: Callable[[], Any], place: str
) -> None:
    assert found(tmp_path / "run", dataset()).startswith(f"reading a row changes it in {place}: ")


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Overlapping windows of one long series."""

    def __init__(self, read: Read) -> None:
        self.series = np.random.default_rng(0).standard_normal(ROWS + WIDTH).astype(np.float32)
        self._read = read

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self._read(self.series[index : index + WIDTH])), torch.tensor(index % 3)


class Words(Dataset[tuple[Tensor, Tensor]]):
    """Lists of words, whose ids are looked up."""

    def __init__(self, read: Read) -> None:
        self.sentences = [[f"w{(row * place) % 11}" for place in range(WIDTH)] for row in range(ROWS)]
        self._read = read

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.tensor([float(len(word)) for word in self._read(self.sentences[index])]), torch.tensor(index % 3)


def without_a_word(words: list[str]) -> list[str]:
    words[int(torch.randint(WIDTH, ()))] = "<mask>"
    return words


def test_windows_of_a_series_and_lists_of_words_are_seen(tmp_path: Path) -> None:
    said = "reading a row changes it in "
    assert found(tmp_path / "a", Windows(scaled)).startswith(f"{said}Windows.series: ")
    assert found(tmp_path / "b", Windows(lambda part: scaled(part.copy()))) == ""
    assert found(tmp_path / "c", Words(without_a_word)).startswith(f"{said}Words.sentences: ")
    assert found(tmp_path / "d", Words(lambda words: without_a_word(list(words)))) == ""


def test_a_collate_function_that_writes_into_rows_is_seen(tmp_path: Path) -> None:
    said = found(tmp_path / "run", Rows(tensors(), lambda row: row), collate=in_place)
    assert said.startswith("reading a row changes it in Rows.stored: ")


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: Rows(tensors(), lambda row: masked(row.clone())),
        lambda: Rows(arrays(), lambda row: noisy(row.copy()), keeps=True),
        lambda: Filled(arrays(), lambda row: noisy(row.copy())),
        lambda: Rows(tensors(), turned),  # each is still one of the two views
        lambda: TensorDataset(tensors(), torch.arange(ROWS) % 3),
        lambda: list(zip(tensors(), torch.arange(ROWS) % 3, strict=True)),
    ],
)
def test_copies_caches_counters_and_newest_views_are_not(tmp_path: Path, dataset: Callable[[], Any]) -> None:
    assert found(tmp_path / "run", dataset()) == ""


def test_a_buffer_that_the_loop_writes_is_not(tmp_path: Path) -> None:
    data = Rows(tensors(), lambda row: row.clone())

    def together(rows: list[Any]) -> tuple[Tensor, Tensor]:
        return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])

    torch.manual_seed(0)
    model = nn.Linear(WIDTH, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with watching(tmp_path / "run", "observe") as watcher:
        for _ in range(EPOCHS):
            for x, y in DataLoader(data, batch_size=8, shuffle=True, collate_fn=together):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                data.stored[torch.randint(ROWS, (8,))] = torch.randn(8, WIDTH)
    assert "overwritten-rows" not in {one.name for one in watcher.symptoms}
