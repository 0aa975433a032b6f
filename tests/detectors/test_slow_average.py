from __future__ import annotations

from script_windows import looked
from steadytrain.core.model import Window
from steadytrain.detectors.slow_average import SlowAverage
from steadytrain.testing import newest


def ended(share: float, steps: int = 700) -> Window:
    return looked(steps, first_weights__Net=[share])


SICK = (ended(0.93), ended(0.55, 200))
HEALTHY = (looked(), ended(0.2), ended(0.93, 100))


def test_quiet() -> None:
    """An average that has forgotten its first values, and a run of which nobody expects one."""
    assert [SlowAverage().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_share_is_told() -> None:
    symptom = newest(SlowAverage(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert "the average of Net that is evaluated is still 93% what it began with, after 700 updates" in symptom.message


def test_an_average_in_half_precision_that_stands_still() -> None:
    symptom = newest(SlowAverage(), looked(700, kept_bits__Net=[0.82]))
    assert symptom is not None
    assert "is kept in half precision, and 82% of its values keep their bits through an update" in symptom.message
    assert SlowAverage().check(looked(700, kept_bits__Net=[0.2])) == ()
