"""The judgement of a gate on recorded values, and its policy file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import bad_run, quiet_run, symptom
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Action
from steadytrain.core.model import Window
from steadytrain.diagnosis.answer import Diagnosis
from steadytrain.diagnosis.answer_files import keep
from steadytrain.gate.judging import judge_run
from steadytrain.gate.policy import Bounds, GatePolicy, read_policy
from steadytrain.gate.recorded import Confirmed, Done, Recorded, of_run
from steadytrain.gate.result import Check
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.stopped_recording import write_stopped


def window(losses: Any, norms: Any = None, skipped: Any = None) -> Window:
    losses = np.asarray(losses, np.float64)
    signals = {"loss": losses} if norms is None else {"loss": losses, "gradient_norm": np.asarray(norms, np.float64)}
    no = np.zeros(len(losses), np.bool_)
    return Window(
        steps=np.arange(1, len(losses) + 1),
        time=np.arange(len(losses), dtype=np.float64),
        signals=signals,
        present={name: np.ones(len(losses), np.bool_) for name in signals},
        skipped=no if skipped is None else np.asarray(skipped),
        refused=no,
    )


def recorded(losses: Any = (3.0, 2.0, 1.0), norms: Any = None, **changes: Any) -> Recorded:
    values: dict[str, Any] = {"symptoms": (), "looked": 9, "ended": "finished", **changes}
    windows = values.pop("windows", (window(losses, norms),))
    return Recorded("run", Path("run"), True, windows, **values)


def check(name: str, run: Recorded, policy: GatePolicy | None = None, references: Any = ()) -> Check:
    checks = {one.name: one for one in judge_run(run, policy or GatePolicy(), references).checks}
    return checks[name]


def test_a_healthy_run_passes_every_check() -> None:
    judged = judge_run(recorded(), GatePolicy())
    assert judged.passed
    assert [one.name for one in judged.checks] == ["ended", "symptoms", "nonfinite-losses", "actions"]


def test_a_confirmed_cause_fails_though_its_symptom_is_a_warning() -> None:
    run = recorded(confirmed=(Confirmed("loss-function-misuse", "misused-loss", "step-000072"),))
    found = check("diagnosis", run)
    assert (found.status, found.reason) == (
        "fail",
        "diagnose confirmed a cause: loss-function-misuse (step-000072)",
    )
    assert check("diagnosis", run, GatePolicy(allowed_symptoms=("misused-loss",))).status == "pass"
    assert check("diagnosis", run, GatePolicy(fail_on="never")).status == "pass"


@pytest.mark.parametrize(("status", "count"), [("confirmed", 1), ("likely", 0), (None, 0)])
def test_the_stored_answers_of_a_run_and_its_incidents_are_read(status: Any, count: int, tmp_path: Path) -> None:
    run = bad_run(tmp_path / "run")
    place = run / "incidents" / "step-412"
    keep(place, Diagnosis(str(run), "nonfinite-loss: NaN", "exact", "", "bad-row", status, "", (), ()))
    assert of_run(open_run(run)).confirmed == (Confirmed("bad-row", "nonfinite-loss", "step-412"),) * count


def test_a_record_that_breaks_off_passes_nothing_that_it_would_have_to_show() -> None:
    bounds = GatePolicy(loss=Bounds(highest=10.0))
    whole, broken = recorded(), recorded(stopped=("The recording of this run stopped at step 3: OSError.",))
    assert judge_run(whole, bounds).passed
    found = {one.name: one for one in judge_run(broken, bounds).checks}
    assert {name for name, one in found.items() if one.status == "unknown"} == {
        *("symptoms", "nonfinite-losses", "loss-bounds", "actions")
    }
    assert found["symptoms"].reason.endswith(
        "as far as recorded. The recording of this run stopped at step 3: OSError."
    )
    bad = recorded([3.0, np.nan, 1.0], stopped=broken.stopped)
    assert check("nonfinite-losses", bad).status == "fail", "what was recorded is enough to fail"


def test_a_run_folder_says_that_its_recording_stopped(tmp_path: Path) -> None:
    run = quiet_run(tmp_path / "run")
    assert judge_run(of_run(open_run(run)), GatePolicy()).passed
    write_stopped(run, step=34, why="OSError: no space left")
    judged = judge_run(of_run(open_run(run)), GatePolicy())
    assert not judged.passed
    assert "stopped at step 34: OSError: no space left" in judged.checks[1].reason


def test_what_ended_the_script_is_named() -> None:
    run = recorded(ended="failed", why_ended="ValueError after step 6 at train.py:9: enough")
    assert check("ended", run).reason == (
        "the run did not finish: failed (ValueError after step 6 at train.py:9: enough)"
    )


def test_of_one_step_the_loss_comes_before_what_follows_from_it() -> None:
    found = tuple(replace(symptom(2), name=name) for name in ("nonfinite-gradient", "nonfinite-loss"))
    assert "critical nonfinite-loss at step 2" in check("symptoms", recorded(symptoms=found)).reason


def test_the_line_of_the_first_bad_operation_is_named(tmp_path: Path) -> None:
    run = of_run(open_run(bad_run(tmp_path / "run")))
    (origin,) = run.origins.values()
    assert origin.at is not None
    for name in ("symptoms", "nonfinite-losses"):
        assert check(name, run).at == origin.at
    assert f"{origin.operation} made {origin.produced} at {origin.at.place}" in check("symptoms", run).reason


def test_the_ends_of_runs_of_other_lengths_are_not_compared() -> None:
    references = [recorded(np.linspace(3.0, end, 200)) for end in (1.0, 1.1, 1.2)]
    early = recorded(np.linspace(3.0, 2.9, 12))
    found = check("loss-noise", early, references=references)
    assert found.status == "unknown"
    assert "ended at step 12, and run at step 200" in found.reason
    assert check("loss-noise", recorded(np.linspace(3.0, 1.1, 170)), references=references).status == "pass"
    short = [*references[:2], recorded(np.linspace(3.0, 2.9, 30))]
    assert check("loss-noise", references[2], references=short).status == "unknown"
    assert check("loss-noise", early, GatePolicy(shortest=0.0), references).status != "unknown"


def test_references_of_another_script_are_named() -> None:
    references = [recorded([3.0, 2.0, end], script="other.py") for end in (1.0, 1.1, 1.2)]
    reason = check("loss-noise", recorded(script="train.py"), references=references).reason
    assert reason.endswith("(they ran other.py, this one train.py)")
    same = check("loss-noise", recorded(script="other.py"), references=references).reason
    assert "ran" not in same.split("lies")[1]


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
def test_a_loss_that_is_not_finite_fails(value: float) -> None:
    found = check("nonfinite-losses", recorded([3.0, value, value, 1.0]))
    assert (found.status, found.step) == ("fail", 2)
    assert "2 losses" in found.reason


def test_losses_that_the_script_skipped_fail_though_no_step_has_them() -> None:
    left_out = symptom(21, name="nonfinite-loss", numbers={"steps": 29.0, "in_a_row": 29.0}, severity="warning")
    found = check("nonfinite-losses", recorded(symptoms=(left_out,)))
    assert (found.status, found.step) == ("fail", 21)
    assert "29 losses are NaN or Inf, 29 of them skipped by the script" in found.reason


def test_a_step_that_a_gradient_scaler_skipped_does_not_count() -> None:
    run = recorded(windows=(window([3.0, np.inf, 1.0], skipped=[False, True, False]),))
    assert check("nonfinite-losses", run).status == "pass"


def test_steps_that_were_not_recorded_are_named() -> None:
    told = check("nonfinite-losses", recorded(unrecorded=3945)).reason
    assert told.endswith("3,945 steps were not recorded: the run rested (--every-step records all)")


def test_symptoms_count_from_the_severity_of_the_policy() -> None:
    run = recorded(symptoms=(symptom(7, severity="warning", name="loss-spike"),))
    assert check("symptoms", run).status == "pass"
    told = check("symptoms", run).reason
    assert told.endswith('1 warning is not counted (fail-on = "warning" in the file of --policy counts them)')
    assert "not counted" not in check("symptoms", run, GatePolicy(allowed_symptoms=("loss-spike",))).reason
    strict = GatePolicy(fail_on="warning")
    assert (check("symptoms", run, strict).status, check("symptoms", run, strict).step) == ("fail", 7)
    assert check("symptoms", run, replace(strict, allowed_symptoms=("loss-spike",))).status == "pass"


def test_a_rule_that_the_script_breaks_fails_at_a_warning() -> None:
    """Nobody runs `diagnose` in a pipeline, so no stored answer says so."""
    facts = [symptom(9, severity="warning", name=name) for name in ("misused-loss", "gradients-carried-over")]
    statistic = symptom(7, severity="warning", name="loss-spike")
    found = check("symptoms", recorded(symptoms=(statistic, *facts)))
    assert (found.status, found.step) == ("fail", 9)
    assert found.reason.startswith("warning misused-loss at step 9: ")
    assert found.reason.endswith(
        "; a warning of it fails, too: it states what the script does, and is no statistic (and 1 more)"
    )
    noted = recorded(symptoms=(replace(facts[0], severity="note"),))
    assert check("symptoms", noted).status == "pass"
    allowed = GatePolicy(allowed_symptoms=("misused-loss", "gradients-carried-over"))
    assert check("symptoms", recorded(symptoms=tuple(facts)), allowed).status == "pass"


def test_what_was_not_recorded_is_unknown_and_does_not_pass() -> None:
    run = recorded(windows=(), looked=0, ended=None)
    policy = GatePolicy(loss=Bounds(highest=1.0), checklist=True, preflight=True, data=True)
    judged = judge_run(run, policy)
    unknown = [one.name for one in judged.checks if one.status == "unknown"]
    assert unknown == ["ended", "symptoms", "nonfinite-losses", "loss-bounds", "checklist", "preflight", "data"]
    assert not judged.passed


@pytest.mark.parametrize(
    ("bounds", "status", "step"),
    [
        (Bounds(highest=3.0, lowest=1.0), "pass", None),
        (Bounds(highest=2.5), "fail", 1),
        (Bounds(lowest=1.5), "fail", 3),
        (Bounds(end_highest=2.0), "pass", None),
        (Bounds(end_highest=1.9), "fail", 1),
        (Bounds(end_lowest=2.1), "fail", 1),
    ],
)
def test_bounds(bounds: Bounds, status: str, step: int | None) -> None:
    found = check("loss-bounds", recorded(), GatePolicy(loss=bounds))
    assert (found.status, found.step) == (status, step)
    norms = check("gradient-norm-bounds", recorded(norms=(3.0, 2.0, 1.0)), GatePolicy(gradient_norm=bounds))
    assert (norms.status, norms.step) == (status, step)


def test_an_action_that_changed_the_run_fails_unless_it_is_allowed() -> None:
    skip = Action(5, "skip", "skipped-update", "the loss is NaN")
    run = recorded(actions=(Action(4, "skip", "observed", "seen"), skip))
    assert (check("actions", run).status, check("actions", run).step) == ("fail", 5)
    assert check("actions", run).reason.startswith("1 action changed the run, the first at step 5")
    assert check("actions", run, GatePolicy(allowed_actions=("skipped-update",))).status == "pass"


def test_a_required_checklist_has_to_be_complete() -> None:
    done, missing = Done("Data tests", True, ""), Done("Minimal reproduction", False, "steadytrain repro")
    policy = GatePolicy(checklist=True)
    assert check("checklist", recorded(checklist=(done,)), policy).status == "pass"
    found = check("checklist", recorded(checklist=(done, missing)), policy)
    assert (found.status, found.reason) == ("fail", "not done: Minimal reproduction (steadytrain repro)")


@pytest.mark.parametrize(
    ("done", "status", "word"),
    [(True, "pass", "all 1 done"), (False, "fail", "failed: "), (None, "unknown", "not judged: ")],
)
def test_required_checks_of_the_data_have_to_be_clean(done: bool | None, status: str, word: str) -> None:
    found = check("data", recorded(data=(Done("check-data rows.jsonl", done, "12 rows"),)), GatePolicy(data=True))
    assert found.status == status
    assert found.reason.startswith(word)


REFERENCES = tuple(recorded(np.full(100, level), np.full(100, 10 * level)) for level in (1.0, 1.1, 0.9, 1.05))


@pytest.mark.parametrize(
    ("level", "both_sides", "status"),
    [(1.0, False, "pass"), (2.0, False, "fail"), (0.1, False, "pass"), (0.1, True, "fail")],
)
def test_a_run_beside_references(level: float, both_sides: bool, status: str) -> None:
    run = recorded(np.full(100, level), np.full(100, 10 * level))
    policy = GatePolicy(both_sides=both_sides)
    assert check("loss-noise", run, policy, REFERENCES).status == status
    assert check("gradient-norm-noise", run, policy, REFERENCES).status == status


def test_too_few_or_equal_references_are_unknown() -> None:
    run = recorded(np.full(100, 1.0))
    assert "at least 3" in check("loss-noise", run, references=REFERENCES[:2]).reason
    equal = check("loss-noise", run, references=(run, run, run))
    assert (equal.status, "show no noise" in equal.reason) == ("unknown", True)


FILE = """
version = 1
[symptoms]
fail-on = "warning"
allow = ["loss-spike", "nonfinite-loss"]
[loss]
nonfinite = 2
end-highest = 2.5
[gradient-norm]
highest = 100
[actions]
allow = ["skipped-update"]
[run]
unfinished = true
[require]
checklist = true
preflight = true
data = true
[reference]
confidence = 0.99
both-sides = true
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "gate.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_policy_file_sets_everything(tmp_path: Path) -> None:
    path = written(tmp_path, FILE)
    assert read_policy(path) == GatePolicy(
        name=str(path),
        fail_on="warning",
        allowed_symptoms=("loss-spike", "nonfinite-loss"),
        nonfinite_losses=2,
        loss=Bounds(end_highest=2.5),
        gradient_norm=Bounds(highest=100.0),
        allowed_actions=("skipped-update",),
        unfinished=True,
        checklist=True,
        preflight=True,
        data=True,
        confidence=0.99,
        both_sides=True,
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no version"),
        ("version = true", "version = True"),
        ("version = 2", "version 2 is newer"),
        ("version = 1\n[symptom]\n", "did you mean symptoms"),
        ("version = 1\nloss = 3", "must be a table"),
        ("version = 1\n[loss]\nhighst = 3", "did you mean highest"),
        ("version = 1\n[loss]\nhighest = nan", "finite number"),
        ("version = 1\n[loss]\nnonfinite = -1", "0 or more"),
        ("version = 1\n[loss]\nlowest = 3\nhighest = 2", "lowest = 3 is above highest = 2"),
        ("version = 1\n[loss]\nend-lowest = 3\nhighest = 2", "end-lowest = 3 is above highest = 2"),
        ("version = 1\n[gradient-norm]\nhighest = -1", "highest = -1: no norm is below 0, so no run can pass"),
        ("version = 1\n[gradient-norm]\nend-highest = -0.5", "end-highest = -0.5: no norm is below 0"),
        ("version = 1\n[loss]\nnonfinite = 1", "contradicts [symptoms]"),
        ('version = 1\n[symptoms]\nfail-on = "never"\nallow = ["loss-spike"]', "contradicts fail-on"),
        ('version = 1\n[symptoms]\nfail-on = "note"', "must be one of warning, critical, never"),
        ("version = 1\n[symptoms]\nfail-on = []", "must be one of"),
        ('version = 1\n[symptoms]\nallow = ["loss-spik"]', "did you mean loss-spike"),
        ('version = 1\n[actions]\nallow = ["observed"]', "no such action"),
        ("version = 1\n[require]\nchecklist = 1", "true or false"),
        ("version = 1\n[reference]\nconfidence = 1.0", "below 1"),
        ("version = ", "not TOML"),
    ],
)
def test_a_wrong_policy_is_one_line(text: str, part: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        read_policy(path)
    line = str(refused.value)
    assert line.startswith(f"{path}: ")
    assert part in line
    assert "\n" not in line


def test_a_policy_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_policy(tmp_path / "none.toml")
