"""``steadytrain ui``: one line for a mistake, the address that opens, a token where others could ask."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import builders
from steadytrain.cli.ui import command
from steadytrain.core.errors import UsageError
from steadytrain.live.served.http_server import UiServer

WAIT_S = 60


def ui(*arguments: str | Path) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "my runs" / "run")
    with pytest.raises(UsageError, match="no such folder of runs"):
        ui(tmp_path / "none")
    with pytest.raises(UsageError, match=re.escape(f"steadytrain ui '{tmp_path}/my runs'")):
        ui(run)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="cannot listen there"):
        ui(tmp_path, "--port", str(taken.getsockname()[1]))
    with pytest.raises(UsageError, match="cannot listen there"):
        ui(tmp_path, "--host", "not an address")
    assert CliRunner().invoke(command, [str(tmp_path), "--port", "70000"]).exit_code == 2


def test_the_address_has_a_token_where_others_could_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens: list[str | None] = []

    def end(self: Any, poll_interval: float = 0.5) -> None:
        tokens.append(self.token)
        raise KeyboardInterrupt

    monkeypatch.setattr(UiServer, "serve_forever", end)
    monkeypatch.setattr("os.nice", lambda by: by)  # else of all tests after this one
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/  \(Ctrl-C ends\)\nended\n", ui(tmp_path, "--port", "0"))
    said = ui(tmp_path, "--port", "0", "--host", "0.0.0.0")
    name = re.escape(socket.gethostname())
    assert re.fullmatch(rf"http://{name}:\d+/\?token={tokens[1]}  \(Ctrl-C ends\)\nended\n", said)
    assert tokens[0] is None
    assert len(str(tokens[1])) >= 32


@pytest.mark.slow
def test_it_serves_until_interrupted(tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "bad")
    words = [sys.executable, "-m", "steadytrain", "ui", str(tmp_path), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout is not None
            port = int(re.findall(r":(\d+)/", served.stdout.readline())[0])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
            connection.request("GET", "/run/bad/state.json")
            assert b'"stopped"' in connection.getresponse().read()
            connection.close()
            served.send_signal(signal.SIGINT)
            out, err = served.communicate(timeout=WAIT_S)
        finally:
            served.kill()
    assert (out, err, served.returncode) == ("ended\n", "", 0)
