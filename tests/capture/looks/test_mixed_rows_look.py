"""Attention over the rows of a batch, and what resembles it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from steadytrain.capture.looks.mixed_rows import Batch, mixed_rows
from steadytrain.trial_runs.changes.modules import BatchFirst
from watching import watching

ROWS, PLACES, WIDTH = 8, 5, 8
Given = Callable[[], Tensor]


class Encoder(nn.Module):
    """Its output has the dimensions of its input but the last, or of a row if it is ``pooled``."""

    def __init__(self, *, batch_first: bool, pooled: bool, dropout: float = 0.0) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=dropout, batch_first=batch_first)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head, self.pooled = nn.Linear(WIDTH, 3), pooled

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return self.head(found[:, -1] if self.pooled else found)


def told(model: nn.Module, shape: tuple[int, ...], loss: Callable[[Tensor], Tensor], folder: Path) -> bool:
    torch.manual_seed(0)
    with watching(folder, "observe") as watcher:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(16):
            optimizer.zero_grad()
            loss(model(torch.randn(*shape, WIDTH))).backward()
            optimizer.step()
    return "mixed-rows" in {one.name for one in watcher.symptoms}


def squares(output: Tensor) -> Tensor:
    return nn.functional.mse_loss(output, torch.zeros_like(output))


def classes(output: Tensor) -> Tensor:
    flat = output.reshape(-1, 3)
    return nn.functional.cross_entropy(flat, torch.zeros(len(flat), dtype=torch.long))


def differences(output: Tensor) -> Tensor:
    return (output - 1.0).square().mean()


@pytest.mark.parametrize("loss", [squares, classes, differences])
def test_a_layer_that_is_not_told_that_the_batch_comes_first(loss: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    assert told(Encoder(batch_first=False, pooled=True), (ROWS, PLACES), loss, tmp_path)


def test_dropout_of_the_weights_hides_nothing(tmp_path: Path) -> None:
    """With it, torch computes the softmax by itself."""
    model = Encoder(batch_first=False, pooled=True, dropout=0.1)
    assert told(model, (ROWS, PLACES), classes, tmp_path)


@pytest.mark.parametrize(
    ("model", "shape", "loss"),
    [
        (Encoder(batch_first=True, pooled=True), (ROWS, PLACES), squares),
        (Encoder(batch_first=True, pooled=False), (ROWS, PLACES), classes),
        (Encoder(batch_first=False, pooled=False), (PLACES, ROWS), squares),
        (Encoder(batch_first=False, pooled=False), (PLACES, ROWS), differences),
        (Encoder(batch_first=False, pooled=False), (PLACES, ROWS), classes),
        (Encoder(batch_first=True, pooled=True), (1, PLACES), squares),
        (Encoder(batch_first=True, pooled=True), (PLACES, PLACES), squares),
    ],
)
def test_quiet(model: nn.Module, shape: tuple[int, ...], loss: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    assert not told(model, shape, loss, tmp_path)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], *, batch_first: bool, pooled: bool) -> None:
        super().__init__()
        self.read = kind(WIDTH, 6, batch_first=batch_first)  # type: ignore[call-arg]
        self.head, self.pooled = nn.Linear(6, 3), pooled

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.read(x)
        return self.head(states[:, -1] if self.pooled else states)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_that_steps_over_the_rows(kind: type[nn.RNNBase], tmp_path: Path) -> None:
    assert told(Recurrent(kind, batch_first=False, pooled=True), (ROWS, PLACES), classes, tmp_path / "sick")
    assert not told(Recurrent(kind, batch_first=True, pooled=True), (ROWS, PLACES), classes, tmp_path / "one")
    assert not told(Recurrent(kind, batch_first=False, pooled=False), (PLACES, ROWS), classes, tmp_path / "other")


def drawn(model: nn.Module, folder: Path, *, places_first: bool) -> bool:
    """Batches of a loader that stacks rows along the second axis, or along the first."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, PLACES, WIDTH))
    stacked = 1 if places_first else 0
    collate = lambda rows: torch.stack([one for (one,) in rows], stacked)  # noqa: E731
    with watching(folder, "observe") as watcher:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(2):
            for batch in DataLoader(data, ROWS, collate_fn=collate):
                optimizer.zero_grad()
                classes(model(batch)).backward()
                optimizer.step()
    return "mixed-rows" in {one.name for one in watcher.symptoms}


def test_the_rows_that_a_loader_drew_tell_the_axis_of_the_batch(tmp_path: Path) -> None:
    def tagger(*, batch_first: bool) -> Recurrent:
        return Recurrent(nn.GRU, batch_first=batch_first, pooled=False)

    assert drawn(tagger(batch_first=True), tmp_path / "a", places_first=True)
    assert drawn(tagger(batch_first=False), tmp_path / "b", places_first=False)
    assert not drawn(tagger(batch_first=False), tmp_path / "c", places_first=True)
    assert not drawn(tagger(batch_first=True), tmp_path / "d", places_first=False)


def test_windows_of_a_picture_are_not_its_rows() -> None:
    batch = Batch(8, second_axes=frozenset({3}))
    assert list(mixed_rows([(32, 8)], [], [(8, 10)], batch)) == []
    assert list(mixed_rows([(32, 8)], [], [(8, 10)], Batch(8, second_axes=frozenset({32})))) == [("mixed-rows", 32.0)]


def test_the_trial_tells_each_layer() -> None:
    model, change = Encoder(batch_first=False, pooled=True), BatchFirst()
    change.call(SimpleNamespace(roots=[model]), 1, 0, (), {})  # type: ignore[arg-type]
    assert change.touched
    one = torch.randn(ROWS, PLACES, WIDTH)
    other = torch.cat([one[:1], torch.randn(ROWS - 1, PLACES, WIDTH)])
    torch.testing.assert_close(model(one)[0], model(other)[0])
