"""``ReduceLROnPlateau`` that is stepped after each batch, and after each pass."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from looked_loops import Step, adam, found, small, update  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.optim.lr_scheduler import ReduceLROnPlateau  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

PASS = 80
"""Updates in a pass over the data."""


def training(patience: int, *, every: int = 1, rows: int = 8 * PASS) -> Step:
    """Updates with a metric that never gets better, which the schedule counts after ``every`` of them."""
    x = torch.randn(rows, 8)
    loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8)
    batches = iter([])
    model = small()
    optimizer = adam(model)
    scheduler = ReduceLROnPlateau(optimizer, patience=patience)

    def step(at: int) -> None:
        nonlocal batches
        given = next(batches, None)
        if given is None:
            batches = iter(loader)
            given = next(batches)
        update(optimizer, functional.cross_entropy(model(given[0]), given[1]))
        if at % every == 0:
            scheduler.step(1.0)

    return step


@pytest.mark.parametrize(
    ("patience", "every", "rows", "told"),
    [(3, 1, 8 * PASS, True), (3, 4, 8 * PASS, False), (30, 1, 8 * PASS, False), (3, 1, 64, False)],
    ids=["each batch", "each fourth batch", "a long patience", "a pass of eight batches"],
)
def test_a_patience_of_batches(patience: int, every: int, rows: int, told: bool, tmp_path: Path) -> None:
    said = found(tmp_path / "run", lambda: training(patience, every=every, rows=rows), steps=PASS + 8)
    assert said.get("mistimed-schedule") == ("warning" if told else None)
