"""A survey follows what a script calls, whether it names the arguments or not, and never stands in its way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from scripts import run_script
from steadytrain.replay.moved_files import Moved
from steadytrain.survey.launch import survey
from steadytrain.survey.loop_order import Loop

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 31):
    optimizer.zero_grad()
    loss = (model(torch.randn(8, 4)) - 1.0).square().mean()
    nn.utils.clip_grad_norm_(parameters=model.parameters(), max_norm=0.25)
    (loss * float("nan") if step == 25 else loss).backward()
    optimizer.step()
"""


class Owner:
    def call(self, one: int, *, two: int = 0) -> int:
        return one + two


@pytest.mark.slow
def test_a_limit_that_is_given_by_name_is_read(tmp_path: Path) -> None:
    run = run_script(tmp_path, SCRIPT, "--policy", "stop", "--keep-rewind", "--to", "none").run_dir
    facts = survey(run, moved=Moved.parse("-"), wait_s=120, lead_s=60)
    assert facts["survey_notes"] == []
    assert (facts["clipped"], facts["clip_value"], facts["clip_before_backward"]) == (True, 0.25, True)


@pytest.mark.parametrize("named", [{"max_norm": 0.5}, {"clip_value": 0.5}, {"max_norm": torch.tensor(0.5)}])
def test_both_clips_by_name(named: dict[str, float]) -> None:
    loop = Loop()
    loop._clipped(parameters=nn.Linear(2, 2).parameters(), **named)
    assert (loop.clips, loop.clip_value) == (1, 0.5)


def test_an_error_of_ours_does_not_reach_the_script() -> None:
    loop = Loop()

    def fails(*_: object, **__: object) -> None:
        raise TypeError("no such argument")

    original = Owner.call
    try:
        loop._wrap(Owner, "call", fails)
        assert Owner().call(1, two=2) == 3
    finally:
        Owner.call = original  # type: ignore[method-assign]
    assert loop.notes == {"call": "call was not followed: TypeError: no such argument"}
