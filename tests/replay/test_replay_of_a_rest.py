"""A run that rests is replayed inside its bursts; a killed one leaves a folder that can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import bare, call, finished, recorded, write_script
from steadytrain.storage.tape_files import find_recording

PACED = """
import functools, os, sys
import steadytrain
from steadytrain.capture.step import pacing

class Ticks:
    seconds = 0.0

    def __call__(self):
        self.seconds += 1e-3
        return self.seconds

pacing.Pace = functools.partial(pacing.Pace, allowance_s=0.0, first_steps=80, rest_s_max=0.25, clock=Ticks())
import torch
from torch import nn
"""

SCRIPT = f"""
{PACED}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
rows = torch.randn(320, 16)
data = torch.utils.data.TensorDataset(rows, rows[:, :1].tanh())
bad, killed, step = int(sys.argv[1]), int(sys.argv[2]), 0
with steadytrain.watch(model, optimizer, runs_dir="runs", name="run", keep_rewind=True):
    for _ in range(60):
        for inputs, targets in torch.utils.data.DataLoader(data, batch_size=32, shuffle=True):
            step += 1
            loss = (model(inputs) + 0.1 * torch.randn(32, 1) - targets).square().mean()
            if step == bad:
                loss = loss * float("nan")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == killed:
                os.kill(os.getpid(), 9)
"""

TURNS = f"""
{PACED}
from torch.nn import functional as F

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 8))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
rows = torch.randn(512, 8) @ torch.randn(8, 8)
bad, of = int(sys.argv[1]), sys.argv[2]
with steadytrain.watch(runs_dir="runs", name="run", keep_rewind=True):
    for turn in range(1, 160):
        made = generator(torch.randn(16, 4))
        real = rows[torch.randint(0, 512, (16,))]
        loss = F.softplus(-critic(real)).mean() + F.softplus(critic(made.detach())).mean()
        of_critic.zero_grad()
        (loss * float("nan") if turn == bad and of == "critic" else loss).backward()
        of_critic.step()
        loss = F.softplus(-critic(made)).mean()
        of_generator.zero_grad()
        (loss * float("nan") if turn == bad and of == "generator" else loss).backward()
        of_generator.step()
"""


def bursts(steps: list[int]) -> list[int]:
    """The first steps of the bursts."""
    return [step for step, before in zip(steps[1:], steps, strict=False) if step != before + 1]


def train(folder: Path, *, bad: int = 0, killed: int = 0) -> tuple[int, str]:
    """Train in ``folder``, with a bad loss in one step or killed after one. Returns the status and what was said."""
    folder.mkdir()
    write_script(folder, SCRIPT)
    done = finished(bare("train.py", bad, killed), folder=folder)
    return done.returncode, done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_steps_of_a_burst_replay_to_the_last_bit_and_so_does_an_incident_in_it(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    assert train(whole)[0] == 0
    begins = bursts(recorded(whole).scalars().steps.tolist())
    assert begins[-1] in find_recording(whole / "runs" / "run").starts()
    done = call("replay", whole / "runs" / "run", "--from", begins[-1], "--until", begins[-1] + 9)
    assert "10 of 10 steps, to the last bit" in done.stdout, done.stdout + done.stderr
    refused = call("replay", whole / "runs" / "run", "--until", begins[-1] - 2)
    assert "the run rested in between" in refused.stderr

    stopped = tmp_path / "stopped"
    status, told = train(stopped, bad=begins[0] + 5)
    assert status == 70
    assert "not recorded" not in told
    done = call("replay", stopped / "runs" / "run")
    assert "6 of 6 steps, to the last bit" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1  # it came again


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_rests_leaves_a_folder_that_can_be_read(tmp_path: Path) -> None:
    assert train(tmp_path / "killed", killed=110)[0] == -9
    run = recorded(tmp_path / "killed")
    assert run.scalars().steps.tolist() == list(range(1, 96))
    assert run.facts["rests"] == {"first_step": 96, "rests": 1, "steps": 95, "rested": 0}
    shown = call("show", run.path)
    assert shown.returncode == 0, shown.stderr


@pytest.mark.slow
def test_an_incident_of_a_resting_step_says_what_it_lacks(tmp_path: Path) -> None:
    status, told = train(tmp_path / "rested", bad=110)
    assert status == 70
    assert "not recorded         the run rested since step 96" in told
    (bundle,) = recorded(tmp_path / "rested").incidents
    shown = call("show", bundle)
    assert "step 110 was not recorded, because the run rested since step 96" in " ".join(shown.stdout.split())
    again = call("replay", bundle)
    assert again.returncode == 2
    assert "Traceback" not in again.stderr


@pytest.mark.slow
@pytest.mark.parametrize("of", ["critic", "generator"])
def test_an_incident_of_optimizers_that_take_turns_replays_from_the_burst_that_it_lies_in(
    of: str, tmp_path: Path
) -> None:
    folder = tmp_path / "turns"
    folder.mkdir()
    write_script(folder, TURNS)
    done = finished(bare("train.py", 110, of), folder=folder)
    assert done.returncode == 70, done.stderr
    assert 64 < bursts(recorded(folder).scalars().steps.tolist())[0] < 110
    replayed = call("replay", folder / "runs" / "run")
    assert "steps, to the last bit" in replayed.stdout, replayed.stdout + replayed.stderr
    assert "replay of steps 8" in replayed.stdout  # 81 or 82: the first or the second step of the burst
    assert replayed.returncode == 1  # it came again
