"""A control file and a socket that are not ours: a command reads a bounded part of them and ends."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.guard import control_socket


def ask(run: Path) -> None:
    with pytest.raises(UsageError, match="takes no commands"):
        control_socket.ask(run, "pause")


def test_a_control_file_that_is_a_pipe_or_too_long_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / control_socket.CONTROL_FILE)
    ask(tmp_path)
    (tmp_path / control_socket.CONTROL_FILE).unlink()
    (tmp_path / control_socket.CONTROL_FILE).write_text(" " * control_socket.MESSAGE_BYTES_MAX + "{}")
    ask(tmp_path)


def test_an_answer_without_an_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "ANSWER_BYTES_MAX", 10_000)
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    sent = 0
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("talks")
        listening.listen(1)

        def talk() -> None:
            nonlocal sent
            client, _ = listening.accept()
            with client:
                client.settimeout(30)
                try:
                    while sent < 10_000_000:
                        sent += client.send(b"[" * 1_000)
                except OSError:
                    return

        thread = threading.Thread(target=talk)
        thread.start()
        (tmp_path / control_socket.CONTROL_FILE).write_text(json.dumps({"socket": "talks"}))
        ask(tmp_path)
        thread.join(30)
    assert sent < 10_000_000
