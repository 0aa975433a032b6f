"""What is kept in a fixed size says what all of it would say."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from steadytrain.checks.data.checks.repeated_ngrams import LENGTH_MAX, REPEATS_MIN, repeats
from steadytrain.checks.data.data_check import Ragged
from steadytrain.checks.data.seen_rows import Seen, digests_of
from steadytrain.checks.data.spread import Spread


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=20), min_size=1, max_size=20))
def test_first_rows_are_those_of_a_dictionary(blocks: list[list[int]]) -> None:
    seen, first = Seen(64), dict[int, int]()
    number = 0
    for block in blocks:
        rows = np.arange(number, number + len(block))
        found = seen.first_rows(digests_of([bytes([value]) for value in block]), rows)
        for row, value, where in zip(rows.tolist(), block, found.tolist(), strict=True):
            assert where == first.get(value, -1)
            first.setdefault(value, row)
        number += len(block)
    assert seen.kept == len(first)
    assert seen.without_place == 0


def test_a_full_table_says_how_many_found_no_place() -> None:
    seen = Seen(64)
    digests = digests_of([str(number).encode() for number in range(100)])
    assert (seen.first_rows(digests, np.arange(100)) == -1).all()
    assert seen.kept + seen.without_place == 100
    assert seen.without_place >= 36
    again = seen.first_rows(digests, np.arange(100, 200))
    assert (again >= 0).sum() == seen.kept


@settings(max_examples=60)
@given(
    st.integers(1, LENGTH_MAX),
    st.integers(REPEATS_MIN - 2, REPEATS_MIN + 8),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 2**31),
)
def test_a_span_is_found_wherever_it_lies_and_only_if_long_enough(
    length: int, times: int, before: int, after: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    gram = rng.permutation(1000)[:length]
    span = np.tile(gram, times)
    row = np.concatenate([rng.integers(1000, 10**6, before), span, rng.integers(1000, 10**6, after)])
    found = repeats(Ragged.of([rng.integers(1000, 10**6, 50), row, row[:-1] if after else row[: before + length]]))
    assert (1 in found) == (times >= REPEATS_MIN)
    assert 0 not in found
    if times >= REPEATS_MIN:
        assert found[1] == (before, length, times)


def test_a_span_does_not_go_over_the_end_of_a_row() -> None:
    assert not repeats(Ragged.of([np.full(REPEATS_MIN // 2, 7)] * 4))


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=300), st.floats(0.01, 0.99))
def test_quantiles_are_right_to_a_bin(values: list[int], share: float) -> None:
    spread = Spread()
    for begin in range(0, len(values), 50):
        spread.add(np.array(values[begin : begin + 50], np.int64))
    exact = np.quantile(values, share, method="inverted_cdf")
    assert abs(np.log2(spread.quantile(share) / exact)) <= 1 / 16
    assert spread.largest == max(values)
