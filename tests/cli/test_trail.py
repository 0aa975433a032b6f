"""Next commands and the names in them: what is printed can be pasted."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import builders
from scripts import Entered
from steadytrain.cli.explain import command as explain
from steadytrain.cli.main import commands
from steadytrain.cli.runs import command as runs
from steadytrain.core.errors import UsageError
from steadytrain.core.own_command import own_command
from steadytrain.storage.run_search import find, short_name


def test_the_command_is_that_of_this_interpreter(tmp_path: Path) -> None:
    python = tmp_path / "my env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    assert own_command(executable=str(python), path="") == f"'{python}' -m steadytrain"
    for folder in (python.parent, tmp_path):
        (folder / "steadytrain").write_text("#!/another/python\n")
        (folder / "steadytrain").chmod(0o755)
    assert own_command(executable=str(python), path=str(python.parent)) == "steadytrain"
    assert own_command(executable=str(python), path=str(tmp_path)) == f"'{python}' -m steadytrain"


def test_short_names_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("steadytrain-runs")
    bad = builders.bad_run(folder / "bad one", name="given")
    incident = bad / "incidents" / "step-412"
    assert short_name(bad) == "'bad one'"
    assert short_name(incident) == "'bad one/step-412'"
    for name in ("bad one", "given", "@last"):
        assert find(name, folder) == bad
        assert find(f"{name}/step-412", folder) == incident
    with pytest.raises(UsageError, match="no such incident; it has step-412"):
        find("given/step-1", folder)
    with pytest.raises(UsageError, match="did you mean bad one"):
        find("bad-on", folder)
    builders.quiet_run(folder / "other", name="given")
    with pytest.raises(UsageError, match="2 runs have this name"):
        find("given", folder)


def test_a_listed_name_is_whole_and_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for name in ("a-name-of-many-words-that-is-longer-than-half-of-a-terminal", "twice", "again"):
        builders.quiet_run(tmp_path / name, **({} if name[0] == "a" and "-" in name else {"name": "same"}))
    listed = [line.split()[0] for line in CliRunner().invoke(runs, ["--runs-dir", str(tmp_path)]).stdout.splitlines()]
    assert len(listed) == 4
    for name in listed[1:]:
        assert find(name, tmp_path) == tmp_path / name


def test_a_word_finds_few_names() -> None:
    told = CliRunner().invoke(explain, ["nan"], catch_exceptions=False).stdout
    assert "nonfinite-loss" in told
    assert len([line for line in told.splitlines() if line and not line.endswith(":")]) < 24


def test_a_misspelled_command_is_told_in_one_line(tmp_path: Path, entered: Entered) -> None:
    status, out, err = entered("diagnos", folder=tmp_path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "did you mean diagnose" in err


def test_no_summary_is_cut() -> None:
    listed = CliRunner().invoke(commands, ["--help"]).stdout.partition("Watch:")[2]
    assert "show" in listed
    assert "..." not in listed
