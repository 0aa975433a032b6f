"""A name that no file can have is refused in one line, also by `run`, which lets the errors of a script through."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from steadytrain.cli.main import entry

LONG = "x" * 300


@pytest.mark.parametrize(
    "words",
    [
        ("run", f"{LONG}.py"),
        ("run", "--policy", LONG, "train.py"),
        ("run", "--continues", LONG, "train.py"),
        ("run", "--resume-from", LONG, "train.py"),
        ("show", "--runs-dir", LONG),
        ("policy", "show", LONG),
    ],
)
def test_it_is_refused_in_one_line(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('trained')")
    monkeypatch.setattr(sys, "argv", ["steadytrain", *words])
    with pytest.raises(SystemExit) as ended:
        entry()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("steadytrain: ")
    assert said.count("\n") == 1
