"""Messages beside a script: names that the script chose cannot steer the terminal."""

from __future__ import annotations

import sys

import pytest

from steadytrain.attach.messages import tell


def test_a_name_with_escape_sequences_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    tell("the run a\x1b[31m\x9b2J has stopped\n  next  show a\tb")
    assert capsys.readouterr().err == "steadytrain: the run a\\x1b[31m\\x9b2J has stopped\n  next  show a\tb\n"


def test_a_print_of_the_script_is_not_used(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.print", lambda *args, **kwargs: sys.stdout.write("[12:00] "))
    tell("the loss is NaN")
    assert capsys.readouterr() == ("", "steadytrain: the loss is NaN\n")


def test_a_script_without_stderr_has_its_stdout_to_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    tell("the loss is NaN")
    assert capsys.readouterr().out == ""
