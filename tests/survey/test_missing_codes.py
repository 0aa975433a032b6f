"""Codes for missing values among measurements."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from steadytrain.survey.missing_codes import filled, missing_codes  # noqa: E402


def measured(**places: float) -> Tensor:
    values = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    for at, value in enumerate(places.values()):
        values[at : at + 3, at] = value
    return values


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (measured(a=-999.0), [-999.0]),
        (measured(a=1e20), [1.0e20]),
        (measured(a=-61.5, b=-48.25), [-61.5, -48.25]),  # two columns, each standardised by itself
    ],
)
def test_a_code_is_found_and_filled(values: Tensor, codes: list[float]) -> None:
    assert missing_codes(values) == pytest.approx(codes)
    known: set[float] = set()
    other = filled(values, known)
    assert float(other.abs().max()) < 5.0
    kept = values.abs() < 10
    assert torch.equal(other[kept], values[kept])
    alone = torch.tensor([0.5, float(values.abs().max()) * (-1 if codes[0] < 0 else 1), 0.25])
    assert torch.equal(filled(alone, known), torch.tensor([0.5, 0.25, 0.25]))


@pytest.mark.parametrize(
    "values",
    [
        measured(),
        torch.tensor([0.045, -0.003, 0.002, 0.001]).repeat(128, 1),  # one row, again and again
        measured(a=8.0),  # limited, not coded
        torch.cat([measured(), torch.full((1, 4), 0.0).index_fill(1, torch.tensor([2]), 900.0)]),  # one outlier
        torch.zeros(8, 8).index_fill(1, torch.tensor([3]), -1e9),  # a mask
        torch.tensor([1.0, -999.0, -999.0]),  # too few others
        torch.full((32,), torch.nan),
        torch.arange(32),
    ],
)
def test_what_is_no_code(values: Tensor) -> None:
    assert missing_codes(values) == []
    assert filled(values, set()) is values
