"""The axis on which the fault lies, with a cause and without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from steadytrain.core.incident import Finding, Located
from steadytrain.core.model import Symptom
from steadytrain.diagnosis.answer import UNKNOWN, Axis, Diagnosis, RankedCause
from steadytrain.diagnosis.axis import axis_found, axis_of
from steadytrain.diagnosis.cause import STRONG, Sign, Signature
from steadytrain.diagnosis.cause_catalog import causes, shipped
from steadytrain.diagnosis.proof import Control
from steadytrain.diagnosis.signs import layer_of
from steadytrain.diagnosis.trial_effects import like
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments.specs import Effect, Verdict
from steadytrain.experiments.trial import AXES
from steadytrain.experiments.trial_catalog import trials
from trial_cases import finite_case

SHOWN = Control(True, True, True, "it came again")


def found(
    effects: Mapping[str, Effect],
    *signs: str,
    top: str | None = None,
    layer: str | None = None,
    control: Control = SHOWN,
) -> Axis:
    seen = Signature((Sign("it was seen", STRONG, "fact x"),))
    suspects = [Suspect(name, cause, seen if name in signs else Signature()) for name, cause in causes().items()]
    verdicts = [Verdict(trial, effect) for trial, effect in effects.items()]
    ranked = RankedCause(top, "", "likely", 0.9, (), layer, (), ()) if top else None
    return axis_found(ranked, suspects, weigh(suspects, verdicts), verdicts, control)


def test_a_case_may_lie_on_another_axis_than_its_cause() -> None:
    cause = causes()["amplifying-operation"]
    seen = Sign("it was seen", STRONG, "fact x")
    suspects = [Suspect("amplifying-operation", cause, Signature((seen,), axis="data"))]
    ranked = RankedCause("amplifying-operation", "", "likely", 0.9, (), None, (), ())
    lies = axis_found(ranked, suspects, weigh(suspects, []), [], SHOWN)
    assert (lies.name, axis_of(cause)) == ("data", "loss")


def test_every_cause_and_every_trial_lie_on_a_known_axis() -> None:
    assert {axis_of(cause) for cause in shipped().values()} == set(AXES)
    assert {trial.axis for trial in trials()} <= {"", *AXES}


@pytest.mark.parametrize(("kind", "axis"), [("half", "precision"), ("ranks", "distributed"), ("script", "harness")])
def test_a_cause_of_another_package_has_the_axis_of_its_kind(kind: str, axis: str) -> None:
    class Strange(type(causes()["bad-batch"])):  # type: ignore[misc]
        axis = ""
        expects = like(kind)

    assert axis_of(Strange) == axis


def test_a_cause_brings_its_axis_with_the_trials_that_decided() -> None:
    axis = found({"drop-batch": "removed", "beta2-lower": "persists", "clip": "persists"}, top="bad-batch")
    assert (axis.name, axis.trials) == ("data", ("drop-batch", "beta2-lower"))
    assert (
        axis.why == "bad-batch is a fault in the data: without the batch the symptom is gone, with beta2-lower it stays"
    )


def test_a_trial_that_went_against_the_cause_is_no_reason_for_its_axis() -> None:
    axis = found({"zero-grad": "persists"}, top="missing-zero-grad")
    assert axis.why == "missing-zero-grad is a fault in the optimizer or its schedule, by what was seen"
    assert (axis.name, axis.trials) == ("optimizer", ())
    axis = found({"zero-grad": "removed", "drop-batch": "persists"}, top="missing-zero-grad")
    assert axis.trials == ("zero-grad", "drop-batch")


@pytest.mark.parametrize(("layer", "axis"), [(None, "loss"), ("blocks.2.norm", "model")])
def test_an_operation_in_a_layer_lies_in_the_model(layer: str | None, axis: str) -> None:
    assert found({}, top="singular-operation", layer=layer).name == axis


def test_garbage_of_several_batches_lies_in_the_data_although_the_cause_is_unknown() -> None:
    axis = found({"unchanged": "persists", "drop-batch": "persists", "fresh-data": "removed", "float32": "persists"})
    assert axis.name == "data"
    assert axis.why == (
        "the cause is unknown, but it lies in the data: "
        "with other batches the symptom is gone, without the batch it stays"
    )
    assert axis.trials == ("drop-batch", "fresh-data")


SQUARE: list[tuple[Mapping[str, Effect], str]] = [
    ({"drop-batch": "removed", "beta2-lower": "removed", "suspect-batch-earlier": "removed"}, "optimizer"),
    ({"drop-batch": "removed", "beta2-lower": "removed", "suspect-batch-earlier": "persists"}, "data"),
    ({"drop-batch": "removed", "beta2-lower": "removed"}, UNKNOWN),
    ({"drop-batch": "removed", "reinitialize": "removed"}, "data"),
    ({"float32": "removed", "reset-moments": "removed"}, UNKNOWN),
    ({"update-clipping": "removed", "synthetic-batch": "removed", "freeze-layer": "removed"}, UNKNOWN),
    ({"float32": "removed", "drop-batch": "persists"}, "precision"),
    ({"learning-rate-third": "removed", "clip": "removed", "rewarm": "removed"}, UNKNOWN),
]


@pytest.mark.parametrize(
    ("effects", "axis"),
    SQUARE,
    ids=["state", "batch", "not crossed", "other weights", "two cures", "helps anyway", "precision", "lower rate"],
)
def test_the_two_by_two_of_state_and_batch_decides(effects: Mapping[str, Effect], axis: str) -> None:
    """A lower rate, and other weights, which help against everything, decide nothing."""
    assert found(effects).name == axis


def test_an_unknown_cause_with_two_cures_says_which_they_are() -> None:
    axis = found({"drop-batch": "removed", "reset-moments": "removed"})
    assert axis.why.startswith("the cause is unknown, and changes on several axes each removed the symptom: ")
    assert axis.trials == ("drop-batch", "reset-moments")


def test_a_cause_whose_cure_was_tried_in_vain_points_nowhere() -> None:
    assert found({}, "unclipped-gradients").name == "optimizer"
    assert found({"clip": "persists", "clip-usual": "persists"}, "unclipped-gradients").name == UNKNOWN


def test_signs_alone_name_an_axis_only_with_most_of_the_probability() -> None:
    axis = found({"drop-batch": "persists"}, "learning-rate-too-high", "missing-warmup")
    assert axis.name == "optimizer"
    said = "a fault in the optimizer or its schedule; not"
    assert axis.why.endswith(f"{said} that batch alone: without the batch the symptom stays")  # data may have changed
    both = found({"drop-batch": "persists", "fresh-data": "persists"}, "learning-rate-too-high", "missing-warmup")
    assert f"{said} the data: " in both.why
    assert found({"drop-batch": "persists"}).name == UNKNOWN


def test_a_replay_that_is_not_the_run_points_outside_of_the_recording() -> None:
    axis = found({}, control=Control(True, True, False, "it differs"))
    assert (axis.name, axis.trials) == (UNKNOWN, ("unchanged",))
    assert "the order of a set" in axis.why


def test_the_axis_travels_with_the_answer_and_old_answers_have_none(tmp_path: Path) -> None:
    answer = Diagnosis("run", "loss-spike", "exact", "", UNKNOWN, None, "", (), (), axis=Axis("data", "why", ("clip",)))
    document = answer.to_json()
    assert document["axis"] == {"name": "data", "why": "why", "trials": ["clip"]}
    assert Diagnosis.from_json(document) == answer
    del document["axis"]
    assert Diagnosis.from_json(document).axis is None


@pytest.mark.parametrize(
    ("module", "line", "layer"),
    [("", 42, None), ("blocks.0.norm", 42, "blocks.0.norm"), ("", None, "conv.0.weight")],
    ids=["derivative of the loss", "derivative of a layer", "place unknown"],
)
def test_a_derivative_outside_of_the_model_names_no_layer(module: str, line: int | None, layer: str | None) -> None:
    place = ("train.py", line, "torch.sqrt(sq)") if line else (None, None, None)
    where = Located("backward", "aten.div.Tensor", "nan", module, *place, (), (), "the gradient", "traced")
    seen = Symptom("nonfinite-gradient", "critical", 90, 90, "NaN", tensors=("conv.0.weight",))
    case = replace(finite_case(symptom=seen, symptoms=(seen,)), finding=Finding(where, "found"))
    assert layer_of(case) == layer


@pytest.mark.parametrize(
    ("facts", "symptom", "axis"),
    [
        ({"clip_before_unscale": True}, "divergence", "precision"),
        ({}, "clipped-while-scaled", "precision"),
        ({"clip_before_backward": True}, "clipped-after-step", "optimizer"),
    ],
)
def test_a_clip_of_scaled_gradients_is_a_fault_of_precision(facts: dict[str, bool], symptom: str, axis: str) -> None:
    seen = Symptom(symptom, "warning", 1, 90, "it was seen")
    case = replace(finite_case(symptom=seen, symptoms=(seen,)), facts=facts)
    cause = causes()["clip-before-unscale"]
    assert (cause.signature(case).axis or axis_of(cause)) == axis
