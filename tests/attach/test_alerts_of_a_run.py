"""Alerts of a whole run: the options on the command line and in ``watch``, a stop, and a script that never began."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch
from torch import nn

import steadytrain
from scripts import run_script
from steadytrain.attach.options import Options
from steadytrain.exporters.run_exports import Exports
from waiting import until

SECRET = "sesame-77-opens"

SCRIPT = """
    import sys

    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if "early" in sys.argv:
        raise RuntimeError("no data")
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        if step == 4:
            loss = torch.log(loss - loss - 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped", "early"])
def test_the_command_gets_one_document_when_a_run_is_stopped_or_never_begins(how: str, tmp_path: Path) -> None:
    alert = tmp_path / "alert.json"
    ended = run_script(
        tmp_path, SCRIPT, "--on-incident", f"PASSWORD={SECRET} cat >> {alert}", arguments=(how,), fails=how == "early"
    )
    until(alert.exists)
    assert ended.status == (70 if how == "stopped" else 1)
    (line,) = alert.read_text().splitlines()
    document = json.loads(line)
    assert document["event"] == "end"
    if how == "early":
        assert document["what"] == "FAILED before the end of its first step. RuntimeError: no data."
        assert not ended.run_dir.exists()
        return
    assert document["headline"] == "STOPPED before the update of step 5: nonfinite-loss"
    assert "aten.log.default made nan" in document["where"]
    assert document["incident"] == str(ended.run_dir / "incidents" / "step-000005")
    assert not any(SECRET.encode() in path.read_bytes() for path in ended.run_dir.rglob("*") if path.is_file())


LOADING = """
    import os
    import sys

    if len(sys.argv) > 1:
        os.kill(os.getpid(), int(sys.argv[1]))
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_a_script_that_is_killed_while_it_loads_is_alerted_of(kind: signal.Signals, tmp_path: Path) -> None:
    alert = tmp_path / "alert.json"
    command = f"cat > {alert}.part && mv {alert}.part {alert}"
    assert run_script(tmp_path, LOADING, "--on-incident", command, arguments=(str(int(kind)),)).status == -kind
    until(alert.exists)
    document = json.loads(alert.read_text())
    assert (document["event"], document["ended"], document["step"]) == ("end", "lost", None)


@pytest.mark.slow
def test_a_script_that_comes_to_its_first_step_is_alerted_of_once(tmp_path: Path) -> None:
    alert = tmp_path / "alert.json"
    ended = run_script(tmp_path, LOADING, "--notify-at", "warning", "--on-incident", f"cat >> {alert}")
    assert ended.status == 0
    assert not alert.exists(), "it finished well, and nothing waited"


def test_watch_alerts_too_and_takes_the_addresses_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    class Kept(Exports):  # type: ignore[misc]
        def __init__(self, *args: object, **kwargs: object) -> None:
            made.append(kwargs["alerts"])
            super().__init__(("none",), tell=print)

    monkeypatch.setattr("steadytrain.exporters.run_exports.Exports", Kept)
    monkeypatch.setattr("steadytrain.attach.watched_run._check_addresses", lambda options: None)
    monkeypatch.setattr("steadytrain.exporters.alerts.settings.apprise_is_installed", lambda: True)
    monkeypatch.setenv("STEADYTRAIN_NOTIFY", f"json://bob:{SECRET}@localhost  json://localhost/2")
    model = nn.Linear(4, 1)
    with steadytrain.watch(model, torch.optim.SGD(model.parameters(), lr=0.01), runs_dir=tmp_path, notify_at="warning"):
        with pytest.raises(steadytrain.UsageError) as error:
            steadytrain.watch(model, notify=f"json://bob:{SECRET}2@localhost", on_incident=f"echo {SECRET}")
        asked, _, has = str(error.value).partition(", but ")
        assert asked == "watch: asked for another notify, another on_incident"
        assert has.startswith("the open watch has another notify, no on_incident; close")
    (alerts,) = made
    assert alerts.urls == (f"json://bob:{SECRET}@localhost", "json://localhost/2")  # type: ignore[attr-defined]
    assert alerts.at == "warning"  # type: ignore[attr-defined]
    assert SECRET not in repr(alerts)


def test_the_policy_says_which_symptoms_are_alerted(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('policy = "steady"\n[symptoms]\nplateau = "alert"\ndivergence = "note"\n')
    alerts = Options(policy=str(policy), on_incident="cat").alerts()
    assert alerts.wants("plateau", "warning")
    assert not alerts.wants("divergence", "critical")
    assert not alerts.wants("loss-spike", "warning")
    assert alerts.wants("loss-spike", "critical")
    assert SECRET not in repr(Options(on_incident=f"echo {SECRET}"))
