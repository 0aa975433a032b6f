"""``steadytrain diagnose``: what it refuses, what it shows, and a real fault in a real loop."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import builders
from scripts import call, run_script
from steadytrain.cli import diagnose, report, show
from steadytrain.core.errors import UsageError
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import BatchRow, Diagnosis
from steadytrain.diagnosis.cause import Sign, Signature
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.conclusion import Circumstances, conclude
from steadytrain.diagnosis.proof import Control
from steadytrain.diagnosis.weighing import Suspect
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.specs import Verdict

WAIT_S_MAX = 300.0

BATCH_SCRIPT = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    features, targets = torch.randn(512, 8), torch.randn(512, 1)
    features[37, 3] = float("nan")
    data = torch.utils.data.TensorDataset(features, targets)
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for inputs, wanted in loader:
            loss = nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def answer(target: Path) -> Diagnosis:
    """A bad batch, confirmed, as the thinking gives it."""
    sign = Sign("the batch's loss is 8.1 times that of others\x1b[31m", 3.0, "fact loss_excess", {"loss_excess": 8.1})
    own = Signature((sign,), layer="blocks.3", batch_rows=(3, 5))
    everyone = [Suspect(name, cause, own if name == "bad-batch" else Signature()) for name, cause in causes().items()]
    effects = {"unchanged": "persists", "drop-batch": "removed", "beta2-lower": "persists", "perturbed": "persists"}
    verdicts = [Verdict(name, effect, {"seconds": 1.0}, f"{name} did so") for name, effect in effects.items()]  # type: ignore[arg-type]
    control = Control(True, True, True, "loss on fixed batches rises by 0.07")
    held = {"drop-batch": Contrast("drop-batch", True, "leaving out the batch of step 84 does not")}
    known = Circumstances("loss-spike: it rose", control, True, (), str(target), contrasts=held)
    return conclude(everyone, verdicts, known)


def run(module: Any, *arguments: str | Path) -> str:
    result = CliRunner().invoke(module.command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--budget", "soon"), "--budget soon"),
        (("--budget", "0m"), "--budget 0m"),
        (("--workers", "0"), "--workers 0"),
        (("nowhere",), "nowhere"),
    ],
    ids=["budget", "no-time", "workers", "no-incident"],
)
def test_bad_use_is_one_line(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        run(diagnose, *arguments, "--runs-dir", tmp_path)


def test_show_and_report_tell_a_stored_diagnosis(tmp_path: Path) -> None:
    bundle = builders.write_bundle(tmp_path / "incidents" / "step-412")
    assert "Diagnosis" not in run(show, bundle)
    told = answer(bundle)
    assert (told.verdict, told.status) == ("bad-batch", "confirmed")
    row = BatchRow(3, 412, "ids", "int64", 64, 0, (17, 4), loss=7.125, text="a \x1b[31m\x9b2J<b>")
    answer_files.keep(bundle, replace(told, rows=(row,)))
    assert "Diagnosis: confirmed: bad-batch" in run(show, bundle)
    with CliRunner().isolation() as (printed, *_):
        diagnose._print(replace(told, rows=(row,)), [], whole=True)
    shown = printed.getvalue().decode()
    assert "row 3 of step 412 (loss 7.125)" in shown
    assert "ids: " in shown
    assert not any(mark in shown for mark in ("\x1b", "\x9b"))
    assert "steadytrain fix" not in shown  # no patch leaves out a batch
    page = tmp_path / "page.html"
    run(report, bundle, "-o", page)
    text = page.read_text(encoding="utf-8")
    for part in ("<h2>Diagnosis</h2>", "bad-batch", "drop-batch did so", "blocks.3", "3, 5", "removes it"):
        assert part in text, part
    assert "a \\x1b[31m\\x9b2J&lt;b&gt;" in text
    assert not any(mark in text for mark in ("\x1b", "\x9b"))


def test_a_run_is_to_be_diagnosed_until_it_is(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "copper-lynx")
    (bundle,) = (path / "incidents").iterdir()
    assert f"steadytrain diagnose {bundle}" in run(show, path)
    answer_files.keep(bundle, answer(bundle))
    shown = run(show, path)
    assert "steadytrain diagnose" not in shown
    assert f"steadytrain verify {bundle} --with drop-batch" in shown


def test_a_diagnosis_lies_beside_the_bundle_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    bundle = builders.write_bundle(tmp_path / "incidents" / "step-412")
    before = {file.name: file.read_bytes() for file in bundle.iterdir() if file.is_file()}
    answer_files.keep(bundle, answer(bundle))
    assert {file.name: file.read_bytes() for file in bundle.iterdir() if file.is_file()} == before


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"schema": "steadytrain.diagnosis/9"}', '{"schema": "steadytrain.diagnosis/1"}']
)
def test_a_damaged_diagnosis_is_none(tmp_path: Path, damage: str) -> None:
    bundle = builders.write_bundle(tmp_path / "incidents" / "step-412")
    answer_files.keep(bundle, answer(bundle))
    (tmp_path / "incidents" / "trials" / "step-412" / answer_files.FILE).write_text(damage)
    assert answer_files.read(bundle) is None
    assert "Diagnosis" not in run(show, bundle)


def test_an_incident_that_cannot_be_replayed_is_never_confirmed(tmp_path: Path) -> None:
    bundle = builders.write_bundle(tmp_path / "incidents" / "step-412")
    document = json.loads(run(diagnose, bundle, "--json"))
    assert document["replay"] == "not possible"
    assert document["replay_note"]
    assert "confirmed" not in {one["status"] for one in document["diagnoses"]}
    assert document["record_next"]
    assert json.loads(run(diagnose, bundle, "--json")) == document


def test_the_answer_takes_one_screen_and_names_the_command_for_the_rest(tmp_path: Path) -> None:
    bundle = builders.write_bundle(tmp_path / "incidents" / "step-412")
    told = answer(bundle)
    rows = tuple(BatchRow(number, 412, "ids", "int64", 64, 0, (17, 4), loss=7.0) for number in (1, 3, 4, 5))
    told = replace(told, rows=rows)
    printed = {}
    for whole in (False, True):
        with CliRunner().isolation() as (out, *_):
            diagnose._print(told, ["--onset", "12"], whole=whole)
        printed[whole] = out.getvalue().decode()
    short, full = printed[False], printed[True]
    assert len(short.splitlines()) <= 40 < len(full.splitlines())
    for part in (
        "confirmed: bad-batch",
        "To get past the step",
        "loss-spike: it rose",
        "row 3 of step 412",
        "row 5 of step 412",
        "next ",
    ):
        assert part in short, part
    for part in ("row 4 of step 412", "\nTrials", "replay   "):
        assert part not in short, part
        assert part in full, part
    assert f"{len(told.trials)} trials: " in short
    assert "--onset 12 --all" in short
    assert "--all" not in full


@pytest.mark.slow
@pytest.mark.parametrize(("cause", "said"), [("missing-zero-grad", True), ("bad-batch", False)])
def test_the_next_command_is_a_patch_where_there_are_recipes_for_one(cause: str, said: bool) -> None:
    told = replace(answer(Path("a b/step-1")), verdict=cause, status="likely", incident="a b/step-1")
    with CliRunner().isolation() as (printed, *_):
        diagnose._print(told, [], whole=False)
    assert ("steadytrain fix 'a b/step-1'" in printed.getvalue().decode()) is said


def test_a_row_that_is_not_finite_is_confirmed_and_named(tmp_path: Path) -> None:
    assert run_script(tmp_path, BATCH_SCRIPT).status == 70
    first = diagnosed(tmp_path)
    assert (first["verdict"], first["status"], first["replay"]) == ("nonfinite-input", "confirmed", "exact")
    cause = first["diagnoses"][0]
    assert len(cause["batch_rows"]) == 1
    effects = {row["trial"]: row["effect"] for row in first["trials"]}
    assert effects["unchanged"] == "persists"
    assert effects["drop-batch"] == "removed"  # within some steps: the next epoch has the row again
    assert (effects["drop-batch-second-seed"], effects["drop-batch-placebo"]) == ("removed", "persists")
    assert any(one["tried"] == "removed" for one in cause["interventions"])
    assert (first["axis"]["name"], first["axis"]["trials"]) == ("data", ["drop-batch"])
    assert diagnosed(tmp_path) == first  # finished trials are read, and the answer is the same


GUARDED_SCRIPT = BATCH_SCRIPT.replace(
    "            optimizer.zero_grad()",
    """            if not torch.isfinite(loss):
                raise SystemExit(0)
            optimizer.zero_grad()""",
)


@pytest.mark.long
@pytest.mark.slow
def test_a_script_that_leaves_its_loop_itself_is_diagnosed_alike(tmp_path: Path) -> None:
    assert GUARDED_SCRIPT != BATCH_SCRIPT
    assert run_script(tmp_path, GUARDED_SCRIPT).status == 0
    found = diagnosed(tmp_path)
    assert (found["verdict"], found["status"], found["replay"]) == ("nonfinite-input", "confirmed", "exact")
    assert {row["trial"]: row["effect"] for row in found["trials"]}["drop-batch"] == "removed"


@pytest.mark.long
@pytest.mark.slow
def test_a_broken_state_behind_such_a_guard_is_no_bad_batch(tmp_path: Path) -> None:
    script = GUARDED_SCRIPT.replace('features[37, 3] = float("nan")', "steps = 0").replace("AdamW", "SGD")
    raised = "            steps += 1\n            optimizer.param_groups[0]['lr'] = 1e20 if steps == 9 else 1e-3\n"
    assert run_script(tmp_path, script.replace("            loss = nn", f"{raised}            loss = nn")).status == 0
    found = diagnosed(tmp_path)
    trials = {row["trial"]: row for row in found["trials"]}
    assert trials["unchanged"]["effect"] == "persists"
    # The update before broke the state.
    assert trials["drop-batch"]["why"].startswith("only without its neighbours too")
    assert found["verdict"] not in ("nonfinite-input", "bad-batch")


def diagnosed(folder: Path) -> dict[str, Any]:
    done = call("diagnose", "run", "--runs-dir", "runs", "--json", "--workers", "2", folder=folder)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document
