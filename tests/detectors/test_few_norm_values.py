from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.few_norm_values import FewNormValues
from steadytrain.testing import newest

SICK = (looked(norm_values__a=[4.0, 2.0]),)
HEALTHY = (
    looked(),
    looked(norm_values__a=[5.0]),
    looked(norm_values__a=[4.0, 4.0, 64.0]),
    looked(4, norm_values__a=[4.0]),
)


def test_quiet() -> None:
    assert [FewNormValues().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_four_values() -> None:
    symptom = newest(FewNormValues(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("batch norms of the loss at a normalise over 2 values a channel")
