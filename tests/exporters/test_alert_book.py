"""Which alerts are due, and what they say: a pure function of what happened and of the time."""

from __future__ import annotations

import json
import sys
from datetime import time
from pathlib import Path
from typing import Any

import pytest

from builders import incident, quiet_run, symptom
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Action, Finding
from steadytrain.exporters.alerts.alert import Place
from steadytrain.exporters.alerts.alert_book import GATHER_S, SETTLE_S, AlertBook
from steadytrain.exporters.alerts.alert_exporter import last_recorded
from steadytrain.exporters.alerts.settings import AlertSettings, check_command, check_urls, quiet_hours
from steadytrain.testing import steps

PLACE = Place("copper-lynx", "/runs/copper-lynx", "node-7", "4711")
BUNDLE = Path("/runs/copper-lynx/incidents/step-000412")


def book(**settings: Any) -> AlertBook:
    made = AlertBook(AlertSettings(command="cat", **settings), PLACE, "steadytrain show", lambda: "03:02")
    made.reached(412)
    return made


def spike(step: int, severity: str = "warning", **changes: Any) -> Any:
    values = {"name": "loss-spike", "message": f"the loss rose at step {step}", "signals": ("loss",), "tensors": ()}
    return symptom(step, severity=severity, **{**values, **changes})


def act(step: int, what: Any, intervention: str = "", **changes: Any) -> Action:
    return Action(step, "steady", what, "loss-spike: the loss rose", intervention, **changes)


def test_a_symptom_waits_for_its_incident_and_is_then_one_answer() -> None:
    own = book()
    own.symptom(symptom(412, name="nonfinite-loss", message="the loss is NaN at step 412", tensors=()), 0.0)
    own.symptom(symptom(412), 0.1)
    assert own.due(1.0) == []
    own.incident(BUNDLE, incident(412, finding=Finding(None, "cut off")), 2.0)
    own.incident(BUNDLE, incident(412), 3.0)
    assert own.due(3.0) == []
    (alert,) = own.due(3.0 + SETTLE_S)
    assert alert.title == "copper-lynx: CRITICAL nonfinite-loss at step 412"
    assert alert.text == (
        "The loss is NaN at step 412; 1 more symptom follows from it.\n"
        "Where: aten.log.default made inf in model.head.norm (forward), /home/user/project/train.py:88: "
        "score = torch.log(probability)\n"
        "Since: step 412\n"
        "Done: update refused\n"
        f"Next: steadytrain show {BUNDLE}\n"
        "Run: /runs/copper-lynx on node-7, job 4711, 03:02"
    )
    assert own.due(1000.0) == []


def test_a_symptom_without_an_incident_waits_for_a_while() -> None:
    own = book()
    own.symptom(symptom(412), 0.0)
    assert own.due(GATHER_S - 0.1) == []
    (alert,) = own.due(GATHER_S)
    assert (alert.done, alert.where) == ("nothing was changed", "model.head.weight, model.head.bias")


def test_consequences_are_no_second_alert_and_a_new_story_is() -> None:
    own = book()
    own.symptom(symptom(412), 0.0)
    assert len(own.due(GATHER_S)) == 1
    own.symptom(symptom(420, name="nonfinite-weight"), 100.0)
    assert own.due(200.0) == []
    own.symptom(symptom(2000), 300.0)
    assert [alert.since_step for alert in own.due(400.0)] == [2000]


def test_warnings_only_on_request_and_once_more_when_graver() -> None:
    own = book()
    own.symptom(spike(412), 0.0)
    assert own.due(100.0) == []
    own = book(at="warning")
    own.symptom(spike(412), 0.0)
    assert [alert.severity for alert in own.due(100.0)] == ["warning"]
    own.symptom(spike(414, "note", name="oscillation"), 101.0)
    assert own.due(200.0) == []
    own.symptom(spike(416, "critical", name="divergence"), 201.0)
    assert [(alert.severity, alert.since_step) for alert in own.due(300.0)] == [("critical", 412)]


def test_a_warning_that_became_a_note_while_it_waited_is_none() -> None:
    own = book(at="warning")
    own.symptom(spike(412), 0.0)
    own.symptom(spike(412, "note"), 5.0)
    assert own.due(100.0) == []


def test_the_policy_asks_for_an_alert_or_for_none() -> None:
    own = book(responses={"loss-spike": "alert", "nonfinite-gradient": "note"}, response="capture")
    own.symptom(spike(412), 0.0)
    own.symptom(symptom(2000), 0.0)
    assert [alert.symptoms[0].name for alert in own.due(100.0)] == ["loss-spike"]


def test_an_intervention_is_alerted_with_its_story_or_alone() -> None:
    own = book()
    own.symptom(symptom(412), 0.0)
    own.action(act(413, "rolled-back", "roll-back", after={"step": 400.0}), 1.0)
    own.action(act(413, "applied", "clip", after={"norm": 1.0}), 1.0)
    (alert,) = own.due(1.0 + SETTLE_S)
    assert (alert.event, alert.done) == ("story", "rolled back to the state after step 400, clip applied (norm 1)")
    own.action(act(900, "applied", "clip"), 10.0)
    assert own.due(10.0) == []
    (alert,) = own.due(10.0 + SETTLE_S)
    assert (alert.event, alert.headline) == ("action", "INTERVENED after step 900: clip")
    assert (alert.what, alert.step) == ("Loss-spike: the loss rose.", 900)
    assert own.due(100.0) == []


@pytest.mark.parametrize(
    "quiet", [act(900, "observed"), act(900, "skipped-update"), act(900, "applied", "clip", by="hand")]
)
def test_what_changed_nothing_or_was_done_by_hand_is_no_alert(quiet: Action) -> None:
    own = book()
    own.action(quiet, 0.0)
    assert own.due(100.0) == []


def test_a_stop_is_one_alert_with_what_waited() -> None:
    own = book()
    own.symptom(symptom(412), 0.0)
    own.incident(BUNDLE, incident(412), 0.5)
    end = own.end("stopped", "")
    assert (end.event, end.severity, end.incident) == ("end", "critical", str(BUNDLE))
    assert end.headline == "STOPPED before the update of step 412: nonfinite-gradient"
    assert end.what == "STOPPED before the update of step 412. 2 of 3 gradients are not finite."
    assert end.where.startswith("aten.log.default made inf")
    assert end.done == "update refused, run stopped"


def test_a_stop_leads_to_the_refused_update_and_the_gravest_symptom_whatever_came_after_it() -> None:
    """A divergence ends in Inf: the incident of its finite steps is written after the one of the refused update."""
    own = book()
    own.symptom(spike(400, name="update-norm-spike"), 0.0)
    own.symptom(spike(402, severity="critical", name="divergence"), 0.1)
    own.symptom(symptom(412, name="nonfinite-loss", message="the loss is Inf at step 412", tensors=()), 0.2)
    own.incident(BUNDLE, incident(412), 0.5)
    rise = spike(402, severity="critical", name="divergence")
    later = incident(412, symptoms=(rise,), action=act(412, "frozen"), finding=Finding(None, "finite"))
    own.incident(BUNDLE.with_name("divergence-step-000412"), later, 0.6)
    end = own.end("stopped", "")
    assert end.headline == "STOPPED before the update of step 412: divergence"
    assert end.incident == str(BUNDLE)
    assert end.where.startswith("aten.log.default made inf")
    assert end.done == "update refused, run stopped"


def test_the_end_says_what_was_alerted_before_and_never_takes_silence_for_health() -> None:
    own = book()
    own.symptom(symptom(412), 0.0)
    own.due(GATHER_S)
    own.reached(5000)
    end = own.end("finished", "")
    assert end.headline == "finished after 5,000 steps, with nonfinite-gradient at step 412"
    assert (end.severity, end.is_good) == ("critical", False)
    assert end.what == "Finished after 5,000 steps. Symptoms: 1 critical; nonfinite-gradient at step 412."
    assert book().end("finished", "").what == "Finished after 412 steps. No symptom above a note was found."
    assert book().end("finished", "").is_good
    never = AlertBook(AlertSettings(command="cat"), PLACE, "", lambda: "03:02").end("failed", "KeyError: 'x'")
    assert never.what == "FAILED before the end of its first step. KeyError: 'x'."
    assert never.next == ""
    lost = AlertBook(AlertSettings(command="cat"), PLACE, "", lambda: "03:02").end("lost", "")
    assert lost.headline.startswith("LOST before the end of its first step: its process ended without a word")
    untrained = AlertBook(AlertSettings(command="cat"), PLACE, "", lambda: "03:02").end("untrained", "no step was seen")
    assert untrained.what == "Ended, and trained nothing. No step was seen."
    assert book().end("lost", "").severity == "critical"
    interrupted = book().end("interrupted", "interrupted (KeyboardInterrupt) after step 412")
    assert interrupted.what == "Interrupted after 412 steps. No symptom above a note was found."
    assert interrupted.severity == "warning"


def test_a_record_that_broke_off_is_no_good_end() -> None:
    end = book().end("finished", "", "The recording of this run stopped at step 31: OSError.")
    assert end.what.endswith("The recording of this run stopped at step 31: OSError.")
    assert (end.severity, end.is_good) == ("warning", False)


def test_the_trouble_is_dated_without_the_notes_beside_it() -> None:
    own = book()
    own.symptom(spike(398, "note", name="repeated-batch"), 0.0)
    own.symptom(symptom(412), 0.1)
    (alert,) = own.due(GATHER_S + 1)
    assert alert.since_step == 412


def test_the_end_sums_up_what_was_done() -> None:
    own = book()
    own.action(act(300, "applied", "clip"), 0.0)
    assert len(own.due(60.0)) == 1
    assert own.end("finished", "").done == "clip applied"


def test_an_intervention_that_no_alert_has_named_waits() -> None:
    own = book()
    assert not own.intervened
    own.action(act(300, "rolled-back"), 0.0)
    assert own.intervened
    own.due(60.0)
    assert not own.intervened


def test_the_batch_is_where_it_came_from() -> None:
    came_in = Finding(None, "the batch already holds NaN: args[0], first at [5, 3], before any operation")
    own = book()
    own.symptom(symptom(412), 0.0)
    own.incident(BUNDLE, incident(412, finding=came_in), 1.0)
    (alert,) = own.due(60.0)
    assert alert.where == came_in.came_in
    assert "args[0]" in alert.where


def test_the_title_has_the_step_of_the_symptom_that_it_names() -> None:
    own = book()
    own.symptom(spike(380), 0.0)
    modules = symptom(412, name="nonfinite-activation", signals=("modules.nonfinite",), tensors=("2", "3"))
    own.symptom(modules, 0.0)
    (alert,) = own.due(60.0)
    assert alert.headline == "CRITICAL nonfinite-activation at step 412"
    assert alert.where == "modules 2, 3"
    assert alert.since_step == 380


def test_a_rate_that_rose_before_is_told() -> None:
    rates = [0.05] * 400 + [50.0] * 12
    window = steps(loss=[1.0] * 412, learning_rate=rates)
    own = AlertBook(AlertSettings(command="cat"), PLACE, "steadytrain show", lambda: "03:02", lambda stream: window)
    own.symptom(symptom(412), 0.0)
    (alert,) = own.due(60.0)
    assert alert.what.startswith("The learning rate went from 0.05 to 50 at step 401; then ")


def test_a_killed_run_is_told_as_it_is_on_disk(tmp_path: Path) -> None:
    run = quiet_run(tmp_path / "run", facts={})
    description = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**description, "process": "00000000-1", "process_start": 1}))
    (run / "signals").mkdir()
    (run / "signals" / "SIGTERM-ends.txt").write_text('Current thread 0x1:\n  File "/x/train.py", line 41 in main\n')
    assert last_recorded(run) == (1000, "ended by SIGTERM at train.py:41")
    own = book()
    own.reached(1000)
    assert own.end("lost", "ended by SIGTERM at train.py:41").headline == (
        "LOST after 1,000 steps: ended by SIGTERM at train.py:41"
    )
    assert last_recorded(tmp_path / "missing") == (0, "")


def test_secrets_and_control_characters_do_not_arrive() -> None:
    own = book()
    own.symptom(symptom(412, message="bad \x1b[31m key: api_key=hf_abcdefghijklmnopqrstuvwx\nnext"), 0.0)
    (alert,) = own.due(GATHER_S)
    assert "hf_abc" not in alert.text
    assert "\x1b" not in alert.text


def test_the_end_names_warnings_that_were_not_alerted() -> None:
    own = book()
    own.symptom(spike(412), 0.0)
    assert own.due(GATHER_S) == []
    assert own.end("finished", "").what == "Finished after 412 steps. Symptoms: 1 warning; loss-spike at step 412."


def test_memory_stays_bounded() -> None:
    own = book(at="warning")
    for step in range(1, 2000):
        own.symptom(spike(200 * step), float(step))
    assert len(own._symptoms) == len(own._waiting) == 256


@pytest.mark.parametrize(
    ("text", "quiet", "loud"),
    [("22:00-07:00", ["22:00", "03:10"], ["07:00", "21:59"]), ("01:30-02:00", ["01:59"], ["02:00"])],
)
def test_quiet_hours(text: str, quiet: list[str], loud: list[str]) -> None:
    hours = quiet_hours(text)
    assert all(hours.hold(time.fromisoformat(one)) for one in quiet)
    assert not any(hours.hold(time.fromisoformat(one)) for one in loud)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: quiet_hours("25:00-07:00"),
            "--notify-quiet '25:00-07:00': no hours of a day; write them as 22:00-07:00",
        ),
        (lambda: AlertSettings(per_hour=0), "--notify-per-hour 0: must be between 1 and 3,600"),
        (lambda: AlertSettings(at="note"), "--notify-at note: one of warning, critical"),
        (lambda: check_command("echo 'x"), "--on-incident: no shell command: no closing quotation"),
        (lambda: check_command(" "), "--on-incident: the command is empty"),
        (
            lambda: check_urls(["s3cret"]),
            "--notify: its address has not the form SERVICE://..., such as json://HOST:PORT/PATH",
        ),
    ],
)
def test_bad_options_are_one_line(make: Any, line: str) -> None:
    with pytest.raises(UsageError) as error:
        make()
    assert str(error.value) == line


def test_without_apprise_the_line_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(UsageError, match=r"pip install 'apprise>="):
        check_urls("json://localhost")
