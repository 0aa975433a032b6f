"""What each cause sees in a case, and what it does not see in a healthy one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from signature_cases import HALF, HEALTHY, SICK

from steadytrain.core.incident import Finding, Located, OperandRange, Phase
from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause import CERTAIN, STRONG
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments.case import Case
from steadytrain.testing import steps
from trial_cases import finite_case

CAUSES = causes()


def case_of(facts: dict[str, Any], symptom: str = "loss-spike", **changed: Any) -> Case:
    seen = Symptom(symptom, "warning", 90, 92, f"{symptom} was seen", tensors=("layers.1.weight",))
    known = {name: value for name, value in {**HEALTHY, **facts}.items() if value is not None}
    return finite_case(symptom=seen, symptoms=(seen,), facts=known, **changed)


def first(case: Case) -> str:
    suspects = [Suspect(name, cause, cause.signature(case)) for name, cause in CAUSES.items()]
    return next(iter(weigh(suspects, ())))


@pytest.mark.parametrize("name", SICK)
def test_its_own_fault_puts_it_first(name: str) -> None:
    facts, symptom = SICK[name]
    assert first(case_of(facts, symptom)) == name


@pytest.mark.parametrize(
    ("symptom", "name"),
    [
        ("foreign-gradients", "missing-zero-grad"),
        ("uniform-code", "uniform-noise"),
        ("unequal-reductions", "loss-function-misuse"),
        ("frozen-adapters", "frozen-parameters"),
        ("separate-orders", "label-misalignment"),
        ("constant-penalty", "detached-graph"),
        ("stale-casts", "stale-casts"),
        ("contradictory-targets", "shared-inputs"),
        ("equal-inputs", "equal-inputs"),
        ("shrinking-clip", "clip-limit-too-low"),
        ("dominant-decay", "weight-decay-misuse"),
        ("overlap-of-logits", "loss-function-misuse"),
    ],
)
def test_a_symptom_that_a_script_shows_points_at_its_cause(symptom: str, name: str) -> None:
    assert first(case_of({}, symptom)) == name


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ("a ReLU made the predictions, which are not below 0", "bounded-output"),
        ("a binary cross-entropy takes targets between 0 and 1", "infeasible-target"),
    ],
)
def test_an_activation_that_bounds_the_predictions(made: str, name: str) -> None:
    case = case_of({"targets_out_of_reach": 0.4}, "unreachable-targets")
    assert case.symptom is not None
    symptom = replace(case.symptom, message=f"40% of the targets cannot be reached: {made}")
    assert first(replace(case, symptom=symptom, symptoms=(symptom,))) == name


def test_a_gradient_that_fades_over_padding_is_not_cut() -> None:
    frozen, padded = case_of({}, "frozen-parameters"), case_of({}, "read-padding")
    assert frozen.symptom is not None
    assert padded.symptom is not None
    rounding = replace(frozen.symptom, numbers={"rounding_share": 3e-8})
    assert first(replace(frozen, symptom=rounding, symptoms=(rounding,))) == "detached-graph"
    assert first(replace(frozen, symptom=padded.symptom, symptoms=(rounding, padded.symptom))) == "read-padding"


def test_an_operation_that_prepares_the_inputs_is_a_fault_of_the_data_and_no_shift_of_them() -> None:
    facts, symptom = SICK["amplifying-operation"]
    made = {**facts["amplified"][0], "before_model": False}
    of_data, of_loss = case_of(facts, symptom), case_of({**facts, "amplified": [made]}, symptom)
    cause, shift = CAUSES["amplifying-operation"], CAUSES["data-shift"]
    assert [cause.signature(case).axis for case in (of_data, of_loss)] == ["data", ""]
    assert shift.signature(of_data).weight < 0 < shift.signature(of_loss).weight
    assert "its divisor fell to 0.0001" in cause.signature(of_data).signs[0].what
    small = {**made, "divisor": 1e-4, "divisor_before": 1e-4, "divisor_usual": 33.0}
    what = cause.signature(case_of({**facts, "amplified": [small]}, symptom)).signs[0].what
    assert what.endswith("it divides by numbers down to 0.0001, where 33 is usual")
    assert cause.signature(case_of({}, symptom)).ruled_out


@pytest.mark.parametrize(("since", "is_sign"), [(11, True), (None, True), (60, True), (30, False)])
def test_an_optimizer_made_anew_long_before_lost_no_state(since: int | None, is_sign: bool) -> None:
    """It was made in step ``since``; the onset is step 190. A count that it does not explain stays a sign."""
    seen = Symptom("update-norm-spike", "warning", 190, 192, "seen")
    lag = {11: 11, None: 29, 60: 30, 30: 29}[since]
    case = finite_case(symptom=seen, symptoms=(seen,), onset=190, facts={**HEALTHY, "state_step_lag": lag})
    case = replace(case, environment={**case.environment, "optimizer_since": since})
    signs = CAUSES["stale-optimizer-state"].signature(case).signs
    assert any("has counted" in sign.what for sign in signs) is is_sign


@pytest.mark.parametrize("name", CAUSES)
def test_a_healthy_survey_breaks_no_rule(name: str) -> None:
    """Facts of a sound run, whatever was raised: no rule is broken and nothing is certain."""
    for symptom in ("loss-spike", "divergence", "no-learning"):
        signature = CAUSES[name].signature(case_of({}, symptom))
        assert signature.broken_invariant is None
        assert signature.broken_equivalence is None


@pytest.mark.parametrize("name", CAUSES)
def test_without_a_survey_nothing_is_broken_and_nothing_is_raised(name: str) -> None:
    signature = CAUSES[name].signature(finite_case())
    assert signature.broken_invariant is None


def test_a_run_without_a_symptom_and_a_sound_survey_is_unknown() -> None:
    case = replace(case_of({}), symptom=None, symptoms=())
    assert first(case) == "unknown"


@pytest.mark.parametrize("name", CAUSES)
def test_a_signature_is_a_function_of_the_case(name: str) -> None:
    facts, symptom = SICK.get(name, ({}, "loss-spike"))
    case = case_of(facts, symptom)
    assert CAUSES[name].signature(case) == CAUSES[name].signature(case)


def located(operation: str, dtype: str = "torch.float32") -> Finding:
    operand = OperandRange("self", (3,), dtype, "cpu", 0.0, 1.0, zeros=1)
    where = Located(
        "forward", operation, "inf", "layers.1", "train.py", 7, "x.log()", (operand,), (), "the loss", "traced"
    )
    return Finding(where, "found")


@pytest.mark.parametrize(
    ("operation", "dtype", "facts", "name"),
    [
        ("aten.log.default", "torch.float32", {}, "singular-operation"),
        ("aten.sqrt.default", "torch.float32", {}, "singular-operation"),
        ("aten.div.Tensor", "torch.float32", {}, "singular-operation"),
        ("aten.mm.default", "torch.float16", {**HALF, "half_peak": 0.9}, "half-precision-overflow"),
        ("aten._softmax.default", "torch.float32", {"fully_masked_rows": 2}, "fully-masked-attention"),
    ],
)
def test_the_first_bad_operation_tells(operation: str, dtype: str, facts: dict[str, Any], name: str) -> None:
    case = case_of(facts, "nonfinite-loss", finding=located(operation, dtype))
    assert first(case) == name
    assert CAUSES[name].signature(case).layer == "layers.1"


@pytest.mark.parametrize("phase", ["loss", "forward"])
def test_an_operation_of_the_loss_or_of_the_whole_model_lies_in_no_layer(phase: Phase) -> None:
    """The first tensor whose gradient it broke is named by the symptom, and is no place to look."""
    found = located("aten.div.Tensor")
    assert found.located is not None
    outside = replace(found, located=replace(found.located, phase=phase, module=""))
    case = case_of({}, "nonfinite-loss", finding=outside)
    assert CAUSES["singular-operation"].signature(case).layer is None


@pytest.mark.parametrize(
    ("first_difference", "name"), [(90, "hardware-fault"), (89, "hardware-fault"), (82, None)], ids=str
)
def test_a_fault_that_a_replay_leaves_out_came_from_outside(first_difference: int, name: str | None) -> None:
    facts = {
        "replay_exact": False,
        "first_difference": {"step": first_difference, "phase": "forward", "tensor": "loss"},
    }
    case = case_of(facts, "nonfinite-loss", finding=located("aten.native_layer_norm.default"))
    assert (first(case) == "hardware-fault") is (name is not None)
    assert not any(sign.weight >= CERTAIN for sign in CAUSES["singular-operation"].signature(case).signs)


def test_a_rate_that_jumped_points_at_the_rate() -> None:
    case = case_of({}, "divergence")
    window = case.window
    rates = window.signals["learning_rate"].copy()
    rates[88:] *= 30
    jumped = replace(case, window=replace(window, signals={**window.signals, "learning_rate": rates}))
    assert first(jumped) == "learning-rate-too-high"


def test_rows_that_stand_out_are_named() -> None:
    case = case_of({"rows_suspect": [3, 5], "loss_excess": 9.0})
    assert CAUSES["bad-batch"].signature(case).batch_rows == (3, 5)


@pytest.mark.parametrize(
    ("facts", "rule_broken"),
    [
        ({"compiled_difference": 1e5, "compiled_rounding": 3.0}, True),
        ({"compiled_difference": 1e4, "compiled_rounding": 5e3}, False),
        ({"compiled_difference": 1e5}, False),
        ({"compiled_difference": 12.0, "compiled_rounding": 1.0}, False),
    ],
    ids=["no rounding", "as much as its own rounding", "no control", "rounding"],
)
def test_compiled_code_is_held_against_the_rounding_of_the_model(facts: dict[str, Any], rule_broken: bool) -> None:
    signature = CAUSES["compiled-code-mismatch"].signature(case_of({"compiled": ["net"], **facts}, "plateau"))
    assert (signature.broken_equivalence is not None) is rule_broken


CUT = {"parameters_without_gradient": ["a", "b"], "detached_calls": ["m.py:4: x.detach()"]}


@pytest.mark.parametrize(
    ("facts", "rule_broken", "proven"),
    [
        ({}, False, False),
        ({"parameters_cut_off": ["a"]}, True, False),
        ({"parameters_cut_off": ["a"], "cut_off_moves_output": 0.0}, False, False),
        ({"parameters_cut_off": ["a"], "cut_off_moves_output": 0.02}, True, True),
        ({"parameters_cut_off": ["a"], "parameters_not_in_optimizer": ["a", "b"]}, False, False),
        ({"modules_output_detached": ["c"]}, False, False),
    ],
    ids=["a detach elsewhere", "behind the cut", "output stays", "output moves", "nobody's", "another module"],
)
def test_a_cut_is_one_that_the_parameters_lie_behind(facts: dict[str, Any], rule_broken: bool, proven: bool) -> None:
    """A detached number for a log says nothing of a layer that is not used."""
    signature = CAUSES["detached-graph"].signature(case_of({**CUT, **facts}, "no-learning"))
    assert (signature.broken_invariant is not None) is rule_broken
    assert (signature.broken_equivalence is not None) is proven


@pytest.mark.parametrize(
    ("facts", "rule_broken"),
    [
        ({"frozen_share": 1.0}, True),
        ({"frozen_share": 0.999, "parameter_dtypes": {"float32": 1}, "update_ratio": None}, True),
        ({"frozen_share": 0.999, "parameter_dtypes": {"float32": 64}}, False),
        ({"frozen_share": 0.999, "parameter_dtypes": {"float32": 64}, "update_ratio": None}, False),
    ],
    ids=["all", "all but a bias", "adapters", "all biases"],
)
def test_a_base_may_be_frozen_by_design(facts: dict[str, Any], rule_broken: bool) -> None:
    signature = CAUSES["frozen-parameters"].signature(case_of({"parameters_frozen": ["a"], **facts}, "plateau"))
    assert (signature.broken_invariant is not None) is rule_broken


@pytest.mark.parametrize(
    ("ratios", "name"),
    [((0.5, 1e-5), "missing-warmup"), ((1e-5, 1e-5), "bad-initialization")],
    ids=["training took them apart", "apart from the first step on"],
)
def test_what_training_took_apart_was_not_begun_so(ratios: tuple[float, float], name: str) -> None:
    facts = {"surveyed_first_step": 1, "gradient_ratio": ratios[0], "gradient_ratio_last": ratios[1]}
    case = case_of({**facts, "warmup_seen": False}, "vanishing-gradients")
    weights = {one: CAUSES[one].signature(case).weight for one in ("missing-warmup", "bad-initialization")}
    assert max(weights, key=lambda one: weights[one]) == name


@pytest.mark.parametrize(
    ("facts", "speaks"),
    [
        ({"repeated_rows": 0.48}, False),
        ({"repeated_rows": 0.48, "surveyed_rows": 1700, "dataset_rows": 1500}, False),
        ({"repeated_rows": 0.3, "surveyed_rows": 1400, "dataset_rows": 1500}, False),
        ({"repeated_rows": 0.7, "surveyed_rows": 1400, "dataset_rows": 1500}, True),
    ],
    ids=["a small data set", "more than an epoch", "drawn with replacement", "within an epoch"],
)
def test_rows_of_a_small_data_set_come_again(facts: dict[str, Any], speaks: bool) -> None:
    signature = CAUSES["repeated-data"].signature(case_of(facts, "dead-units"))
    assert any(sign.weight > 0 for sign in signature.signs) is speaks


@pytest.mark.parametrize(("share", "rule_broken"), [(26 / 27, False), (20 / 27, True)], ids=["one batch", "some"])
def test_one_batch_in_every_step_is_meant_so(share: float, rule_broken: bool) -> None:
    """All data at once, as with graphs."""
    case = replace(case_of({"repeated_batches": share, "surveyed_steps": 27}), symptom=None, symptoms=())
    assert (CAUSES["repeated-data"].signature(case).broken_invariant is not None) is rule_broken


def test_a_head_that_is_trained_alone_is_meant_so_until_something_is_raised() -> None:
    case = case_of({"parameters_not_in_optimizer": ["body.weight"]}, "frozen-parameters")
    cause = CAUSES["parameters-not-in-optimizer"]
    assert cause.signature(case).broken_invariant is not None
    assert cause.signature(replace(case, symptom=None, symptoms=())).broken_invariant is None


@pytest.mark.parametrize(
    ("facts", "rule_broken"),
    [
        ({"repeated_after": 1}, False),
        ({"repeated_after": 1, "workers": 4}, True),
        ({"repeated_after": 8}, True),
    ],
    ids=["two updates on a batch", "workers that read the same", "drawn again"],
)
def test_a_batch_that_comes_twice_in_a_row_is_meant_so(facts: dict[str, Any], rule_broken: bool) -> None:
    case = case_of({"repeated_batches": 0.5, "surveyed_steps": 27, **facts}, "plateau")
    assert (CAUSES["repeated-data"].signature(case).broken_invariant is not None) is rule_broken


@pytest.mark.parametrize(("burst_at", "share"), [(None, "more"), (620, "less"), (400, "more")], ids=str)
def test_units_that_die_of_a_burst_are_its_scar(burst_at: int | None, share: str) -> None:
    died = Symptom("dead-units", "critical", 624, 688, "units died")
    burst = Symptom("loss-spike", "note", burst_at or 0, 630, "it spiked")
    seen = (died,) if burst_at is None else (died, burst)
    case = replace(case_of({"dead_units": {"a": 1.0}}), symptom=died, symptoms=seen, onset=624)
    assert (CAUSES["dead-units"].signature(case).weight > STRONG) is (share == "more")


@pytest.mark.parametrize("ago", [0, 4, 12, 40])
def test_a_rate_that_leapt_for_a_moment_is_seen_from_readings_that_come_late(ago: int) -> None:
    case = case_of({}, "dead-units")
    rates = case.window.signals["learning_rate"].copy()
    rates[90 - ago - 1 : 90 - ago + 2] *= 100
    window = replace(case.window, signals={**case.window.signals, "learning_rate": rates})
    signs = CAUSES["learning-rate-too-high"].signature(replace(case, window=window)).signs
    assert any("times as high" in sign.what for sign in signs) is (ago <= 12)


def test_parameters_without_a_gradient_have_none() -> None:
    symptom = Symptom("frozen-parameters", "warning", 1, 96, "no gradient", tensors=("stem.weight",))
    facts = {**HEALTHY, "parameters_without_gradient": ["stem.weight"], "warmup_seen": False}
    case = replace(finite_case(), symptom=symptom, symptoms=(symptom,), onset=1).with_facts(facts)
    said = [sign.what for sign in CAUSES["frozen-parameters"].signature(case).signs]
    assert "every parameter is trainable and has a gradient" not in said
    assert CAUSES["missing-warmup"].signature(case).ruled_out


def test_an_optimizer_without_gradients_is_cut_off_whatever_the_survey_saw_of_the_others() -> None:
    case = case_of({"parameters_without_gradient": []}, "optimizer-without-gradients")
    signature = CAUSES["detached-graph"].signature(case)
    assert not signature.ruled_out
    assert max(sign.weight for sign in signature.signs) >= CERTAIN
    assert CAUSES["detached-graph"].signature(case_of({"parameters_without_gradient": []}, "no-learning")).ruled_out


@pytest.mark.parametrize(("growing", "ruled_out"), [(False, True), (True, False)], ids=["at once", "after growth"])
def test_a_value_that_is_not_finite_at_once_is_no_rate_that_is_too_high(growing: bool, ruled_out: bool) -> None:
    """A 0/0 comes out of the blue, and a lower rate only reaches it later; steps that overshoot grow first."""
    loss = 1.0 + 0.1 * np.random.default_rng(0).standard_normal(40)
    loss[30:] *= 2.0 ** (growing * np.arange(10))
    seen = Symptom("nonfinite-loss", "critical", 41, 41, "the loss is NaN")
    case = finite_case(symptom=seen, symptoms=(seen,), window=steps(loss=loss, gradient_norm=loss))
    signs = CAUSES["learning-rate-too-high"].signature(case).signs
    assert any("neither loss nor gradients grew" in sign.what for sign in signs) is ruled_out


@pytest.mark.parametrize(("factor", "ruled_out"), [(1.55, True), (30.0, False)])
def test_a_rate_that_is_half_as_high_again_makes_no_nan_at_once(factor: float, ruled_out: bool) -> None:
    """Scripts scale their rate by the length of each batch; that alone overflows nothing from one step to the next."""
    loss = 1.0 + 0.1 * np.random.default_rng(0).standard_normal(40)
    rate = np.full(40, 1e-3)
    rate[-1] *= factor
    seen = Symptom("nonfinite-loss", "critical", 41, 41, "the loss is NaN")
    window = steps(loss=loss, gradient_norm=loss, learning_rate=rate)
    case = finite_case(symptom=seen, symptoms=(seen,), window=window, onset=41, step=41)
    assert bool(CAUSES["learning-rate-too-high"].signature(case).ruled_out) is ruled_out


def test_a_gradient_that_is_rounding_is_a_cut_and_no_collapse_of_the_router() -> None:
    found = Symptom("frozen-parameters", "warning", 1, 128, "rounding", numbers={"rounding_share": 2e-8})
    facts = {"parameters_without_gradient": [], "router_share": {"router": 2.8}, "router_balanced": False}
    case = replace(case_of(facts, "no-learning"), symptoms=(found,))
    assert not CAUSES["detached-graph"].signature(case).ruled_out
    assert CAUSES["router-collapse"].signature(case).ruled_out
    assert not CAUSES["router-collapse"].signature(case_of(facts, "no-learning")).ruled_out


def test_a_schedule_that_begins_anew_at_a_resume_is_no_stale_state() -> None:
    numbers = {"loaded": 0.005, "highest": 0.03}
    found = Symptom("incomplete-resume", "warning", 1, 1, "the count of its schedule", numbers=numbers)
    case = replace(case_of({"scheduler": None}, "no-learning"), symptoms=(found,))
    signature = CAUSES["scheduler-misstep"].signature(case)
    assert not signature.ruled_out
    assert max(sign.weight for sign in signature.signs) >= CERTAIN
    said = [sign.what for sign in CAUSES["stale-optimizer-state"].signature(case).signs]
    assert not any("schedule" in one for one in said)


def test_moments_of_another_parameter_are_a_state_that_was_permuted() -> None:
    for numbers, is_certain in (({"moments": 4.0}, True), ({"moments": 4.0, "schedule": 9.0}, False)):
        found = Symptom("incomplete-resume", "warning", 1, 1, "the order has changed", numbers=numbers)
        case = replace(case_of({}, "no-learning"), symptoms=(found,))
        said = [sign for sign in CAUSES["stale-optimizer-state"].signature(case).signs if sign.weight >= CERTAIN]
        assert any("moments of another one" in sign.what for sign in said) is is_certain
