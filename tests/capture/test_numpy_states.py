"""The state of NumPy's global generator, read only if it may have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from steadytrain.capture.step.numpy_states import NumpyStates


@pytest.fixture(autouse=True)
def _state_of_the_process() -> Iterator[None]:
    before = np.random.get_state(legacy=False)
    np.random.seed(3)
    yield
    np.random.set_state(before)


def plain(state: Any) -> tuple[Any, ...]:
    words = state["state"]
    return state["bit_generator"], words["key"].tobytes(), words["pos"], state["has_gauss"], state["gauss"]


DRAWS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "one number": lambda: np.random.rand(),
    "a whole round of words": lambda: np.random.rand(312),
    "a permutation": lambda: np.random.permutation(10),
    "half a pair": lambda: np.random.randn(),
    "a pair": lambda: np.random.randn(2),
    "a seed": lambda: np.random.seed(7),
    "the same seed": lambda: np.random.seed(3),
}


@pytest.mark.parametrize("second", DRAWS)
@pytest.mark.parametrize("first", DRAWS)
def test_a_state_is_the_one_that_numpy_tells(first: str, second: str) -> None:
    states = NumpyStates()
    states.take()
    for draw in (DRAWS[first], DRAWS[second], DRAWS[first], DRAWS["nothing"], DRAWS[second]):
        draw()
        assert plain(states.take()) == plain(np.random.get_state(legacy=False))


def test_without_a_draw_the_state_is_not_read_again() -> None:
    states = NumpyStates()
    one = states.take()
    assert states.take() is one
    np.random.rand()
    assert states.take() is not one


def test_a_state_that_was_returned_stays_as_it_was() -> None:
    states = NumpyStates()
    one = states.take()
    before = plain(one)
    np.random.rand(700)
    states.take()
    assert plain(one) == before


def test_another_kind_of_generator_is_read_in_full() -> None:
    states = NumpyStates()
    states.take()
    earlier = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(5))
    try:
        assert states.take()["bit_generator"] == "PCG64"
        np.random.rand()
        assert states.take()["state"] == np.random.get_state(legacy=False)["state"]
    finally:
        np.random.set_bit_generator(earlier)
    assert states.take()["bit_generator"] == "MT19937"
