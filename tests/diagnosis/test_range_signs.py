"""Numbers that half precision cannot tell from 0, and inputs that no usual rate suits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from signature_cases import HALF
from test_signatures import case_of, first, located

from steadytrain.core.incident import OperandRange
from steadytrain.diagnosis.cause_catalog import causes

CAUSES = causes()


@pytest.mark.parametrize(("smallest", "zeros", "is_half_first"), [(1.8e-7, 0, True), (0.5, 0, False), (0.0, 1, True)])
def test_a_divisor_that_half_precision_hardly_tells_from_zero(smallest: float, zeros: int, is_half_first: bool) -> None:
    """No value has to be large for it, so a small peak does not speak against it."""
    found = located("aten.div.Tensor", "torch.float16")
    assert found.located is not None
    other = OperandRange("other", (3,), "torch.float16", "cpu", smallest, 1.0, zeros=zeros)
    found = replace(found, located=replace(found.located, inputs=(*found.located.inputs, other)))
    case = case_of({**HALF, "half_peak": 0.0002}, "nonfinite-gradient", finding=found)
    signs = [sign.what for sign in CAUSES["half-precision-overflow"].signature(case).signs]
    assert any("0.0002 of what it holds" in one for one in signs) is False or not is_half_first
    assert any("hardly tells from 0" in one for one in signs) is (is_half_first and not zeros)


def test_inputs_of_hundreds_come_before_the_rate_that_does_not_suit_them() -> None:
    scale = {"largest": 447.0, "middle": 405.0, "feature": 1, "features": 3}
    facts = {"input_scale": scale, "update_ratio_first_median": 8.8, "warmup_seen": False}
    assert first(case_of(facts, "nonfinite-loss")) == "input-scale"
