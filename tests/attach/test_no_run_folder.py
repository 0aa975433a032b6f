"""A run whose folder cannot be made: what was asked for holds all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import Ended, run_script
from waiting import until

NOWHERE = Path("/proc/no-such-folder")
"""Nobody can make a folder there, not even root."""

SCRIPT = """
    import sys

    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        if step == 4 and "bad" in sys.argv:
            loss = torch.log(loss - loss - 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def run(folder: Path, *options: str, bad: bool = False) -> Ended:
    return run_script(
        folder, SCRIPT, *options, arguments=("bad",) if bad else (), runs_dir=NOWHERE, environment=OPEN, fails=True
    )


OPEN = {"STEADYTRAIN_RAISE_OWN_ERRORS": ""}
"""As for a user: an error of ours does not end the run."""


def test_one_line_says_so_before_the_start(tmp_path: Path) -> None:
    ended = run(tmp_path)
    assert ended.status == 0
    assert f"no folder can be made in {NOWHERE} (No such file or directory)" in ended.told.splitlines()[0]
    assert ended.told.count(str(NOWHERE)) <= 4, "what follows from it is not said for each file"


@pytest.mark.parametrize(("bad", "status"), [(True, 71), (False, 0)])
def test_fail_on_judges_the_symptoms_that_were_seen(*, bad: bool, status: int, tmp_path: Path) -> None:
    ended = run(tmp_path, "--policy", "observe", "--fail-on", "critical", bad=bad)
    assert ended.status == status, ended.err


def test_a_training_is_one_without_a_folder_too(tmp_path: Path) -> None:
    assert run(tmp_path, "--require-training").status == 0


def test_alerts_are_sent(tmp_path: Path) -> None:
    alert = tmp_path / "alert.json"
    assert run(tmp_path, "--on-incident", f"cat > {alert}.part && mv {alert}.part {alert}", bad=True).status == 70
    until(alert.exists)
    document = json.loads(alert.read_text())
    assert document["headline"].startswith("STOPPED")
    assert "nonfinite-loss" in document["headline"]
    assert "the run folder could not be written" in document["what"]
