"""Steps with the inputs of the step before: which are compared, and when a batch is stuck."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from steadytrain.capture.looks.repeated_inputs import Fetched, RepeatedInputs, inputs_of  # noqa: E402
from steadytrain.capture.step.input_recorder import record_call  # noqa: E402

MODEL = nn.Linear(3, 1)


def rows(
    batches: Iterator[Tensor], *, steps: int, asked: Callable[[int], int] = lambda step: 0, rows: int = 0
) -> dict[int, dict[str, float]]:
    """The rows of each step that has some: step ``n`` is given the n-th of ``batches``, for which loaders of ``rows``
    rows were asked ``asked(n)`` times."""
    looked, found = RepeatedInputs(), {}
    for step in range(1, steps + 1):
        x = next(batches)
        data = Fetched(batches=asked(step), rows_in_all=rows)
        if looked.compares(step, data.batches):
            call = record_call(MODEL, (x,), {}, None)
            found[step] = dict(looked.step(step, inputs_of((x,), {}), [call], data))
    return {step: each for step, each in found.items() if each}


def drawn(rows: int = 4) -> Tensor:
    return torch.randn(rows, 3)


def new_until(step: int) -> Iterator[Tensor]:
    """Another batch in each step up to ``step``, and that one from then on."""
    x = drawn()
    for _ in range(step):
        x = drawn()
        yield x
    while True:
        yield x


@pytest.mark.parametrize(("last", "seen"), [(5, 32), (60, 80), (150, 176)])
def test_a_batch_that_stays_after_others_is_stuck(last: int, seen: int) -> None:
    found = rows(new_until(last), steps=seen)
    assert found[seen]["stuck-batch:tensors"] >= 16
    assert not any("stuck-batch:tensors" in each for step, each in found.items() if step <= last)


def test_equal_values_in_new_tensors_are_stuck_too() -> None:
    found = rows((x.clone() for x in new_until(60)), steps=96)
    assert found[96]["stuck-batch:values"] >= 16


def test_the_last_batch_of_a_loader_that_ended() -> None:
    found = rows(new_until(60), steps=96, asked=lambda step: int(step <= 60), rows=240)
    assert [name for name in found[96] if name.startswith("stuck")] == ["stuck-batch:tensors"]


def test_a_batch_from_the_first_step_on_is_not_stuck() -> None:
    found = rows(new_until(1), steps=96)
    assert {name for each in found.values() for name in each} == {"same-batch:tensors"}


def test_rows_of_updates_on_each_batch_are_intended() -> None:
    def held(updates: int) -> Iterator[Tensor]:
        while True:
            x = drawn()
            yield from [x] * updates

    assert not any(name.startswith("stuck") for each in rows(held(20), steps=400).values() for name in each)
    assert not any(name.startswith("stuck") for each in rows(held(40), steps=400).values() for name in each)


def test_other_sizes_are_another_phase() -> None:
    def then_all() -> Iterator[Tensor]:
        for _ in range(60):
            yield drawn()
        whole = drawn(64)
        while True:
            yield whole

    assert not any(name.startswith("stuck") for each in rows(then_all(), steps=200).values() for name in each)


def test_later_steps_are_compared_in_pairs() -> None:
    looked = RepeatedInputs()
    assert [step for step in range(49, 100) if looked.compares(step, 1)] == [49, 64, 65, 80, 81, 96, 97]
