"""``steadytrain notify``: a test message that arrives, or one line and status 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from receivers import dead_port, web_hook

from steadytrain.cli import notify
from steadytrain.core.errors import UsageError

TOKEN = "T0k3nOfTheHookPath"


def run(*words: str) -> str:
    done = CliRunner().invoke(notify.command, list(words), standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


@pytest.fixture(autouse=True)
def _no_address_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEADYTRAIN_NOTIFY", raising=False)


def test_a_command_gets_the_message_as_json(tmp_path: Path) -> None:
    assert run("--on-incident", f"cat > {tmp_path}/alert.json") == "sent to the command cat\n"
    document = json.loads((tmp_path / "alert.json").read_text())
    assert (document["schema"], document["event"], document["severity"]) == ("steadytrain.alert/1", "test", "note")
    assert document["title"] == "steadytrain: test message"
    assert document["text"].splitlines()[-1].startswith("From: ")


def test_a_command_that_fails_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"the command false: it ended with status 1$"):
        run("--on-incident", "false")


def test_without_an_address_nothing_is_sent() -> None:
    with pytest.raises(UsageError, match="no address; name one"):
        run()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what some services import
class TestServices:
    @pytest.fixture(autouse=True)
    def _apprise(self) -> None:
        pytest.importorskip("apprise")

    def test_the_address_of_the_environment_gets_the_message(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with web_hook() as (port, got):
            monkeypatch.setenv("STEADYTRAIN_NOTIFY", f"json://127.0.0.1:{port}/{TOKEN}")
            assert run() == f"sent to json://127.0.0.1:{port}\n"
        (message,) = got
        assert (message["title"], message["type"]) == ("steadytrain: test message", "info")

    def test_an_unreachable_host_is_an_error_and_the_others_get_it(self) -> None:
        dead = dead_port()
        with web_hook() as (port, got), pytest.raises(UsageError) as error:
            run(f"json://127.0.0.1:{dead}/{TOKEN}", f"json://127.0.0.1:{port}/{TOKEN}")
        assert str(error.value).startswith(f"the message did not arrive at json://127.0.0.1:{dead}: ")
        assert TOKEN not in str(error.value)
        assert len(got) == 1

    def test_an_unknown_service_is_an_error_and_nothing_is_sent(self) -> None:
        with web_hook() as (port, got), pytest.raises(UsageError, match=r"slcak://\.\.\.: Apprise knows no such"):
            run(f"json://127.0.0.1:{port}/{TOKEN}", f"slcak://{TOKEN}/b/c")
        assert got == []
