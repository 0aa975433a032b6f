"""Ids that were held by a 16-bit float."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from steadytrain.capture.looks.rounded_ids import rounded_rows  # noqa: E402


def ids(largest: int = 9000) -> Tensor:
    return torch.randint(0, largest, (64, 32), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("dtype", "row"), [(torch.float16, "ids-in-float16"), (torch.bfloat16, "ids-in-bfloat16")])
def test_ids_that_were_cast(dtype: torch.dtype, row: str) -> None:
    [(name, count)] = rounded_rows([torch.arange(40), ids().to(dtype).long()])
    assert name == row
    assert count >= 24


@pytest.mark.parametrize(
    "given",
    [
        ids(),
        ids(2000).half().long(),  # float16 holds all of them
        2 * ids(4000),  # given out in steps of two
        torch.arange(4096),
        ids()[:1],  # too few
        torch.zeros(0, dtype=torch.long),
    ],
)
def test_ids_that_were_not(given: Tensor) -> None:
    assert not list(rounded_rows([given]))
