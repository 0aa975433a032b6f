"""What a stranger names reaches the terminal without its control characters."""

from __future__ import annotations

import sys
from io import StringIO

import pytest

from steadytrain.cli import _terminal
from steadytrain.cli.main import _refuse


def test_escape_sequences_are_written_out() -> None:
    assert _terminal.visible("a\x1b[31mb\tc\r\nd\u202e") == "a\\x1b[31mb\tc\r\nd\\u202e"


def test_everything_on_both_streams_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = StringIO(), StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with _terminal.guarded():
        sys.stdout.write("name\x1b]0;x\x07\n")
        sys.stderr.writelines(["\x9b2J"])
    assert out.getvalue() == "name\\x1b]0;x\\x07\n"
    assert err.getvalue() == "\\x9b2J"


def test_a_refusal_is_covered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        _refuse("run\x1b[2J")
    assert end.value.code == 2
    assert capsys.readouterr().err == "steadytrain: run\\x1b[2J\n"
