"""Stored rows that change when they are read or used, and designs that look like it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from steadytrain.survey.calls import Calls
from steadytrain.survey.input_facts import Batches
from steadytrain.survey.stored_rows import changed_by_reading
from steadytrain.trial_runs.changes.stored_rows import KeepRows
from steadytrain.trial_runs.launched_script import Launched

ROWS = 12


class Rows(Dataset[Any]):
    def __init__(self, read: Callable[[Any, int], Any], rows: Any) -> None:
        self.rows, self.read = rows, read
        self.cache, self.reads = torch.zeros(ROWS, 3), torch.zeros(ROWS)
        self.there: set[int] = set()

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> Any:
        return self.read(self, row)


def _scaled(data: Any, row: int) -> Any:
    values = data.rows[row]
    values *= 0.9
    return values


def _copied(data: Any, row: int) -> Any:
    data.reads[row] += 1
    return data.rows[row].clone().mul_(torch.rand(()))


def _cached(data: Any, row: int) -> Any:
    if row not in data.there:
        data.there.add(row)
        data.cache[row] = data.rows[row].tanh()
    return data.cache[row]


def _clipped(data: Any, row: int) -> Any:
    return data.rows[row].clamp_(-1, 1)


def _tensor() -> Tensor:
    return torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))


def _lists() -> list[Any]:
    """More arrays than a data set has attributes to look at."""
    return [np.ones(3, dtype="float32") for _ in range(ROWS * 2)]


SICK = [(_scaled, _tensor), (_scaled, lambda: _tensor().numpy()), (_scaled, _lists)]
HEALTHY = [(_copied, _tensor), (_cached, _tensor), (_clipped, _tensor)]


@pytest.mark.parametrize(("read", "rows"), SICK, ids=["tensor", "array", "list of arrays"])
def test_a_data_set_that_overwrites_what_it_reads_is_found(read: Any, rows: Any) -> None:
    found = changed_by_reading([DataLoader(Subset(Rows(read, rows()), range(2, 10)))])
    assert found == {"attribute": "rows", "row": 0}


@pytest.mark.parametrize(("read", "rows"), HEALTHY, ids=["copy and counter", "cache", "clipped for good"])
def test_a_data_set_that_copies_caches_or_counts_is_not(read: Any, rows: Any) -> None:
    assert changed_by_reading([DataLoader(Rows(read, rows()))]) is None


def test_a_workers_copy_ends_with_its_epoch() -> None:
    assert changed_by_reading([DataLoader(Rows(_scaled, _tensor()), num_workers=1)]) is None


@pytest.mark.parametrize(("read", "rows"), SICK, ids=["tensor", "array", "list of arrays"])
def test_rows_are_put_back_after_they_were_read(read: Any, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((DataLoader, "__iter__"), (Rows, "__getitem__")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    change = KeepRows()
    change.early(Launched())
    data = Rows(read, rows())
    loader = DataLoader(Subset(data, range(ROWS)), batch_size=4)
    first, second = ([torch.as_tensor(batch) for batch in loader] for _ in range(2))
    assert change.touched == 2 * ROWS
    assert all(map(torch.equal, first, second))


def _trained(step: Callable[[Tensor, nn.Module, int], object], model: nn.Module) -> dict[str, Any] | None:
    """What a survey says after three steps over stored rows."""
    calls, stored, now = Calls(), torch.rand(16, 4), 0
    calls.step_now = lambda: now
    model.register_forward_pre_hook(lambda _, given: calls.writes.given(now, _named(given)))
    calls.look(True)
    try:
        for now in range(1, 4):
            step(stored, model, now)
    finally:
        calls.look(False)
    return calls.writes.found()


def _named(given: tuple[Tensor, ...]) -> Iterator[tuple[str, Tensor]]:
    yield from ((str(at), value) for at, value in enumerate(given))


def _slice_scaled(stored: Tensor, model: nn.Module, now: int) -> object:
    rows = stored[4 * (now % 2) : 4 * (now % 2) + 4]
    rows.mul_(0.5)
    return model(rows * 2)


def _as_stored(stored: Tensor, model: nn.Module, now: int) -> object:
    return model(stored[:4])


def _drawn(stored: Tensor, model: nn.Module, now: int) -> object:
    rows = stored[torch.randperm(16)[:4]]
    rows.mul_(0.5)
    return model(rows)


def _refilled(stored: Tensor, model: nn.Module, now: int) -> object:
    stored[:4].copy_(torch.rand(4, 4))
    stored[:4].mul_(0.5)
    return model(stored[:4])


def test_a_write_into_a_slice_of_the_rows_is_found() -> None:
    found = _trained(_slice_scaled, nn.Linear(4, 2))
    assert found is not None
    assert "rows.mul_(0.5)" in found["line"]
    assert _trained(_as_stored, nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2))) is not None


@pytest.mark.parametrize("step", [_drawn, _refilled, _as_stored])
def test_a_write_into_a_copy_or_a_buffer_that_is_filled_anew_is_not(step: Any) -> None:
    assert _trained(step, nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))) is None


@pytest.mark.parametrize("mined", [True, False])
def test_copies_are_counted_from_the_onset_on_and_before_it(mined: bool) -> None:
    torch.manual_seed(0)
    rows, batches = torch.randn(400, 3), Batches()
    for step in range(1, 13):
        batches.called(step, (rows[:8] if mined and step > 6 else rows[torch.randint(400, (8,))],), {})
    batches.mark(7)
    facts = batches.finish()
    assert facts["repeated_rows_before"] < 0.2
    assert (facts["repeated_rows_since"] > 0.8) is mined


def test_a_row_of_ids_is_all_of_them() -> None:
    """A user and a film are given apart: the user comes again, and the pair does not."""
    torch.manual_seed(0)
    pairs, batches = torch.randperm(20 * 40), Batches()
    for step, part in enumerate(pairs.split(32), start=1):
        batches.called(step, (part // 40, part % 40), {})
    assert batches.finish()["repeated_rows"] == 0.0
