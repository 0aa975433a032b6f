"""Whole scripts under `steadytrain run`: what `show` tells of one that goes wrong, and what references are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import call, run_script

BEGIN = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(1, 481):
    inputs = torch.randn(64, 8)
    loss = (model(inputs) - inputs.sum(1, keepdim=True) - 0.5 * torch.randn(64, 1)).square().mean()
"""
END = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
RATE_TOO_HIGH = """
    if step == 400:
        for group in optimizer.param_groups:
            group["lr"] = 4.0
"""
HOLES = """
    if 300 <= step < 320:
        loss = loss + float("nan")  # the gradients stay what they are
    if step in (330, 450):
        loss = loss + 10.0
"""


def shown(folder: Path, body: str, policy: str) -> dict[str, Any]:
    """What ``show --json`` tells of this loop."""
    outcome = run_script(folder, BEGIN + body + END, "--policy", policy)
    assert outcome.status in (0, 70), outcome.err
    done = call("show", "--json", outcome.run_dir)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("policy", ["stop", "observe"])
def test_a_loss_that_diverges_and_is_lost_is_one_story_in_order(tmp_path: Path, policy: str) -> None:
    symptoms = shown(tmp_path, RATE_TOO_HIGH, policy)["symptoms"]
    assert {symptom["story"] for symptom in symptoms} == {1}
    firsts = [symptom["first_step"] for symptom in symptoms]
    assert firsts == sorted(firsts)
    assert 400 <= firsts[0] <= 404
    names = [symptom["name"] for symptom in symptoms]
    kinds = [(symptom["name"], *symptom["signals"]) for symptom in symptoms]
    assert len(kinds) == len(set(kinds))  # a fault that stays is not told at every look
    assert names.index("nonfinite-loss") > 0
    lost = symptoms[names.index("nonfinite-loss")]
    assert lost["severity"] == "critical"
    assert (lost["last_step"] == 480) == (policy == "observe")


def test_losses_that_are_no_numbers_enter_no_reference(tmp_path: Path) -> None:
    symptoms = shown(tmp_path, HOLES, "observe")["symptoms"]
    spans = {(symptom["name"], symptom["first_step"], symptom["last_step"]) for symptom in symptoms}
    assert ("nonfinite-loss", 300, 319) in spans
    assert {span for span in spans if span[0] == "loss-spike"} == {("loss-spike", 330, 330), ("loss-spike", 450, 450)}
    above = {symptom["name"] for symptom in symptoms if symptom["severity"] != "note"}
    assert above == {"nonfinite-loss"}


def test_the_refused_step_is_on_record_and_in_no_reference(tmp_path: Path) -> None:
    from steadytrain.storage.run_folder import open_run

    shown(tmp_path, RATE_TOO_HIGH, "stop")
    window = open_run(tmp_path / "runs" / "run").window()
    assert window.refused.tolist() == [False] * (len(window) - 1) + [True]
    assert int(window.steps[-1]) not in window.applied("gradient_norm_applied").steps
    assert int(window.steps[-1]) in window.series("loss").steps
