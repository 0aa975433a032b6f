"""A survey keeps the state shortly before the onset, and a trial from there is the run, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from scripts import run_script
from steadytrain.experiments.case_files import open_case
from steadytrain.experiments.near_start import LEAD_STEPS, near_start
from steadytrain.experiments.specs import NotApplicable
from steadytrain.experiments.trial_catalog import trial
from steadytrain.replay.moved_files import Moved
from steadytrain.storage.tape_files import find_snapshots, remove_snapshot
from steadytrain.survey.launch import survey
from steadytrain.trial_runs.pool import Pool

ONSET = 150
SCRIPT = f"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 1))
average = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
for step in range(1, {ONSET + 1}):
    x = torch.randn(8, 4) * (100.0 if step == {ONSET} else 1.0)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    model[0].weight.data.clamp_(-0.9, 0.9)  # changed after the update, which belongs to the state
    average.update_parameters(model)
"""


@pytest.mark.slow
def test_a_trial_from_the_kept_state_is_the_run(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, SCRIPT, "--policy", "observe", "--keep-rewind", "--to", "none")
    assert outcome.status == 0, outcome.err
    run = outcome.run_dir
    for shot in find_snapshots(run)[1:]:  # which of them are left depends on the load of the machine
        remove_snapshot(shot)
    case = open_case(run, onset=ONSET)
    near = near_start(case)
    assert near == ONSET - 1 - LEAD_STEPS
    facts = survey(run, moved=Moved.parse("-"), wait_s=120, lead_s=60, onset=ONSET, near=near)
    assert facts["replay_exact"]
    case = open_case(run, onset=ONSET)
    assert (case.begin, case.kept) == (near, near)
    plan = trial("unchanged").plan(case)
    assert not isinstance(plan, NotApplicable)
    assert plan[0].begin == near
    with Pool(run, keep=False) as pool:
        (ran,) = pool.run(plan[:1])
    assert ran.ran, ran.why_not
    assert ran.exact
    assert len([one for one in ran.steps if one.finite]) >= LEAD_STEPS
