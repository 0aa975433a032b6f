from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from steadytrain.core.model import FloatArray, Window
from steadytrain.detectors.dead_units import DeadUnits
from steadytrain.testing import healthy_loss, newest, steps
from steadytrain.testing.windows import table

NAN = float("nan")
COUNT = 12
FALLING = healthy_loss(600, decay_steps=300)
FLAT = healthy_loss(600, decay_steps=5)
RISEN = FLAT + np.where(np.arange(600) > 240, 0.5, 0.0)
RECOVERS = healthy_loss(600, decay_steps=200)
RECOVERS[240:250] += 50.0

Rows = Mapping[str, Sequence[float]]


def window(
    zeros: Rows, gradients: Rows, loss: FloatArray = FLAT, first_step: int = 1, at: Sequence[int] = ()
) -> Window:
    at = at or range(first_step + 49, first_step + 600, 50)
    return steps(
        loss=loss,
        first_step=first_step,
        tables={
            "modules": table("modules", at=at, zero_share=zeros),
            "tensors": table("tensors", at=at, gradient_zero_share=gradients),
        },
    )


def level(value: float) -> list[float]:
    return [value] * COUNT


def rises(before: float, after: float) -> list[float]:
    return [before] * 4 + [after] * (COUNT - 4)


HEAD = {"head.weight": level(0.0), "head.bias": level(0.0)}
RELU = {"0": level(0.0), "1": level(0.5), "2": level(0.0), "3": [0.5, 0.3, 0.2, *[0.55] * 9]}

HEALTHY = (
    window(RELU, {"0.weight": level(0.02), "0.bias": level(0.15), **HEAD}),
    window({"act": np.linspace(0.5, 0.97, COUNT).tolist()}, HEAD),  # large transformers grow this sparse
    window({"mask": level(1.0), "experts.7": rises(0.9, 1.0)}, HEAD),
    window({"lora_B": [1.0, *[0.0] * 11]}, HEAD),
    window({}, {"0.weight": level(0.8), **HEAD}),  # inputs that are always zero
    window({}, {"conv.bias": [0.56, 0.75, 0.69, 0.75, 0.62, 0.75, 0.75, 0.75, 0.69, 0.75, 0.75, 0.56], **HEAD}),
    window({}, {"wte.weight": rises(0.2, 0.9), **HEAD}),  # tokens that are not in the batch
    window({}, {name: rises(0.0, 1.0) for name in ("0.weight", "0.bias", "2.weight", "2.bias")}),  # all is learned
    window({}, {"0.weight": rises(0.0, 0.6), **HEAD}, loss=FALLING),
    window({"a": level(NAN)}, {"0.weight": level(NAN)}),
    window({}, {"critic.weight": level(0.01), "critic.bias": level(1.0), **HEAD}, loss=RISEN),  # a difference of means
    window({}, {"cell.weight_ih": rises(0.0, 0.7), "cell.bias_ih": level(0.05), **HEAD}),  # inputs that are zero
    # a head made of zeros that waits for its first reward, and a value function of which few actions are taken
    window({"net.0": level(0.0), "net": [1.0] * 5 + [0.0] * 7}, HEAD, loss=RISEN),
    replace(
        window(
            {}, {"0.weight": level(0.0), "0.bias": level(0.1), "q.weight": rises(0.2, 0.8), "q.bias": rises(0.2, 0.8)}
        ),
        facts={"moving_targets": 3.0},
    ),
    window({"a": [*level(0.5)[:-1], 1.0]}, {"0.weight": [*level(0.0)[:-1], 0.9], **HEAD}),
)
SICK = (
    window({"0": level(0.0), "1": rises(0.5, 1.0)}, HEAD, loss=RISEN),
    window({}, {"0.weight": rises(0.02, 0.9), "0.bias": rises(0.0, 0.8), **HEAD}, loss=RISEN),
    window({}, {"0.weight": rises(0.02, 0.6), **HEAD}),
    window({}, {"0.bias": level(0.9), **HEAD}),
    window({}, {"0.weight": rises(0.02, 0.9), **HEAD}, loss=RECOVERS),
    window({}, {"0.weight": level(0.93), "0.bias": level(0.9), **HEAD}, loss=RISEN),
)


def test_quiet() -> None:
    quiet = (*HEALTHY[:8], *HEALTHY[9:])
    assert [DeadUnits().check(sight) for sight in quiet] == [()] * len(quiet)


def test_a_module_that_falls_silent_with_the_loss_is_critical() -> None:
    symptom = newest(DeadUnits(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("critical", 250, 600)
    assert symptom.message == "1 put out nothing but zeros from step 250 to 600"


def test_parameters_without_a_gradient() -> None:
    symptom = newest(DeadUnits(), SICK[1])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.tensors) == ("critical", 250, ("0.weight", "0.bias"))
    assert symptom.numbers["share"] > 0.7


def test_both_tables_make_one_symptom() -> None:
    both = window({"1": rises(0.5, 1.0)}, {"0.weight": rises(0.02, 0.9), **HEAD}, loss=RISEN)
    assert len(DeadUnits().check(both)) == 1


def test_units_that_die_in_a_jump_are_told_though_the_rest_learns_on() -> None:
    symptom = newest(DeadUnits(), SICK[4])
    assert symptom is not None
    assert symptom.severity == "warning"


def test_silent_throughout_a_window_that_has_slid_is_not_taken_for_a_switched_off_branch() -> None:
    assert newest(DeadUnits(), window({"1": level(1.0)}, HEAD, first_step=5000)) is not None


def test_a_bias_that_got_little_gradient_before_died_when_it_rose() -> None:
    symptom = newest(DeadUnits(), window({}, {"conv.bias": [*[0.6] * 5, *[1.0] * 7], **HEAD}, loss=RISEN))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 300)


def test_units_that_a_first_step_killed() -> None:
    """A first update that is far too large leaves units dead, those of a value function too."""
    for height, severity in ((6000.0, "warning"), (20.0, "note")):
        loss = RISEN.copy()
        loss[1] = height
        readings = {"0.weight": [0.02, *[0.9] * (COUNT - 1)], **HEAD}
        dead = window({}, readings, loss=loss, at=[1, *range(16, 16 + 50 * (COUNT - 1), 50)])
        symptom = newest(DeadUnits(), replace(dead, facts={"moving_targets": 3.0}))
        assert symptom is not None
        assert symptom.severity == severity


def test_gradients_that_a_pruning_script_masks_are_a_note() -> None:
    dead = window({}, {"0.weight": rises(0.02, 0.9), **HEAD}, loss=RISEN)
    code = table("script", at=[1], value={"pruning-code:train.py:7": [1.0]})
    told = newest(DeadUnits(), replace(dead, tables={**dead.tables, "script": code}))
    assert told is not None
    assert told.severity == "note"


def test_gradients_of_a_value_function_are_a_note() -> None:
    values = window({}, {"0.weight": rises(0.02, 0.9), **HEAD}, loss=RISEN)
    told = [newest(DeadUnits(), one) for one in (values, replace(values, facts={"moving_targets": 3.0}))]
    assert [one.severity for one in told if one is not None] == ["critical", "note"]


def test_units_that_live_again_were_not_dead() -> None:
    """A block of other data did not use them for a while."""
    rare = [0.1] * 4 + [0.84] * 3 + [0.1] * 5
    symptom = newest(DeadUnits(), window(RELU, {"0.weight": rare, "0.bias": rare, **HEAD}, RISEN))
    assert symptom is not None
    assert symptom.severity == "note"
