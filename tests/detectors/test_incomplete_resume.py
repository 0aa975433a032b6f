from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from script_windows import NAN, looked
from steadytrain.core.model import Window
from steadytrain.detectors.incomplete_resume import IncompleteResume
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table


def begun(schedule: float, moments: float) -> Window:
    return looked(schedule_at__OneCycleLR=[schedule, NAN], moments_at__AdamW=[moments, NAN])


def restarted(ratio: float, *, left: float = 400.0) -> Window:
    return looked(
        schedule_at__LambdaLR=[0.0, NAN],
        moments_at__AdamW=[400.0, NAN],
        schedule_left__LambdaLR=[left, NAN],
        rate_over_loaded__AdamW=[1.0, ratio, ratio, NAN],
    )


SECOND_PHASE = begun(0.0, 400.0)
SAME_RATE, OTHER_SCHEDULE = restarted(1.2), restarted(0.01, left=NAN)
MOMENTS_LEFT = looked(moments_left__AdamW=[12.0, NAN])
QUIET = (looked(), begun(0.0, 0.0), begun(1.0, 0.0), begun(400.0, 400.0), begun(0.0, 1.0))
UNSAVED = looked(**{"moments_unsaved__Adam epoch": [90.0, NAN]})
RAISED = looked(rate_over_loaded__SGD=[4.1, 4.0, 3.9, NAN])
HEALTHY = (*QUIET, SECOND_PHASE, SAME_RATE, OTHER_SCHEDULE, MOMENTS_LEFT, UNSAVED, RAISED)
ANOTHER_ORDER = looked(moments_reshaped__Adam=[NAN, NAN, 0.0], moments_swapped__Adam=[NAN, NAN, 6.0])
OF_EQUAL_SHAPE = looked(**{"moments_misplaced__Adam (a has those of b)": [NAN, NAN, NAN, NAN, 4.0]})
OTHER_GROUPS = looked(groups_exchanged__SGD=[2.0, NAN])
EMPTIED = looked(moments_emptied__Adam=[0.62, NAN])
SICK = (EMPTIED, OF_EQUAL_SHAPE, begun(400.0, 0.0), ANOTHER_ORDER, restarted(0.01), restarted(25.0))


def test_quiet() -> None:
    assert [IncompleteResume().check(window) for window in QUIET] == [()] * len(QUIET)


def test_groups_in_another_order() -> None:
    symptom = newest(IncompleteResume(), OTHER_GROUPS)
    assert symptom is not None
    assert (symptom.severity, symptom.numbers) == ("warning", {"groups": 2.0})
    assert "2 of its groups have the learning rate that another one had" in symptom.message


def test_second_moments_that_became_zero() -> None:
    symptom = newest(IncompleteResume(), EMPTIED)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message == (
        "before step 1 62% of the second moments that Adam was given were 0 beside a first moment that is not 0: they "
        "were too small for the format that kept them"
    )


def test_moments_were_not_loaded() -> None:
    symptom = newest(IncompleteResume(), SICK[2])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    said = "before the first update OneCycleLR stood at step 400 and AdamW had no moments: they begin at zero"
    assert symptom.message == said


def test_what_may_be_meant_is_a_note() -> None:
    told = [newest(IncompleteResume(), window) for window in (SECOND_PHASE, SAME_RATE, OTHER_SCHEDULE, MOMENTS_LEFT)]
    assert [one.severity for one in told if one is not None] == ["note"] * 4
    assert told[-1] is not None
    said = "the checkpoint of the weights holds moments of 12 parameters, and AdamW was given none"
    assert told[-1].message == said


def test_a_schedule_was_left_in_the_checkpoint() -> None:
    symptom = newest(IncompleteResume(), SICK[4])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    said = (
        "before the first update AdamW had moments of 400 updates and LambdaLR begins at 0; the same schedule stood at"
    )
    assert symptom.message == f"{said} 400 in the checkpoint, and the rate becomes 0.01 times the loaded one"


def test_moments_of_other_parameters() -> None:
    symptom = newest(IncompleteResume(), ANOTHER_ORDER)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 3)
    said = "before step 3 Adam was given 6 moments of another parameter of the same model"
    assert symptom.message == f"{said}: the order of the parameters has changed"


def test_moments_that_fit_another_parameter() -> None:
    symptom = newest(IncompleteResume(), OF_EQUAL_SHAPE)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("4 parameters of Adam (a has those of b) have second moments that fit")


def test_a_checkpoint_without_moments_is_a_note() -> None:
    symptom = newest(IncompleteResume(), UNSAVED)
    assert symptom is not None
    said = "the checkpoint of the weights stands at epoch 90 and holds no state of an optimizer"
    assert (symptom.severity, symptom.message) == ("note", f"{said}: Adam begins without moments")


def test_a_rate_above_the_loaded_one_is_a_note() -> None:
    symptom = newest(IncompleteResume(), RAISED)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", 1)
    assert symptom.message == "the first rate is 4.1 times the one that was loaded with the state of SGD"


def surged(*, rows: int) -> Window:
    """Losses that rise to three times the level for ``rows`` steps and come back."""
    window = risen(0.32, 0.3)
    window.signals["loss"][1 : 1 + rows] = 1.0
    return window


def risen(first: float, after: float, *, level: float = 0.3, count: int = 40, **beside: list[float]) -> Window:
    rows = {"moments_left__AdamW": [12.0, NAN], "level_before__main": [level, NAN], "spread_before__main": [0.05, NAN]}
    window = looked(count, **rows, **beside)
    window.signals["loss"][:] = [first, *[after] * (count - 1)]
    return window


@pytest.mark.parametrize(
    ("window", "severity"),
    [
        (risen(0.32, 0.5), "warning"),
        (risen(0.32, 0.34), "note"),
        (risen(2.4, 1.5), "note"),  # other data: a second training
        (risen(0.32, 0.2), "note"),
        (risen(0.32, 0.5, count=20), "note"),  # too early to say
    ],
)
def test_moments_that_were_left_are_a_warning_if_the_loss_rises_from_where_it_stood(
    window: Window, severity: str
) -> None:
    symptom = newest(IncompleteResume(), window)
    assert symptom is not None
    assert symptom.severity == severity
    assert ("the loss stood at 0.3 before" in symptom.message) is (severity == "warning")


def test_a_schedule_that_begins_anew_too_makes_a_smaller_rise_enough() -> None:
    alone = newest(IncompleteResume(), risen(1.0, 1.08, level=1.0))
    both = newest(IncompleteResume(), risen(1.0, 1.08, level=1.0, schedule_left__CosineAnnealingLR=[340.0, NAN]))
    assert alone is not None
    assert both is not None
    assert (alone.severity, both.severity) == ("note", "warning")
    assert "CosineAnnealingLR begins anew, too, which stood at 340" in both.message


def goes_on(losses: list[float], *, moments: float = 300.0, level: float = 0.43, **more: list[float]) -> Window:
    return looked(
        loss=losses,
        **more,
        level_before__main=[level, NAN],
        updates_before__main=[300.0, NAN],
        spread_before__main=[0.02, NAN],
        moments_given__Adam=[moments, NAN],
    )


def test_a_loss_that_does_not_go_on_where_the_optimizer_does() -> None:
    symptom = newest(IncompleteResume(), goes_on([3.8, 3.3, 2.6, *[0.5] * 37]))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "Adam went on with moments of 300 updates, and the first losses are 3.3 where" in symptom.message
    for quiet in (
        goes_on([0.45] * 40),
        goes_on([0.8, 0.6, 0.5, *[0.45] * 37]),
        goes_on([3.8] * 40, moments=0.0),
        goes_on([3.8] * 40, moments=120.0),  # from an earlier checkpoint
        goes_on([3.8] * 40, level=-0.2),
        goes_on([3.8] * 40, left_out_statistics__norm=[1.0]),
    ):
        assert not IncompleteResume().check(quiet)


@pytest.mark.parametrize(("rows", "severity"), [(6, "warning"), (2, "note")])
def test_moments_that_were_left_are_a_warning_if_the_loss_surges_and_comes_back(rows: int, severity: str) -> None:
    symptom = newest(IncompleteResume(), surged(rows=rows))
    assert symptom is not None
    assert symptom.severity == severity


def test_a_schedule_that_begins_anew_beside_moments_is_a_warning_if_the_loss_rises() -> None:
    begins = {"schedule_at__LambdaLR": [0.0, NAN], "moments_at__AdamW": [520.0, NAN]}
    flat, risen = [0.8] * 120, [*[0.8] * 40, *[1.0] * 80]
    assert [one.severity for one in IncompleteResume().check(looked(120, loss=flat, **begins))] == ["note"]
    (found,) = IncompleteResume().check(looked(120, loss=risen, **begins))
    assert found.severity == "warning"
    assert found.message.endswith("LambdaLR begins at 0, and the loss rose from 0.8 to 1")


def test_what_a_window_that_has_slid_begins_with_is_not_the_beginning() -> None:
    begins = {"schedule_at__LambdaLR": [0.0, NAN], "moments_at__AdamW": [520.0, NAN]}
    risen = looked(120, loss=[*[0.8] * 40, *[1.0] * 80], **begins)
    (found,) = IncompleteResume().check(replace(risen, steps=risen.steps + 5_000))
    assert found.severity == "note"
    late = goes_on([3.8] * 40)
    assert not IncompleteResume().check(replace(late, steps=late.steps + 5_000))


def climbed(highest: float = 0.03, *, rises_to: float = 0.04, first: float = 0.017) -> Window:
    """A schedule that a script makes by hand begins with its warm-up again, at a fifth of the loaded rate."""
    script = {
        "rate-over-loaded:Adam": [0.2, 0.4, 0.6, 0.8],
        "level-before:main": [0.017, NAN, NAN, NAN],
        "spread-before:main": [0.004, NAN, NAN, NAN],
    }
    return steps(
        loss=[*[first] * 16, *[rises_to] * 112],
        learning_rate=[*np.linspace(0.001, highest, 30), *[highest] * 98],
        tables={"script": table("script", at=[1, 2, 3, 4], value=script)},
    )


def test_a_warm_up_by_hand_that_begins_anew_after_a_resume() -> None:
    symptom = newest(IncompleteResume(), climbed())
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    said = "Adam was loaded with a rate of 0.005; it begins anew at 0.001 and climbs to 0.03"
    assert symptom.message.startswith(f"{said}: the count of its schedule was not in the checkpoint, and the loss rose")


def test_a_second_warm_up_that_does_no_harm_or_is_for_other_data_is_quiet() -> None:
    for window in (climbed(0.006), climbed(rises_to=0.017), climbed(first=0.5, rises_to=0.8)):
        assert IncompleteResume().check(window) == ()
