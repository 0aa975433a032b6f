"""The help of a budget says what it counts."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from steadytrain.cli.main import commands


@pytest.mark.parametrize("command", ["diagnose", "trial", "fix"])
def test_the_help_says_that_a_budget_counts_work_and_not_the_clock(command: str) -> None:
    told = CliRunner().invoke(commands, [command, "--help"]).output
    assert "counts work, not the clock" in " ".join(told.split())
