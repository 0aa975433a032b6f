"""What a forked copy of the process answers."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

from steadytrain.trial_runs.process_copy import ProcessCopy, measure_in_copy


@pytest.mark.parametrize("number", [0.25, math.inf, None])
def test_the_number_of_a_copy_arrives_also_if_it_has_none(number: float | None) -> None:
    copied = measure_in_copy()
    if isinstance(copied, ProcessCopy):
        copied.answer(number)  # ends the copy
    assert copied.number == number
