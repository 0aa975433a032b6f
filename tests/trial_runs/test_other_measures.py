"""Changes of what a loss measures are their own control; changes of functions leave the update alone."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from changed_loops import (
    EVERY,
    _plain_process,  # noqa: F401 (an autouse fixture)
    broadcasts,
    broadcasts_by_hand,
    noised_twice,
    small_second_moments,
    softened_twice,
)

from replaying import Loop, record
from steadytrain.experiments.specs import Change, Entry
from steadytrain.trial_runs.changes.singular_points import SafeOperation
from trying import attempt, losses, trained


def test_a_change_of_functions_leaves_the_update_alone(tmp_path: Path) -> None:
    recording = record(small_second_moments, tmp_path / "run", every=EVERY)
    changed = attempt(small_second_moments, recording, trained(6, 7), Change("safe-operation"))
    assert changed.why_not == SafeOperation.nothing


@pytest.mark.parametrize(
    ("kind", "loop"),
    [
        ("match-shapes", broadcasts),
        ("match-shapes", broadcasts_by_hand),
        ("loss-from-logits", softened_twice),
        ("same-noise", noised_twice),
    ],
)
def test_without_training_on_it_a_change_of_the_measure_is_seen_by_probes_alone(
    kind: str, loop: Loop, tmp_path: Path
) -> None:
    recording = record(loop, tmp_path / "run", every=EVERY)
    schedule = [Entry(3, "probe"), *trained(6, 7), Entry(3, "probe")]
    control = attempt(loop, recording, schedule)
    measured, changed = (attempt(loop, recording, schedule, Change(kind, {"train": train})) for train in (False, True))
    assert losses(measured) == losses(control) != losses(changed)
    assert measured.probes != control.probes
    assert measured.probes[0] == changed.probes[0]
    assert measured.probes[1] != changed.probes[1]
