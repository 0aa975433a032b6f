"""A watch that begins after the optimizers were made records the calls of every model that they update."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import steadytrain
from steadytrain.replay.recorded_steps import RecordedSteps
from steadytrain.storage.tape_files import find_recording


def test_the_calls_of_both_models_are_on_the_tape(tmp_path: Path) -> None:
    torch.manual_seed(0)
    critic, generator = nn.Linear(8, 1), nn.Linear(4, 8)
    of_critic = torch.optim.SGD(critic.parameters(), lr=1e-2)
    of_generator = torch.optim.SGD(generator.parameters(), lr=1e-2)
    with steadytrain.watch(runs_dir=tmp_path, name="run", keep_rewind=True):
        for _ in range(6):
            made = generator(torch.randn(16, 4))
            of_critic.zero_grad()
            (critic(made.detach()).mean() - critic(torch.randn(16, 8)).mean()).backward()
            of_critic.step()
            of_generator.zero_grad()
            (-critic(made).mean()).backward()
            of_generator.step()
    step = RecordedSteps(find_recording(tmp_path / "run")).step(5)
    assert step is not None
    assert len(step.calls) == 4  # for the generator's loss of the turn before, then one of the generator and two
