"""Whole scripts with one fault each, and the same script without it: the check that is named fails, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import call

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCRIPT = """
import sys
import numpy as np
import torch
from torch import nn
from torch.nn import functional

FAULT = sys.argv[1]
torch.manual_seed(0)


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        chance = torch.Generator().manual_seed(1)
        self.features = torch.randn(400, 8, generator=chance)
        self.labels = (self.features[:, 0] + self.features[:, 1] > 0).long()
        if FAULT == "sorted":
            order = torch.argsort(self.labels)
            self.features, self.labels = self.features[order], self.labels[order]
        if FAULT == "nan":
            self.features[395, 3] = float("nan")
        self.random = np.random.default_rng(0)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        noise = torch.randn(()) if FAULT != "workers" else float(self.random.normal())
        return self.features[place] + 0.01 * noise, self.labels[place]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 32), nn.Linear(32, 2)
        self.register_buffer("average", torch.zeros(32), persistent=FAULT != "unsaved")

    def forward(self, x):
        hidden = torch.tanh(self.one(x))
        if self.training:
            self.average = 0.9 * self.average + 0.1 * hidden.detach().mean(dim=0)
        return self.two(hidden - self.average)


workers = {"num_workers": 2} if FAULT in ("workers", "none") else {}
loader = torch.utils.data.DataLoader(Rows(), batch_size=16, shuffle=FAULT != "sorted", **workers)
model = Net()
if FAULT == "half":
    model = model.bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5 if FAULT == "half" else 1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
ACCUMULATED = 2
done = 0
for epoch in range(8):
    for number, (x, y) in enumerate(loader):
        if FAULT == "half":
            x = x.bfloat16()
        loss = functional.cross_entropy(model(x).float(), y) / ACCUMULATED
        loss.backward()
        if FAULT == "schedule":
            scheduler.step()
        if number % ACCUMULATED == ACCUMULATED - 1:
            nn.utils.clip_grad_norm_(model.one.parameters() if FAULT == "clip" else model.parameters(), 0.01)
            optimizer.step()
            if FAULT != "schedule":
                scheduler.step()
            optimizer.zero_grad()
            done += 1
"""
FAULTS = {
    "none": "",
    "sorted": "loader-data",
    "nan": "loader-data",
    "workers": "worker-randomness",
    "unsaved": "resume-equivalence",
    "half": "precision-audit",
    "schedule": "scheduler-audit",
    "clip": "clipping-order",
}
QUICK = ("none", "unsaved")
CHECKS = (
    *("loader-data", "worker-randomness", "resume-equivalence", "precision-audit", "scheduler-audit"),
    *("clipping-order", "data-parallel-equivalence", "warm-up"),
)


@pytest.mark.parametrize(
    "fault", [fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.long) for fault in FAULTS]
)
def test_the_fault_of_a_script_is_found_by_its_check_alone(fault: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ran = call("preflight", "--json", "--checks", ",".join(CHECKS), "train.py", fault, folder=tmp_path)
    assert ran.stdout.startswith("{"), ran.stderr
    document = json.loads(ran.stdout)
    found = {entry["name"]: entry for entry in document["checks"]}
    loud = {name: entry["message"] for name, entry in found.items() if entry["status"] in ("fail", "warn")}
    assert list(loud) == ([FAULTS[fault]] if FAULTS[fault] else []), loud
    assert ran.returncode == (1 if any(found[name]["status"] == "fail" for name in loud) else 0)
    assert document["restored"], document["moved"]
