"""The run folder of a real run: what it records is what the script itself computes, and a killed run loses nothing."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

import steadytrain
from parameters import telling
from scripts import WAIT_S_MAX, command, run_script, write_script
from steadytrain.cli.main import commands
from steadytrain.core.model import GRADIENT_ABSENT
from steadytrain.storage.run_folder import open_run
from waiting import until

ENDLESS = """
import os
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
print(os.getpid(), flush=True)
with open("finished.txt", "w", buffering=1) as log:
    for step in range(1, 1_000_000):
        loss = model(torch.randn(16, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write(f"{step} {loss.item()!r}\\n")
"""
KILLS = 3
KILLED_AFTER = 50
"""Steps more for each; where in a step it falls is chance, and nothing that is lost or kept depends on it."""


@pytest.mark.slow
@pytest.mark.parametrize("kill", telling(range(KILLS), ["1"]))
def test_a_killed_run_loses_at_most_the_step_in_flight(kill: int, tmp_path: Path) -> None:
    script = write_script(tmp_path, ENDLESS)
    finished = tmp_path / "finished.txt"
    line = command("run", "--runs-dir", "runs", "--name", "run", script)
    process = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    with process.stdout:
        trains = int(process.stdout.readline())
    until(lambda: finished.exists() and finished.read_text().count("\n") > KILLED_AFTER * kill)
    os.kill(trains, signal.SIGKILL)  # itself: what was launched may be another process, which ends when this one has
    assert process.wait(timeout=WAIT_S_MAX) == -signal.SIGKILL

    lines = [line.split() for line in finished.read_text().splitlines() if line.count(".") == 1]
    done = {int(step): float(loss) for step, loss in lines[:-1]}  # the last line may be cut off
    run = open_run(tmp_path / "runs" / "run")
    assert run.ended is None
    window = run.window()
    assert window.steps.tolist() == list(range(1, len(window) + 1))
    assert 0 <= len(window) - len(lines) <= 1
    recorded = dict(zip(window.steps.tolist(), window.signals["loss"].tolist(), strict=True))
    assert {step: recorded[step] for step in done} == pytest.approx(done, rel=1e-6)
    shown = CliRunner().invoke(commands, ["show", str(run.path)], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output


COMPUTES = """
import gc
import json
import torch
from torch import nn

torch.manual_seed(0)

class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.1), nn.GELU(), nn.Linear(32, 50))
        self.unused = nn.Linear(2, 2)

    def forward(self, ids):
        return self.body(self.embed(ids))

model = Language()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
rows = []

def norm(tensors):
    return float(torch.cat([t.detach().double().ravel() for t in tensors]).norm())

for step in range(1, 31):
    optimizer.zero_grad()
    losses, samples, tokens = [], 0, 0
    for micro in range(3):
        ids = torch.randint(0, 50, (4 + micro, 7))
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        (loss / 3).backward()
        losses.append(loss.item())
        samples, tokens = samples + ids.shape[0], tokens + ids.numel()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    rows.append({
        "loss": sum(losses) / 3,
        "gradient_norm": norm(gradients.values()),
        "gradient_norm_applied": norm(p.grad for p in model.parameters() if p.grad is not None),
        "parameter_norm": norm(model.parameters()),
        "learning_rate": optimizer.param_groups[0]["lr"],
        "samples": samples,
        "tokens": tokens,
        "tensors": {name: norm([gradient]) for name, gradient in gradients.items()},
    })
    optimizer.step()
    scheduler.step()
    with torch.no_grad():
        model.eval()
        model(torch.randint(0, 50, (9, 7)))
        model.train()
json.dump(rows, open("computed.json", "w"))
"""


@pytest.mark.slow
def test_the_record_says_what_the_script_computes(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, COMPUTES, "--level", "full")
    assert outcome.status == 0, outcome.err
    assert outcome.warnings
    assert all("unused.weight first) had no gradient" in warning for warning in outcome.warnings)
    rows = json.loads((tmp_path / "computed.json").read_text())
    window = outcome.run.window()
    assert window.steps.tolist() == list(range(1, 31))
    for name in (
        "loss",
        "gradient_norm",
        "gradient_norm_applied",
        "learning_rate",
        "samples",
        "tokens",
    ):
        assert window.present[name].all()
        assert window.signals[name].tolist() == pytest.approx([row[name] for row in rows], rel=1e-5), name
    weighed = window.series("parameter_norm")
    assert {1, 8, 16, 24} <= set(weighed.steps.tolist())  # after the warning more often
    assert weighed.values.tolist() == pytest.approx([rows[step - 1]["parameter_norm"] for step in weighed.steps])
    for position, name in enumerate(window.tensor_names):
        expected = [row["tensors"].get(name, GRADIENT_ABSENT) for row in rows]
        assert window.gradient_norms[:, position].tolist() == pytest.approx(expected, rel=1e-5), name
    assert set(rows[0]["tensors"]) | {"unused.weight", "unused.bias"} == set(window.tensor_names)
    assert (window.signals["step_s"] > 0).all()


def test_a_run_that_trains_nothing_leaves_no_folder(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run") as watch:
        model(torch.randn(3, 2))
    assert not watch.run_dir.exists()
    assert list(tmp_path.iterdir()) == []


def test_parameters_added_on_the_way_begin_a_new_segment(tmp_path: Path) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    model = nn.Sequential(first, second)
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run"):
        for step in range(1, 7):
            if step == 4:
                optimizer.add_param_group({"params": second.parameters(), "lr": 0.01})
            optimizer.zero_grad()
            model(torch.randn(3, 2)).sum().backward()
            optimizer.step()
    run = open_run(tmp_path / "run")
    assert len(list((run.path / "tables" / "main" / "gradients").glob("*.rows"))) == 2
    window = run.window()
    assert window.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert window.tensor_names == ("0.weight", "0.bias", "1.weight", "1.bias")
    absent = window.gradient_norms == np.float32(GRADIENT_ABSENT)
    assert absent.tolist() == [[False, False, True, True]] * 3 + [[False] * 4] * 3


def test_two_watches_after_each_other_have_a_folder_each(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for name in ("one", "two"):
        with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name=name):
            optimizer.zero_grad()
            model(torch.randn(3, 2)).sum().backward()
            optimizer.step()
    for name in ("one", "two"):
        run = open_run(tmp_path / name)
        assert (run.ended, run.window().steps.tolist()) == ("finished", [1])


def test_a_closed_watch_lets_go_of_the_model(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run"):
        optimizer.zero_grad()
        model(torch.randn(3, 2)).sum().backward()
        optimizer.step()
    gone = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert gone() is None
