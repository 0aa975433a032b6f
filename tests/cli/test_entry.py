"""What the command line makes of an error: one line on standard error and status 2."""

from __future__ import annotations

import errno
import sys

import pytest

from steadytrain.cli import main


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.EIO, "Input/output error"), "a file: cannot be read or written (Input/output error)"),
        (OSError(errno.EIO, "Input/output error", "x"), "x: cannot be read or written (Input/output error)"),
        (OSError(errno.ENOSPC, "No space left on device"), "the output cannot be written (No space left on device)"),
    ],
)
def test_an_error_of_a_disk_is_one_line(
    error: OSError, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(**_: object) -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["steadytrain", "locate"])
    monkeypatch.setattr(main.commands, "main", fails)
    with pytest.raises(SystemExit) as ended:
        main.entry()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"steadytrain: {line}\n"
