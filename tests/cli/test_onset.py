"""``steadytrain onset`` through the real command: what left its course first is named, in a healthy run nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import Ended, call, run_script
from zoo_cases import ZOO

WAIT_S_MAX = 150.0
FAULT = 640

SCRIPT = f"""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    plane = torch.randn(6, 1)
    for step in range(1, {FAULT + 40}):
        x = torch.randn(16, 6)
        y = x @ plane + 0.3 * torch.randn(16, 1)
        if step == {FAULT}:
            FAULT
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
FAULTS = {
    "batch": "y = y * 1000.0",
    "rate": "optimizer.param_groups[0]['lr'] = 0.3",
    "nothing": "pass",
}


def onset(target: Path, *options: str, status: int) -> Any:
    done = call("onset", str(target), *options)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout) if "--json" in options else done.stdout or done.stderr


@pytest.fixture(
    scope="module", params=["batch", *(pytest.param(name, marks=pytest.mark.long) for name in ("rate", "nothing"))]
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Ended]:
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, run_script(folder, SCRIPT.replace("FAULT", FAULTS[request.param]), "--keep-rewind")


@pytest.mark.long
def test_the_first_that_left_its_course_is_named(run: tuple[str, Ended]) -> None:
    fault, outcome = run
    document = onset(outcome.run_dir, "--json", status=1 if fault == "nothing" else 0)
    assert document["schema"] == "steadytrain.onset/1"
    assert document["found"] == (fault != "nothing")
    if fault == "nothing":
        assert (document["step"], document["first"], document["evidence"]) == (None, None, [])
        assert "nothing deviated" in document["why"]
        return
    first = document["first"]
    assert document["step"] == first["step"] == FAULT
    if fault == "batch":
        assert (first["phase"], first["quantity"].split("_")[0]) == ("batch", "target")
        assert first["value"] > 500 * first["usual"]
        assert document["settings"] == []
    else:
        assert (first["phase"], first["quantity"]) == ("optimizer", "update_ratio")
        assert document["settings"] == [f"the learning rate went from 0.003 to 0.3 at step {FAULT}"]
    assert {one["phase"] for one in document["evidence"]} >= {"loss", first["phase"]}
    assert document["evidence"] == sorted(document["evidence"], key=lambda one: one["step"])


@pytest.mark.long
def test_before_the_fault_nothing_is_blamed_and_a_person_reads_it(run: tuple[str, Ended]) -> None:
    fault, outcome = run
    if fault != "batch":
        pytest.skip("one fault is enough")
    told = onset(outcome.run_dir, "--until", str(FAULT - 40), status=1)
    assert "nothing deviated before the symptom" in told


@pytest.mark.parametrize(
    ("options", "told"),
    [(("--until", "0"), "--until 0"), (("--wait-s", "0"), "--wait-s 0.0"), (("--lead-s", "-1"), "--lead-s -1.0")],
    ids=["until", "wait", "lead"],
)
def test_bad_use_is_told_in_one_line(options: tuple[str, ...], told: str, tmp_path: Path) -> None:
    assert told in onset(tmp_path, *options, status=2)


def test_without_a_tape_there_is_nothing_to_measure(tmp_path: Path) -> None:
    script = SCRIPT.replace("FAULT", FAULTS["batch"])
    outcome = run_script(tmp_path, script, "--rewind-mb", "0")
    assert "--rewind-mb 0" in onset(outcome.run_dir, status=2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "quantity", "steps"),
    [
        ("layers/attention_logits.py", "attention_logit_max", (2, 16)),
        ("layers/half_overflow.py", "headroom", (40, 240)),
        ("layers/second_moment_lag.py", "input_rms", (601, 601)),
        ("curves/weight_decay_wrong_sign.py", "parameter_norm", (60, 420)),
    ],
    ids=["attention-logits", "half-overflow", "second-moment-lag", "weight-decay"],
)
def test_of_the_zoo(script: str, quantity: str, steps: tuple[int, int], tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / script, "--level", "full")
    document = onset(outcome.run_dir, "--json", status=0)
    assert document["first"]["quantity"] == quantity
    assert steps[0] <= document["step"] <= steps[1]
    if quantity == "input_rms":  # the sensor that woke came first, and with it the second moment lags
        lag = [one for one in document["evidence"] if one["quantity"] == "gradient_to_second_moment"]
        assert [one["step"] for one in lag] == [601]
