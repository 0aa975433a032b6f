"""``steadytrain gate``: its exit status, and what it writes for CI systems."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

import steadytrain
from builders import bad_run, quiet_run, records, symptom
from scripts import Ended, call, run_script
from steadytrain.cli.check_data import command as check_data
from steadytrain.cli.gate import command
from steadytrain.core.errors import UsageError
from steadytrain.core.model import ScriptLine
from steadytrain.gate.ci_formats import as_sarif, github_annotations
from steadytrain.gate.result import Check, GatedRun, GateResult
from steadytrain.storage.segments import StepRecord

EVIL = "::error::x ##[add-mask]y <b>|`@octocat` \x1b[31m \x00 100%"


@pytest.fixture(autouse=True)
def _outside_github(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


def gate(*arguments: str | Path, status: int) -> Result:
    result = CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False, standalone_mode=False)
    assert result.return_value == status
    return result


def test_runs_and_logs_pass_or_fail_with_reasons(tmp_path: Path) -> None:
    good, bad, log = quiet_run(tmp_path / "good"), bad_run(tmp_path / "bad"), tmp_path / "log.csv"
    log.write_text("step,loss\n" + "".join(f"{step},{2 - step / 100}\n" for step in range(60)) + "60,-inf\n")
    assert "gate passed: 1 of 1 runs passed" in gate(good, status=0).stdout
    document = json.loads(gate(good, bad, log, "--json", status=1).stdout)
    assert (document["schema"], document["passed"], document["policy"]) == ("steadytrain.gate/1", False, "default")
    failed = {
        Path(run["run"]).name: [check["name"] for check in run["checks"] if check["status"] == "fail"]
        for run in document["runs"]
    }
    assert failed == {
        "good": [],
        "bad": ["ended", "symptoms", "nonfinite-losses", "actions"],
        "log.csv": ["symptoms", "nonfinite-losses"],
    }


def test_names_of_runs_and_folders_of_runs(tmp_path: Path) -> None:
    quiet_run(tmp_path / "good")
    assert "passed  good" in gate("good", "--runs-dir", tmp_path, status=0).stdout
    assert "1 of 1 runs" in gate(tmp_path, tmp_path / "good", status=0).stdout


def test_a_log_of_a_folder_that_cannot_be_read_does_not_pass(tmp_path: Path) -> None:
    quiet_run(tmp_path / "good")
    (tmp_path / "empty.csv").write_text("")
    result = gate(tmp_path, status=1)
    assert "NOT READ" in result.stdout
    assert "1 of 1 runs passed" in result.stdout


def test_a_place_in_the_workspace_is_a_file_with_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    quiet_run(tmp_path / "a run %", symptoms=[symptom(7)])
    shown = gate(Path("a run %"), "--github", "--sarif", tmp_path / "gate.sarif", status=1).stdout
    (result,) = json.loads((tmp_path / "gate.sarif").read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a%20run%20%25/run.json"
    assert "::error file=a run %25/run.json,title=steadytrain gate%3A symptoms::a run" in shown


def test_what_a_line_of_the_script_did_is_shown_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    at = ScriptLine(str(tmp_path / "train.py"), 7, "loss = a / b")
    outside = replace(at, file="/elsewhere/train.py")
    for place, file, line in ((at, "train.py", 7), (outside, "bad/run.json", 1)):
        found = GatedRun("bad", str(bad_run(tmp_path / "bad")), (Check("symptoms", "fail", "NaN", 3, place),))
        result = GateResult("default", (), (found,))
        (annotation,) = github_annotations(result)
        assert annotation.startswith(f"::error file={file}," + (f"line={line}," if place is at else "title="))
        (one,) = json.loads(as_sarif(result))["runs"][0]["results"]
        physical = one["locations"][0]["physicalLocation"]
        assert (physical["artifactLocation"]["uri"], physical["region"]["startLine"]) == (file, line)
        shutil.rmtree(tmp_path / "bad")


def test_two_files_for_ci_are_two_files(tmp_path: Path) -> None:
    run, file = quiet_run(tmp_path / "run"), tmp_path / "out"
    with pytest.raises(UsageError, match="--junit and --sarif: both write to"):
        CliRunner().invoke(
            command,
            [str(run), "--junit", str(file), "--sarif", str(file)],
            catch_exceptions=False,
            standalone_mode=False,
        )
    assert not file.exists()


def test_a_result_is_what_it_says(tmp_path: Path) -> None:
    """``assert steadytrain.gate(run)`` fails for a run that did not pass, and says why."""
    passed, failed = steadytrain.gate(quiet_run(tmp_path / "good")), steadytrain.gate(bad_run(tmp_path / "bad"))
    assert passed
    assert not failed
    assert "failed: 0 of 1 runs passed; bad: ended: " in repr(failed)


def test_a_healthy_run_can_complete_its_checklist(tmp_path: Path) -> None:
    """It has no symptom to reproduce and none to try a rate against."""
    run, policy = quiet_run(tmp_path / "run"), tmp_path / "gate.toml"
    policy.write_text("version = 1\n[require]\nchecklist = true\n")
    told = gate(run, "--policy", policy, status=1).stdout
    assert "Data tests" in told
    assert "Minimal reproduction" not in told


def test_the_files_for_ci_hold_text_of_others_as_text(tmp_path: Path) -> None:
    run = quiet_run(tmp_path / "run", symptoms=[symptom(7, message=EVIL)])
    names = ("junit", "sarif", "markdown")
    files = {name: tmp_path / f"gate.{name}" for name in names}
    shown = gate(run, "--github", *(word for name in names for word in (f"--{name}", files[name])), status=1).stdout
    root = ElementTree.fromstring(files["junit"].read_text())
    assert [(one.get("tests"), one.get("failures")) for one in root] == [("4", "1")]
    results = json.loads(files["sarif"].read_text())["runs"][0]["results"]
    assert [(one["ruleId"], one["level"]) for one in results] == [("symptoms", "error")]
    table = next(line for line in files["markdown"].read_text().splitlines() if line.startswith("| symptoms"))
    assert "<b>" not in table
    assert "@octocat" not in table
    assert table.replace("\\|", "").count("|") == 4
    commands = [line for line in shown.splitlines() if line.startswith("::")]
    assert len(commands) == 1
    assert commands[0].startswith("::error title=steadytrain gate%3A symptoms::run: critical nonfinite-gradient")
    assert commands[0].endswith("100%25")
    assert "##[" not in shown
    assert "\x1b" not in shown


def test_no_file_holds_a_secret(tmp_path: Path) -> None:
    secret = "hf_" + "aB3dE6gH9j" * 3 + "kLmN"
    run = tmp_path / f"log token={secret} .csv"
    run.write_text("step,loss\n" + "".join(f"{step},nan\n" for step in range(60)))
    names = ("junit", "sarif", "markdown")
    words = [word for name in names for word in (f"--{name}", tmp_path / name)]
    texts = [gate(run, "--github", *words, status=1).output, gate(run, "--json", status=1).output]
    texts += [(tmp_path / name).read_text() for name in names]
    assert not any(secret in text or secret.replace("_", "\\_") in text for text in texts)
    assert all("symptoms" in text for text in texts)


def test_annotations_come_by_themselves_on_github_and_leave_json_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bad_run(tmp_path / "bad")
    assert "::error" not in gate(run, status=1).stdout
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert gate(run, status=1).stdout.count("::error") == 4
    result = gate(run, "--json", status=1)
    json.loads(result.stdout)
    assert result.stderr.count("::error") == 4


def seeded(seed: int) -> list[StepRecord]:
    """A hundred steps whose loss and gradient norm differ a little by the seed."""
    factor = 1 + seed / 20
    return [
        replace(one, scalars={name: (value or 0.0) * factor for name, value in one.scalars.items()})
        for one in records(100)
    ]


def test_a_policy_and_references(tmp_path: Path) -> None:
    runs = [quiet_run(tmp_path / f"seed-{seed}", steps=seeded(seed)) for seed in range(3)]
    policy = tmp_path / "gate.toml"
    policy.write_text("version = 1\n[loss]\nend-highest = 0.1\n[require]\npreflight = true\n", encoding="utf-8")
    beside = [word for run in runs for word in ("--reference", run)]
    run = quiet_run(tmp_path / "new", steps=seeded(1))
    document = json.loads(gate(run, "--policy", policy, *beside, "--json", status=1).stdout)
    statuses = {check["name"]: check["status"] for check in document["runs"][0]["checks"]}
    assert document["references"] == ["seed-0", "seed-1", "seed-2"]
    assert (statuses["loss-noise"], statuses["gradient-norm-noise"]) == ("pass", "pass")
    assert (statuses["loss-bounds"], statuses["preflight"]) == ("fail", "unknown")


def test_data_that_check_data_found_bad_fail_a_gate_that_requires_them(tmp_path: Path) -> None:
    run, data, policy = quiet_run(tmp_path / "run"), tmp_path / "rows.jsonl", tmp_path / "gate.toml"
    policy.write_text("version = 1\n[require]\ndata = true\n", encoding="utf-8")
    assert "no result of check-data --keep-with" in gate(run, "--policy", policy, status=1).stdout
    for rows, status in (([f"row {at} says {at * 7919 % 1013}" for at in range(200)], 0), ([""] * 200, 1)):
        data.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows), encoding="utf-8")
        checked = CliRunner().invoke(check_data, [str(data), "--keep-with", str(run)], standalone_mode=False)
        assert checked.return_value == status, checked.output
        told = gate(run, "--policy", policy, status=status).stdout
    assert "FAIL     data" in told


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["none"], "none"),
        (["{bad}/incidents/step-412"], "an incident"),
        (["{bad}", "--policy", "{folder}/none.toml"], "none.toml"),
        (["{bad}", "--reference", "{bad}"], "its own reference"),
        (["{bad}", "--junit", "{folder}/none/x.xml"], "cannot be written"),
        (["{bad}", "--sarif", "-"], "--sarif -: the verdict goes to standard output; name a file"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], part: str, tmp_path: Path) -> None:
    bad = bad_run(tmp_path / "bad")
    words = [word.format(bad=bad, folder=tmp_path) for word in arguments]
    with pytest.raises(UsageError) as refused:
        gate(*words, "--runs-dir", tmp_path, status=2)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


SKIPPING = """
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 30):
        loss = model(torch.rand(8, 4)).square().mean()
        if step > 10:
            loss = loss.clamp(0, 0).log()
        optimizer.zero_grad()
        if not torch.isfinite(loss):
            continue
        loss.backward()
        optimizer.step()
"""


@pytest.fixture(scope="module")
def skipping(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_script(tmp_path_factory.mktemp("skipping"), SKIPPING)


@pytest.mark.slow
def test_a_run_whose_script_skips_infinite_losses_fails(skipping: Ended) -> None:
    assert skipping.status == 0
    done = call("gate", str(skipping.run_dir))
    assert done.returncode == 1
    assert "19 losses are NaN or Inf, 19 of them skipped by the script, the first at step 11" in done.stdout
