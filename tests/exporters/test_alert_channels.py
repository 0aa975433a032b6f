"""A destination of alerts: rate limit, quiet hours, failures and hanging, with a clock of the test."""

from __future__ import annotations

import os
import threading
from datetime import datetime
from pathlib import Path

import pytest

from steadytrain.exporters.alerts import channels, command_call
from steadytrain.exporters.alerts.alert import Alert, Place
from steadytrain.exporters.alerts.channels import HOUR_S, TRIES_MAX, Channel, Limits
from steadytrain.exporters.alerts.command_call import CommandCall
from steadytrain.exporters.alerts.settings import quiet_hours
from steadytrain.exporters.exporter import ExporterError
from waiting import WAIT_S_MAX, until

PLACE = Place("run", "/runs/run", "node")


def alert(number: int, severity: str = "critical", event: str = "story") -> Alert:
    return Alert(event, severity, PLACE, "", None, None, f"alert {number}", "", "", "", "")  # type: ignore[arg-type]


class Sent:
    """A channel and what came through it. ``fails`` says how often it fails first."""

    def __init__(self, *, fails: int = 0, per_hour: int = 100, quiet: str = "", hour: int = 12) -> None:
        self.now_s, self.hour, self.fails = 0.0, hour, fails
        self.sent: list[tuple[str, str]] = []
        self.told: list[str] = []
        self.logged: list[str] = []
        self.tried = 0
        limits = Limits(
            per_hour,
            quiet_hours(quiet) if quiet else None,
            clock=lambda: self.now_s,
            hour=lambda: datetime(2026, 1, 1, self.hour),
        )
        self.channel = Channel("there", self.send, limits, self.told.append, self.logged.append)

    def send(self, one: Alert, held: str) -> None:
        self.tried += 1
        if self.fails:
            self.fails -= 1
            raise ExporterError("no answer")
        self.sent.append((one.headline, held))

    def close(self) -> None:
        self.channel.ask_to_close()
        assert self.channel.wait_closed(WAIT_S_MAX)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "POLL_S", 0.005)
    monkeypatch.setattr(channels, "LAST_RETRY_S", 0.0)


def test_more_than_the_limit_is_gathered_until_the_hour_is_over() -> None:
    there = Sent(per_hour=2)
    for number in range(2):
        there.channel.put(alert(number))
        until(lambda number=number: len(there.sent) == number + 1)
    there.channel.put(alert(2, "warning"))
    there.channel.put(alert(3))
    there.channel.put(alert(4, "warning"))
    there.now_s = HOUR_S + 1
    until(lambda: len(there.sent) == 3)
    assert there.sent[2] == ("alert 3", "Held back until now: alert 2; alert 4")
    there.close()


def test_quiet_hours_hold_all_but_the_end_of_the_run() -> None:
    there = Sent(quiet="22:00-07:00", hour=3)
    there.channel.put(alert(1))
    there.channel.put(alert(2, event="end"))
    threading.Event().wait(0.05)
    assert there.sent == []
    there.close()
    assert there.sent == [("alert 2", "Held back until now: alert 1")]


def test_a_failure_is_told_once_and_tried_again() -> None:
    there = Sent(fails=1)
    there.channel.put(alert(1))
    until(lambda: there.told)
    assert there.told == ["warning: an alert did not reach there: no answer"]
    assert there.sent == []
    there.now_s = 100.0
    until(lambda: there.sent)
    there.close()
    assert len(there.told) == 1


def test_a_dead_one_is_told_once_and_given_up_each_time() -> None:
    there = Sent(fails=1000)
    for number in range(3):
        there.channel.put(alert(number))
        for tries in range(TRIES_MAX):
            until(lambda tried=TRIES_MAX * number + tries + 1: there.tried == tried)
            there.now_s += 1000
    there.fails = 0
    there.channel.put(alert(9))
    until(lambda: there.sent)
    assert there.sent == [("alert 9", "Not sent before: 3 alerts")]
    assert len(there.told) == 1
    assert len(there.logged) == 3 * TRIES_MAX
    there.close()


def test_a_dead_one_does_not_keep_the_end_of_a_run_waiting() -> None:
    there = Sent(fails=1000)
    there.channel.put(alert(1, event="end"))
    there.close()
    assert there.tried >= TRIES_MAX
    assert there.sent == []


def test_one_that_hangs_holds_up_no_other() -> None:
    answers = threading.Event()
    hanging = Channel("dead", lambda *_: answers.wait() and None, Limits(10), print, print)
    there = Sent()
    for channel in (hanging, there.channel):
        channel.put(alert(1))
    until(lambda: there.sent)
    there.close()
    hanging.ask_to_close()
    assert not hanging.wait_closed(0.01)
    answers.set()
    assert hanging.wait_closed(WAIT_S_MAX)


def call(command: str, **environment: str) -> CommandCall:
    return CommandCall(command, {"PATH": os.environ["PATH"], **environment})


def test_the_command_gets_the_document_of_the_alert(tmp_path: Path) -> None:
    import json

    there = call(f"cat > {tmp_path}/got; echo $OWN > {tmp_path}/own", OWN="mine")
    there.send(alert(1), "Held back until now: alert 0")
    document = json.loads((tmp_path / "got").read_text())
    assert document["schema"] == "steadytrain.alert/1"
    assert (document["event"], document["severity"], document["run"]) == ("story", "critical", "run")
    assert document["held"] == "Held back until now: alert 0"
    assert (tmp_path / "own").read_text() == "mine\n"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            "echo no room: api_key=hf_abcdefghijklmnopqrstuvwx >&2; exit 3",
            r"with status 3: no room: api_key=\[red",
        ),
        ("/no/such/command", "it ended with status 127"),
        ("yes | head -c 1000000 >&2; exit 1", "it ended with status 1: "),
    ],
)
def test_a_command_that_fails_says_why_and_no_secret(command: str, why: str) -> None:
    with pytest.raises(ExporterError, match=why) as error:
        call(command).send(alert(1), "")
    assert "hf_abc" not in str(error.value)
    assert len(str(error.value)) < 500


def test_a_command_that_hangs_is_killed_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_call, "COMMAND_S_MAX", 0.2)
    with pytest.raises(ExporterError, match=r"did not end within 0\.2 s and was killed"):
        call(f"sleep 1000 & echo $! > {tmp_path}/child; wait").send(alert(1), "")
    child = int((tmp_path / "child").read_text())
    until(lambda: not is_alive(child))


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_its_name_holds_no_secret() -> None:
    assert call("TOKEN=s3cr3t /usr/bin/curl -H 'Authorization: Bearer abc' https://x").name == "the command curl"
