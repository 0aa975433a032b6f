"""A spike that stays is listed as the divergence that it begins; what is another event, or graver, stays."""

from __future__ import annotations

from pathlib import Path

import pytest

import builders
from steadytrain.core.model import Symptom
from steadytrain.grouping.stories import tell
from steadytrain.report.build import from_run
from steadytrain.report.told_once import told_once
from steadytrain.storage.run_folder import open_run

RISE = builders.symptom(100, last=400, name="divergence", severity="critical", message="the loss rises")
SPIKE = builders.symptom(98, last=300, name="loss-spike", severity="warning", message="far above")


def test_a_spike_inside_a_divergence_is_a_part_of_it() -> None:
    ((told, origin),) = told_once([(SPIKE, ""), (RISE, "")])
    assert (told.name, origin) == ("divergence", "")
    assert told.message == "the loss rises; the loss-spike at steps 98 to 300 is part of it"
    late = builders.symptom(350, name="loss-spike", severity="warning")
    ((both, _),) = told_once([(RISE, ""), (SPIKE, ""), (late, "")])
    assert both.message.endswith("the loss-spike at steps 98 to 300 and 1 more are part of it")


@pytest.mark.parametrize(
    ("spike", "origin"),
    [
        (builders.symptom(50, name="loss-spike", severity="warning"), ""),
        (builders.symptom(10, last=130, name="loss-spike", severity="warning"), ""),
        (builders.symptom(120, name="gradient-norm-spike", severity="warning"), ""),
        (builders.symptom(120, name="loss-spike", severity="warning", stream="other"), ""),
        (SPIKE, "rank 1"),
    ],
)
def test_another_event_is_listed_by_itself(spike: Symptom, origin: str) -> None:
    seen = [(RISE, ""), (spike, origin)]
    assert told_once(seen) == seen


def test_a_graver_spike_is_never_folded() -> None:
    note = builders.symptom(100, last=400, name="divergence", severity="note")
    assert len(told_once([(note, ""), (SPIKE, "")])) == 2


def test_the_page_lists_one_of_the_two(tmp_path: Path) -> None:
    run = builders.bad_run(tmp_path / "run", symptoms=[RISE, SPIKE], incidents=[])
    assert [row.name for row in from_run(open_run(run)).symptoms] == ["divergence"]


def test_the_sentence_of_a_story_names_the_divergence_alone(tmp_path: Path) -> None:
    flat = builders.symptom(101, last=400, name="loss-plateau", severity="warning", message="flat")
    run = builders.bad_run(tmp_path / "run", symptoms=[RISE, SPIKE, flat], incidents=[])
    (line,) = [one for one in from_run(open_run(run)).summary if "then" in one]
    assert "divergence, then loss-plateau" in line
    assert "loss-spike" not in line
    window = open_run(run).scalars()
    (story,) = tell([RISE, SPIKE], window)
    assert (story.course_line, "far above" in story.text, "the loss rises" in story.text.lower()) == ("", False, True)
