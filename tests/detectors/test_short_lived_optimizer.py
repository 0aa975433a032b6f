from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.short_lived_optimizer import ShortLivedOptimizer
from steadytrain.testing import newest

IN_TURN = looked(optimizers_in_turn__Adam=[8.0], optimizer_steps__Adam=[30.0])
SICK = (looked(step_optimizer__train_py_7=[1.0]), IN_TURN)
HEALTHY = (
    looked(),
    looked(optimizers_in_turn__Adam=[7.0], optimizer_steps__Adam=[30.0]),
    looked(optimizers_in_turn__Adam=[9.0], optimizer_steps__Adam=[400.0]),
)


def test_quiet() -> None:
    assert [ShortLivedOptimizer().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(ShortLivedOptimizer(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 makes an optimizer anew in each step")


def test_one_for_each_epoch_is_a_note() -> None:
    symptom = newest(ShortLivedOptimizer(), looked(epoch_optimizer__train_py_7=[1.0]))
    assert symptom is not None
    assert symptom.severity == "note"


def test_one_after_the_other_is_a_warning() -> None:
    symptom = newest(ShortLivedOptimizer(), IN_TURN)
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message == (
        "Adam was made anew 7 times for the same parameters, after at most 30 steps: its moments begin at zero each "
        "time"
    )
