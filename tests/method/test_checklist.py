"""The checklist: each tick only with evidence, and the command that would tick it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import builders
import steadytrain
from steadytrain.cli.checklist import command
from steadytrain.core.errors import UsageError
from steadytrain.core.own_command import pasteable
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import Diagnosis, PatchTried
from steadytrain.experiments.command_results import (
    FILE,
    ROWS_WRITTEN,
    CommandResult,
    keep_result,
    keep_verdicts,
    results_of,
)
from steadytrain.experiments.outcome_files import SCHEMA, trials_folder
from steadytrain.experiments.specs import Entry, Outcome, Spec, Verdict
from steadytrain.experiments.trial_catalog import trials
from steadytrain.method.evidence import evidence_of
from steadytrain.method.steps import STEPS, step_of_trial
from steadytrain.method.ticks import Tick
from steadytrain.storage.bundle import write_json

FLOAT32 = {"parameters": {"torch.float32": 9}, "gradients": {"torch.float32": 9}, "autocast": {}, "logits": None}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return builders.bad_run(tmp_path / "run")


def incident(run: Path) -> Path:
    return run / "incidents" / "step-412"


def ticks(target: Path) -> dict[str, Tick]:
    return {tick.name: tick for tick in steadytrain.checklist(target).ticks}


def test_nothing_is_ticked_without_evidence(run: Path) -> None:
    found = ticks(run)
    assert not any(tick.done for tick in found.values())
    assert found["reproduction"].command == f"steadytrain repro {incident(run)} -o repro"
    assert found["data"].command == f"steadytrain check-data PATH --keep-with {run}"
    assert found["telemetry"].command == "steadytrain run --level standard train.py --learning-rate 3e-4"
    assert found["precision"].command == f"steadytrain trial {incident(run)} float32"
    assert found["tuning"].command == f"steadytrain trial {incident(run)} learning-rate-third longer-warmup clip"


def test_a_run_without_a_symptom_is_given_no_command_that_would_be_refused(tmp_path: Path) -> None:
    found = ticks(builders.quiet_run(tmp_path / "quiet"))
    assert found["reproduction"].evidence == ("the run has no symptom that could be reproduced",)
    asked = [found[name] for name in ("reproduction", "precision", "tuning")]
    assert [(tick.state, tick.command) for tick in asked] == [("not-needed", None)] * 3
    assert all("the run has no symptom that" in tick.evidence[0] for tick in asked)


def test_results_of_commands_tick_and_are_named_with_their_day(run: Path) -> None:
    keep_result(incident(run), CommandResult("repro", True, "the log of 0", when="2026-11-20T03:00:00+00:00"))
    keep_result(run, CommandResult("check-data rows.jsonl", True, "12 rows: nothing found"))
    found = ticks(run)
    assert found["reproduction"].done
    assert found["reproduction"].command is None
    assert found["reproduction"].evidence == ("repro, 2026-11-20: the log of 0",)
    assert found["data"].done
    assert "check-data rows.jsonl" in found["data"].evidence[0]


def test_a_repro_that_was_not_made_is_no_tick(run: Path) -> None:
    keep_result(incident(run), CommandResult("repro", False, "it did not fail again"))
    assert not ticks(run)["reproduction"].done
    assert ticks(run)["reproduction"].is_open
    assert ticks(run)["reproduction"].command is None
    assert "it did not fail again" in ticks(run)["reproduction"].evidence[0]


def test_a_repro_that_wrote_the_rows_in_place_of_a_script_is_not_needed(run: Path) -> None:
    keep_result(incident(run), CommandResult("repro", False, "no operation is to blame", ROWS_WRITTEN))
    found = ticks(run)["reproduction"]
    assert (found.state, found.done, found.command) == ("not-needed", False, None)
    assert "no operation is to blame" in found.evidence[0]


def test_rate_warm_up_and_clipping_are_all_needed(run: Path) -> None:
    persists = {name: Verdict(name, "persists", {}, "as before") for name in ("learning-rate-third", "clip")}
    keep_verdicts(incident(run), "trial", persists)
    assert not ticks(run)["tuning"].done
    assert ticks(run)["tuning"].command == f"steadytrain trial {incident(run)} longer-warmup"
    keep_verdicts(incident(run), "verify", {"rewarm": Verdict("rewarm", "removed", {}, "gone")})
    assert ticks(run)["tuning"].done
    assert any("rewarm removed (verify, " in line for line in ticks(run)["tuning"].evidence)


def test_a_trial_that_was_refused_does_not_count(run: Path) -> None:
    keep_verdicts(incident(run), "trial", {"float32": Verdict("float32", "not-run", {}, "no tape was kept")})
    assert not ticks(run)["precision"].done
    assert "float32 not-run" in ticks(run)["precision"].evidence[0]


def test_a_run_in_float32_has_no_precision_to_compare(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run", facts={**builders.FACTS, "precision": FLOAT32})
    assert ticks(run)["precision"].state == "not-needed"
    assert ticks(run)["precision"].evidence[0].startswith("nothing to compare")
    mixed = {**FLOAT32, "autocast": {"cpu": "torch.bfloat16"}}
    other = builders.quiet_run(tmp_path / "other", facts={**builders.FACTS, "precision": mixed})
    assert not ticks(other)["precision"].done


def test_checks_of_batches_in_a_preflight_count_and_others_do_not(run: Path) -> None:
    checks = [{"name": "clipping-order", "status": "pass"}, {"name": "token-audit", "status": "not-run"}]
    write_json(run / "preflight.json", {"created": "2026-11-20", "checks": checks})
    assert not ticks(run)["data"].done
    checks[1]["status"] = "fail"
    write_json(run / "preflight.json", {"created": "2026-11-20", "checks": checks})
    assert ticks(run)["data"].done
    assert "token-audit fail" in ticks(run)["data"].evidence[0]


def test_an_outcome_that_nobody_judged_is_named_as_such(run: Path) -> None:
    folder = trials_folder(incident(run))
    folder.mkdir(parents=True)
    spec = Spec("float32", 0, 400, (Entry(401),))
    write_json(folder / "float32-0123456789abcdef.json", {"schema": SCHEMA, "outcome": Outcome(spec, True).to_json()})
    (folder / "clip-damaged.json").write_text("{", encoding="utf-8")
    assert "run, not judged yet" in ticks(run)["precision"].evidence[0]
    assert set(evidence_of(run).tried) == {"float32"}


def test_of_a_run_all_incidents_count_and_of_an_incident_its_own(run: Path) -> None:
    keep_verdicts(run, "trial", {"float32": Verdict("float32", "persists", {}, "as before")})
    assert ticks(run)["precision"].done
    assert not ticks(incident(run))["precision"].done


def test_a_damaged_file_of_results_counts_as_none(run: Path) -> None:
    keep_result(run, CommandResult("replay", True, "exact"))
    (trials_folder(run) / FILE).write_text('{"schema": "steadytrain.commands/1", "commands": 3}', encoding="utf-8")
    assert results_of(run) == {}
    assert not any(tick.done for tick in ticks(run).values())


def test_a_folder_that_cannot_be_written_keeps_nothing_and_fails_nothing(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    (run / "trials").write_text("in the way", encoding="utf-8")
    keep_result(run, CommandResult("replay", True, "exact"))
    assert results_of(run) == {}


def test_the_terminal_and_the_document_say_the_same(run: Path) -> None:
    printed = CliRunner().invoke(command, [str(run)], catch_exceptions=False)
    assert printed.exit_code == 0
    assert printed.output.splitlines()[-3] == f"of 5: 0 done, 5 open; for {run}"
    assert f"repro {incident(run)} -o repro  # what is left to do" in printed.output.splitlines()[-1]
    assert printed.output.splitlines()[0] == "[x] done   [-] not needed: the first line says why   [ ] open"
    document = json.loads(CliRunner().invoke(command, [str(run), "--json"], catch_exceptions=False).output)
    assert document["schema"] == "steadytrain.checklist/1"
    for tick in document["ticks"]:
        assert (tick["state"], tick["done"]) == ("open", False)
        assert f"[ ] {tick['title']}" in printed.output
        assert f"next: {pasteable(tick['command'])}" in printed.output


def test_a_target_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such run or incident"):
        steadytrain.checklist(tmp_path / "nothing")


def test_it_needs_no_torch(run: Path) -> None:
    code = f"import sys, steadytrain; steadytrain.checklist({str(run)!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_trial_belongs_to_a_step() -> None:
    names = {step.name for step in STEPS}
    assert {step_of_trial(one.name) for one in trials()} <= names
    assert step_of_trial("of-another-package") == "isolate"


def test_what_cannot_be_cut_is_not_asked_for(tmp_path: Path) -> None:
    dead = builders.symptom(9, name="dead-units", severity="warning", message="units are dead")
    found = ticks(builders.quiet_run(tmp_path / "run", symptoms=[dead]))["reproduction"]
    assert (found.state, found.command) == ("not-needed", None)
    assert found.evidence == ("repro makes no script for dead-units",)


def test_a_note_leaves_nothing_to_reproduce(tmp_path: Path) -> None:
    note = builders.symptom(9, name="divergence", severity="note", message="the loss rises")
    found = ticks(builders.quiet_run(tmp_path / "run", symptoms=[note]))
    assert [found[name].command for name in ("reproduction", "tuning")] == [None, None]


def test_a_patch_that_works_needs_no_tuning(run: Path) -> None:
    patch = PatchTried("nonfinite-input", "leave the rows out", "t.py", "--- t.py", "removed", "gone", 1.0, 1.0, 9)
    answer = Diagnosis(str(run), "nonfinite-loss", "exact", "", "nonfinite-input", "confirmed", "", (), (), patch=patch)
    answer_files.keep(incident(run), answer)
    found = ticks(run)["tuning"]
    assert (found.state, found.command) == ("not-needed", None)
    assert "learning rate: never tried" in found.evidence
    assert found.evidence[0] == "a patch removes the symptom: leave the rows out"
