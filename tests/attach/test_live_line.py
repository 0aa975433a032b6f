"""The line below a notebook's cell: rate-limited, silent elsewhere, and never an error in a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from steadytrain.attach.live_line import LiveLine, Several, notebook_display
from steadytrain.core.model import Symptom
from steadytrain.detection.sink import NoSink
from steadytrain.storage.segments import StepRecord


class Screen:
    """A display that keeps what it was shown; ``fails`` from then on."""

    def __init__(self) -> None:
        self.shown: list[Any] = []
        self.fails = False

    def show(self, value: object) -> Screen:
        self.update(value)
        return self

    def update(self, value: object) -> None:
        if self.fails:
            raise OSError("the front end is gone")
        self.shown.append(value)


def record(step: int, loss: float) -> StepRecord:
    return StepRecord(step, float(step), {"loss": loss, "gradient_norm": 2.0}, np.zeros(0, np.float32))


def line(screen: Screen, *, every_s: float, steps: int) -> LiveLine:
    """A line that has seen ``steps`` steps, one every ``every_s`` seconds: the first at second 0."""
    now = [-every_s]
    made = LiveLine(screen.show, clock=lambda: now[0])
    made.open(Path("runs/a"), {"name": "<a>"})
    for step in range(1, steps + 1):
        now[0] += every_s
        made.step("main", record(step, 1.0 / step), ())
    return made


def test_it_is_updated_twice_a_second_at_most() -> None:
    screen = Screen()
    line(screen, every_s=0.01, steps=1000)
    assert 18 <= len(screen.shown) <= 20


def test_it_says_how_far_how_fast_and_what_is_wrong() -> None:
    screen = Screen()
    made = line(screen, every_s=0.1, steps=100)
    made.symptom(Symptom("loss-spike", "critical", 90, 95, "rose"))
    made.close("stopped")
    text, html = repr(screen.shown[-1]), screen.shown[-1]._repr_html_()
    assert text.startswith("stopped by steadytrain: <a> · step 100 · loss 0.01 · gradient norm 2 · 10 steps/s")
    assert text.endswith("loss-spike at step 90")
    assert "&lt;a&gt;" in html
    assert "<a>" not in html
    assert "nothing wrong yet" in repr(screen.shown[-2])


def test_a_front_end_that_is_gone_ends_the_line_and_nothing_else() -> None:
    screen = Screen()
    made = line(screen, every_s=1.0, steps=3)
    screen.fails = True
    made.step("main", record(4, 1.0), ())
    made.close("finished")
    assert len(screen.shown) < 4


def test_without_a_notebook_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    made = LiveLine()
    made.open(Path("runs/a"), {})
    made.step("main", record(1, 1.0), ())
    made.close("finished")
    assert notebook_display("x") is None
    assert capsys.readouterr() == ("", "")


def test_one_sink_that_fails_does_not_keep_the_next_from_its_values() -> None:
    screen = Screen()
    made = line(screen, every_s=1.0, steps=1)

    class Broken(NoSink):  # type: ignore[misc]
        def step(self, stream: str, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        Several(Broken(), made).step("main", record(2, 1.0), ())
    made.close("finished")
    assert "step 2" in repr(screen.shown[-1])
