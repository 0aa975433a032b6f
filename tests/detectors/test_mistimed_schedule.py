from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.core.model import Window
from steadytrain.detectors.mistimed_schedule import MistimedSchedule
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table


def turned(after: float) -> Window:
    name = "CosineAnnealingLR"
    return looked(**{f"cosine_turned__{name}": [NAN] * 4 + [20.0], f"turned_after__{name}": [NAN] * 4 + [after]})


def warms(counted: float, passes: float, *, steps: int = 40) -> Window:
    values = {"warm_up_share": 0.004, "steps_counted": counted, "passes_made": passes}
    return looked(steps, **{f"{measure}__LambdaLR": [NAN] * 6 + [value] for measure, value in values.items()})


CUT = looked(last_milestone__MultiStepLR=[NAN] * 6 + [22.0], milestones_after__MultiStepLR=[NAN] * 6 + [0.92])
IN_THE_FIRST_PASS, LATER, UNKNOWN = turned(0.25), turned(10.0), turned(0.0)
AFTER_TWO_PASSES, AFTER_ONE, WITHOUT_PASSES = warms(2.0, 2.01), warms(1.0, 1.01), warms(2.0, 0.0)
OFTEN = looked(steps_an_update__StepLR=[NAN] * 5 + [4.0])
QUIET = (
    looked(),
    WITHOUT_PASSES,
    looked(updates_per_epoch__train_py=[1.0] * 8),
    looked(steps_of_passes__LambdaLR=[2.0] * 8),
)
LOOKED_AT_101 = steps(
    loss=[1.0] * 120,
    tables={
        "script": table(
            "script",
            at=[101],
            value={"warm-up-share:LambdaLR": [0.008], "steps-counted:LambdaLR": [3.0], "passes-made:LambdaLR": [0.0]},
        )
    },
)
HEALTHY = (*QUIET, LOOKED_AT_101, LATER, UNKNOWN, AFTER_ONE, OFTEN)
IN_SOURCE = looked(epochs_per_batch__train_py=[1.0, 1.0, 1.0])
ONCE_A_PASS = looked(updates_per_epoch__train_py=[1.0] * 8, steps_of_passes__LambdaLR=[NAN] * 6 + [2.0])
SLOW = looked(slow_warm_up__LambdaLR=[NAN] * 6 + [0.07], slow_steps__LambdaLR=[NAN] * 6 + [8.0])
AS_FACTOR = looked(rate_as_factor__LambdaLR=[NAN] * 6 + [1e-6], rate_of_optimizer__LambdaLR=[NAN] * 6 + [1e-3])
SICK = (IN_THE_FIRST_PASS, AFTER_TWO_PASSES, CUT, IN_SOURCE, ONCE_A_PASS, SLOW, AS_FACTOR)


def test_quiet() -> None:
    assert [MistimedSchedule().check(window) for window in QUIET] == [()] * len(QUIET)


def test_a_rate_where_a_factor_is_asked_for() -> None:
    symptom = newest(MistimedSchedule(), AS_FACTOR)
    assert symptom is not None
    said = "the schedule multiplies the optimizer's rate of 0.001 by it, and the rate never exceeds 1e-06"
    assert (symptom.severity, said in symptom.message) == ("warning", True)


def test_a_length_in_epochs_that_the_source_steps_for_each_batch() -> None:
    symptom = newest(MistimedSchedule(), IN_SOURCE)
    assert symptom is not None
    assert symptom.severity == "warning"
    assert "as long as the number of epochs" in symptom.message


def test_a_length_in_updates_that_is_stepped_once_a_pass() -> None:
    symptom = newest(MistimedSchedule(), ONCE_A_PASS)
    assert symptom is not None
    assert symptom.severity == "warning"
    assert (
        "of the epochs times the batches, and the script steps it once per epoch: it counted 2 steps" in symptom.message
    )


def test_a_warm_up_that_takes_dozens_of_passes() -> None:
    symptom = newest(MistimedSchedule(), SLOW)
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("LambdaLR counted 8 steps in 31 updates, and its warm-up has reached 7 %")


def test_a_cosine_that_rises_again_in_the_first_pass() -> None:
    symptom = newest(MistimedSchedule(), IN_THE_FIRST_PASS)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 8)
    said = "CosineAnnealingLR was stepped beyond its T_max of 20, after 0.25 passes over the data"
    assert symptom.message == f"{said}: the learning rate rises again"


def test_milestones_that_are_over_in_the_first_pass() -> None:
    symptom = newest(MistimedSchedule(), CUT)
    assert symptom is not None
    assert (symptom.severity, symptom.numbers["milestone"]) == ("warning", 22)
    assert symptom.message.startswith("MultiStepLR passed its last milestone, 22, after 0.92 passes over the data, ")


def test_a_warm_up_that_is_stepped_once_a_pass() -> None:
    symptom = newest(MistimedSchedule(), AFTER_TWO_PASSES)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 32)
    assert symptom.message == "LambdaLR counted 2 steps in 31 updates: its warm-up has reached 0.4 % of the rate"


def test_without_a_loader_it_takes_more_updates() -> None:
    assert newest(MistimedSchedule(updates_min=30), WITHOUT_PASSES).severity == "warning"  # type: ignore[union-attr]


def test_what_may_be_meant_is_a_note() -> None:
    told = [newest(MistimedSchedule(), window) for window in (LATER, UNKNOWN, AFTER_ONE, OFTEN)]
    assert [one.severity for one in told if one is not None] == ["note"] * 4
    assert told[-1] is not None
    assert told[-1].message == "StepLR counts 4 steps for each update"


def test_a_warm_up_without_known_passes_is_a_note_first() -> None:
    symptom = newest(MistimedSchedule(), LOOKED_AT_101)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", 101)
    assert symptom.message.startswith("LambdaLR counted 3 steps in 100 updates")


def test_a_patience_of_batches() -> None:
    symptom = newest(
        MistimedSchedule(),
        looked(plateau_per_batch__ReduceLROnPlateau=[2.0], plateau_patience__ReduceLROnPlateau=[3.0]),
    )
    assert symptom is not None
    assert symptom.severity == "warning"
    assert "stepped after each batch and has cut the rate 2 times" in symptom.message
