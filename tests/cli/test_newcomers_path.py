"""From a script of one's own to a verified fix: each next command is pasted as it was printed, and none fails."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from scripts import call, write_script

SCRIPT = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    x = torch.randn(512, 8)
    y = x.sum(1, keepdim=True)
    y[417] = float("nan")
    rows = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(rows, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for features, target in loader:
            loss = nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
STEPS_MAX = 8


@pytest.mark.slow
def test_every_next_command_leads_on_to_the_mended_run(tmp_path: Path) -> None:
    script = write_script(tmp_path, SCRIPT)
    words, walked, said = ["run", "train.py"], [], ""
    while len(walked) < STEPS_MAX:
        done = call(*words, folder=tmp_path)
        said = done.stdout + done.stderr
        walked.append(words[0])
        stopped = walked == ["run"]
        assert done.returncode in ((70,) if stopped else (0, 1) if words[0] == "locate" else (0,)), said
        if words[0] == "run" and not stopped:
            break
        words = pasted(said)
    assert walked == ["run", "show", "locate", "diagnose", "fix", "fix", "run"]
    assert "if row not in {417}" in script.read_text(encoding="utf-8")
    assert "changed this run" not in said


def pasted(said: str) -> list[str]:
    """The words after ``steadytrain`` of the only next command."""
    (line,) = re.findall(r"^(?:steadytrain:)? *next:? +(.+?)(?:  # .*)?$", said, re.MULTILINE)
    first, *words = shlex.split(line)
    assert shutil.which(first) is not None
    if words[:2] == ["-m", "steadytrain"]:
        return words[2:]
    assert Path(first).name == "steadytrain"
    return words
