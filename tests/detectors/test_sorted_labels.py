"""Batches that hold one class after the other."""

from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.sorted_labels import SortedLabels
from steadytrain.testing import newest

HEALTHY = (
    looked(batch_class__=[-1.0] * 20),
    looked(batch_class__=[0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]),  # a discriminator: one batch of each
    looked(batch_class__=[3.0] * 20),
    looked(batch_class__=[0.0, -1.0, 1.0, -1.0, 2.0, -1.0, 3.0]),
)
SICK = (looked(batch_class__=[0.0, 0.0, 1.0, 1.0, -1.0, 2.0, 2.0]),)


def test_quiet() -> None:
    assert [SortedLabels().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_one_class_after_the_other() -> None:
    seen = newest(SortedLabels(), SICK[0])
    assert seen is not None
    assert (seen.severity, seen.numbers["classes"]) == ("warning", 3.0)
    assert seen.message.startswith("6 of 7 batches held nearly one class alone, 3 classes one after the other")
