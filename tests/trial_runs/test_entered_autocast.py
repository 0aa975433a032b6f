"""A change of the number format that begins at a call which the script makes under autocast, in its own process."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import sys, torch
from steadytrain.trial_runs.changes.precision import Bfloat16ForFloat16, Float32
from steadytrain.trial_runs.launched_script import Launched

change = {"float32": Float32, "bfloat16": Bfloat16ForFloat16}[sys.argv[1]]()
model = torch.nn.Linear(4, 1)
with torch.autocast("cpu", dtype=torch.float16):
    model(torch.randn(2, 4))  # the cast weights are kept
    change.begin(Launched())
    within = model(torch.randn(2, 4)).dtype
with torch.autocast("cpu", dtype=torch.float16):
    after = model(torch.randn(2, 4)).dtype
print(within, after, bool(change.touched), torch.is_autocast_enabled("cpu"))
"""


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_the_call_itself_is_changed(kind: str) -> None:
    run = [sys.executable, "-c", PROGRAM, kind]
    done = subprocess.run(run, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == f"torch.{kind} torch.{kind} True False"
