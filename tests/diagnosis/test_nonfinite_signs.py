"""Signs of a value that is not finite: who made it, and whether anything grew before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import builders
from steadytrain.core.incident import Finding, OperandRange
from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause import CERTAIN
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.guarded_operations import decomposition_of
from steadytrain.diagnosis.signs import calm_before
from steadytrain.experiments.case import Case
from trial_cases import finite_case, window

ONSET = 90
MADE = {"operation": "div", "line": "train.py:41: adv / adv.std()", "step": ONSET, "made": "NaN"}


def nan_case(losses: list[float] | None = None, norms: list[float] | None = None, **facts: Any) -> Case:
    symptom = Symptom("nonfinite-loss", "critical", ONSET, ONSET, "the loss is NaN")
    usual = [2.0 + 0.01 * (-1) ** step for step in range(ONSET)]
    seen = window(losses or usual, gradient_norm=0.5)
    if norms is not None:
        seen = replace(seen, signals={**seen.signals, "gradient_norm": np.array(norms)})
    return finite_case(symptom=symptom, symptoms=(symptom,), onset=ONSET, step=ONSET, window=seen, facts=facts)


def test_a_run_that_neither_rose_nor_grew_was_calm() -> None:
    assert calm_before(nan_case())


@pytest.mark.parametrize(
    "case",
    [
        nan_case(losses=[2.0 + 0.01 * (-1) ** step + max(0, step - 84) ** 2 for step in range(ONSET)]),
        nan_case(norms=[0.5 * 2.0 ** max(0, step - 84) for step in range(ONSET)]),
        finite_case(),
    ],
    ids=["its loss rose", "its gradient grew", "nothing is infinite"],
)
def test_a_run_that_grew_was_not(case: Case) -> None:
    assert not calm_before(case)


def test_few_steps_say_nothing() -> None:
    case = nan_case()
    assert not calm_before(replace(case, onset=10))


@pytest.mark.parametrize("name", ["missing-warmup", "momentum-too-high"])
def test_long_steps_are_no_cause_where_nothing_grew(name: str) -> None:
    grown = nan_case(norms=[0.5 * 2.0 ** max(0, step - 84) for step in range(ONSET)])
    cause = causes()[name]
    assert cause.signature(nan_case()).weight < cause.signature(grown).weight - 5


def test_the_operation_of_the_script_that_made_it_is_certain() -> None:
    cause = causes()["singular-operation"]
    signs = cause.signature(nan_case(nonfinite_made=[MADE])).signs
    assert any("div makes NaN out of 0 / 0 at step 90: train.py:41" in sign.what for sign in signs)
    earlier = cause.signature(nan_case(nonfinite_made=[{**MADE, "step": 3}])).signs
    assert not any("out of 0 / 0" in sign.what for sign in earlier)


@pytest.mark.parametrize(
    ("samples", "said"), [(1.0, "divided 0 by 0, as the deviation of a single row does"), (None, "divided 0 by 0")]
)
def test_a_division_by_a_number_of_the_script_is_told(samples: float | None, said: str) -> None:
    operands = (OperandRange("self", (), zeros=1, smallest=0.0, largest=0.0), OperandRange("other", text="0"))
    found = replace(builders.located(), operation="aten.div.Tensor", produced="nan", inputs=operands)
    case = replace(nan_case(), finding=Finding(found, "found in the re-run"))
    if samples is not None:
        sizes = np.full(len(case.window), 64.0)
        sizes[case.window.steps == case.step] = samples
        signals = {**case.window.signals, "samples": sizes}
        present = {**case.window.present, "samples": np.ones(len(sizes), np.bool_)}
        case = replace(case, window=replace(case.window, signals=signals, present=present))
    signs = causes()["singular-operation"].signature(case).signs
    assert any(sign.what.endswith(said) for sign in signs)


def test_the_row_and_the_divisor_of_that_operation_are_told() -> None:
    cause, at = causes()["singular-operation"], {**MADE, "rows": [20], "of": 32, "by": "norm"}
    signature = cause.signature(nan_case(nonfinite_made=[at], batch_rows=[{"row": 20}]))
    assert any(
        "in row 20 (its divisor is the norm of a zero vector) at step 90" in sign.what for sign in signature.signs
    )
    assert signature.batch_rows == (20,)
    other = cause.signature(nan_case(nonfinite_made=[at], batch_rows=[]))  # its rows are not the batch's
    assert other.batch_rows == ()


def test_a_number_that_the_script_changed_speaks_against_it() -> None:
    grew = {"kind": "module", "name": "gain", "attribute": "gain", "of": "Attention", "module": "att", "step": 90}
    grew |= {"before": 58.0, "after": 92.0, "each": 1.04}
    case, other = nan_case(settings_changed=[grew], nonfinite_made=[MADE]), causes()["changed-setting"]
    plain = causes()["singular-operation"].signature(nan_case(nonfinite_made=[MADE]))
    assert causes()["singular-operation"].signature(case).weight < plain.weight
    told = "gain of Attention grew by a factor of 1.04 in each step, to 92 at step 90"
    assert any(sign.what == told for sign in other.signature(case).signs)


IGNORED = {
    "operation": "aten.nll_loss_forward.default",
    "produced": "nan",
    "inputs": (
        OperandRange("self", (8, 3), "torch.float32", "cpu", smallest=-2.0, largest=-0.5),
        OperandRange("target", (8,), "torch.int64", "cpu", smallest=-100.0, largest=-100.0),
        OperandRange("ignore_index", text="-100"),
    ),
}


def test_a_mean_over_ignored_targets_is_known_from_the_operation_alone() -> None:
    cause = causes()["no-supervised-tokens"]
    found = Finding(builders.located(**IGNORED), "found")
    (sign,) = [one for one in cause.signature(replace(nan_case(), finding=found)).signs if one.source == "finding"]
    assert (sign.weight, sign.invariant) == (CERTAIN, True)
    some = (IGNORED["inputs"][0], OperandRange("target", (8,), smallest=-100.0, largest=2.0), IGNORED["inputs"][2])
    for other in ({**IGNORED, "inputs": some}, {**IGNORED, "operation": "aten.log.default"}):
        found = Finding(builders.located(**other), "found")
        signs = cause.signature(replace(nan_case(), finding=found)).signs
        assert not [one for one in signs if one.source == "finding"]


@pytest.mark.parametrize(
    ("operation", "produced", "zeros", "said"),
    [
        ("aten.div.Tensor", "nan", (3, 1), "divided 0 by 0"),
        ("aten.div.Tensor", "inf", (0, 1), "divided by 0"),
        ("aten.log.default", "inf", (2, 0), "took the logarithm of 0"),
        ("aten.rsqrt.default", "inf", (2, 0), "took the reciprocal of 0"),
        ("aten.exp.default", "inf", (0, 0), "made it from finite inputs"),
    ],
)
def test_a_singular_operation_says_what_it_did(
    operation: str, produced: str, zeros: tuple[int, int], said: str
) -> None:
    operands = tuple(
        OperandRange(name, (8,), "torch.float32", "cpu", smallest=0.0, largest=1.0, zeros=count)
        for name, count in zip(("self", "other"), zeros, strict=True)
    )
    found = Finding(builders.located(operation=operation, produced=produced, inputs=operands), "found")
    signs = causes()["singular-operation"].signature(replace(nan_case(), finding=found)).signs
    assert next(one for one in signs if one.source == "finding").what.endswith(said)


@pytest.mark.parametrize(
    ("operation", "code", "phase", "range_", "said"),
    [
        ("aten.i0.default", "torch.special.i0(kappa).log()", "forward", (0.1, 91.4), "i0 of 91.4 is beyond"),
        ("aten.exp.default", "x.exp()", "forward", (-354.0, 242.0), "exp of 242 is beyond"),
        ("aten.special_i1.default", "torch.special.i1(x)", "forward", (-95.0, 3.0), "i1 of -95 is beyond"),
        ("aten.mul.Tensor", "y * torch.special.erfcx(z)", "backward", (-9.4, 3e38), "of the derivative of erfcx"),
        ("aten.lgamma.default", "torch.lgamma(r)", "forward", (0.0, 1.0), "has a pole at 0, and got a 0"),
    ],
)
def test_special_functions_say_what_they_did(
    operation: str, code: str, phase: str, range_: tuple[float, float], said: str
) -> None:
    operand = OperandRange("self", (8,), "torch.float32", "cpu", *range_, zeros=int(not range_[0]))
    place = builders.located(operation=operation, code=code, phase=phase, produced="inf", inputs=(operand,))
    signs = causes()["singular-operation"].signature(replace(nan_case(), finding=Finding(place, "found"))).signs
    assert said in next(one for one in signs if one.source == "finding" and one.weight > 0).what


@pytest.mark.parametrize(("shape", "said"), [((1,), "a single number, which is 0/0"), ((8,), "from finite inputs")])
def test_the_deviation_of_a_single_number_is_told(shape: tuple[int, ...], said: str) -> None:
    operand = OperandRange("self", shape, "torch.float32", "cpu", smallest=0.5, largest=0.5)
    found = Finding(builders.located(operation="aten.std.correction", produced="nan", inputs=(operand,)), "found")
    signs = causes()["singular-operation"].signature(replace(nan_case(), finding=found)).signs
    assert next(one for one in signs if one.source == "finding").what.endswith(said)


def found(operation: str, produced: str, *inputs: OperandRange, samples: float = 64.0) -> Case:
    case = nan_case()
    counts = np.full(ONSET, 64.0)
    counts[ONSET - 1] = samples
    seen = replace(
        case.window,
        signals={**case.window.signals, "samples": counts},
        present={**case.window.present, "samples": np.ones(ONSET, bool)},
    )
    located = builders.located(operation=operation, produced=produced, inputs=inputs)
    return replace(case, window=seen, finding=Finding(located, ""))


def singular(case: Case) -> list[str]:
    return [sign.what for sign in causes()["singular-operation"].signature(case).signs if sign.weight > 0]


@pytest.mark.parametrize(("samples", "rows", "told"), [(2.0, 1, True), (2.0, 2, False), (64.0, 1, False)])
def test_a_batch_of_one_row_is_what_a_pass_left_over(samples: float, rows: int, told: bool) -> None:
    operand = OperandRange("self", (rows, 32), "torch.float32", "cpu", -1.0, 1.0)
    signs = singular(found("aten.var.correction", "nan", operand, samples=samples))
    assert any("the last batch of a pass is what is left over" in one for one in signs) is told


def test_without_a_loader_a_single_row_is_no_rest_of_a_pass() -> None:
    operand = OperandRange("self", (1, 1), "torch.float32", "cpu", 0.5, 0.5)
    case = replace(found("aten.std.correction", "nan", operand, samples=4.0), facts={"optimizer": "Adam"})
    told = next(one for one in singular(case) if "single row" in one)
    assert told == (
        "the batch of step 90 is a single row, where 16 are usual: a deviation of one row is 0/0, so a step needs at "
        "least two"
    )
    loader = replace(case, facts={"optimizer": "Adam", "workers": 0})
    assert any("`drop_last=True` leaves it out" in one for one in singular(loader))


@pytest.mark.parametrize(
    ("operation", "operand", "is_one"),
    [
        ("aten.pow.Tensor_Scalar", OperandRange("self", (64, 1), "torch.float32", "cpu", -1e28, 2e27), False),
        ("aten.pow.Tensor_Scalar", OperandRange("self", (64, 1), "torch.float32", "cpu", 0.0, 2.0, zeros=3), True),
        ("aten.exp.default", OperandRange("self", (64, 1), "torch.float32", "cpu", 0.0, 95.0), True),
    ],
)
def test_a_square_of_what_had_overshot_is_no_singular_point(
    operation: str, operand: OperandRange, is_one: bool
) -> None:
    assert bool(singular(found(operation, "inf", operand))) is is_one


INFINITE = OperandRange("self", (), "torch.float32", "cpu", inf=1)
OVER_INFINITE = OperandRange("other", (), "torch.float32", "cpu", inf=1)
HELD = [{"step": ONSET, "input": "2 of the loader's batch", "rows": [11], "count": 1}]


def weight(name: str, case: Case) -> float:
    return causes()[name].signature(case).weight


def test_inf_over_inf_is_no_singular_operation_and_came_with_the_data() -> None:
    case = replace(found("aten.div.Tensor", "nan", INFINITE, OVER_INFINITE), facts={"batch_nonfinite": HELD})
    assert not singular(case)
    signs = causes()["nonfinite-input"].signature(case).signs
    assert not any(sign.weight < 0 for sign in signs)
    assert weight("nonfinite-input", case) > 0 > weight("singular-operation", case)


def test_the_deviation_of_values_with_an_inf_is_no_singular_operation() -> None:
    operand = OperandRange("self", (8,), "torch.float32", "cpu", 0.1, 0.9, inf=1)
    assert not singular(found("aten.std.correction", "nan", operand))


def test_zero_over_zero_beside_an_inf_is_a_singular_operation_of_inputs_that_were_not_finite() -> None:
    zeros = [OperandRange(name, (8,), "torch.float32", "cpu", 0.0, 1.0, zeros=1, inf=1) for name in ("self", "other")]
    assert any("divided 0 by 0" in one for one in singular(found("aten.div.Tensor", "nan", *zeros)))
    logarithm = OperandRange("self", (8,), "torch.float32", "cpu", -1.0, 1.0, inf=1)
    (told,) = singular(found("aten.log.default", "nan", logarithm))
    assert told.endswith("made it from inputs that were not finite")


def test_the_logarithm_of_a_negative_number_is_called_so() -> None:
    (said,) = singular(
        found("aten.log.default", "nan", OperandRange("self", (64,), "torch.float32", "cpu", -0.23, 6.6))
    )
    assert said.endswith("took the logarithm of a negative number (-0.23 at the lowest)")


@pytest.mark.parametrize(("read", "whose"), [("as target", "the targets of the batch"), ("as input", "the batch")])
def test_targets_that_hold_it_are_called_so(read: str, whose: str) -> None:
    why = (
        f"a tensor from before the re-run held NaN: float32 [16], first read by aten.mse_loss.default {read} at a.py:9"
    )
    case = finite_case(finding=Finding(None, why), facts={"batch_nonfinite": HELD})
    first = causes()["nonfinite-input"].signature(case).signs[0].what
    assert first.startswith(f"{whose} held NaN or Inf")


def test_an_operation_of_finite_inputs_speaks_against_the_data() -> None:
    finite = OperandRange("self", (8,), "torch.float32", "cpu", -1.0, 1.0)
    case = replace(found("aten.log.default", "nan", finite), facts={"batch_nonfinite": HELD})
    signs = causes()["nonfinite-input"].signature(case).signs
    assert any("from finite inputs" in sign.what and sign.weight < 0 for sign in signs)


def test_the_division_of_a_derivative_is_told_with_its_operation() -> None:
    zeros = [OperandRange(name, (8,), "torch.float32", "cpu", 0.0, 1.0, zeros=1) for name in ("self", "other")]
    case = found("aten.div.Tensor", "nan", *zeros)
    assert case.finding is not None
    assert case.finding.located is not None
    located = replace(case.finding.located, phase="backward", code="y = torch.log(1 - x.tanh()**2)")
    (told,) = singular(replace(case, finding=Finding(located, "")))
    assert told.endswith("divided 0 by 0, in the derivative of log")


@pytest.mark.parametrize(
    ("operation", "code", "said"),
    [
        ("aten.div.Tensor", "u, s, vt = torch.linalg.svd(h)", "the differences of the squared singular values"),
        ("aten.div_.Tensor", "w, q = torch.linalg.eigh(cov)", "the differences of the eigenvalues"),
        ("aten.linalg_solve_triangular.default", "q, r = torch.linalg.qr(frames)", "the diagonal of R"),
    ],
)
def test_the_derivative_of_a_decomposition_is_named(operation: str, code: str, said: str) -> None:
    located = builders.located(operation=operation, code=code, phase="backward", produced="nan", inputs=())
    case = replace(nan_case(), finding=Finding(located, ""))
    (sign,) = (one for one in causes()["singular-operation"].signature(case).signs if one.source == "finding")
    assert sign.weight == CERTAIN
    assert said in sign.what


def test_what_only_stands_beside_a_decomposition_is_not_its_derivative() -> None:
    forward = builders.located(operation="aten.div.Tensor", code="u, s, v = torch.linalg.svd(h / n)", phase="forward")
    assert decomposition_of(forward) == ""
    two = builders.located(
        operation="aten.div.Tensor", code="torch.linalg.qr(torch.linalg.svd(h)[0])", phase="backward"
    )
    assert decomposition_of(two) == ""


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("aten.div.Tensor", "spread = torch.linalg.eigh(cov)[0].sqrt()"),
        ("aten.mul.Tensor", "y = self.flow.inverse(x) * scale"),
        ("aten.div.Tensor", "y = scaler.solve(x)"),
    ],
)
def test_another_operation_of_the_line_may_be_at_fault(operation: str, code: str) -> None:
    assert decomposition_of(builders.located(operation=operation, code=code, phase="backward")) == ""


def test_a_product_in_the_line_of_a_decomposition_only_overflows() -> None:
    located = builders.located(
        operation="aten.mm.default",
        code="y = torch.linalg.solve(a, b) @ w",
        phase="backward",
        produced="inf",
        inputs=(),
    )
    case = replace(nan_case(), finding=Finding(located, ""))
    assert not [one for one in causes()["singular-operation"].signature(case).signs if one.weight == CERTAIN]
