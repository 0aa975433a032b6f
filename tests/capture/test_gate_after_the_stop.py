"""After a refused step: scripts that swallow the stop or end there, the schedule, and closures."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import steadytrain
from gate_loops import NAN, healthy, recorded, same, state, train
from scripts import run_script
from steadytrain.capture.step import gate
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run
from watching import stopping

# -- afterwards --------------------------------------------------------------------------------------------------------


def test_a_loop_that_swallows_the_stop_is_refused_again(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    refused = 0
    before: dict[str, Any] = {}
    with stopping(model, optimizer, tmp_path):
        for step in range(1, 7):
            if step == 3:
                before = state(model, optimizer)
            optimizer.zero_grad()
            (model(torch.randn(5, 4)).mean() * (NAN if step == 3 else 1)).backward()
            try:
                optimizer.step()
            except SystemExit:
                refused += 1
        raise ValueError("whatever the script makes of it")
    assert refused == 4
    assert same(before, state(model, optimizer))
    assert len(recorded(tmp_path).incidents) == 1


SWALLOWING = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 8):
    optimizer.zero_grad()
    (model(torch.randn(5, 4)).mean() * (float("nan") if step == 3 else 1)).backward()
    try:
        optimizer.step()
        print("applied", step)
    except {caught}:
        print("refused", step)
"""


@pytest.mark.slow
@pytest.mark.parametrize("caught", ["SystemExit", "BaseException", "Exception"])
def test_a_script_that_swallows_the_stop_still_ends_with_70(caught: str, tmp_path: Path) -> None:
    outcome = run_script(tmp_path, SWALLOWING.format(caught=caught))
    assert outcome.status == 70
    refused = [] if caught == "Exception" else [f"refused {step}" for step in range(3, 8)]
    assert outcome.out.splitlines() == ["applied 1", "applied 2", *refused]
    assert outcome.err.count("STOPPED") == 1
    assert outcome.run.ended == "stopped"


def test_a_loop_that_ends_right_after_the_bad_step_is_stopped_too(tmp_path: Path) -> None:
    """Where finding the operation needs one more lap and none comes, the refusal must still be told."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def backward(step: int) -> None:  # its frame is gone at the gate, and the loss is finite before
        loss = model(torch.randn(5, 4)).mean()
        (loss + (loss * 0).sqrt() if step == 3 else loss).backward()

    with stopping(model, optimizer, tmp_path):
        for step in range(1, 4):
            optimizer.zero_grad()
            backward(step)
            optimizer.step()
    assert recorded(tmp_path).ended == "stopped"


def test_observe_writes_one_incident_an_episode_and_three_at_most(tmp_path: Path) -> None:
    bad = {3, 4, 5, 8, 11, 12, 15}
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadytrain.watch(model, optimizer, policy="observe", runs_dir=tmp_path, name="run"):
        for step in range(1, 20):
            optimizer.zero_grad()
            (model(torch.randn(5, 4)).mean() + (NAN if step in bad else 0)).backward()
            optimizer.step()
    run = recorded(tmp_path)
    assert [path.name for path in run.incidents] == ["step-000003", "step-000008", "step-000011"]
    assert len(run.window()) == 19


def test_one_look_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is read from the device in a step comes over in one copy."""
    looks: list[int] = []
    fetch = gate.fetch
    monkeypatch.setattr(gate, "fetch", lambda scalars: looks.append(len(scalars)) or fetch(scalars))
    _, _, ending = train(
        lambda model, step: [healthy(model) / 3 for _ in range(3)],
        steps=20,
        before_step=lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        watch={"runs_dir": tmp_path},
    )
    assert ending is None
    assert len(looks) == 20


def test_the_lap_leaves_the_schedule_as_it_was(tmp_path: Path) -> None:
    """The script's own loop steps its schedulers on the way round; the refused step must not count for them."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=3)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[3])
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    before: list[Any] = []

    def schedule() -> list[Any]:
        return copy.deepcopy([part.state_dict() for part in (optimizer, scheduler, warmup, decay, plateau)])

    def backward(step: int) -> None:  # its frame is gone at the gate, and the loss is finite before
        loss = model(torch.randn(5, 4)).mean()
        (loss + (loss * 0).sqrt() if step >= 5 else loss).backward()

    with stopping(model, optimizer, tmp_path):
        for step in range(1, 9):
            if step == 5:
                before = schedule()
            optimizer.zero_grad()
            backward(step)
            optimizer.step()
            scheduler.step()
            plateau.step(float(step))
    located = open_bundle(recorded(tmp_path).incidents[0]).incident.finding.located
    assert located is not None
    assert located.phase == "backward"
    assert same(before, schedule())


def test_a_later_evaluation_of_a_closure_does_not_claim_untouched_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """LBFGS moves the weights between evaluations: refusing a later one cannot take back the earlier ones."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=5)
    inputs = torch.randn(32, 4)
    evaluations = 0

    def closure() -> torch.Tensor:
        nonlocal evaluations
        evaluations += 1
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True) ** 2).pow(2).mean()
        if evaluations == 2:
            loss = loss * float("nan")
        loss.backward()
        return loss

    watch = steadytrain.watch(model, optimizer, runs_dir=tmp_path)
    with pytest.raises(SystemExit):
        optimizer.step(closure)
    watch.close()
    (path,) = open_run(watch.run_dir).incidents
    incident = open_bundle(path).incident
    assert incident.action.what == "refused-rest-of-update"
    assert incident.state_note.startswith("kept as it was in the middle of step 1")
    message = capsys.readouterr().err
    assert "had already changed the weights within this step" in message
    assert "as they were before the step" not in message
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
