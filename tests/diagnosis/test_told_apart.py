"""Causes that were once taken for each other, on facts as a survey gave them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import builders
from steadytrain.core.incident import Finding
from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause import CERTAIN, Signature
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.conclusion import Circumstances, conclude
from steadytrain.diagnosis.proof import Control
from steadytrain.diagnosis.script_signs import made_before_model
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments.case import Case
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.specs import Effect, Verdict
from steadytrain.experiments.trial_catalog import trial
from trial_cases import finite_case

CAUSES = causes()


def case_of(facts: dict[str, Any], symptom: str | None, **changed: Any) -> Case:
    seen = Symptom(symptom or "", "warning", 90, 92, f"{symptom} was seen", tensors=("layers.1.weight",))
    symptoms = (seen,) if symptom else ()
    return finite_case(symptom=seen if symptom else None, symptoms=symptoms, facts=facts, **changed)


def order(case: Case) -> list[str]:
    return list(weigh([Suspect(name, cause, cause.signature(case)) for name, cause in CAUSES.items()], ()))


SHIFTED = {"data_shift": 23.3, "batch_distance": 22.7, "token_rows": 96, "uniform_loss": 4.56, "labels_sorted": 2.1}


def _with_a_jump(case: Case, at: int, loss: float) -> Case:
    signals = {name: values.copy() for name, values in case.window.signals.items()}
    signals["loss"][case.window.steps == at] = loss
    return replace(case, window=replace(case.window, signals=signals))


def test_the_same_text_in_other_numbers_is_another_tokenizer_and_not_other_data() -> None:
    numbered = _with_a_jump(case_of({**SHIFTED, "token_overlap": [0.17, 0.96]}, "loss-spike"), 90, 5.79)
    assert order(numbered).index("tokenizer-mismatch") < order(numbered).index("data-shift")
    other = _with_a_jump(case_of({**SHIFTED, "token_overlap": [0.2, 0.7]}, "loss-spike"), 90, 5.79)
    assert order(other)[0] == "data-shift"


@pytest.mark.parametrize(("share", "certain"), [(0.8, False), (1.0, True)])
def test_a_layer_that_is_wholly_dead_is_certain(share: float, certain: bool) -> None:
    signs = CAUSES["dead-units"].signature(case_of({"dead_units": {"mlp.1": share}}, "dead-units")).signs
    assert any(sign.weight >= CERTAIN for sign in signs) is certain


@pytest.mark.parametrize(("shift", "proven"), [(1, True), (2, True), (0, False), (None, False)])
def test_reading_later_tokens_is_a_leak_only_for_who_has_to_tell_them(shift: int | None, proven: bool) -> None:
    """An encoder that tells hidden or tagged tokens may read in both directions."""
    facts = {"causal_gradient": 4.7, "label_shift_trained": shift}
    case = case_of({name: value for name, value in facts.items() if value is not None}, None)
    assert (CAUSES["causal-leak"].signature(case).broken_equivalence is not None) is proven


@pytest.mark.parametrize(("share", "certain"), [(0.6, False), (1.0, True)])
def test_one_expert_that_gets_everything_is_certain(share: float, certain: bool) -> None:
    facts = {"router_share": {"router": share}, "router_experts": {"router": 8}}
    signature = CAUSES["router-collapse"].signature(case_of(facts, "expert-load-collapse"))
    assert signature.layer == "router"
    assert any(sign.weight >= CERTAIN for sign in signature.signs) is certain


@pytest.mark.parametrize(
    ("lines", "symptom", "broken"),
    [(1, "divergence", True), (16, "divergence", False), (1, None, False), (None, "divergence", True)],
    ids=["one line", "a line for each loss", "nothing went wrong", "lines unknown"],
)
def test_losses_that_are_summed_are_a_fault_where_something_went_wrong(
    lines: int | None, symptom: str | None, broken: bool
) -> None:
    facts = {"backwards_per_step": 16.0, "loss_divided": False} | ({"backward_lines": lines} if lines else {})
    signature = CAUSES["accumulation-scaling"].signature(case_of(facts, symptom))
    assert (signature.broken_invariant is not None) is broken


@pytest.mark.parametrize(
    ("facts", "broken"),
    [
        ({"loader_shuffles": False, "labels_sorted": 3.0}, True),
        ({"loader_shuffles": True, "labels_sorted": 9.0, "label_mix_change": 2.0}, False),
        ({"labels_sorted": 9.0, "label_mix_change": 2.0}, False),
        ({"labels_sorted": 9.0, "label_mix_change": 20.0}, True),
        ({"loader_shuffles": False, "labels_sorted": 1.0}, False),
    ],
    ids=["in order", "classes side by side on purpose", "the same with no loader", "no loader, in order", "on disk"],
)
def test_labels_side_by_side_are_an_order_where_the_mix_changes(facts: dict[str, Any], broken: bool) -> None:
    signature = CAUSES["unshuffled-data"].signature(case_of(facts, None))
    assert (signature.broken_invariant is not None) is broken


@pytest.mark.parametrize(
    ("calls", "planned", "broken"), [(1.0, 100, False), (8.0, 100, True), (8.0, 800, False), (8.0, None, False)]
)
def test_a_schedule_that_is_stepped_often_may_be_planned_so(calls: float, planned: int | None, broken: bool) -> None:
    """The run made 100 updates."""
    facts = {"scheduler": "CosineAnnealingLR", "scheduler_steps_per_step": calls, "scheduler_planned": planned}
    known = {name: value for name, value in facts.items() if value is not None}
    signature = CAUSES["scheduler-misstep"].signature(case_of(known, None))
    assert (signature.broken_invariant is not None) is broken


def test_a_second_moment_that_is_behind_is_told_by_what_is_remembered_and_not_by_epsilon() -> None:
    """Outcomes of a run whose gradients grew 140 times, with a beta2 of 0.9999."""
    case = case_of({"second_moment_lag": {"out.weight": 9.0}, "betas": [0.9, 0.9999]}, "second-moment-lag")
    effects: dict[str, Effect] = {
        "unchanged": "persists", "beta2-lower": "removed", "drop-batch": "persists", "epsilon-up": "persists",
        "learning-rate-tenth": "removed", "reset-moments": "persists", "rewarm": "persists",
        "update-clipping": "persists",
    }  # fmt: skip
    everyone = [Suspect(name, cause, cause.signature(case)) for name, cause in CAUSES.items()]
    verdicts = [Verdict(name, effect, why="so it was") for name, effect in effects.items()]
    known = Circumstances("second-moment-lag", Control(True, True, True, "the update grows 7 times"), True, (), "run")
    known = replace(known, contrasts={name: Contrast(name, True, "") for name in effects})
    answer = conclude(everyone, verdicts, known)
    assert answer.verdict == "second-moment-lag"
    assert answer.diagnoses[0].status in ("likely", "confirmed")


def test_the_table_whose_gradient_is_shrunk_is_the_one_that_the_symptom_names() -> None:
    seen = Symptom("embedding-gradient-spike", "warning", 90, 92, "it rose", tensors=("words.weight",))
    case = finite_case(symptom=seen, symptoms=(seen,), facts={"embedding_gradient_share": 0.8})
    plan = trial("embedding-gradient-shrink").plan(case)
    assert isinstance(plan, tuple)
    assert plan[0].changes[0].values["layers"][0] == "words.weight"


def test_a_spike_of_the_embedding_outlives_trials_that_do_not_touch_it() -> None:
    """Outcomes of a run into which tokens came whose rows are almost zero."""
    seen = Symptom("embedding-gradient-spike", "warning", 90, 92, "it rose", tensors=("words.weight",))
    case = finite_case(symptom=seen, symptoms=(seen,), facts={"embedding_gradient_share": 0.8, "update_ratio": 8e-4})
    persists = ("unchanged", "beta2-lower", "drop-batch", "epsilon-up", "learning-rate-tenth", "reset-moments")
    everyone = [Suspect(name, cause, cause.signature(case)) for name, cause in CAUSES.items()]
    belief = weigh(everyone, [Verdict(name, "persists", why="so it was") for name in persists])
    assert next(iter(belief)) == "embedding-gradient-spike"


@pytest.mark.parametrize(
    ("after", "dataset", "broken"), [(16, 256, False), (15, 256, False), (4, 256, True), (16, None, True)]
)
def test_an_epoch_in_the_same_order_repeats_batches_and_means_to(after: int, dataset: int | None, broken: bool) -> None:
    facts = {"repeated_batches": 0.3, "repeated_after": after, "surveyed_steps": 24, "surveyed_rows": 384}
    known = facts | ({"dataset_rows": dataset} if dataset else {})
    signature = CAUSES["repeated-data"].signature(case_of(known, None))
    assert (signature.broken_invariant is not None) is broken


@pytest.mark.parametrize(
    ("rate", "loss", "speaks"),
    [(1.0, 1.0, True), (0.01, 1.0, False), (1.0, 0.05, False)],
    ids=["all the time", "the rate came down", "it was learnt"],
)
def test_short_steps_at_the_end_are_no_sign_where_nothing_went_wrong(rate: float, loss: float, speaks: bool) -> None:
    case = case_of({"update_ratio": 2e-5, "update_ratio_median": 1e-6}, None)
    signals = {name: values.copy() for name, values in case.window.signals.items()}
    for name, share in (("learning_rate", rate), ("loss", loss)):
        signals[name] *= np.linspace(1.0, share, len(signals[name]))
    case = replace(case, window=replace(case.window, signals=signals))
    signs = CAUSES["learning-rate-too-low"].signature(case).signs
    assert any(sign.weight > 0 for sign in signs) is speaks


def test_gradients_that_are_clipped_to_nothing_are_no_low_rate() -> None:
    facts = {"update_ratio": 2e-6, "update_ratio_median": 2e-6, "clipped": True}
    low, clipped = (
        CAUSES["learning-rate-too-low"].signature(case_of({**facts, "clip_coefficient": share}, "no-learning"))
        for share in (1.0, 1e-4)
    )
    assert low.weight - clipped.weight > 2.0


@pytest.mark.parametrize(("backwards", "out"), [(1.0, True), (4.0, False)])
def test_a_step_of_one_batch_accumulates_nothing(backwards: float, out: bool) -> None:
    """A VAE's loss is a sum over the batch, whatever the rate."""
    signature = CAUSES["accumulation-scaling"].signature(
        case_of({"backwards_per_step": backwards, "loss_sum": True, "loss_divided": False}, "divergence")
    )
    assert signature.ruled_out is out


def test_gradients_that_the_script_divides_by_hand_are_no_sum() -> None:
    facts = {"backwards_per_step": 4.0, "loss_divided": False, "gradients_rescaled": True}
    signature = CAUSES["accumulation-scaling"].signature(case_of(facts, "divergence"))
    assert signature.ruled_out


@pytest.mark.parametrize(
    ("facts", "first_named", "broken"),
    [
        ({"labels_read": 1, "label_shift_trained": 1, "causal_gradient": 0.0}, "label-leakage", True),
        ({"labels_read": 1, "label_shift_trained": 1, "causal_gradient": 2.0}, None, False),
        ({"label_shift_trained": 1, "causal_gradient": 0.0}, None, False),
    ],
    ids=["embedded beside the tokens", "an encoder reads them", "in no input"],
)
def test_labels_among_the_inputs_leak_and_are_not_misplaced(
    facts: dict[str, Any], first_named: str | None, broken: bool
) -> None:
    case = case_of({"uniform_loss": 4.56, **facts}, None)
    assert (CAUSES["label-leakage"].signature(case).broken_invariant is not None) is broken
    assert CAUSES["label-misalignment"].signature(case).broken_invariant is None
    assert first_named is None or order(case)[0] == first_named


@pytest.mark.parametrize(("initial", "told"), [(900.0, True), (2.2, False)], ids=["at once", "it rose later"])
def test_a_first_loss_far_above_a_guess_is_known_without_a_survey(initial: float, told: bool) -> None:
    numbers = {"loss": 90.0, "level": 2.08, "initial_loss": initial, "bound": 3.6}
    seen = Symptom("loss-above-guess", "warning", 1, 200, "far above", numbers=numbers)
    case = finite_case(symptom=seen, symptoms=(seen,), facts={})
    assert any("nats above" in sign.what for sign in CAUSES["bad-initialization"].signature(case).signs) is told
    known = replace(case, facts={"initial_loss": 2.1, "uniform_loss": 2.08})
    assert not any("nats above" in sign.what for sign in CAUSES["bad-initialization"].signature(known).signs)


def _shares(contrasts: dict[str, Contrast]) -> dict[str, float]:
    suspects = [Suspect(name, cause, Signature()) for name, cause in CAUSES.items()]
    return weigh(suspects, [Verdict("drop-batch", "removed", why="")], contrasts)


def test_a_trial_that_held_against_its_placebo_is_an_outcome_more() -> None:
    once, held = _shares({}), _shares({"drop-batch": Contrast("drop-batch", True, "")})
    assert held["bad-batch"] > 1.5 * once["bad-batch"]
    assert held["learning-rate-too-high"] < once["learning-rate-too-high"]
    assert _shares({"drop-batch": Contrast("drop-batch", False, "")}) == once
    assert _shares({"clip-usual": Contrast("clip-usual", True, "")}) == once


def test_a_number_that_changed_explains_the_longer_gradients_that_it_brings() -> None:
    expected = CAUSES["unclipped-gradients"].expects["old-settings"]
    assert (expected, CAUSES["changed-setting"].expects["old-settings"]) == ("persists", "removed")


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        ({"batch_gradient": 0.4}, "mixed-rows"),
        ({"batch_gradient": 0.0}, "causal-leak"),
        ({"batch_gradient": 0.4, "batch_norm_modules": ["norm"]}, "causal-leak"),
    ],
    ids=["tokens that are not put back in their order", "no mask", "a batch norm"],
)
def test_what_reads_other_rows_needs_no_mask(facts: dict[str, Any], first: str) -> None:
    known = {"causal_gradient": 0.35, "label_shift_trained": 1, **facts}
    assert order(case_of(known, "no-learning"))[0] == first
    signature = CAUSES["mixed-rows"].signature(case_of(known, None))
    assert bool(signature.broken_invariant) is (first == "mixed-rows")


@pytest.mark.parametrize(("half", "first"), [(True, "half-precision-overflow"), (False, "nonfinite-input")])
def test_an_inf_that_the_script_made_in_float16_is_no_fault_of_the_data(half: bool, first: str) -> None:
    line = "train.py:44: logsnr = torch.log(ab / (1 - ab)).float()"
    made = {"operation": "div", "made": "Inf", "step": 90, "line": line, "rows": [5], "of": 32}
    facts = {
        "batch_nonfinite": [{"step": 90, "where": "input 1", "rows": [5], "count": 1}],
        "nonfinite_made": [made],
        "half_overflow": [f"div at {line}"] if half else None,
        "autocast_dtype": "float16",
        "parameter_dtypes": ["float32"],
    }
    assert order(case_of(facts, "nonfinite-loss"))[0] == first


def test_a_mask_that_lets_the_next_token_be_seen_is_a_leak_without_a_test_of_the_model() -> None:
    case = case_of({"label_shift_trained": 1.0}, "visible-labels")
    assert order(case)[0] == "causal-leak"
    assert not any(sign.weight < 0 for sign in CAUSES["causal-leak"].signature(case).signs)


def test_rows_of_classes_are_not_those_of_the_batch() -> None:
    """A mean of each class divides by its count: the row that it spoils is a class, and all of the batch follow."""
    made = {"operation": "div", "line": "train.py:9: x", "step": 90, "made": "NaN", "rows": [5], "by": "sum"}
    bad = [{"step": 90, "input": "0", "rows": [0, 1, 2], "count": 30}]
    found = []
    for of in (6, 48):
        facts = {"nonfinite_made": [{**made, "of": of, "before_model": True}], "batch_nonfinite": bad}
        case = case_of(facts, "nonfinite-loss")
        signals = {**case.window.signals, "samples": np.full(len(case.window), 48.0)}
        present = {**case.window.present, "samples": np.ones(len(case.window), np.bool_)}
        case = replace(case, onset=90, step=90, window=replace(case.window, signals=signals, present=present))
        found.append(bool(made_before_model(case)))
    assert found == [True, False]


def test_a_batch_whose_gradients_were_not_clipped_does_not_clear_the_clip() -> None:
    """Without a clip that works, one batch is too much for a rate that fits clipped gradients: leaving it out helps."""
    case = case_of({"clip_before_backward": True, "clipped": True, "update_ratio_median": 0.04}, "clipped-after-step")
    suspects = [Suspect(name, cause, cause.signature(case)) for name, cause in CAUSES.items()]
    belief = weigh(suspects, [Verdict("drop-batch", "removed"), Verdict("learning-rate-third", "removed")])
    assert next(iter(belief)) == "clip-before-unscale"
    without = next(one for one in suspects if one.name == "learning-rate-too-high").signature
    assert any("clipped gradients" in sign.what and sign.weight < 0 for sign in without.signs)


MADE = {"operation": "div", "made": "NaN", "step": 90, "line": "train.py:16: x / x.std(1)", "rows": [17], "of": 64}
HELD = {"step": 90, "input": "0", "rows": [17], "count": 16}


@pytest.mark.parametrize(
    ("made", "held", "first"),
    [
        ({**MADE, "before_model": True}, [HELD], "singular-operation"),
        ({**MADE, "before_model": True, "rows": []}, [HELD], "singular-operation"),
        ({**MADE, "before_model": False}, [HELD], "nonfinite-input"),
        ({**MADE, "before_model": True}, [{**HELD, "rows": [3, 17]}], "nonfinite-input"),  # the data held row 3
        ({**MADE, "before_model": True}, [{**HELD, "input": "0 of the loader's batch"}], "nonfinite-input"),
        ({**MADE, "before_model": True, "step": 4}, [HELD], "nonfinite-input"),
    ],
)
def test_nan_that_the_script_made_before_its_model_is_no_fault_of_the_data(
    made: dict[str, Any], held: list[dict[str, Any]], first: str
) -> None:
    found = Finding(None, "the batch already holds NaN: args[0], when the model got it; it reached the loss")
    case = case_of({"batch_nonfinite": held, "nonfinite_made": [made]}, "nonfinite-loss", finding=found)
    assert order(case)[0] == first
    against = [sign.what for sign in CAUSES["nonfinite-input"].signature(case).signs if sign.weight < 0]
    assert any("were finite when they were read" in what for what in against) is (first == "singular-operation")
    assert (CAUSES["singular-operation"].signature(case).layer is None) is (first == "singular-operation")


@pytest.mark.parametrize(
    ("of", "step", "first"),
    [(3200, 1, "singular-operation"), (64, 1, "nonfinite-input"), (3200, 2, "nonfinite-input")],
    ids=["all rows before the first step", "a batch", "a later step"],
)
def test_nan_of_a_preparation_is_no_fault_of_the_data(of: int, step: int, first: str) -> None:
    line = "train.py:8: torch.log(mel + 1e-10)"
    made = {
        "operation": "log",
        "made": "Inf",
        "step": step,
        "line": line,
        "rows": [1549],
        "of": of,
        "before_model": True,
    }
    calls = [{"operation": "log", "line": line, "smallest": 0.0, "zeros": 144}]
    facts = {"batch_nonfinite": [HELD], "nonfinite_made": [made], "singular_calls": calls, "dataset_rows": 3200}
    facts["half_overflow"] = [f"log at {line}"]
    found = Finding(None, "the batch already holds -Inf: args[0], when the model got it; it reached the loss")
    case = case_of(facts, "nonfinite-loss", finding=found)
    assert order(case)[0] == first
    told = " ".join(sign.what for sign in CAUSES["singular-operation"].signature(case).signs)
    said = "log of 144 zeros in float16, where a number below 3e-8 is 0 made Inf in row 1549 of the data set"
    assert (said in told) is (first == "singular-operation")


def test_an_operation_that_was_traced_before_the_model_acquits_the_data() -> None:
    found = Finding(builders.located(phase="preprocessing", module=""), "aten.log.default made it")
    case = case_of({"batch_nonfinite": [HELD]}, "nonfinite-loss", finding=found)
    assert order(case)[0] == "singular-operation"
    assert CAUSES["singular-operation"].signature(case).layer is None


def test_rows_that_held_nan_are_told_in_words() -> None:
    held = [{**HELD, "rows": list(range(10))}, HELD, *({**HELD, "step": step} for step in range(91, 95))]
    told = [sign.what for sign in CAUSES["nonfinite-input"].signature(case_of({"batch_nonfinite": held}, "")).signs]
    rows = "rows 0, 1, 2, 3, 4, 5, 6, 7 and 2 more of step 90, input 0; row 17 of step 90, input 0; "
    assert any(
        what.endswith(f": {rows}row 17 of step 91, input 0; row 17 of step 92, input 0 and 2 more") for what in told
    )
