"""An incident names the samples of its batch by their place in the data set, whatever way the batch took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Dataset, IterableDataset, RandomSampler, Subset

import replaying
from steadytrain.capture.hooks.fail_open import raise_own_errors
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.capture.step.sample_indices import DrawnSamples
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.incident import Samples
from steadytrain.detection import run_recorder
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.recorded_samples import samples_of_step
from steadytrain.storage.tape_files import Recording

ROWS, BAD = 60, 37
Item = dict[str, torch.Tensor]


class Houses(Dataset[Item]):
    """One measurement is NaN; the price of another one too, where that is asked for."""

    def __init__(self, *, bad_price: bool = False) -> None:
        numbers = torch.arange(ROWS, dtype=torch.float32)
        self.features = torch.stack([numbers, numbers.sin(), numbers.cos()], 1)
        self.prices = numbers / ROWS
        if bad_price:
            self.prices[BAD] = torch.nan
        else:
            self.features[BAD, 1] = torch.nan

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Item:
        return {"features": self.features[index], "price": self.prices[index]}


class Raising(Houses):
    """A broken file that the script skips."""

    def __getitem__(self, index: int) -> Item:
        if index == 3:
            raise ValueError("cannot be read")
        return super().__getitem__(index)


class Stream(IterableDataset[Item]):
    def __iter__(self) -> Iterator[Item]:
        houses = Houses()
        return (houses[index] for index in range(ROWS))


def shuffled(dataset: Any, **how: Any) -> DataLoader[Item]:
    return DataLoader(dataset, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3), **how)


def plain() -> Iterator[Item]:
    yield from shuffled(Houses())


def epochs_of_workers() -> Iterator[Item]:
    loader = shuffled(Subset(Houses(), [*range(BAD), *range(BAD + 1, ROWS)]), num_workers=2, persistent_workers=True)
    yield from loader
    yield from loader
    yield from shuffled(Houses(), num_workers=2, prefetch_factor=3)


def of_a_subset() -> Iterator[Item]:
    inner = Subset(Houses(), list(range(ROWS - 1, -1, -1)))
    yield from shuffled(Subset(inner, range(2, ROWS)))


def ahead() -> Iterator[Item]:
    """The next batch is fetched before the last one is given, as Accelerate does it."""
    yield from (before for before, _ in pairwise(shuffled(Houses())))


def after_one_that_failed() -> Iterator[Item]:
    iterator = iter(shuffled(Raising(), num_workers=2))
    while True:
        try:
            yield next(iterator)
        except ValueError:
            continue
        except StopIteration:
            return


def by_a_batch_sampler() -> Iterator[Item]:
    sampler = BatchSampler(RandomSampler(Houses(), generator=torch.Generator().manual_seed(1)), 4, drop_last=True)
    yield from DataLoader(Houses(), batch_sampler=sampler)


def of_other_loaders_between() -> Iterator[Item]:
    other = DataLoader(Houses(), batch_size=4)
    for batch in shuffled(Houses()):
        next(iter(other))
        yield batch


def changed_on_the_way() -> Iterator[Item]:
    for batch in shuffled(Houses()):
        yield {"features": batch["features"] * 2, "price": batch["price"] * 2}


def one_by_one() -> Iterator[Item]:
    for item in DataLoader(Houses(), batch_size=None, shuffle=True):
        yield {name: value.unsqueeze(0) for name, value in item.items()}


def of_a_stream() -> Iterator[Item]:
    yield from DataLoader(Stream(), batch_size=4)


def changed_and_ahead() -> Iterator[Item]:
    yield from ({name: 2 * value for name, value in before.items()} for before, _ in pairwise(shuffled(Houses())))


def of_two_sets() -> Iterator[Item]:
    yield from shuffled(ConcatDataset([Subset(Houses(), range(5)), Houses()]))


def of_bad_prices() -> Iterator[Item]:
    yield from shuffled(Houses(bad_price=True))


def train(batches: Callable[[], Iterator[Item]], *, accumulate: int = 1) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for number, batch in enumerate(batches()):
        loss = (model(batch["features"]).squeeze(1) - batch["price"]).pow(2).mean()
        loss.backward()
        if number % accumulate == accumulate - 1:
            optimizer.step()
            optimizer.zero_grad()


def samples_at_the_incident(folder: Path, run: Callable[[], None]) -> tuple[Samples, ...]:
    watcher = Watcher(
        Settings(run_dir=folder, run_name="run", policy="stop"), tell=print, record=run_recorder.recording()
    )
    try:
        with raise_own_errors(), pytest.raises(RunStopped):
            run()
    finally:
        watcher.close(ended="failed")
    return open_bundle(watcher.incidents[0]).incident.samples


@pytest.mark.parametrize(
    "batches",
    [plain, epochs_of_workers, of_a_subset, ahead, after_one_that_failed, by_a_batch_sampler, of_other_loaders_between],
)
def test_the_bad_sample_is_named(batches: Callable[[], Iterator[Item]], tmp_path: Path) -> None:
    (samples,) = samples_at_the_incident(tmp_path / "run", lambda: train(batches))
    (row,) = samples.nonfinite_rows
    assert samples.named(row) == f"Houses[{BAD}]" if batches is not after_one_that_failed else f"Raising[{BAD}]"
    assert samples.nonfinite_fields == ("features",)
    assert len(set(samples.indices)) == len(samples.indices) == 4


def test_of_several_batches_of_a_step_each_has_its_own(tmp_path: Path) -> None:
    told = samples_at_the_incident(tmp_path / "run", lambda: train(plain, accumulate=3))
    assert [one.batch for one in told] == [0, 1, 2]
    assert len({index for one in told for index in one.indices}) == 12
    assert [one.named(row) for one in told for row in one.nonfinite_rows] == [f"Houses[{BAD}]"]


def test_what_the_model_does_not_get_counts_as_well(tmp_path: Path) -> None:
    (samples,) = samples_at_the_incident(tmp_path / "run", lambda: train(of_bad_prices))
    assert [samples.named(row) for row in samples.nonfinite_rows] == [f"Houses[{BAD}]"]
    assert samples.nonfinite_fields == ("price",)


def test_a_batch_that_is_changed_on_the_way_is_known_by_its_order(tmp_path: Path) -> None:
    (samples,) = samples_at_the_incident(tmp_path / "run", lambda: train(changed_on_the_way))
    assert BAD in samples.indices


def test_a_loader_of_single_samples(tmp_path: Path) -> None:
    (samples,) = samples_at_the_incident(tmp_path / "run", lambda: train(one_by_one))
    assert (samples.dataset, samples.indices) == ("Houses", (BAD,))


def test_of_sets_put_together_the_place_in_all_of_them_is_told(tmp_path: Path) -> None:
    (samples,) = samples_at_the_incident(tmp_path / "run", lambda: train(of_two_sets))
    assert [samples.named(row) for row in samples.nonfinite_rows] == [f"ConcatDataset[{BAD + 5}]"]


@pytest.mark.parametrize("batches", [of_a_stream, changed_and_ahead])
def test_what_is_not_known_is_not_told(batches: Callable[[], Iterator[Item]], tmp_path: Path) -> None:
    assert samples_at_the_incident(tmp_path / "run", lambda: train(batches)) == ()


def planted_in_place() -> Iterator[Item]:
    for batch in shuffled(Subset(Houses(), range(BAD))):
        batch["features"][2, 1] = torch.nan
        yield batch


def test_a_value_that_came_in_after_the_loader_is_not_the_samples(tmp_path: Path) -> None:
    (samples,) = samples_at_the_incident(tmp_path / "run", lambda: train(planted_in_place))
    assert samples.nonfinite_rows == samples.nonfinite_fields == ()
    assert samples.later_rows == (2,)


def spoilt(batch: Item) -> Item:
    return {name: value.clone().index_fill_(0, torch.tensor([2]), torch.nan) for name, value in batch.items()}


def changed_and_planted() -> Iterator[Item]:
    yield from map(spoilt, shuffled(Subset(Houses(), range(BAD))))


def test_a_batch_that_was_changed_as_a_whole_does_not_blame_the_sample(tmp_path: Path) -> None:
    (samples,) = samples_at_the_incident(tmp_path / "run", lambda: train(changed_and_planted))
    assert samples.nonfinite_rows == ()
    assert samples.later_rows == (2,)


def test_a_changed_copy_beside_what_the_loader_returned_is_later() -> None:
    images, prices = torch.zeros(4, 8, dtype=torch.uint8), torch.ones(4)
    draws, iterator = DrawnSamples(), iter(shuffled(Houses()))
    draws.drawn(iterator, [7, 8, 9, 10])
    draws.given(iterator, {"images": images, "prices": prices})
    augmented = images / 255
    augmented[2, 1] = torch.nan
    found = draws._recent[0].with_bad_rows([augmented, prices], 0)
    assert (found.nonfinite_rows, found.later_rows, found.indices) == ((), (2,), (7, 8, 9, 10))


def test_of_a_batch_that_is_gone_and_has_another_dtype_nothing_is_claimed() -> None:
    prices = torch.ones(4)
    draws, iterator = DrawnSamples(), iter(shuffled(Houses()))
    draws.drawn(iterator, [7, 8, 9, 10])
    measured = torch.ones(4, 3, dtype=torch.float64)
    measured[2, 1] = torch.nan
    draws.given(iterator, [measured, prices])
    measured = measured.float()
    found = draws._recent[0].with_bad_rows([measured, prices], 0)
    assert (found.nonfinite_rows, found.later_rows) == ((), ())


def test_what_was_made_in_inference_mode_has_no_version_and_is_named() -> None:
    with torch.inference_mode():
        embedded = torch.ones(4, 3)
        embedded[1, 1] = torch.nan
    draws, iterator = DrawnSamples(), iter(shuffled(Houses()))
    draws.drawn(iterator, [7, 8, 9, 10])
    draws.given(iterator, [embedded])
    found = draws._recent[0].with_bad_rows([embedded.clone()], 0)
    assert (found.nonfinite_rows, found.later_rows, found.nonfinite_fields) == ((1,), (), ("0",))


def test_a_copy_stands_for_the_batch_that_is_gone(tmp_path: Path) -> None:
    def copies() -> Iterator[Item]:
        yield from ({name: one.clone() for name, one in batch.items()} for batch in shuffled(Houses()))

    (samples,) = samples_at_the_incident(tmp_path / "run", lambda: train(copies))
    assert [samples.named(row) for row in samples.nonfinite_rows] == [f"Houses[{BAD}]"]
    assert samples.later_rows == ()


class Graphs:
    """What the loader of PyTorch Geometric returns: its fields are in a store."""

    def __init__(self, items: list[Item]) -> None:
        self._store = SimpleNamespace()
        nodes = [torch.stack([one["features"]] * (2 + place)) for place, one in enumerate(items)]
        graph_of = torch.cat([torch.full((len(one),), place) for place, one in enumerate(nodes)])
        prices = torch.stack([one["price"] for one in items])
        self._store._mapping = {"x": torch.cat(nodes), "y": prices, "batch": graph_of}


def test_the_graph_of_a_bad_node_is_named(tmp_path: Path) -> None:
    def batches() -> Iterator[Item]:
        for graphs in shuffled(Houses(), collate_fn=Graphs):
            fields = graphs._store._mapping
            sums = torch.zeros(len(fields["y"]), 3).index_add(0, fields["batch"], fields["x"])
            yield {"features": sums, "price": fields["y"]}

    (samples,) = samples_at_the_incident(tmp_path / "run", lambda: train(batches))
    assert [samples.named(row) for row in samples.nonfinite_rows] == [f"Houses[{BAD}]"]
    assert samples.nonfinite_fields == ("x",)


@pytest.mark.filterwarnings("ignore")  # nested tensors are a prototype
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_the_part_of_a_nested_batch_is_named(layout: torch.layout, tmp_path: Path) -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 1)

        def forward(self, parts: torch.Tensor) -> torch.Tensor:
            return self.head(torch.stack([part.sum(0) for part in parts.unbind()]))

    def nested(items: list[Item]) -> torch.Tensor:
        return torch.nested.nested_tensor([torch.stack([one["features"]] * 2) for one in items], layout=layout)

    def run() -> None:
        model = Sums()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        for batch in shuffled(Houses(), collate_fn=nested):
            model(batch).pow(2).mean().backward()
            optimizer.step()

    (samples,) = samples_at_the_incident(tmp_path / "run", run)
    assert [samples.named(row) for row in samples.nonfinite_rows] == [f"Houses[{BAD}]"]


def of_sound_ones() -> Iterator[Item]:
    yield from shuffled(Subset(Houses(), range(BAD)), num_workers=2)


def sound_and_ahead() -> Iterator[Item]:
    yield from (before for before, _ in pairwise(shuffled(Subset(Houses(), range(BAD)))))


@pytest.mark.parametrize("batches", [of_sound_ones, sound_and_ahead])
def test_the_tape_tells_of_every_step(batches: Callable[[], Iterator[Item]], tmp_path: Path) -> None:
    with replaying.plain_process():
        recording: Recording = replaying.record(lambda: train(batches), tmp_path / "run", every=100)
    assert recording.last_step is not None
    told = [samples_of_step(recording, step) for step in range(1, recording.last_step + 1)]
    assert [one[0].indices for one in told] == [
        tuple(int(row) for row in batch["features"][:, 0]) for batch in batches()
    ]
    assert samples_of_step(recording, recording.last_step + 1) == ()


def test_what_is_drawn_ahead_and_never_given_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadytrain.capture.step.sample_indices.AHEAD_MAX", 8)
    draws, iterator = DrawnSamples(), iter(shuffled(Houses(), num_workers=2))
    for number in range(100):
        iterator._send_idx = 1000 + number
        draws.drawn(iterator, [number])
    assert len(draws._ahead[iterator]) == 8
    del iterator
    assert not draws._ahead
