"""Alerts through Apprise itself, to servers of the test's own. It is imported in processes of their own alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from email import message_from_string
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apprise")

from receivers import dead_port, mail_server, silent_server, web_hook

from builders import TENSORS, incident, records, symptom, write_bundle
from steadytrain.core.errors import UsageError
from steadytrain.exporters import run_exports
from steadytrain.exporters.alerts import url_check
from steadytrain.exporters.alerts.settings import AlertSettings
from steadytrain.exporters.exporter_process import child_environment
from steadytrain.exporters.run_exports import Exports
from waiting import WAIT_S_MAX, until

PASSWORD, TOKEN = "sesame-77-opens", "T0k3nOfTheHookPath"


def run_of(folder: Path, settings: AlertSettings, *, told: list[str], ended: str = "stopped") -> None:
    """A run whose last step is bad, with its incident, handed to a sink that alerts."""
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    sink = Exports(("none",), tell=told.append, alerts=settings)
    sink.open(folder, {"name": folder.name})
    for record in records(20, nan_at=20):
        sink.step("main", record, TENSORS)
    sink.symptom(symptom(20))
    frozen = incident(20)
    sink.incident(write_bundle(folder / "incidents" / "step-000020", frozen), frozen)
    sink.close(ended)


def written(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_exports, "CLOSE_WAIT_S_MAX", WAIT_S_MAX)


def test_a_web_hook_a_mail_and_a_command_get_the_same_answer(tmp_path: Path) -> None:
    told: list[str] = []
    with web_hook() as (port, got), mail_server() as (mail_port, mails):
        settings = AlertSettings(
            urls=(
                f"json://bob:{PASSWORD}@127.0.0.1:{port}/{TOKEN}",
                f"mailto://127.0.0.1:{mail_port}?smtp=127.0.0.1&mode=insecure&from=run@example.com&to=me@example.com",
            ),
            command=f"cat > {tmp_path}/alert.json",
        )
        run_of(tmp_path / "run", settings, told=told)
    assert told == []
    (message,) = got
    assert message["title"] == "run: STOPPED before the update of step 20: nonfinite-gradient"
    assert message["path"] == f"/{TOKEN}"
    assert message["type"] == "failure"
    document = json.loads((tmp_path / "alert.json").read_text())
    assert message["message"] == document["text"]
    assert "aten.log.default made inf in model.head.norm" in document["where"]
    assert document["step"] == 20
    (mail,) = [message_from_string(one, policy=default) for one in mails]
    assert mail["Subject"] == message["title"]
    body = mail.get_body(("html", "plain"))
    assert body is not None
    assert "Done: update refused, run stopped" in body.get_content()
    assert PASSWORD not in written(tmp_path / "run")
    assert TOKEN not in written(tmp_path / "run")
    assert not (tmp_path / "run" / "alerts.log").exists()


def test_a_dead_server_is_reported_once_without_its_secrets(tmp_path: Path) -> None:
    told: list[str] = []
    with web_hook(500) as (port, got):
        urls = (f"json://bob:{PASSWORD}@127.0.0.1:{dead_port()}/{TOKEN}", f"json://127.0.0.1:{port}/{TOKEN}")
        run_of(tmp_path / "run", AlertSettings(urls=urls), told=told)
    assert len(got) > 1
    assert len(told) == 2
    assert all(line.startswith("warning: an alert did not reach json://127.0.0.1:") for line in told)
    everything = "\n".join(told) + written(tmp_path / "run")
    assert PASSWORD not in everything
    assert TOKEN not in everything
    assert str(port) in (tmp_path / "run" / "alerts.log").read_text()


@pytest.mark.long
def test_a_server_that_never_answers_holds_up_no_other_and_not_the_end_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_exports, "CLOSE_WAIT_S_MAX", 1.0)
    told: list[str] = []
    with silent_server() as port, web_hook() as (other, got):
        urls = (f"json://127.0.0.1:{port}/x", f"json://127.0.0.1:{other}/x")
        run_of(tmp_path / "run", AlertSettings(urls=urls), told=told)
        assert told == [f"note: alerts are still being sent; what fails is in {tmp_path / 'run' / 'alerts.log'}"]
        from steadytrain.exporters import exporter_process

        (process,) = exporter_process._left
        assert process.wait(WAIT_S_MAX) in (0, 1)
    assert len(got) == 1
    assert f"json://127.0.0.1:{port}: " in (tmp_path / "run" / "alerts.log").read_text()


@pytest.mark.slow
def test_a_run_that_is_killed_is_alerted(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from builders import TENSORS, records\n"
        "from feeding import handed_over\n"
        "from steadytrain.exporters.alerts.settings import AlertSettings\n"
        "from steadytrain.exporters.run_exports import Exports\n"
        "Path('run').mkdir()\n"
        "sink = Exports(('none',), tell=print, alerts=AlertSettings(command='cat > alert.json'))\n"
        "sink.open(Path('run').absolute(), {'name': 'run'})\n"
        "for record in records(7):\n"
        "    sink.step('main', record, TENSORS)\n"
        "next(iter(sink._feeds.values())).send_held()\n"
        "handed_over(sink)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    tests = str(Path(__file__).parents[1])
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, env={**os.environ, "PYTHONPATH": tests}, check=False)
    until(lambda: (tmp_path / "alert.json").exists() and (tmp_path / "alert.json").read_text())
    document = json.loads((tmp_path / "alert.json").read_text())
    assert (document["ended"], document["severity"], document["step"]) == ("lost", "critical", 7)
    assert document["headline"].startswith("LOST after 7 steps or more: its process ended without a word")


BAD: list[tuple[Any, str]] = [
    (f"slcak://{TOKEN}/b/c", "--notify slcak://...: Apprise knows no such service; did you mean slack"),
    (f"https://example.com/{TOKEN}", "a web hook of your own is jsons://HOST/PATH"),
    ("json://", "--notify json://...: the rest of the address is not what json needs"),
    (f"json:///{TOKEN}", "--notify json:///...: no host stands in it; write json://HOST/PATH"),
    (f"json:////{TOKEN}/x", "--notify json:///...: no host stands in it; write json://HOST/PATH"),
    (f"json://localhost:99999/{TOKEN}", "--notify json://...: its port is not between 1 and 65535"),
    (f"json://localhost:-5/{TOKEN}", "--notify json://...: its port is not between 1 and 65535"),
    (f"mailto://me:{TOKEN}@localhost:70000?to=a@b.org", "--notify mailto://...: its port is not between"),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what some services import
def test_an_address_of_no_service_is_refused_without_its_secrets() -> None:
    from steadytrain.exporters.alerts.services import Service

    for url, line in BAD:
        with pytest.raises(ValueError, match=r":///?\.\.\.: ") as error:
            Service(url)
        assert line.removeprefix("--notify ") in str(error.value)
        assert TOKEN not in str(error.value)
    assert Service("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general").name == "slack"
    assert Service(f"json://bob:{PASSWORD}@localhost:8080/x").name == "json://localhost:8080"


def test_addresses_are_checked_in_another_process() -> None:
    url, line = BAD[0]
    with pytest.raises(UsageError) as error:
        url_check.refuse_bad_urls(["json://localhost/ok", url], child_environment())
    assert line in str(error.value)
    assert TOKEN not in str(error.value)


def test_a_check_that_cannot_be_made_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert url_check.refuse_bad_urls(["json://localhost"], {}) == "the check ended with status 1"
