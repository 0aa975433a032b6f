"""Generated sentences, read aloud."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import builders
from steadytrain.capture.incident.incident import _megabytes
from steadytrain.cli import verify
from steadytrain.cli.explain import command as explain
from steadytrain.core.errors import UsageError
from steadytrain.diagnosis.cause_catalog import CAUSE_PAGES
from steadytrain.experiments.specs import LOOP_OVER
from steadytrain.replay.launch_notice import NO_SOURCE, LaunchNotice
from steadytrain.storage.run_search import find


def test_what_must_not_cure_is_a_sentence() -> None:
    one = CAUSE_PAGES.find("singular-operation")
    assert one is not None
    assert "safe-operation removes the symptom, and float32 does not." in CAUSE_PAGES.text(one)
    for page in CAUSE_PAGES.all():
        assert (
            "none of"
            not in " ".join(CAUSE_PAGES.text(page).split()).partition("Confirmed if:")[2].partition("Interv")[0]
        )


def test_a_cause_that_no_trial_mends_says_so() -> None:
    for page in CAUSE_PAGES.all():
        confirmed = " ".join(CAUSE_PAGES.text(page).split()).partition("Confirmed if: ")[2]
        assert confirmed.startswith("the survey itself") == (not page.traits["confirmed_by"])
        assert not confirmed.startswith("removes")
    assert "if  removes" not in CAUSE_PAGES.markdown(command="make docs")


def test_a_page_has_no_double_backticks() -> None:
    assert "``" not in CliRunner().invoke(explain, ["token-frequencies"], catch_exceptions=False).output
    assert "baseline_loss" not in CliRunner().invoke(explain, ["label-balance"], catch_exceptions=False).output


def test_a_source_that_was_not_recorded_differs_from_nothing() -> None:
    lines = LaunchNotice(Path("run"), "python train.py", "script train.py", (NO_SOURCE, "python 3.11"), True).lines()
    assert lines[2:] == [f"  {NO_SOURCE}", "  differs from what was recorded: python 3.11"]


def test_a_small_state_is_told_in_kilobytes() -> None:
    assert [_megabytes(size) for size in (6_436, 100_000, 2_340_000)] == ["6.4 kB", "0.1 MB", "2.3 MB"]


def test_an_incident_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "run")
    with pytest.raises(UsageError) as error:
        find("run/step-413", tmp_path)
    assert str(error.value) == "run/step-413: the run run has no such incident; it has step-412"


def test_the_end_of_the_script_is_no_failure_of_a_verification(capsys: pytest.CaptureFixture[str]) -> None:
    found: Any = SimpleNamespace(
        intervention="clip",
        meaning="clip the gradient",
        verdict=SimpleNamespace(why="the symptom is gone", effect="removed"),
        changed=(),
        followed=199,
        ended=f"{LOOP_OVER} after 199 of 1149 steps",
        price_before=None,
        price_end=None,
    )
    verify._print(found, 151)
    told = capsys.readouterr().out
    assert "followed for 199 steps after the onset at step 151: the script ends there" in told
    assert "1149" not in told
