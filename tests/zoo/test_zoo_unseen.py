"""The board of the runs of another hand: what counts as right, as wrong, and as an alarm."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ZOO = Path(__file__).parents[2] / "zoo"
sys.path.insert(0, str(ZOO))

import unseen_board  # noqa: E402

SICK = {"expect": "sick", "says": "(?i)learning rate", "axis": "schedule"}


def result(*diagnoses: tuple[str, str], severity: str = "critical") -> dict[str, Any]:
    return {
        "symptoms": [{"name": "divergence", "severity": severity, "message": "the loss rises"}],
        "status": diagnoses[0][1] if diagnoses else None,
        "verdict": diagnoses[0][0] if diagnoses else "unknown",
        "diagnose_s": 2.0,
        "diagnoses": [{"cause": cause, "status": status, "summary": "", "why": ""} for cause, status in diagnoses],
    }


def test_the_rank_of_the_true_cause_skips_refuted_ones() -> None:
    found = result(("bad-batch", "refuted"), ("learning-rate-jump", "likely"))
    assert unseen_board.rank(SICK, found) == 1
    assert unseen_board.rank(SICK, result(("bad-batch", "likely"))) is None


def test_a_confirmed_cause_that_is_not_the_true_one_is_wrong() -> None:
    assert unseen_board.wrong(SICK, result(("bad-batch", "confirmed"))) == ["bad-batch"]
    assert unseen_board.wrong(SICK, result(("bad-batch", "likely"), ("learning-rate-jump", "confirmed"))) == []
    assert unseen_board.wrong({"expect": "healthy"}, result(("bad-batch", "likely"))) == ["bad-batch"]


@pytest.mark.parametrize(
    ("said", "judged"), [("optimizer", "right"), ("data", "wrong"), ("unknown", "unknown"), (None, "unknown")]
)
def test_the_axis_of_the_answer_is_judged_beside_its_cause(said: str | None, judged: str) -> None:
    found = {**result(("bad-batch", "likely")), "axis": said}
    assert unseen_board.axis_judged(SICK, found) == judged
    counted = f"axis right: {int(judged == 'right')}", f"axis wrong: {int(judged == 'wrong')}"
    assert set(counted) <= set(unseen_board.summary([(SICK, found)]).splitlines())
    assert f"axis {said or 'not said'} ({judged})" in unseen_board.row("one", SICK, found)


def test_a_note_is_no_alarm_and_the_summary_counts() -> None:
    assert unseen_board.alarms(result(severity="note")) == []
    text = unseen_board.summary(
        [(SICK, result(("learning-rate-jump", "confirmed"))), ({"expect": "healthy"}, result(severity="note"))]
    )
    assert "asked" not in text
    for line in ("sick runs: 1", "true cause at rank 1: 1", "confirmed and right: 1", "healthy with an alarm: 0"):
        assert line in text.splitlines()


def test_where_no_detector_spoke_the_board_asks_as_a_user_does() -> None:
    asked = {**result(severity="note"), "asked": result(("learning-rate-too-high", "confirmed"))}
    misled = {**result(severity="note"), "asked": result(("bad-batch", "confirmed"))}
    text = unseen_board.summary([(SICK, asked), (SICK, misled), ({"expect": "healthy"}, misled)])
    assert "without an alarm: 3; true cause at rank 1: 1; with a wrong cause confirmed: 2" in text
    assert "asked: learning-rate-too-high (confirmed), rank 1" in unseen_board.row("one", SICK, asked)


@pytest.mark.parametrize(
    "script",
    sorted([*unseen_board.UNSEEN.glob("*.py"), *unseen_board.OPENED.glob("*.py")]),
    ids=lambda script: script.stem,
)
def test_every_script_has_a_whole_header_and_compiles(script: Path) -> None:
    facts = unseen_board.header(script)
    compile(script.read_text(encoding="utf-8"), str(script), "exec")
    if facts["expect"] == "sick":
        assert {"symptom", "axis", "cause", "says", "onset_step", "fix"} <= set(facts)
        mended = facts.get("mended", "")
        twin = script.with_name(mended) if mended.endswith(".py") else None
        assert "MENDED" in script.read_text(encoding="utf-8") or (twin is not None and twin.is_file())
        assert unseen_board.re.compile(facts["says"]).search(facts["cause"])


def test_a_script_without_a_header_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("print(1)\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"plain\.py: its first lines have no '# expect: sick'"):
        unseen_board.header(script)
