"""``steadytrain replay --devices``: a core that computes wrong each time is found, and ``diagnose`` names it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from scripts import call, run_script

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="there is one core only"
    ),
]

SCRIPT = """
    import os
    import torch

    BAD = int(os.environ["BAD_CORE"])
    if "PINNED" in os.environ:  # as a scheduler of jobs does it
        os.sched_setaffinity(0, {BAD})
    torch.manual_seed(0)

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            is_there = os.sched_getaffinity(0) == {BAD} and step == 12
            return value * (float("inf") if is_there else 1.0)

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 16):
        rows = torch.randn(8, 4)
        optimizer.zero_grad()
        loss = (Product.apply(model(rows)) - rows.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
"""


def test_a_core_that_computes_wrong(tmp_path: Path) -> None:
    bad = str(max(os.sched_getaffinity(0)))
    ended = run_script(tmp_path, SCRIPT, environment={"BAD_CORE": bad, "PINNED": "1"}, fails=True)
    assert ended.status == 70, ended.err
    incident = ended.run.incidents[0]
    asked = call("replay", incident, "--devices", "--json", folder=tmp_path, environment={"BAD_CORE": bad})
    assert asked.returncode == 1, asked.stderr
    found = json.loads(asked.stdout)
    assert found["kind"] == "persistent-device"
    (suspect,) = [one for one in found["devices"] if one["suspect"]]
    assert bad in suspect["name"]
    assert found["switch"] is not None

    diagnosed = call("diagnose", incident, "--json", folder=tmp_path, environment={"BAD_CORE": bad})
    answer = json.loads(diagnosed.stdout)
    assert answer["diagnoses"][0]["cause"] == "faulty-device", diagnosed.stdout[:2000]
    assert answer["axis"]["name"] == "hardware"


def test_all_devices_repeat_a_fault_of_the_program(tmp_path: Path) -> None:
    source = SCRIPT.replace("os.sched_getaffinity(0) == {BAD} and step == 12", "step == 12")
    ended = run_script(tmp_path, source, environment={"BAD_CORE": "0"}, fails=True)
    incident = ended.run.incidents[0]
    asked = call("replay", incident, "--devices", folder=tmp_path, environment={"BAD_CORE": "0"})
    assert asked.returncode == 1, asked.stderr
    assert "hardware is not the cause" in asked.stdout
    assert "(1 of " in asked.stderr


@pytest.mark.parametrize(("option", "said"), [("--once", "leave out --once"), ("--times=0", "--times 0")])
def test_refused(tmp_path: Path, option: str, said: str) -> None:
    asked = call("replay", tmp_path, "--devices", option)
    assert asked.returncode == 2
    assert said in asked.stderr
    assert asked.stderr.count("\n") == 1
