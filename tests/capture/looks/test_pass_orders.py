"""Orders that repeat from pass to pass and workers that give the same, in real loops, and loops that look like them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    Sampler,
    TensorDataset,
    get_worker_info,
)

from steadytrain.core.model import Severity
from watching import watching

Batches = Callable[[], Iterator[list[Tensor]]]
NAMES = {"repeated-order", "worker-duplicates", "repeated-batch"}
ROWS, PASSES = 48, 4


def found(folder: Path, batches: Batches, *, trainings: int = 1) -> dict[str, Severity]:
    """What is reported of trainings on these batches."""
    with watching(folder, "observe") as watcher:
        for _ in range(trainings):
            torch.manual_seed(0)
            model = nn.Linear(6, 3)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            for x, y in batches():
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    return {one.name: one.severity for one in watcher.symptoms if one.name in NAMES}


def data(rows: int = ROWS) -> TensorDataset:
    chance = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(rows, 6, generator=chance), torch.randint(3, (rows,), generator=chance))


class ByLength(Sampler[int]):
    """The same order in every pass, which is not ascending."""

    def __iter__(self) -> Iterator[int]:
        return iter(random.Random(0).sample(range(ROWS), ROWS))

    def __len__(self) -> int:
        return ROWS


class Stream(IterableDataset[list[Tensor]]):
    """Rows that are made on the way; ``shared``: each worker makes a part of them."""

    def __init__(self, *, shared: bool, equal: bool = False) -> None:
        self.shared = shared
        self.equal = equal

    def __iter__(self) -> Iterator[list[Tensor]]:
        info = get_worker_info()
        chance = torch.Generator().manual_seed(info.id if self.shared and info is not None else 7)
        for _ in range(ROWS):
            x = torch.ones(6) if self.equal else torch.randn(6, generator=chance)
            yield [x, torch.tensor(int(x[0] > 0))]


def sampled(*, set_epoch: bool, workers: int = 0) -> Batches:
    def batches() -> Iterator[list[Tensor]]:
        sampler: DistributedSampler[list[Tensor]] = DistributedSampler(data(), num_replicas=1, rank=0)
        loader = DataLoader(data(), 8, sampler=sampler, num_workers=workers, persistent_workers=workers > 0)
        for at in range(PASSES):
            if set_epoch:
                sampler.set_epoch(at)
            yield from loader

    return batches


def seeded_each_pass() -> Iterator[list[Tensor]]:
    rows = data()
    for _ in range(PASSES):
        torch.manual_seed(3)
        yield from DataLoader(rows, 8, shuffle=True)


def cycled() -> Iterator[list[Tensor]]:
    return itertools.islice(itertools.cycle(DataLoader(data(), 8, shuffle=True)), 24)


def cycled_late() -> Iterator[list[Tensor]]:
    return itertools.islice(itertools.cycle(DataLoader(data(200 * 4), 4, shuffle=True)), 240)


def cycled_in_order() -> Iterator[list[Tensor]]:
    return itertools.islice(itertools.cycle(DataLoader(data(), 8)), 24)


def kept_beforehand() -> Iterator[list[Tensor]]:
    batches = list(DataLoader(data(), 8, shuffle=True))
    for _ in range(PASSES):
        yield from batches


def each_batch_twice() -> Iterator[list[Tensor]]:
    for x, y in itertools.chain(*[DataLoader(data(), 8, shuffle=True)] * PASSES):
        yield [x, y]
        yield [x, y]


def shuffled() -> Iterator[list[Tensor]]:
    loader = DataLoader(data(), 8, shuffle=True, generator=torch.Generator().manual_seed(0))
    for _ in range(PASSES):
        yield from loader


def in_order() -> Iterator[list[Tensor]]:
    loader = DataLoader(data(), 8)
    for _ in range(PASSES):
        yield from loader


def by_length() -> Iterator[list[Tensor]]:
    loader = DataLoader(data(), 8, sampler=ByLength())
    for _ in range(PASSES):
        yield from loader


def all_at_once() -> Iterator[list[Tensor]]:
    rows = data()
    for _ in range(4 * PASSES):
        torch.manual_seed(3)
        yield from DataLoader(rows, ROWS, shuffle=True)


def with_an_evaluation() -> Iterator[list[Tensor]]:
    """The evaluation shuffles the same rows with one seed, and forgets `no_grad`."""
    rows = data()
    training = DataLoader(rows, 8, shuffle=True, generator=torch.Generator().manual_seed(0))
    for _ in range(PASSES):
        yield from training
        for _ in DataLoader(rows, 8, shuffle=True, generator=torch.Generator().manual_seed(5)):
            pass


def pairs() -> Iterator[list[Tensor]]:
    """Two loaders of one seed side by side."""
    rows = data()
    first, second = (DataLoader(rows, 8, shuffle=True, generator=torch.Generator().manual_seed(0)) for _ in range(2))
    for _ in range(PASSES):
        for (x, y), (more, _) in zip(first, second, strict=True):
            yield [x + 0.1 * more, y]


def one_pass() -> Iterator[list[Tensor]]:
    yield from DataLoader(data(), 8, shuffle=True)


def streamed(*, shared: bool, equal: bool = False) -> Batches:
    return lambda: iter(DataLoader(Stream(shared=shared, equal=equal), 4, num_workers=2))


SICK: list[tuple[Batches, dict[str, Severity]]] = [
    (sampled(set_epoch=False), {"repeated-order": "warning"}),
    (sampled(set_epoch=False, workers=2), {"repeated-order": "warning"}),
    (seeded_each_pass, {"repeated-order": "warning"}),
    (cycled, {"repeated-order": "warning"}),
    (cycled_late, {"repeated-order": "warning"}),
    (by_length, {"repeated-order": "note"}),
    (streamed(shared=False), {"worker-duplicates": "warning"}),
]


@pytest.mark.parametrize(("batches", "expected"), SICK)
def test_what_repeats_is_told(batches: Batches, expected: dict[str, Severity], tmp_path: Path) -> None:
    assert found(tmp_path / "run", batches) == expected


@pytest.mark.parametrize(
    "batches",
    [
        sampled(set_epoch=True),
        sampled(set_epoch=True, workers=2),
        shuffled,
        in_order,
        cycled_in_order,
        kept_beforehand,
        each_batch_twice,
        all_at_once,
        with_an_evaluation,
        pairs,
        streamed(shared=True),
    ],
)
def test_what_does_not_is_not(batches: Batches, tmp_path: Path) -> None:
    assert found(tmp_path / "run", batches) == {}


def test_equal_rows_are_no_fault_of_the_workers(tmp_path: Path) -> None:
    assert "worker-duplicates" not in found(tmp_path / "run", streamed(shared=True, equal=True))


def test_trainings_of_one_seed_are_not_compared(tmp_path: Path) -> None:
    assert found(tmp_path / "run", one_pass, trainings=3) == {}
