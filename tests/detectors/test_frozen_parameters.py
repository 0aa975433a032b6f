from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from steadytrain.core.model import GRADIENT_ABSENT, Window
from steadytrain.detectors.frozen_parameters import ZERO_WEIGHTS, FrozenParameters
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

ABSENT = GRADIENT_ABSENT
NAN = float("nan")


def window(norms: Mapping[str, Sequence[float]], first_step: int = 1) -> Window:
    return steps(gradient_norms=norms, loss=[2.0] * len(next(iter(norms.values()))), first_step=first_step)


def readings(
    gradients: Mapping[str, float],
    updates: Mapping[str, float],
    weight: float = 0.4321987,
    zeros: Sequence[str] = (),
    rate: float | None = None,
) -> Window:
    at = range(50, 501, 50)
    row = {name: [value] * 10 for name, value in gradients.items()}
    held = table(
        "tensors",
        at=at,
        gradient_norm=row,
        update_norm={name: [value] * 10 for name, value in updates.items()},
        weight_norm={name: [0.0 if name in zeros else 1.0] * 10 for name in row},
        weight_min=dict.fromkeys(row, [-weight] * 10),
        weight_max=dict.fromkeys(row, [weight] * 10),
    )
    rates = {} if rate is None else {"learning_rate": [rate] * 500}
    return steps(loss=[2.0] * 500, tables={"tensors": held}, **rates)


LIVE = (1.0 + 0.1 * np.random.default_rng(0).standard_normal(400)).tolist()
LIVES = {f"h.{block}.weight": LIVE for block in range(4)}


def cut(norms: Mapping[str, Sequence[float]], kind: float = 1.0, place: str = "encoder") -> Window:
    """Eight steps in which ``place`` was called."""
    held = table("script", at=[8], value={f"cut-off:{place}": [kind]})
    return steps(gradient_norms={name: row[:8] for name, row in norms.items()}, loss=[2.0] * 8, tables={"script": held})


ENCODER = {"encoder.weight": [ABSENT] * 400, "encoder.bias": [ABSENT] * 400}
LARGE = {f"encoder.{at}.weight": [ABSENT] * 400 for at in range(12)}

HEALTHY = (
    window(LIVES),
    window({**LIVES, "pooler.dense.weight": [ABSENT] * 400}),
    window({**{f"base.{n}": [ABSENT] * 400 for n in range(20)}, "head.weight": LIVE}),  # a frozen base, handed over
    window({**LIVES, "branch": [0.0, 0.0, 1.0, 0.0] * 100}),  # stochastic depth
    window({**LIVES, "key.bias": [2e-9] * 400}),  # attention does not depend on it
    window({**LIVES, "scaled.weight": [2e-9] * 40 + [1e-4] * 360}),  # a branch whose scale begins near zero
    window({**LIVES, "router.weight": [2e-9] * 90 + [1e-3] * 310}, first_step=901),
    window({**LIVES, "experts.3.weight": [ABSENT] * 400}),
    window({**LIVES, "lora_A": [0.0] * 3 + [1.0] * 397}),  # its partner began at zero
    window({name: [0.0] * 400 for name in LIVES}),  # nothing to learn any more
    window({name: norms[:60] for name, norms in {**LIVES, "late": [0.0] * 400}.items()}),
    readings({"a": 1.0, "b": 1.0}, {"a": 1e-3, "b": 1e-3}),
    readings({"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 0.0}),  # the learning rate is zero
    readings({"a": 1.0, "gain": 1.0}, {"a": 1e-3, "gain": 0.0}, weight=0.4375),  # rounding: lost-updates
    readings({"a": 1.0, "b": 1.0, "bias": 1e-8}, {"a": 1e-3, "b": 1e-3, "bias": 0.0}),  # before a normalisation
    window({**LIVES, "unfrozen.weight": [ABSENT] * 200 + [1.0] * 200}),
    cut({**LIVES, "encoder.weight": [ABSENT] * 7 + [1.0]}),  # a part that has its turn
    cut({**LIVES, **LARGE}, kind=2.0),  # a base that runs under no_grad, and that the optimizer got all the same
    cut({**LIVES, "pooler.weight": [ABSENT] * 8}, place="pooler"),
)
SICK = (
    window({**LIVES, "extra.weight": [ABSENT] * 400}),
    window({**LIVES, "cut.weight": [0.0] * 400}),
    window({**LIVES, "cut.weight": [1.0] * 200 + [0.0] * 200}),
    readings({"a": 1.0, "b": 1.0, "c": NAN}, {"a": 1e-3, "b": 1e-3, "c": 0.0}),
    readings({"a": 1.0, "b": 1.0}, {"a": 1e-3, "b": 0.0}),
    window({**LIVES, "router.weight": [2e-9] * 400, "router.bias": [1e-9] * 400}),
    cut({**LIVES, **ENCODER}),
    cut({**LIVES, **LARGE}),
    cut({**LIVES, **ENCODER}, kind=2.0),
)


def test_a_gradient_that_is_rounding() -> None:
    """As of a router whose gate is divided by itself. The run has to hold its start, and enough steps."""
    norms = {**LIVES, "router.weight": [2e-9] * 400, "router.bias": [1e-9] * 400}
    symptom = newest(FrozenParameters(), window(norms))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.tensors) == ("warning", 1, ("router.weight",))
    assert "router.weight had a gradient that is rounding, at most 3e-09 of the largest" in symptom.message
    assert newest(FrozenParameters(), window({name: row[:60] for name, row in norms.items()})) is None
    assert newest(FrozenParameters(), window(norms, first_step=4001)) is None


def test_zeros_that_stay_zero_have_an_update_in_proportion_to_their_norm() -> None:
    gates = readings({"a": 1.0, "gate": 1.0}, {"a": 1e-3, "gate": 0.0}, zeros=["gate"])
    (symptom,) = FrozenParameters().check(gates)
    assert symptom.tensors == ("gate",)
    assert symptom.numbers[ZERO_WEIGHTS] == 1.0
    assert "while others learned; they are zero: an update in proportion to their norm" in symptom.message


def test_zeros_that_nothing_else_moves_beside_are_told_if_the_rate_is_not_zero() -> None:
    adapters = {"up": 1.0}, {"up": 0.0}
    assert FrozenParameters().check(readings(*adapters, zeros=["up"], rate=0.0)) == ()
    assert FrozenParameters().check(readings(*adapters, rate=1e-3)) == ()
    (symptom,) = FrozenParameters().check(readings(*adapters, zeros=["up"], rate=1e-3))
    assert FrozenParameters().check(readings(*adapters, zeros=["up"])) == (symptom,)  # a relative step has no rate
    assert symptom.tensors == ("up",)
    assert "while others" not in symptom.message


def test_a_frozen_weight_that_is_not_zero_is_not_told_of_its_norm() -> None:
    (symptom,) = FrozenParameters().check(readings({"a": 1.0, "b": 1.0}, {"a": 1e-3, "b": 0.0}))
    assert ZERO_WEIGHTS not in symptom.numbers


def test_never_a_gradient_in_the_first_steps() -> None:
    young = {name: norms[:16] for name, norms in {**LIVES, "extra.weight": [ABSENT] * 400}.items()}
    symptom = newest(FrozenParameters(), window(young))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.tensors) == ("warning", 1, ("extra.weight",))
    assert symptom.message == "extra.weight had no gradient from step 1 to 16, while others learned"


@pytest.mark.parametrize(
    ("norms", "severity"),
    [
        ({"head.weight": LIVE, "head.bias": [0.0] * 400}, "note"),  # the critic of a GAN: a difference of its outputs
        ({"a.weight": LIVE, "a.bias": [0.0] * 400, "b.weight": LIVE, "b.bias": [0.0] * 400}, "note"),
        ({"head.weight": [0.0] * 400, "head.bias": [0.0] * 400}, "warning"),
        ({"head.weight": LIVE, "head.bias": [0.0] * 400, "cut.weight": [0.0] * 400}, "warning"),
        ({"head.weight": LIVE, "head.bias": [1.0] * 200 + [0.0] * 200}, "warning"),
        ({"bias": [0.0] * 400}, "warning"),  # of no module that learns
    ],
)
def test_biases_that_the_loss_does_not_depend_on(norms: Mapping[str, Sequence[float]], severity: str) -> None:
    symptom = newest(FrozenParameters(), window({**LIVES, **norms}))
    assert symptom is not None
    assert symptom.severity == severity


def test_one_of_several_heads_may_not_have_had_its_turn() -> None:
    young = {name: norms[:16] for name, norms in {**LIVES, "h.7.weight": [ABSENT] * 400}.items()}
    symptom = newest(FrozenParameters(), window(young))
    assert symptom is not None
    assert symptom.severity == "note"


def test_a_gradient_that_comes_late_or_a_run_that_goes_on_is_quiet() -> None:
    late = {**LIVES, "extra.weight": [ABSENT] * 12 + [1.0] * 388}
    goes_on = {**LIVES, "extra.weight": [ABSENT] * 400}
    for norms, count, first in ((late, 32, 1), (goes_on, 15, 1), (goes_on, 32, 500)):
        sight = window({name: values[:count] for name, values in norms.items()}, first_step=first)
        assert FrozenParameters().check(sight) == ()


def test_quiet() -> None:
    quiet = (HEALTHY[0], *HEALTHY[3:-2])
    assert [FrozenParameters().check(sight) for sight in quiet] == [()] * len(quiet)


def test_what_is_meant_is_a_note() -> None:
    for sight in HEALTHY[1:3]:
        symptom = newest(FrozenParameters(), sight)
        assert symptom is not None
        assert symptom.severity == "note"


def test_no_gradient_from_the_start() -> None:
    symptom = newest(FrozenParameters(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.tensors) == ("warning", 1, ("extra.weight",))
    assert "had no gradient from step 1" in symptom.message


def test_a_gradient_that_became_zero() -> None:
    symptom = newest(FrozenParameters(), SICK[2])
    assert symptom is not None
    assert (symptom.severity, symptom.tensors) == ("warning", ("cut.weight",))
    assert 201 <= symptom.first_step <= 216
    assert "a gradient of zero" in symptom.message


def test_most_of_the_model_stopped() -> None:
    cut = {name: [1.0] * 200 + [0.0] * 200 for name in ("a", "b", "c")}
    symptom = newest(FrozenParameters(), window({**cut, "head": LIVE}))
    assert symptom is not None
    assert symptom.severity == "critical"


def test_from_readings_alone() -> None:
    for sight, tensor, what in ((SICK[3], "c", "no gradient"), (SICK[4], "b", "a gradient, but no update")):
        symptom = newest(FrozenParameters(), sight)
        assert symptom is not None
        assert symptom.tensors == (tensor,)
        assert what in symptom.message


def test_it_keeps_its_name_as_the_window_slides() -> None:
    frozen = {**LIVES, "extra.weight": [ABSENT] * 400}
    looks = [newest(FrozenParameters(), window(frozen, first_step=at)) for at in range(5000, 5200, 16)]
    assert len({symptom.first_step for symptom in looks if symptom is not None}) <= 3


def test_a_module_whose_output_is_detached() -> None:
    (symptom,) = FrozenParameters().check(SICK[-3])
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 1, 8)
    assert symptom.tensors == ("encoder.weight", "encoder.bias")
    assert symptom.message == (
        "encoder is called in every step and never gets a gradient: its output is detached or not used"
    )


def test_a_large_base_under_no_grad_is_a_note() -> None:
    (symptom,) = FrozenParameters().check(HEALTHY[-2])
    assert symptom.severity == "note"
