"""A momentum that is too high and gradients that nothing clips, apart from the rate that looks the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.signs import LEADS, burst_of_gradient, momentum_of
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import NotApplicable, Verdict
from steadytrain.experiments.trial_catalog import trial
from steadytrain.testing.windows import table
from trial_cases import finite_case

CAUSES = causes()
FACTS = {"optimizer": "SGD", "learning_rate": 0.1, "clipped": False, "update_ratio_median": 0.001}


def case_of(facts: dict[str, Any], symptom: str | None = "divergence") -> Case:
    seen = Symptom(symptom or "", "critical", 90, 92, "it was seen")
    symptoms = (seen,) if symptom else ()
    return finite_case(symptom=seen if symptom else None, symptoms=symptoms, facts={**FACTS, **facts})


def order(case: Case, *verdicts: Verdict) -> list[str]:
    return list(weigh([Suspect(name, cause, cause.signature(case)) for name, cause in CAUSES.items()], verdicts))


def test_a_momentum_far_above_the_usual_comes_before_the_rate() -> None:
    found = order(case_of({"momentum": 0.99}), Verdict("momentum-lower", "removed", why="so it was"))
    assert found.index("momentum-too-high") < found.index("learning-rate-too-high")
    (said,) = [
        sign.what
        for sign in CAUSES["momentum-too-high"].signature(case_of({"momentum": 0.99})).signs
        if "is" in sign.what
    ][:1]
    assert said == "the momentum is 0.99: a step is 0.1 / (1 - 0.99) = 10 long"


@pytest.mark.parametrize(
    ("facts", "symptom"),
    [
        ({"momentum": 0.9}, "divergence"),
        ({"betas": [0.9, 0.999]}, "divergence"),
        ({"momentum": 0.99}, None),
        ({}, "divergence"),
    ],
    ids=["usual", "usual beta1", "nothing went wrong", "no momentum"],
)
def test_a_momentum_is_innocent(facts: dict[str, Any], symptom: str | None) -> None:
    assert CAUSES["momentum-too-high"].signature(case_of(facts, symptom)).ruled_out


def test_beta1_is_the_momentum_of_adam() -> None:
    assert momentum_of(case_of({"betas": [0.99, 0.999], "momentum": 0.0})) == 0.99


def _with(case: Case, **signals: list[float]) -> Case:
    window = case.window
    held = {name: values.copy() for name, values in window.signals.items()}
    for name, values in signals.items():
        held[name][88 : 88 + len(values)] = values
    return replace(case, window=replace(window, signals=held))


CLIFF = {"gradient_norm": [5.0, 40.0, 300.0], "loss": [2.0, 4.0, 30.0]}
OVERSHOT = {"gradient_norm": [1.0, 2.0, 4.0], "loss": [8.0, 32.0, 128.0]}


def test_a_gradient_leads_its_loss_at_a_cliff_and_not_where_steps_overshoot() -> None:
    assert burst_of_gradient(_with(case_of({}), **CLIFF))[1] > LEADS
    assert not burst_of_gradient(_with(case_of({}), **OVERSHOT))[1] > LEADS


def test_a_gradient_that_leaps_off_a_cliff_lacked_a_clip() -> None:
    effects = [Verdict(name, "removed", why="so") for name in ("clip-usual", "learning-rate-third")]
    found = order(_with(case_of({}), **CLIFF), *effects, Verdict("drop-batch", "persists", why="so"))
    assert found[0] == "unclipped-gradients"
    overshot = order(_with(case_of({"update_ratio_median": 0.2}), **OVERSHOT), *effects)
    assert overshot[0] == "learning-rate-too-high"


def test_where_gradients_are_clipped_no_clip_is_lacking() -> None:
    assert CAUSES["unclipped-gradients"].signature(_with(case_of({"clipped": True}), **CLIFF)).ruled_out


def test_the_usual_clip_leaves_nine_in_ten_steps_as_they_were() -> None:
    plan = trial("clip-usual").plan(_with(finite_case(), gradient_norm=[5.0, 50.0]))
    assert not isinstance(plan, NotApplicable)
    assert plan[0].changes[0].values["max_norm"] == pytest.approx(0.5)
    assert np.isfinite(plan[0].changes[0].values["max_norm"])


@pytest.mark.parametrize(
    ("epsilon", "symptom", "broken"),
    [(0.0, "nonfinite-weight", True), (0.0, "divergence", False), (1e-8, "nonfinite-weight", False)],
    ids=["zero", "zero where everything stays finite", "usual"],
)
def test_an_epsilon_of_zero_is_at_fault_where_a_value_is_not_finite(epsilon: float, symptom: str, broken: bool) -> None:
    case = case_of({"epsilon": epsilon, "epsilon_lost": False, "second_moment_below_epsilon": 0.0}, symptom)
    signature = CAUSES["optimizer-epsilon-underflow"].signature(case)
    assert (signature.broken_invariant is not None) is broken
    assert signature.ruled_out is not broken


@pytest.mark.parametrize(("format_", "said"), [("float16", True), ("bfloat16", False), ("float32", False)])
def test_float16_rounds_a_usual_epsilon_to_zero(format_: str, said: bool) -> None:
    facts = {"epsilon": 1e-8, "epsilon_lost": said, "state_dtypes": {f"torch.{format_}": 8}}
    facts |= {"update_beyond_rate": {"layer.weight": 1e5}, "second_moment_below_epsilon": 0.9}
    signs = CAUSES["optimizer-epsilon-underflow"].signature(case_of(facts, "nonfinite-weight")).signs
    whats = [sign.what for sign in signs if sign.weight > 0]
    assert any("which float16, the format of the moments, rounds to 0" in what for what in whats) is said
    assert any(what.endswith("second moment, float16") for what in whats) is said


@pytest.mark.parametrize(
    ("facts", "symptom", "speaks"),
    [
        ({"dropout": 0.95, "label_smoothing": 0.0}, "no-learning", True),
        ({"dropout": 0.0, "label_smoothing": 0.6}, "plateau", True),
        ({"dropout": 0.5, "label_smoothing": 0.1}, "no-learning", False),
        ({"dropout": 0.95, "label_smoothing": 0.0}, None, False),
    ],
    ids=["dropout", "smoothing", "usual", "nothing went wrong"],
)
def test_regularization_is_too_strong_where_nothing_is_learned(
    facts: dict[str, Any], symptom: str | None, speaks: bool
) -> None:
    signature = CAUSES["regularization-too-strong"].signature(case_of(facts, symptom))
    assert signature.ruled_out is not speaks


LONG = {"batch_length": 12.5, "loss_excess": 6e5, "batch_scale": 1.0, "target_scale": 2.0}
HIDDEN = [Verdict(name, "removed", why="so") for name in ("drop-batch", "fresh-data", "clip-usual")]


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        (LONG, "unclipped-gradients"),
        ({**LONG, "batch_length": 1.0}, "bad-batch"),
        ({**LONG, "batch_scale": 900.0}, "bad-batch"),
        ({**LONG, "clipped": True}, "bad-batch"),
    ],
    ids=["long rows", "rows of the usual length", "long rows of strange values", "long rows, clipped"],
)
def test_a_rare_batch_of_long_rows_lacked_a_clip_and_a_damaged_one_is_a_bad_batch(
    facts: dict[str, Any], first: str
) -> None:
    case = _with(case_of(facts), gradient_norm=[5.0, 4000.0, 300.0], loss=[2.0, 4.0, 30.0])
    assert order(case, *HIDDEN)[0] == first


@pytest.mark.parametrize(
    ("facts", "symptom", "broken"),
    [
        ({"epsilon": 1e-30, "update_beyond_rate": {"Linear.weight": 1e5}}, "divergence", True),
        ({"epsilon": 1e-30, "update_beyond_rate": {"Linear.weight": 1e5}}, None, False),
        ({"epsilon": 1e-30}, "divergence", False),
    ],
    ids=["weights that ran", "nothing went wrong", "small, and no weight ran"],
)
def test_an_epsilon_far_too_small_is_known_by_updates_beyond_the_rate(
    facts: dict[str, Any], symptom: str | None, broken: bool
) -> None:
    case = case_of({"epsilon_lost": False, "second_moment_below_epsilon": 0.0, **facts}, symptom)
    signature = CAUSES["optimizer-epsilon-underflow"].signature(case)
    assert (signature.broken_invariant is not None) is broken
    assert signature.ruled_out is not broken


@pytest.mark.parametrize(
    ("rates", "first"),
    [([3e-3, 8e-3, 2e-2], "learning-rate-too-high"), ([1e-3, 1e-3, 1e-3], "unclipped-gradients")],
    ids=["the schedule raised it", "constant"],
)
def test_a_gradient_that_leaps_where_the_schedule_raised_the_rate_is_the_rates(rates: list[float], first: str) -> None:
    worked = ("clip-usual", "learning-rate-tenth", *(["constant-learning-rate"] if rates[0] != rates[1] else []))
    effects = [Verdict(name, "removed", why="so") for name in worked]
    spared = [Verdict(name, "persists", why="so") for name in ("drop-batch", "fresh-data")]
    case = _with(case_of({"scheduler": "CyclicLR"}), **CLIFF, learning_rate=rates)
    assert order(case, *effects, *spared)[0] == first
    if first == "learning-rate-too-high":
        (jump,) = [one.what for one in CAUSES[first].signature(case).signs if "CyclicLR" in one.what]
        assert jump.endswith("by its schedule (CyclicLR)")


ADAM = {"optimizer": "Adam", "betas": [0.9, 0.999], "warmup_seen": False}


def first_steps(facts: dict[str, Any]) -> Case:
    seen = Symptom("divergence", "critical", 2, 12, "the loss rises")
    case = finite_case(symptom=seen, symptoms=(seen,), facts={**FACTS, **facts})
    return replace(case, onset=2, step=12, begins=(0, 1), taped=((1, 12),))


def test_no_warm_up_helps_where_each_update_replaces_the_weights() -> None:
    """A rate a thousand times too high: a warm-up seems to help, because the trial ends soon after it."""
    warmed = Verdict("longer-warmup", "removed", why="so it was")
    far = order(first_steps({**ADAM, "update_ratio_first": 14.0, "update_ratio_first_median": 9.0}), warmed)
    assert far.index("learning-rate-too-high") < far.index("missing-warmup")
    near = order(first_steps({**ADAM, "update_ratio_first": 0.2, "update_ratio_first_median": 0.05}), warmed)
    assert near.index("missing-warmup") < near.index("learning-rate-too-high")
    # Without a second moment the first update is as long as its gradient, and a warm-up may do.
    plain = {"warmup_seen": False, "update_ratio_first_median": 9.0}
    said = [sign.what for sign in CAUSES["missing-warmup"].signature(first_steps(plain)).signs]
    assert not any("whenever it comes" in one for one in said)


@pytest.mark.parametrize(
    ("ratio", "why"),
    [(9.0, None), (0.3, None), (0.05, "a hundredth of the rate is enough"), (None, "was not measured")],
)
def test_a_thousandth_of_the_rate_is_tried_where_the_first_update_replaces_the_weights(
    ratio: float | None, why: str | None
) -> None:
    plan = trial("learning-rate-thousandth").plan(first_steps({"update_ratio_first_median": ratio}))
    if why is None:
        assert not isinstance(plan, NotApplicable)
        assert plan[0].begin == 0
        assert [one.values["factor"] for one in plan[0].changes] == [0.001]
    else:
        assert isinstance(plan, NotApplicable)
        assert why in plan.why


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (lambda step: 1e-5 * step, True),
        (lambda step: 1e-5 * 1.02**step, True),
        (lambda step: 1e-3, False),
        (lambda step: 1e-5 * min(step, 60), False),
        (lambda step: 1e-3 * (1 + step / 1000), False),
        (lambda step: 1e-5 * step * (1 + 0.5 * (step % 2)), False),
    ],
    ids=["a warm-up without end", "growing by a share", "constant", "a warm-up that ended", "hardly", "up and down"],
)
def test_a_rate_that_grows_up_to_the_onset_is_said(rate: Callable[[int], float], told: bool) -> None:
    case = case_of({})
    values = [rate(step) for step in range(1, len(case.window) + 1)]
    window = replace(case.window, signals={**case.window.signals, "learning_rate": np.array(values)})
    signs = CAUSES["learning-rate-too-high"].signature(replace(case, window=window)).signs
    said = [one for one in signs if "grows in every step" in one.what]
    assert bool(said) == told
    assert all(one.numbers["rise"] > 1.5 for one in said)


@pytest.mark.parametrize(("joined_at", "told"), [(89, True), (82, True), (60, False), (95, False)])
def test_parameters_that_joined_right_before_the_onset_are_said(joined_at: int, told: bool) -> None:
    case = case_of({})
    assert case.onset == 90
    rows = table("script", at=[1, joined_at], value={"joined-parameters:main": [None, 38.0]})
    window = replace(case.window, tables={"script": rows})
    signs = CAUSES["learning-rate-too-high"].signature(replace(case, window=window)).signs
    said = [one.what for one in signs if "joined the optimizer" in one.what]
    assert bool(said) == told
    assert all(one.startswith(f"38 parameters joined the optimizer at step {joined_at}") for one in said)


def test_updates_are_long_beside_weights_that_vanished_by_their_decay() -> None:
    gone = Symptom("vanishing-weights", "warning", 1, 92, "8 of 15 weight tensors have lost nine tenths of their norm")
    facts = {"optimizer": "Adam", "betas": [0.9, 0.999], "weight_decay": 0.1, "update_ratio_median": 0.4}
    coupled = {**facts, "decay_is_l2": True, "decay_share_of_update": 1.0}
    case = replace(case_of(coupled), symptoms=(gone, *case_of(coupled).symptoms))
    found = order(case)
    assert found.index("weight-decay-misuse") < found.index("learning-rate-too-high")
    said = [sign.what for sign in CAUSES["weight-decay-misuse"].signature(case).signs]
    assert any("AdamW does not" in one for one in said)
    usual = CAUSES["weight-decay-misuse"].signature(case_of({**coupled, "weight_decay": 1e-4}))
    assert not any("AdamW does not" in one.what for one in usual.signs)


@pytest.mark.parametrize(("name", "begin"), [("vanishing-weights", None), ("divergence", 64)])
def test_weights_that_vanished_are_tried_from_the_beginning(name: str, begin: int | None) -> None:
    plan = trial("weight-decay-none").plan(replace(case_of({}, name), begins=(64,), taped=((65, 92),)))
    assert not isinstance(plan, NotApplicable)
    assert plan[0].begin == begin


@pytest.mark.parametrize(("onset", "known"), [(7, False), (60, True)])
def test_in_the_first_steps_no_gradient_is_usual(onset: int, known: bool) -> None:
    """A run that overshoots from its start leaps, too."""
    window = finite_case().window
    held = {name: values.copy() for name, values in window.signals.items()}
    held["gradient_norm"][onset - 1 :] = 1e9
    seen = Symptom("nonfinite-loss", "critical", onset, onset, "it was seen")
    case = replace(case_of({}), symptom=seen, symptoms=(seen,), onset=onset, window=replace(window, signals=held))
    assert math.isfinite(burst_of_gradient(case)[0]) is known
