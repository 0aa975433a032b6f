"""Progress of long commands: elapsed time and counts on a terminal, nothing without one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from steadytrain import trial_runs
from steadytrain.cli._options import seconds
from steadytrain.cli._progress import progress
from steadytrain.core.errors import UsageError
from steadytrain.experiments.specs import Entry, Outcome, Spec
from steadytrain.trial_runs import Counting, run_trials

SPECS = [Spec(name, 0, 80, (Entry(81),)) for name in ("unchanged", "clip", "float32")]


class Pool:
    """A pool whose trials are over at once; one of them is said twice."""

    def run(self, specs: list[Spec], **_: object) -> Iterator[Outcome]:
        yield from (Outcome(spec, True) for spec in dict.fromkeys(specs))


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120)


def test_without_a_terminal_there_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as tell:
        assert tell is None
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_time_counts_and_lines_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_runs, "_pool", lambda *_: Pool())
    console = terminal()
    with progress(console) as tell:
        assert tell is not None
        assert isinstance(tell, Counting)
        outcomes = run_trials(Path("incident"), [*SPECS, SPECS[0]], tell=tell)
        next(outcomes)
        assert tell.trials == "trials: 1 done, 2 to come"
        list(outcomes)
        assert tell.trials == "trials: 3 done, 0 to come"
        tell("the next round [of two]")
        next(run_trials(Path("incident"), SPECS[:2], tell=tell))
        assert tell.trials == "trials: 4 done, 1 to come"
        tell("a line that is far too long " * 10)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert "0:00:00" in printed
    assert "starting" in printed
    assert "steadytrain: the next round [of two]" in printed


def test_a_plain_function_is_told_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_runs, "_pool", lambda *_: Pool())
    lines: list[str] = []
    assert len(list(run_trials(Path("incident"), SPECS, tell=lines.append))) == 3
    assert not isinstance(lines.append, Counting)


def test_times_of_budgets() -> None:
    assert [seconds(text) for text in ("90", "90s", "1.5m", "1h", " 2 m ")] == [90.0, 90.0, 90.0, 3600.0, 120.0]
    for wrong in ("0", "0s", "-3", "soon", "1d", ""):
        with pytest.raises(UsageError, match="--budget"):
            seconds(wrong)
