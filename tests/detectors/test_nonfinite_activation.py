from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from steadytrain.core.model import Window
from steadytrain.detectors.nonfinite_activation import NonfiniteActivation
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

NAN = math.nan
CLEAN = [0.0] * 10
BROKEN = [0.0] * 4 + [7.0] * 6
FINE = [2.0] * 500
LOST = [2.0] * 240 + [NAN] * 260


def window(
    counts: Mapping[str, Sequence[float]], loss: Sequence[float | None] = FINE, skipped: Collection[int] = ()
) -> Window:
    readings = table("modules", at=range(50, 501, 50), nonfinite=counts)
    return steps(loss=loss, skipped=skipped, tables={"modules": readings})


MASKED = {"mask": [64.0] * 10, "head": CLEAN}

HEALTHY = (
    window({"a": CLEAN}),
    window({"a": [NAN] * 10}),
    window(MASKED),
    window({"a": [0.0] * 4 + [5.0] + [0.0] * 5}, skipped=[250]),  # the scaler found an overflow and skipped
)
SICK = (
    window({"": BROKEN, "a": BROKEN}, LOST),
    window({"a": [0.0] * 4 + [5.0] + [0.0] * 5}),
    window({"a": [5.0] * 10}, [NAN] * 500),
    window({"a": BROKEN}, [None] * 500),
)


def test_quiet() -> None:
    assert NonfiniteActivation().check(HEALTHY[0]) == NonfiniteActivation().check(HEALTHY[1]) == ()
    assert NonfiniteActivation().check(HEALTHY[3]) == ()


def test_a_mask_is_a_note() -> None:
    (symptom,) = NonfiniteActivation().check(window(MASKED))
    assert (symptom.severity, symptom.tensors) == ("note", ("mask",))


def test_with_the_loss_it_is_critical_and_the_module_inside_the_others_stands_first() -> None:
    broken = {"": BROKEN, "h": BROKEN, "h.0": BROKEN, "h.0.attn": BROKEN, "h.1": BROKEN, "head": BROKEN, "fine": CLEAN}
    symptom = newest(NonfiniteActivation(), window(broken, LOST))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("critical", 250)
    assert symptom.tensors == ("h.0.attn", "h.1", "head", "h", "h.0", "")


def test_with_a_finite_loss_it_is_a_warning() -> None:
    symptom = newest(NonfiniteActivation(), window({"a": BROKEN}))
    assert symptom is not None
    assert symptom.severity == "warning"
    assert "the loss stayed finite" in symptom.message


def test_a_mask_does_not_hide_the_fault_or_take_its_name() -> None:
    symptoms = NonfiniteActivation().check(window({"mask": [64.0] * 10, "mlp": BROKEN}, LOST))
    assert [(symptom.severity, symptom.tensors) for symptom in symptoms] == [
        ("note", ("mask",)),
        ("critical", ("mlp",)),
    ]


def test_the_reading_of_a_refused_step_counts() -> None:
    readings = table("modules", at=[50], nonfinite={"a": [3.0]})
    sight = steps(loss=[2.0] * 49 + [NAN], refused=[50], tables={"modules": readings})
    assert newest(NonfiniteActivation(), sight) is not None


def test_steps_that_a_scaler_skips_for_ever_count() -> None:
    symptom = newest(NonfiniteActivation(), window({"a": BROKEN}, skipped=range(240, 501)))
    assert symptom is not None
    assert symptom.first_step == 250
