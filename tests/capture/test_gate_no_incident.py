"""Steps that look bad and are no incident: overflowing norms, steps that a scaler or the script itself skips."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import steadytrain
from gate_loops import INF, NAN, recorded
from steadytrain.storage.bundle import open_bundle
from watching import stopping

# -- what is no incident -----------------------------------------------------------------------------------------------

HUGE = 3e38


def huge_but_finite(gradient: Tensor) -> Tensor:
    return torch.full_like(gradient, HUGE)


@pytest.mark.parametrize("clip", [False, True])
def test_a_finite_gradient_whose_norm_overflows_is_no_incident(clip: bool, tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-38)
    model.weight.register_hook(huge_but_finite)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run"):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).sum().backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    run = recorded(tmp_path)
    assert run.incidents == ()
    assert [symptom.name for symptom in run.symptoms] == []
    window = run.window()
    assert torch.from_numpy(window.gradient_norms.copy()).isfinite().all()
    assert all(math.isfinite(value) for value in window.signals["gradient_norm"])


def test_a_step_that_the_scaler_skips_is_no_incident(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run"):
        for step in range(1, 7):
            optimizer.zero_grad()
            loss = model(torch.randn(5, 4)).pow(2).mean()
            scaler.scale(loss * INF if step in (1, 4) else loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    run = recorded(tmp_path)
    assert run.incidents == ()
    assert run.symptoms == ()
    assert run.window().skipped.tolist() == [True, False, False, True, False, False]


def test_a_scaler_that_is_switched_off_leaves_the_gate_in_place(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with stopping(model, optimizer, tmp_path):
        for step in range(1, 7):
            optimizer.zero_grad()
            loss = model(torch.randn(5, 4)).pow(2).mean()
            scaler.scale(loss * NAN if step == 3 else loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    assert [action.step for action in recorded(tmp_path).actions] == [3]


@pytest.mark.parametrize("how", ["after backward", "after clipping"])
def test_a_script_that_throws_bad_gradients_away_itself_goes_on(how: str, tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run"):
        for step in range(1, 9):
            optimizer.zero_grad()
            loss = model(torch.randn(5, 4)).pow(2).mean() * (NAN if step in (3, 4, 6) else 1)
            loss.backward()
            if how == "after clipping" and not nn.utils.clip_grad_norm_(model.parameters(), 1.0).isfinite():
                continue
            if not loss.isfinite():
                optimizer.zero_grad()
                continue
            optimizer.step()
    run = recorded(tmp_path)
    (incident,) = run.incidents
    assert open_bundle(incident).incident.step == 3
    (symptom,) = run.symptoms
    assert "at step 3; since then the script made no update with 3 of 6 batches" in symptom.message
    window = run.window()
    assert len(window) == 5
    assert all(math.isfinite(value) for name in window.signals for value in window.signals[name])
    assert window.signals["samples"].tolist() == [5] * 5
