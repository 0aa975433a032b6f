"""Inputs in raw units: the fact, the cause, and when its trial applies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steadytrain.core.model import Symptom  # noqa: E402
from steadytrain.diagnosis.cause_catalog import causes  # noqa: E402
from steadytrain.experiments.case import Case  # noqa: E402
from steadytrain.experiments.judging import judge  # noqa: E402
from steadytrain.experiments.specs import NotApplicable, Outcome  # noqa: E402
from steadytrain.experiments.trial_catalog import plan_of, trial  # noqa: E402
from steadytrain.survey.input_facts import Batches  # noqa: E402
from trial_cases import finite_case, made  # noqa: E402


def scale_of(*given: Any) -> dict[str, Any] | None:
    batches = Batches()
    for one in given:
        batches.called(1, (one,), {})
    found: dict[str, Any] | None = batches.finish().get("input_scale")
    return found


def test_the_features_of_the_first_input_are_measured() -> None:
    raw = torch.tensor([[1.0, -3000.0, 2.0], [-1.0, 3000.0, 2.0]])
    assert scale_of(raw, 1e6 * raw) == {"largest": 3000.0, "middle": 2.0, "feature": 1, "features": 3}
    images = torch.ones(2, 3, 4, 4) * torch.tensor([1.0, 2.0, 255.0]).reshape(3, 1, 1)
    assert scale_of(images) == {"largest": 255.0, "middle": 2.0, "feature": 2, "features": 3}


def test_ids_and_broken_inputs_have_no_scale() -> None:
    assert scale_of(torch.ones(2, 3, dtype=torch.long)) is None
    assert scale_of(torch.full((2, 3), float("nan"))) is None


def case_of(largest: float | None, onset: int = 12) -> Case:
    symptom = Symptom("nonfinite-loss", "critical", onset, onset, "the loss is Inf")
    scale = {"largest": largest, "middle": 2.0, "feature": 1, "features": 3}
    facts = {} if largest is None else {"input_scale": scale}
    return finite_case(symptom=symptom, symptoms=(symptom,), onset=onset, step=onset, facts=facts)


def test_only_inputs_that_are_not_scaled_speak_for_the_cause() -> None:
    cause = causes()["input-scale"]
    raw, usual, unknown = (cause.signature(case_of(largest)) for largest in (2900.0, 1.2, None))
    assert raw.weight > 0
    assert any("feature 1 of the input is 2.9e+03" in sign.what for sign in raw.signs)
    assert max(usual.weight, unknown.weight) < -5
    assert cause.signature(case_of(2900.0, onset=900)).weight < raw.weight


@pytest.mark.parametrize(("largest", "onset", "why"), [(1.2, 12, "usual scale"), (2900.0, 900, "long after")])
def test_the_trial_applies_to_trial_startss_of_raw_inputs(largest: float, onset: int, why: str) -> None:
    plan = plan_of(trial("scale-inputs"), case_of(largest, onset))
    assert isinstance(plan, NotApplicable)
    assert why in plan.why
    (spec,) = tuple(plan_of(trial("scale-inputs"), case_of(2900.0)))  # type: ignore[arg-type]
    assert spec.begin is None


def small_case(largest: float, *names: str) -> Case:
    symptoms = tuple(Symptom(name, "note", 1, 90, "seen") for name in names)
    stands = Symptom("no-learning", "warning", 1, 90, "the loss stands")
    return replace(case_of(largest, 1), symptom=stands, symptoms=(stands, *symptoms))


def test_inputs_that_were_divided_twice_speak_for_it_where_no_norm_scales_them() -> None:
    cause = causes()["input-scale"]
    twice = cause.signature(small_case(0.0012, "unscaled-inputs"))
    assert (twice.ruled_out, twice.weight > 2) == (False, True)
    assert cause.signature(small_case(0.008, "unscaled-inputs")).weight < twice.weight
    assert cause.signature(small_case(0.0012)).ruled_out  # a norm scales them: no look found them small
    assert cause.signature(small_case(0.0, "unscaled-inputs")).ruled_out
    assert not isinstance(plan_of(trial("scale-inputs"), small_case(0.0012)), NotApplicable)
    for largest in (0.0, 0.2):
        assert isinstance(plan_of(trial("scale-inputs"), small_case(largest)), NotApplicable)


def test_from_the_script_s_start_its_losses_compare_although_the_first_ones_differ() -> None:
    case = small_case(0.0012, "unscaled-inputs")
    flat, falls = [1.0] * 40, [1.3, *(1.2 * 0.9**step for step in range(39))]
    control, one = (
        replace(run, spec=replace(run.spec, begin=None)) for run in ran("unchanged", flat, "scale-inputs", falls)
    )
    assert trial("scale-inputs").judge(case, [control], [one]).effect == "removed"
    assert judge("longer-warmup", case, [control], [one]).effect == "inconclusive"


def ran(first: str, losses: list[float], second: str, others: list[float]) -> tuple[Outcome, Outcome]:
    return made(first, losses, [], begin=0), made(second, others, [], begin=0)
