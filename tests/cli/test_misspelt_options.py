"""A misspelt option before the script, the run or the words of a command is named as one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from steadytrain.cli.main import commands
from steadytrain.core.errors import UsageError


def refused(*arguments: str) -> str:
    with pytest.raises(UsageError) as error:
        CliRunner().invoke(commands, arguments, catch_exceptions=False)
    return str(error.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "--polcy", "stop", "train.py"), "--polcy: no such option; did you mean --policy?"),
        (("run", "--polcy=stop", "train.py"), "--polcy: no such option; did you mean --policy?"),
        (("run", "--name", "a", "--xyzzy", "train.py"), "--xyzzy: no such option; `steadytrain run --help` lists all"),
        (("preflight", "--skp", "causality", "train.py"), "--skp: no such option; did you mean --skip?"),
        (("preflight", "--fasst", "train.py"), "--fasst: no such option; did you mean --fast?"),
        (("ctl", "--jsn", "a-run", "status"), "--jsn: no such option; did you mean --json?"),
        (("ctl", "a-run", "status", "--jsn"), "--jsn: no such option; did you mean --json?"),
    ],
)
def test_it_is_named(arguments: tuple[str, ...], says: str) -> None:
    assert says in refused(*arguments)


def test_a_script_whose_name_begins_so_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "--polcy").write_text("x = (", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "syntax error" in refused("run", "--", "--polcy")


def test_options_behind_the_script_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "train.py: no such script" in refused("run", "train.py", "--polcy", "stop")
