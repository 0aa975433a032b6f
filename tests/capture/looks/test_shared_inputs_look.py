"""Equal inputs with different targets, and what only looks like them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from steadytrain.capture.looks.shared_inputs import SharedInputs, input_keys  # noqa: E402

DRAW = torch.Generator().manual_seed(0)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=DRAW)


def labels(count: int, kinds: int = 10) -> Tensor:
    return torch.randint(kinds, (count,), generator=DRAW)


def looked(*batches: tuple[Any, Tensor], squared: bool = False) -> dict[str, float]:
    shared, found = SharedInputs(), {}
    for inputs, targets in batches:
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        likelihoods = [] if squared else [SimpleNamespace(targets=targets)]
        graph: Any = SimpleNamespace(likelihoods=likelihoods, squared=[targets] if squared else [])
        call: Any = SimpleNamespace(args=given, kwargs={})
        found = dict(shared.rows([("train.py:9", graph, call)]))
    return found


def share(*batches: tuple[Any, Tensor], squared: bool = False) -> float | None:
    return looked(*batches, squared=squared).get("other-target:train.py:9")


def test_rows_of_one_buffer_and_rows_of_a_cache_that_collides() -> None:
    one = numbers(1, 40).expand(64, 40).clone()
    assert share((one, labels(64))) == 1.0
    kept = numbers(20, 3, 8, 8)
    found = looked(*((kept[torch.arange(32) % 20], labels(32)) for _ in range(4)))
    assert found["other-target:train.py:9"] > 0.9
    assert found["different-inputs:train.py:9"] == 20.0
    assert found["compared-inputs:train.py:9"] == 128.0


def test_numbers_are_compared_within_a_batch_alone() -> None:
    """A value function has another target for the same state in a later step."""
    kept = numbers(64, 40)
    batches = [(kept, numbers(64)) for _ in range(4)]
    assert share(*batches, squared=True) == 0.0
    found = looked(*batches, squared=True)
    assert (found["different-inputs:train.py:9"], found["compared-inputs:train.py:9"]) == (64.0, 256.0)


def test_targets_that_are_numbers_differ_by_more_than_a_tenth_of_their_spread() -> None:
    kept, targets = numbers(16, 40).repeat(8, 1), numbers(16).repeat(8)
    assert share((kept, targets), squared=True) == 0.0
    assert share((kept, targets + 1e-3 * numbers(128)), squared=True) == 0.0
    assert share((kept, numbers(128)), squared=True) == 1.0
    assert share((kept, numbers(128, 1)), squared=True) == 1.0


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [
        (numbers(128, 40), labels(128)),
        (numbers(64, 40).repeat(2, 1), labels(64).repeat(2)),  # the same rows with their own labels, in a second epoch
        ((numbers(32, 40).repeat(4, 1), torch.arange(4).repeat_interleave(32)), labels(128)),  # with a question each
        (torch.cat([torch.zeros(100, 40), numbers(28, 40)]), labels(128)),  # empty rows
    ],
    ids=["other inputs", "the same targets", "a second input", "empty rows"],
)
def test_rows_that_are_sound(inputs: Any, targets: Tensor) -> None:
    assert not share((inputs, targets))


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [
        (torch.randint(2, (128, 40), generator=DRAW).float(), labels(128)),  # codes
        (labels(128 * 12).view(128, 12), labels(128)),  # tokens
        (numbers(128, 4), labels(128)),  # a few features
        (numbers(128, 12, 16), labels(128 * 12)),  # a target for each place of a sequence
        (numbers(128, 40), labels(128 * 12).view(128, 12)),
        (numbers(128, 40).to_sparse(), labels(128)),
        (numbers(1, 40), labels(1)),
        (numbers(8, 40).repeat(16, 1), torch.randperm(128, generator=DRAW)),  # places in the batch
        ((), labels(8)),
    ],
)
def test_what_is_not_compared(inputs: Any, targets: Tensor) -> None:
    assert share((inputs, targets)) is None


def test_a_few_rows_say_nothing() -> None:
    assert share((numbers(1, 40).expand(32, 40), labels(32))) is None


def test_rows_that_differ_in_one_number_or_in_the_order_of_two_are_different() -> None:
    row = numbers(1, 4096)
    one, two = row.clone(), row.clone()
    one[0, 777] += 1e-6
    two[0, [3, 4]] = row[0, [4, 3]]
    keys = input_keys((torch.cat([row, one, two, row]),), {}, 4)
    assert keys is not None
    assert len(set(keys.tolist())) == 3
    assert keys[0] == keys[3]


def test_the_generator_of_the_script_stays_where_it_is() -> None:
    before = torch.random.get_rng_state()
    input_keys((numbers(8, 33),), {}, 8)
    assert torch.equal(torch.random.get_rng_state(), before)
