"""What is a number, what is nothing, what is text."""

from __future__ import annotations

import math

import pytest

from steadytrain.logs.numerals import NotANumberError, number_of, numbers_of


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("3.5", 3.5),
        (" 1e-05 ", 1e-5),
        ("1,234", 1234.0),
        ('"1,234,567.5"', 1234567.5),
        ("'0.25'", 0.25),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("+inf", math.inf),
        ("tensor(2.5, device='cuda:0')", 2.5),
        ("tensor([2.5])", 2.5),
    ],
)
def test_numbers(cell: str, value: float) -> None:
    assert number_of(cell) == value


@pytest.mark.parametrize("cell", ["nan", "NaN", "-nan", "NAN", "nan(ind)", "tensor(nan)"])
def test_nan_was_logged(cell: str) -> None:
    value = number_of(cell)
    assert value is not None
    assert math.isnan(value)


@pytest.mark.parametrize("cell", ["", " ", "None", "null", "-", "N/A", "<NA>"])
def test_nothing_was_logged(cell: str) -> None:
    assert number_of(cell) is None


@pytest.mark.parametrize("cell", ["abc", "1,23", "12:30:01", "1.2.3", "2024-01-01", "x" * 1000])
def test_text(cell: str) -> None:
    with pytest.raises(NotANumberError):
        number_of(cell)


def test_a_column_of_cells() -> None:
    values, present, text = numbers_of(["1", "", "nan", "no", "2,000"])
    assert present.tolist() == [True, False, True, False, True]
    assert values[[0, 4]].tolist() == [1.0, 2000.0]
    assert math.isnan(values[2])
    assert text == [3]
