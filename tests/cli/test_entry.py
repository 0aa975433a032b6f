"""What the command line makes of an error: one line on standard error and status 2."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from scripts import call
from steadytrain.cli import main
from steadytrain.core.errors import UsageError


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


@pytest.mark.parametrize(
    ("typed", "why", "shown"),
    [
        (["show", "passwd"], "passwd: no such run", "passwd: no such run"),
        (["show", "--runs-dir", "secrets"], "--runs-dir secrets: no folder", "--runs-dir secrets: no folder"),
        (["run", "./passwd"], "./passwd:12: syntax error", "./passwd:12: syntax error"),
        (["run", "--policy", "token"], "'token': no such policy", "'token': no such policy"),
        (["show", "x"], "passwd: hunter2", "passwd: [redacted: passwd, 7 characters]"),
        (["show", "passwd"], "passwd: token=hunter2x", "passwd: token=[redacted: token, 8 characters]"),
        (["x", "--password"], "--password: hunter2", "--password: [redacted: password, 7 characters]"),
        (["show", "password=hunter2"], "password=hunter2: no", "password=[redacted: password, 11 characters]"),
    ],
)
def test_a_name_that_was_typed_is_shown_and_a_secret_is_not(
    typed: list[str], why: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(**_: object) -> None:
        raise UsageError(why)

    monkeypatch.setattr(sys, "argv", ["steadytrain", *typed])
    monkeypatch.setattr(main.commands, "main", fails)
    with pytest.raises(SystemExit):
        main.entry()
    assert capsys.readouterr().err == f"steadytrain: {shown}\n"


def test_a_module_of_the_users_does_not_take_the_place_of_one_of_ours(tmp_path: Path) -> None:
    """Python puts the current folder first for ``-m``."""
    (tmp_path / "click.py").write_text("raise SystemExit(77)\n")
    (tmp_path / "train.py").write_text("import click\n")
    assert call("--version", folder=tmp_path).returncode == 0
    assert call("run", "train.py", folder=tmp_path).returncode == 77


def test_a_plain_folder_takes_the_place_of_no_package(tmp_path: Path) -> None:
    (tmp_path / "click").mkdir()
    (tmp_path / "train.py").write_text("import click\nprint(click.Group.__name__)\n")
    ran = call("run", "train.py", folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "Group\n")
