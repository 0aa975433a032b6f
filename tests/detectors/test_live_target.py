from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.live_target import LiveTarget
from steadytrain.testing import newest

THREE = [1.0, 1.0, 1.0]
SICK = (looked(live_target__train_py_7=[1.0]), looked(live_weight__train_py_9=THREE, policy_code__train_py=[1.0]))
HEALTHY = (
    looked(),
    looked(live_weight__train_py_9=THREE),
    looked(live_weight__train_py_9=[1.0, 1.0, NAN], policy_code__train_py=[1.0]),
)


def test_quiet() -> None:
    """Products of a loss that trains no policy are none of its business."""
    assert [LiveTarget().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    read, seen = (newest(LiveTarget(), window) for window in SICK)
    assert read is not None
    assert seen is not None
    assert read.message.startswith("train_py_7 makes a target or an advantage")
    assert seen.message.startswith("the loss of train_py_9 weighs log-probabilities by an advantage")
    assert all(one.message.endswith("detach() is missing") for one in (read, seen))
