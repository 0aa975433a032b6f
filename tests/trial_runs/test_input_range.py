"""Inputs that are brought back to what earlier ones were, and when that is tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from steadytrain.core.errors import UsageError
from steadytrain.experiments.specs import Change, NotApplicable
from steadytrain.experiments.trial_catalog import trial
from steadytrain.trial_runs.changes import make
from trial_cases import CALM, FLAT, HURT, SPIKE, finite_case, made

ONSET = 90
CHANCE = torch.Generator().manual_seed(0)
USUAL = torch.rand(64, 3, generator=CHANCE) * torch.tensor([1.0, 10.0, 100.0]) + 5.0


def given(change: Any, value: Tensor, step: int | None, role: str = "train") -> Tensor:
    process: Any = SimpleNamespace(role=role)
    other = change.call(process, step, 0, (value,), {})
    result: Tensor = value if other is None else other[0][0]
    return result


def change(how: str) -> Any:
    made_change = make(Change("inputs-as-before", {"step": ONSET, "how": how}))
    for step in range(ONSET - 3, ONSET):
        assert given(made_change, USUAL, step) is USUAL
    return made_change


def test_other_units_are_scaled_back() -> None:
    one = change("scale")
    back = given(one, USUAL * 255, ONSET)
    assert torch.allclose(back, USUAL, rtol=1e-4)
    assert torch.allclose(given(one, USUAL[:7] * 255, ONSET + 1), USUAL[:7], rtol=1e-4)  # by the first batch's numbers
    assert one.touched == 2


def test_codes_for_missing_values_are_limited() -> None:
    one = change("range")
    holes = USUAL.clone()
    holes[3, 1] = -9999.0
    back = given(one, holes, ONSET)
    assert float(back[3, 1]) == float(USUAL[:, 1].min())
    holes[3, 1] = back[3, 1]
    assert torch.equal(back, holes)


def test_inputs_like_earlier_ones_stay_as_they_are() -> None:
    one = change("scale")
    assert given(one, USUAL[:9], ONSET) is not None
    assert torch.equal(given(one, USUAL[:9], ONSET), USUAL[:9])
    assert torch.equal(given(one, USUAL, 12, role="probe"), USUAL)
    assert one.touched == 0


def test_a_probe_on_a_batch_of_the_script_itself_is_mended_too() -> None:
    assert torch.allclose(given(change("scale"), USUAL * 255, 12, role="probe"), USUAL, rtol=1e-4)


def test_it_has_two_ways() -> None:
    with pytest.raises(UsageError, match="one of scale, range"):
        make(Change("inputs-as-before", {"step": 3, "how": "median"}))


def test_it_is_tried_if_inputs_moved() -> None:
    one = trial("inputs-as-before")
    plan = one.plan(finite_case(facts={"data_shift": 833.0}))
    assert not isinstance(plan, NotApplicable)
    assert [spec.changes[0].values for spec in plan] == [{"step": ONSET, "how": how} for how in ("scale", "range")]
    for case in (finite_case(), finite_case(facts={"data_shift": 833.0}, begins=(), taped=())):
        assert isinstance(one.plan(case), NotApplicable)


def test_the_way_that_mends_is_the_one_that_is_told() -> None:
    one, case = trial("inputs-as-before"), finite_case(facts={"data_shift": 833.0}, begins=(86,))
    scaled, limited = (made("inputs-as-before", *seen) for seen in ((SPIKE, HURT), (CALM, FLAT)))
    limited = type(limited)(**{**vars(limited), "spec": type(limited.spec)(**{**vars(limited.spec), "repeat": 1})})
    control = made("unchanged", SPIKE, HURT)
    verdict = one.judge(case, [control], [scaled, limited])
    assert (verdict.effect, verdict.why.startswith("with the inputs within their earlier range")) == ("removed", True)
    assert one.judge(case, [control], [scaled]).effect == "persists"
