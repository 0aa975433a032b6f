"""A launch ends with the budget and says how long it has run; an interrupted diagnosis says what it knows."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import builders
from steadytrain.api import diagnoses
from steadytrain.cli.diagnose import command
from steadytrain.core.work_time import work_time
from steadytrain.experiments.specs import NO_TIME_LEFT, Entry, Outcome, Spec
from steadytrain.trial_runs import diagnose as diagnosing
from steadytrain.trial_runs import worker as workers
from steadytrain.trial_runs.worker import Worker

SPEC = Spec("unchanged", 0, 3, (Entry(4),))


class Silent:
    """A connection to a script that is launched and never gets to its trials."""

    def receive(self, wait_s: float) -> None:
        time.sleep(min(wait_s, 0.05))

    def close(self) -> None:
        pass


class Desk:
    trial_s_max, memory_bytes_max = 300.0, 1 << 40

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.told, self.waiting = scratch, list[str](), [(SPEC, 0)]

    def launch_key(self, spec: Spec) -> str:
        return spec.key

    def connect(self, key: str, spec: Spec, log: Path) -> Any:
        return Silent()

    def next_spec(self, key: str | None, until: float | None) -> tuple[Spec, int] | None:
        return self.waiting.pop() if self.waiting else None

    def again(self, spec: Spec, tries: int) -> None:
        raise AssertionError("a launch that took too long is not tried again")

    def tell(self, text: str) -> None:
        self.told.append(text)


def test_the_budget_ends_a_launch_and_its_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "TELL_S", 0.2)
    desk, done = Desk(tmp_path), queue.Queue[Outcome | BaseException]()
    Worker(desk, 0).work(done, work_time() + 1.0, threading.Event())
    outcome = done.get_nowait()
    assert isinstance(outcome, Outcome)
    assert (outcome.ran, outcome.why_not) == (False, NO_TIME_LEFT)
    assert desk.told[0].startswith("unchanged: launched, on its way to the trials (")


def test_a_limit_of_its_own_is_no_spent_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LAUNCH_S_MAX", 0.3)
    done = queue.Queue[Outcome | BaseException]()
    Worker(Desk(tmp_path), 0).work(done, work_time() + 100.0, threading.Event())
    outcome = done.get_nowait()
    assert isinstance(outcome, Outcome)
    assert outcome.why_not == "the launched script took more than 0.3 s to reach the start of the trials"


def test_ctrl_c_ends_with_one_line_and_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt("interrupted: the symptom is loss-spike; so far bad-batch (0.40)")

    monkeypatch.setattr(diagnoses, "diagnose", interrupted)
    ended = CliRunner().invoke(command, ["x"], standalone_mode=False)
    assert ended.return_value == 130
    assert ended.output == "steadytrain: interrupted: the symptom is loss-spike; so far bad-batch (0.40)\n"


def test_the_survey_has_half_of_the_budget_and_says_so_when_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = builders.write_bundle(tmp_path / "incidents" / "step-412")
    waits: list[float] = []

    def interrupted(source: Path, *, wait_s: float, **_: Any) -> None:
        waits.append(wait_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(diagnosing, "survey", interrupted)
    monkeypatch.setattr(work_time, "_load", lambda: 0.0)
    for budget_s in (40.0, 3600.0):
        with pytest.raises(KeyboardInterrupt, match=r"during the survey: the symptom is .*; nothing was tried"):
            diagnosing.diagnose(diagnosing.Request(bundle, budget_s, 1), tell=lambda line: None)
    monkeypatch.setattr(work_time, "slower", lambda: 3.0)
    with pytest.raises(KeyboardInterrupt):
        diagnosing.diagnose(diagnosing.Request(bundle, 40.0, 1), tell=lambda line: None)
    assert waits == [20.0, 300.0, 60.0]  # on a busy machine three seconds count as one


def test_an_interrupted_trial_leaves_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = builders.write_bundle(tmp_path / "incidents" / "step-412")

    def interrupted(bench: Any) -> None:
        bench.outcomes["drop-batch"] = [Outcome(replace(SPEC, trial="drop-batch"), True)]
        raise KeyboardInterrupt

    monkeypatch.setattr(diagnosing, "_try", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"so far [a-z-]+ \(0\.\d\d\); drop-batch finished and is kept"):
        diagnosing.diagnose(diagnosing.Request(bundle, 40.0, 1), tell=lambda line: None)
