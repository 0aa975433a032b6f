from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from script_windows import looked
from steadytrain.detectors.clipped_nothing import ClippedNothing
from steadytrain.testing import newest
from watching import watching

OF_SOME = looked(unclipped__body=[0.75] * 4)

SICK = (looked(clipped_nothing__gradients=[1.0, 2.0, 3.0]),)
HEALTHY = (
    looked(),
    looked(clipped_nothing__gradients=[1.0]),
    looked(clipped_late__gradients=[1.0, 2.0], clipped_early__gradients=[1.0, 2.0]),
)


def test_it_says_that_nothing_is_clipped_and_why() -> None:
    symptom = newest(ClippedNothing(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "no parameters in 3 of the steps" in symptom.message
    assert "keep a list" in symptom.message


def test_quiet() -> None:
    assert [ClippedNothing().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_a_clip_of_some_parameters_is_a_note() -> None:
    symptom = newest(ClippedNothing(), OF_SOME)
    assert symptom is not None
    assert symptom.severity == "note"
    assert symptom.message == "the clip of gradients leaves out 75% of the parameters that are trained (body first)"


@pytest.mark.parametrize(
    ("parts", "expected"), [((1,), ["clipped-nothing"]), ((0, 1), []), ((slice(None),), []), ((), [])]
)
def test_a_real_loop(parts: tuple[int | slice, ...], expected: list[str], tmp_path: Path) -> None:
    """A clip of the head, one for each part, one of all, and none."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with watching(tmp_path / "run", "observe") as watcher:
        for _ in range(80):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.randint(3, (8,))).backward()
            for part in parts:
                nn.utils.clip_grad_norm_(model[part].parameters(), 1.0)
            optimizer.step()
    assert [one.name for one in watcher.symptoms if one.name == "clipped-nothing"] == expected
