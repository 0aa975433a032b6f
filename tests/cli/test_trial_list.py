"""What ``trial`` lists without a name, and what an unknown name gets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import builders
from steadytrain.cli.trial import command
from steadytrain.core.errors import UsageError
from steadytrain.experiments.trial_catalog import trial, trials


def listed(*arguments: str) -> str:
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_of_an_incident_only_what_applies_is_listed(tmp_path: Path) -> None:
    incident = str(builders.bad_run(tmp_path / "run") / "incidents" / "step-412")
    short, every = listed(incident), listed(incident, "--all")
    found = re.search(r"^(\d+) other trials do not apply here; --all says why$", short, re.MULTILINE)
    assert found is not None
    assert "does not apply:" not in short
    assert every.count("(does not apply:") == int(found[1])
    assert "not apply here" not in every


def test_without_an_incident_all_are_listed() -> None:
    assert [line.split()[0] for line in listed().splitlines()] == [one.name for one in trials()]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("foo", r"^no trial is called 'foo'; `steadytrain trial` lists all$"),
        ("drop-bach", r"did you mean drop-batch\? \(`steadytrain trial` lists all\)$"),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones(asked: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        trial(asked)
