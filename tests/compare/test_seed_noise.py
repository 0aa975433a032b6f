"""Groups of runs against the noise of seeds: too few, none, a real one, and how often it errs."""

from __future__ import annotations

import numpy as np
import pytest

from steadytrain.compare.seed_noise import Noise, seed_noise, tail_mean, tail_steps
from steadytrain.core.model import Series


def group(values: list[float], *, seeds: str = "seed ") -> dict[str, float]:
    return {f"{seeds}{at}": value for at, value in enumerate(values)}


def compared(left: list[float], right: list[float], *, paired: bool) -> Noise:
    return seed_noise("left", "right", group(left), group(right, seeds="seed " if paired else "other "))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("paired", [True, False])
def test_with_too_few_runs_nothing_is_claimed(count: int, paired: bool) -> None:
    answer = compared([1.0] * count, [5.0] * count, paired=paired)
    assert answer.verdict == "cannot-tell"
    assert answer.interval is None
    assert answer.p is None


def test_what_seeds_do_to_both_sides_is_taken_out_by_pairs() -> None:
    left, right = [1.0, 2.0, 3.0, 4.0], [1.11, 2.09, 3.10, 4.12]
    assert compared(left, right, paired=False).verdict == "no-difference"
    answer = compared(left, right, paired=True)
    assert (answer.verdict, answer.method) == ("differ", "paired")
    assert answer.difference == pytest.approx(0.105)


def test_the_numbers_of_a_worked_example() -> None:
    answer = compared([20.4, 24.2, 15.4, 21.4, 20.2], [20.2, 16.9, 18.5, 17.3, 20.5], paired=False)
    # By hand: means 20.32 and 18.68, variances 10.102 and 2.722, so a standard error of 1.60150.
    assert answer.difference == pytest.approx(-1.64)
    assert answer.interval is not None
    assert sum(answer.interval) / 2 == pytest.approx(-1.64)
    assert answer.p is not None
    assert 0.34 < answer.p < 0.37
    assert answer.runs_needed is not None
    assert answer.runs_needed > 5


def test_runs_without_any_noise() -> None:
    assert compared([1.0] * 3, [1.0] * 3, paired=True).verdict == "no-difference"
    assert compared([1.0] * 3, [2.0] * 3, paired=True).verdict == "differ"
    assert compared([1.0] * 3, [2.0] * 3, paired=False).verdict == "differ"


@pytest.mark.long
@pytest.mark.parametrize("paired", [True, False])
def test_groups_that_do_not_differ_are_told_apart_one_time_in_twenty(paired: bool) -> None:
    draw = np.random.default_rng(0)
    errors = sum(
        compared(list(draw.normal(size=4)), list(draw.normal(size=4)), paired=paired).verdict == "differ"
        for _ in range(1000)
    )
    assert 20 <= errors <= 75  # 50 expected, Welch's test is a little shy with so few


def test_rearrangements_are_counted() -> None:
    assert compared([1.0, 2.0, 3.0], [10.0, 11.0, 12.0], paired=False).p_rearranged == pytest.approx(2 / 20)
    assert compared([1.0, 2.0, 3.0], [10.0, 11.5, 12.0], paired=True).p_rearranged == pytest.approx(2 / 8)


def test_the_tail_is_where_all_runs_have_been() -> None:
    long, short = (Series(np.arange(1, n + 1), np.arange(n, dtype=float)) for n in (1000, 400))
    assert tail_steps([long, short]) == (361, 400)
    assert tail_mean(short, (361, 400)) == pytest.approx(379.5)
    assert tail_steps([long, Series(np.arange(2000, 2010), np.zeros(10))]) is None
    assert tail_mean(Series(np.array([400]), np.array([np.nan])), (361, 400)) is None


def test_three_runs_a_side_cannot_show_that_nothing_differs() -> None:
    found = compared([1.0, 1.1, 1.2], [1.1, 1.2, 1.3], paired=False)
    assert found.verdict == "cannot-tell"
    assert found.runs_needed is not None
    assert f"about {found.runs_needed} runs a side would" in found.why
    assert compared([1.0, 1.1, 1.2, 1.0], [1.1, 1.2, 1.3, 0.9], paired=False).verdict == "no-difference"


def test_runs_that_all_end_with_the_same_loss_have_no_noise_of_rounding() -> None:
    loss = next(one for one in (0.1 + step / 997 for step in range(997)) if np.array([one] * 3).var(ddof=1) > 0)
    found = seed_noise("old", "new", dict.fromkeys("abc", loss), dict.fromkeys("xyz", loss))
    assert found.verdict == seed_noise("old", "new", dict.fromkeys("abc", 0.5), dict.fromkeys("xyz", 0.5)).verdict
    assert found.interval == (0.0, 0.0)
