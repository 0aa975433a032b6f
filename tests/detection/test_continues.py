"""A training that goes on from a checkpoint, told which run it goes on from, is judged by the steps before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import steadytrain
from steadytrain.core.errors import UsageError
from steadytrain.storage.continued_run import which_run
from steadytrain.storage.run_folder import open_run

SPIKE_AT = 80
SPIKE = 1.0
"""Some 14 standard deviations of the noise, and not twice the level: without a reference nothing to speak of."""

BEFORE = 600


def train(
    folder: Path,
    name: str,
    steps: int,
    *,
    continues: str | None = None,
    spike_at: int | None = None,
    spike: float = SPIKE,
) -> None:
    """A loop with a noisy loss; that of its step ``spike_at`` lies higher."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    torch.manual_seed(len(name))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with steadytrain.watch(model, optimizer, runs_dir=folder, name=name, continues=continues, to=("none",)):
        for step in range(1, steps + 1):
            inputs = torch.randn(1024, 4)
            loss = (model(inputs) - torch.randn(1024, 1)).square().mean()
            if step == spike_at:
                loss = loss + spike
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def spikes(folder: Path, name: str) -> list[tuple[int, str]]:
    return [(s.first_step, s.severity) for s in open_run(folder / name).symptoms if s.name == "loss-spike"]


def test_steps_go_on_and_the_reference_is_there_from_the_start(tmp_path: Path) -> None:
    train(tmp_path, "first", BEFORE)
    train(tmp_path, "second", 160, continues="first", spike_at=SPIKE_AT)
    second = open_run(tmp_path / "second")
    assert second.scalars().steps.tolist() == list(range(BEFORE + 1, BEFORE + 161))
    assert second.description["continues"]["step"] == BEFORE
    assert spikes(tmp_path, "second") == [(BEFORE + SPIKE_AT, "warning")]


def test_without_it_a_young_run_has_no_reference(tmp_path: Path) -> None:
    train(tmp_path, "alone", 160, spike_at=SPIKE_AT)
    assert spikes(tmp_path, "alone") == []


@pytest.mark.long
def test_a_spike_right_after_the_resume_that_is_gone_again_is_known_for_what_it_is(tmp_path: Path) -> None:
    train(tmp_path, "first", BEFORE)
    train(tmp_path, "second", 160, continues="first", spike_at=10)
    [spike] = [symptom for symptom in open_run(tmp_path / "second").symptoms if symptom.name == "loss-spike"]
    assert (spike.first_step, spike.severity, spike.course) == (BEFORE + 10, "note", "resume")


@pytest.mark.long
def test_what_the_run_before_was_told_is_not_told_again(tmp_path: Path) -> None:
    train(tmp_path, "first", BEFORE)
    train(tmp_path, "second", 100, continues="first", spike_at=SPIKE_AT)
    train(tmp_path, "third", 40, continues="second")
    assert spikes(tmp_path, "second") == [(BEFORE + SPIKE_AT, "warning")]
    assert spikes(tmp_path, "third") == []


def test_the_step_of_the_checkpoint_may_be_an_earlier_one(tmp_path: Path) -> None:
    train(tmp_path, "first", 50)
    train(tmp_path, "second", 3, continues="first@20")
    assert open_run(tmp_path / "second").scalars().steps.tolist() == [21, 22, 23]


@pytest.mark.parametrize(
    ("text", "says"),
    [("nothing", "no such run"), ("first@99", "steps 1 to 5"), ("first@0", "steps 1 to 5"), ("first@x", "no such run")],
)
def test_a_run_or_step_that_is_not_there_is_named(tmp_path: Path, text: str, says: str) -> None:
    train(tmp_path, "first", 5)
    with pytest.raises(UsageError, match=says):
        which_run(text, tmp_path)


def test_a_run_whose_only_update_was_refused_has_nothing_to_go_on_from(tmp_path: Path) -> None:
    with pytest.raises(steadytrain.RunStopped):
        train(tmp_path, "first", 5, spike_at=1, spike=float("nan"))
    with pytest.raises(UsageError, match="no recorded update to continue from"):
        which_run("first", tmp_path)


@pytest.mark.parametrize(
    ("make", "loads", "told"),
    [
        (torch.optim.AdamW, False, True),
        (torch.optim.AdamW, True, False),
        (lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9), False, True),
        (lambda parameters: torch.optim.SGD(parameters, lr=0.1), False, False),
    ],
)
def test_an_optimizer_whose_state_was_not_loaded_is_told(
    tmp_path: Path, make: Callable[[Any], torch.optim.Optimizer], loads: bool, told: bool
) -> None:
    saved = {}
    for name, continues in (("first", None), ("second", "first")):
        model = nn.Linear(4, 1)
        optimizer = make(model.parameters())
        if continues and loads:
            optimizer.load_state_dict(saved)
        with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name=name, continues=continues, to=("none",)):
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
        saved = optimizer.state_dict()
    notes = [
        [note for note in open_run(tmp_path / name).facts["notes"] if "no moments" in note]
        for name in ("first", "second")
    ]
    assert notes[0] == []
    assert len(notes[1]) == told
