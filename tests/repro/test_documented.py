"""Values that are documented behaviour get a note for the own project; all others a draft of a bug report."""

from __future__ import annotations

from typing import Any

import pytest

from steadytrain.core.incident import OperandRange
from steadytrain.repro.documented import BY_OPERATION, PLAIN, documented


def facts(*operations: str, produced: str = "NaN", backend: str | None = None, **operand: Any) -> dict[str, Any]:
    one = OperandRange("x0", (1,), **{"dtype": "torch.float32", "smallest": 1.0, "largest": 2.0, **operand})
    return {"operations": list(operations), "produced": produced, "backend": backend, "inputs": [one.to_json()]}


@pytest.mark.parametrize(
    "given",
    [
        facts("aten.div.Tensor", zeros=1, smallest=0.0),
        facts("aten.div.Tensor", produced="+Inf"),
        facts("aten.log.default", smallest=0.0, zeros=1, produced="-Inf"),
        facts("aten.log1p.default", smallest=-1.0),
        facts("aten.sqrt.default", smallest=-3.0),
        facts("aten.exp.default", largest=90.0, produced="+Inf"),
        facts("aten.exp.default", largest=12.0, dtype="torch.float16", produced="+Inf"),
        facts("aten.nll_loss_forward.default"),
        facts("aten.log.default", "aten.where.self", smallest=0.0),
    ],
)
def test_an_operation_outside_its_domain_is_no_bug(given: dict[str, Any]) -> None:
    found = documented(given)
    assert found is not None
    assert found.instead


@pytest.mark.parametrize(
    "given",
    [
        facts("aten.div.Tensor"),
        facts("aten.log.default"),
        facts("aten.log1p.default", smallest=-0.5),
        facts("aten.sqrt.default", smallest=0.5),
        facts("aten.exp.default", largest=12.0, produced="+Inf"),
        facts("aten.mm.default", produced="+Inf"),
        facts("aten.div.Tensor", "aten.mm.default", zeros=1),
        facts("aten.div.Tensor", zeros=1, backend="inductor"),
    ],
)
def test_a_value_inside_the_domain_or_of_compiled_code_may_be_one(given: dict[str, Any]) -> None:
    assert documented(given) is None


def test_what_carries_a_value_on_does_not_make_it() -> None:
    assert not PLAIN & set(BY_OPERATION)
