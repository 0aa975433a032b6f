"""``steadytrain ledger``, and a replay and a trial across an update that the policy skipped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import Ended, call, run_script

SCRIPT = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    for step in range(1, 12):
        inputs = torch.randn(16, 8)
        if step in (5, 9, 10):
            inputs[3, 2] = float("nan")
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_script(tmp_path_factory.mktemp("skip"), SCRIPT, "--policy", "skip", "--max-skips", "1")


@pytest.mark.slow
def test_every_action_is_listed(outcome: Ended) -> None:
    assert outcome.status == 70
    done = call("ledger", str(outcome.run_dir), "--json")
    document = json.loads(done.stdout)
    assert (document["schema"], document["policy"], document["touched"]) == ("steadytrain.ledger/1", "skip", True)
    listed = [(action["step"], action["what"]) for action in document["actions"]]
    assert listed == [(5, "skipped-update"), (9, "skipped-update"), (10, "refused-update")]
    text = call("ledger", str(outcome.run_dir)).stdout
    assert "step 5  update skipped: the loss is NaN" in text
    assert "3 of 3 entries changed the run" in text
    shown = " ".join(call("show", str(outcome.run_dir)).stdout.split())
    assert "steadytrain touched this run: it skipped the updates of steps 5, 9, and the training went on." in shown


@pytest.mark.slow
def test_a_replay_skips_what_the_run_skipped(outcome: Ended) -> None:
    done = call("replay", str(outcome.run.incidents[-1]), "--json")
    document = json.loads(done.stdout)
    assert (document["from_step"], document["until_step"]) == (2, 10)
    assert document["first_difference"] is None
    assert document["symptom"] is True


def test_an_incident_has_no_ledger_of_its_own(outcome: Ended) -> None:
    done = call("ledger", str(outcome.run.incidents[0]))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "the ledger is the run's" in done.stderr


@pytest.mark.parametrize("given", ["0", "-3", "many"])
def test_a_bound_on_skips_that_makes_no_sense_is_one_line(given: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(9)", encoding="utf-8")
    done = call("run", "--policy", "skip", "--max-skips", given, str(script))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert given in done.stderr
