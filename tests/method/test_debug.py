"""The ten steps: what each says of given results, and that a walk runs what is missing, once, within its budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import builders
from scripts import call, write_script
from steadytrain.cli.debug import command
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Finding
from steadytrain.core.own_command import own_command, pasteable
from steadytrain.core.plugins import kebab
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import Diagnosis, RankedCause, Remedy, TrialRow
from steadytrain.experiments.command_results import CommandResult, keep_result
from steadytrain.grouping.catalog import detectors
from steadytrain.method import actions, walk
from steadytrain.method.actions import Action, Given, Request
from steadytrain.method.evidence import evidence_of
from steadytrain.method.script_run import Script
from steadytrain.method.step_result import StepResult, Taken
from steadytrain.method.step_results import DATA_SYMPTOMS, step_results
from steadytrain.method.steps import STEPS
from steadytrain.method.walk import FILE, NO_TIME, Walk
from steadytrain.report import method_shown
from steadytrain.storage.bundle import sha256_of

SICK = """
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 9):
        batch = torch.rand(8, 4) + 0.1
        if step == 4:
            batch[2] = 0.0
        optimizer.zero_grad()
        (model(batch).square().mean(1) * batch.sum(1).log()).mean().backward()
        optimizer.step()
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return builders.bad_run(tmp_path / "run")


def incident(run: Path) -> Path:
    return run / "incidents" / "step-412"


def answer(*trials: tuple[str, str], cause: str = "learning-rate-too-high", status: Any = "confirmed") -> Diagnosis:
    fix = Remedy("lower", 1, "a lower rate", "learning-rate-third", "removed", "steadytrain verify X --with lower")
    ranked = RankedCause(cause, "steps are too long", status, 0.97, (), None, (), (fix,))
    rows = tuple(TrialRow(trial, effect, f"{trial} did so") for trial, effect in trials)
    return Diagnosis("x", "loss-spike", "exact", "", cause, status, "because", (ranked,), rows)


def steps_of(run: Path, **left_out: str) -> dict[str, StepResult]:
    return {step.name: step for step in step_results(evidence_of(run), Taken(left_out, "train.py"))}


# What a step says.


def test_without_any_result_every_step_says_why_and_what_to_run(run: Path) -> None:
    steps = steps_of(run, replay="no time was left")
    assert [step.number for step in steps.values()] == list(range(1, 11))
    assert all(step.next.startswith("steadytrain ") for step in steps.values())
    assert all(bool(step.why) == (step.status in ("skipped", "not possible")) for step in steps.values())
    assert (steps["reproduce"].status, steps["reproduce"].why) == ("skipped", "no time was left")
    assert steps["isolate"].status == "skipped"
    assert steps["instrument"].status == "done"
    assert any("aten.log.default made inf in forward" in line for line in steps["instrument"].showed)
    assert steps["distributed"].why == "one process trained, without loader workers"


def test_a_bad_operation_that_nobody_named_is_searched_next(tmp_path: Path) -> None:
    incidents = [builders.incident(finding=Finding(None, "the re-run did not reproduce it"))]
    run = builders.bad_run(tmp_path / "run", incidents=incidents)
    assert steps_of(run)["instrument"].next == f"steadytrain locate {incident(run)}"


def test_a_replay_says_what_it_means(run: Path) -> None:
    for effect, meaning in (("again", "so every test below counts"), ("gone", "hardware or a race")):
        keep_result(incident(run), CommandResult("replay", True, "steps 2 to 9", effect))
        step = steps_of(run)["reproduce"]
        assert step.status == "done"
        assert meaning in step.means
    keep_result(incident(run), CommandResult("replay", False, "no tape was kept"))
    assert (steps_of(run)["reproduce"].status, steps_of(run)["reproduce"].why) == ("not possible", "no tape was kept")


def test_the_step_of_the_proof_is_found_and_others_are_not(run: Path) -> None:
    tried = (
        ("learning-rate-third", "removed"),
        ("clip", "removed"),
        ("float32", "persists"),
        ("drop-batch", "persists"),
    )
    answer_files.keep(incident(run), answer(*tried))
    steps = steps_of(run)
    assert [step.name for step in steps.values() if step.status == "found"] == ["rate"]
    assert "learning-rate-too-high, confirmed (0.97)" in steps["rate"].means
    assert steps["rate"].next == f"steadytrain verify {incident(run)} --with learning-rate-third"
    assert steps["safety"].means == "clip helps, but that alone names no cause"
    assert steps["precision"].means == "nothing here changes it: look elsewhere"
    assert steps["data"].showed == ("drop-batch: persists (drop-batch did so)",)
    assert steps["architecture"].why == "learning-rate-too-high is confirmed in step 6"


def test_a_damaged_batch_is_found_without_a_diagnosis(tmp_path: Path) -> None:
    symptom = builders.symptom(name="repeated-batch", severity="warning", message="the same batch came 9 times")
    run = builders.quiet_run(tmp_path / "run", symptoms=[symptom])
    assert steps_of(run)["data"].status == "found"
    assert "the same batch came 9 times" in steps_of(run)["data"].showed[0]
    note = builders.quiet_run(tmp_path / "note", symptoms=[replace(symptom, severity="note")])
    assert steps_of(note)["data"].status == "skipped"


def test_the_symptoms_of_data_are_names_of_detectors() -> None:
    assert {kebab(type(one)) for one in detectors()} >= DATA_SYMPTOMS


def test_a_run_without_a_symptom_has_nothing_to_remove(tmp_path: Path) -> None:
    steps = steps_of(builders.quiet_run(tmp_path / "run"))
    assert "nothing for a change to remove" in steps["rate"].why
    assert "nothing to reproduce" in steps["report"].why


def test_ranks_that_differ_are_said(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run", world_size=2)
    step = steps_of(run)["distributed"]
    assert step.did == "compared the records of 2 ranks"
    assert "try one process" in step.means


# A walk.


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def walked(run: Path, clock: Clock, budget_s: float = 100.0) -> Walk:
    return walk.walk(Request(run, budget_s), tell=lambda line: None, clock=clock)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Clock]:
    """Actions of 40 s each that only keep a result."""
    names: list[str] = []
    clock = Clock()

    def action(name: str, step: str) -> Action:
        def act(given: Given) -> str | None:
            names.append(name)
            clock.now += 40.0
            keep_result(given.source, CommandResult(name, True, f"{name} did so", "again"))
            return None

        return Action(name, step, name, lambda evidence, request: name not in evidence.commands, act)

    made = tuple(
        action(name, step) for name, step in (("replay", "reproduce"), ("onset", "instrument"), ("repro", "report"))
    )
    monkeypatch.setattr(actions, "ACTIONS", made)
    return names, clock


def test_a_walk_runs_what_is_missing_and_a_second_one_nothing(run: Path, ran: tuple[list[str], Clock]) -> None:
    found = walked(run, ran[1], 1000.0)
    assert ran[0] == ["replay", "onset", "repro"]
    assert [step.name for step in found.steps] == [step.name for step in STEPS]
    assert found.steps[9].showed == ("repro did so",)
    again = walked(run, ran[1], 1000.0)
    assert ran[0] == ["replay", "onset", "repro"]
    assert again.steps == found.steps


def test_what_had_no_time_says_so_and_the_next_walk_goes_on(run: Path, ran: tuple[list[str], Clock]) -> None:
    found = walked(run, ran[1], 75.0)
    assert ran[0] == ["replay", "onset"]
    assert NO_TIME in found.steps[9].why
    assert found.result == "unknown"
    assert found.next == f"steadytrain debug {run} --budget 2m"
    walked(run, ran[1], 75.0)
    assert ran[0] == ["replay", "onset", "repro"]


def test_an_interrupt_keeps_what_is_done(
    run: Path, ran: tuple[list[str], Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(given: Given) -> str | None:
        raise KeyboardInterrupt

    first, second, third = actions.ACTIONS
    monkeypatch.setattr(actions, "ACTIONS", (first, replace(second, run=stop), third))
    found = walked(run, ran[1])
    assert found.interrupted
    assert found.steps[0].status == "done"
    assert found.steps[9].why == "interrupted"
    kept = json.loads((incident(run).parent / "trials" / "step-412" / FILE).read_text(encoding="utf-8"))
    assert Walk.from_json(kept) == found


def test_an_action_that_cannot_work_leaves_its_reason(
    run: Path, ran: tuple[list[str], Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(given: Given) -> str | None:
        raise UsageError("train.py: the script is gone")

    monkeypatch.setattr(actions, "ACTIONS", (replace(actions.ACTIONS[0], run=refuse), *actions.ACTIONS[1:]))
    assert walked(run, ran[1], 1000.0).steps[0].why == "train.py: the script is gone"


def test_of_a_script_that_is_gone_everything_is_said_that_can_be(run: Path) -> None:
    found = walked(run, Clock())
    assert found.steps[0].status == "not possible"
    assert found.steps[2].status == "done"
    assert found.result in ("found", "unknown")


def test_a_confirmed_cause_is_the_last_line(run: Path, ran: tuple[list[str], Clock]) -> None:
    answer_files.keep(incident(run), answer(("learning-rate-third", "removed")))
    found = walked(run, ran[1], 1000.0)
    assert found.verdict == "found in step 6 (rate): learning-rate-too-high, confirmed (0.97)"
    lines = method_shown.as_lines(method_shown.part(found.to_json()), 80)
    assert lines[-2:] == [found.verdict, f"next: {pasteable(found.next)}"]
    commands = [line.split(None, 1)[1] for line in lines if line.startswith("    next    ")]
    assert commands
    assert all(line.startswith(f"{own_command()} ") for line in commands)
    assert " 6  Learning rate and warm-up: FOUND" in lines
    assert all(len(line) <= 92 for line in lines if "next" not in line)


def test_a_source_that_changed_since_is_said(tmp_path: Path, ran: tuple[list[str], Clock]) -> None:
    source = write_script(tmp_path, SICK)
    sources = {str(source): sha256_of(source), str(tmp_path / "gone.py"): "0"}
    bundle = builders.write_bundle(tmp_path / "bundle", environment={**builders.ENVIRONMENT, "sources": sources})
    assert walked(bundle, ran[1]).notes == ()
    source.write_text("pass\n", encoding="utf-8")
    (note,) = walked(bundle, ran[1]).notes
    assert note.startswith(f"{source} has changed since the run was recorded")


# The command.


def debug(*arguments: object) -> Any:
    return CliRunner().invoke(command, [str(one) for one in arguments])


def test_the_document_and_the_page(run: Path, tmp_path: Path, ran: tuple[list[str], Clock]) -> None:
    page = tmp_path / "page.html"
    result = debug(run, "--json", "-o", page)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == "steadytrain.debug/1"
    text = page.read_text(encoding="utf-8")
    assert "The ten steps" in text
    assert "Learning rate and warm-up" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nothing.py"], "no such script"),
        (["nothing"], "no such run or incident"),
        (["{run}", "--budget", "0s"], "--budget 0s"),
        (["{run}", "--workers", "0"], "--workers 0"),
        (["{run}", "more"], "only a script takes arguments"),
        (["{run}", "-o", "{run}"], "this is a folder"),
    ],
)
def test_bad_input_is_one_line(run: Path, arguments: list[str], text: str) -> None:
    result = debug(*(one.format(run=run) for one in arguments))
    assert isinstance(result.exception, UsageError)
    assert text in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_run_keeps_its_name_until_the_script_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_script(tmp_path, SICK)
    name = Script(path).run_name
    assert Script(path).run_name == name
    assert Script(path, ("--lr", "1")).run_name != name
    path.write_text("pass\n", encoding="utf-8")
    assert Script(path).run_name != name


@pytest.mark.slow
def test_a_script_is_run_watched_and_walked_through(tmp_path: Path) -> None:
    write_script(tmp_path, SICK)
    ended = call("debug", "train.py", "--budget", "30s", "--runs-dir", "runs", "--json", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["steps"][0]["status"] == "done"
    assert "the symptom came again" in document["steps"][0]["showed"][0]
    assert any("aten.log.default" in line for line in document["steps"][2]["showed"])


@pytest.mark.slow
@pytest.mark.long
def test_a_whole_walk_confirms_and_makes_a_reproduction(tmp_path: Path) -> None:
    write_script(tmp_path, SICK)
    ended = call("debug", "train.py", "--budget", "5m", "--runs-dir", "runs", "--json", folder=tmp_path)
    document = json.loads(ended.stdout)
    assert document["result"] == "found"
    assert document["steps"][9]["status"] == "done"


def test_a_repro_that_was_refused_is_not_proposed_again(run: Path) -> None:
    keep_result(incident(run), CommandResult("repro", False, "an argument cannot be written into a script"))
    report = steps_of(run)["report"]
    assert (report.status, report.why) == ("not possible", "an argument cannot be written into a script")
    assert report.next is not None
    assert report.next.startswith("steadytrain report ")
