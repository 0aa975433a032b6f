"""``steadytrain locate``: the failing step is done again in a new process and gives the same operation."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import builders
from scripts import call, run_script
from steadytrain.cli.locate import _lines as command_lines
from steadytrain.core.incident import Finding
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER
from steadytrain.storage.step_look import read_look

ZOO = Path(__file__).parents[2] / "zoo" / "nonfinite"
WAIT_S_MAX = 120.0

# One of each kind: forward in a layer, loss in the script, backward only, the second of three micro-batches.
CASES = {
    "half_island_overflow.py": ("forward", "1"),
    "all_targets_ignored.py": ("loss", ""),
    "where_trick.py": ("backward", "2"),
    "accumulation_second.py": ("loss", ""),
}


def locate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return call("locate", *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("script", CASES)
def test_a_new_process_names_the_same_operation(script: str, tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / script)
    assert outcome.status == 70
    done = locate(str(outcome.run_dir), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"]) == (0, "steadytrain.locate/1")
    assert document["verdict"] == "the same in the new process as at the incident"
    assert (document["again"]["located"]["phase"], document["again"]["located"]["module"]) == CASES[script]
    assert document["again"]["located"]["method"].endswith("in a new process")


@pytest.mark.slow
def test_a_bad_batch_is_named_again(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / "nan_in_batch.py")
    done = locate(str(outcome.run_dir))
    assert done.returncode == 0
    assert 'nan_in_batch.py:13   inputs[3, 5] = float("nan")' in done.stdout


@pytest.mark.slow
def test_what_the_incident_could_not_name_is_kept_when_the_new_process_does(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / "log_of_zero.py", "--policy", "observe")
    path = outcome.run.incidents[0]
    assert open_bundle(path).finding.located is None
    assert locate(str(path)).returncode == 0
    located = open_bundle(path).finding.located
    assert located is not None
    assert located.operation == "aten.log.default"


@pytest.mark.slow
def test_a_changed_model_a_gone_script_and_lost_weights_are_told_in_one_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    shutil.copy(ZOO / "log_of_zero.py", script)
    outcome = run_script(tmp_path, script, "--state-mb", "4096")
    assert outcome.status == 70

    script.write_text(script.read_text(encoding="utf-8").replace("16", "17"), encoding="utf-8")
    document = json.loads(locate(str(outcome.run_dir), "--json").stdout)
    assert "builds another model" in document["again"]["why"]
    assert document["located"]["operation"] == "aten.log.default"

    script.unlink()
    done = locate(str(outcome.run_dir))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "the script is gone" in done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_without_weights_the_tape_does_and_without_a_tape_the_weights_do(tmp_path: Path) -> None:
    for name, option in (("tape", "--state-mb"), ("weights", "--rewind-mb")):
        folder = tmp_path / name
        folder.mkdir()
        outcome = run_script(folder, ZOO / "half_growth.py", option, "0")
        document = json.loads(locate(str(outcome.run_dir), "--json").stdout)
        assert document["again"]["located"]["operation"] == "aten.mm.default"
        assert document["float64"]["verdict"] == "number-format"
        assert (document["replayed"] is not None) == (name == "tape")
        assert document["ladder"]["steps"] == ([2, 3, 4, 5, 6] if name == "tape" else [6])


@pytest.mark.slow
def test_with_neither_nothing_is_launched(tmp_path: Path) -> None:
    options = ("--state-mb", "0", "--rewind-mb", "0")
    outcome = run_script(tmp_path, ZOO / "log_of_zero.py", *options)
    done = locate(str(outcome.run_dir))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "not kept" in done.stderr


@pytest.mark.slow
def test_the_growth_before_an_overflow_is_shown_and_stays_in_the_bundle_and_its_report(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / "half_growth.py")
    done = locate(str(outcome.run_dir))
    assert done.returncode == 0
    ladder = next(line for line in done.stdout.splitlines() if "blocks.3.mlp.wo  float16" in line)
    assert ladder.count(" -> ") == 4
    assert "-> inf, limit 65504, 0." in ladder
    assert "finite in float64: the number format is at fault" in done.stdout
    bundle = outcome.run.incidents[0]
    look = read_look(bundle)
    assert look is not None
    assert look.ladder is not None
    largest = next(rung.largest for rung in look.ladder.rungs if rung.module == "blocks.3.mlp.wo")
    assert largest[0] is not None
    assert largest[3] is not None
    assert largest[3] > 1.5 * largest[0]
    assert open_bundle(bundle).path == bundle  # sealed again
    shown = call("show", bundle)
    assert "the number format is at fault" in shown.stdout


@pytest.mark.long
@pytest.mark.slow
def test_weights_that_an_update_broke_long_before_they_were_used_lead_to_that_update(tmp_path: Path) -> None:
    script = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.ModuleDict({"body": nn.Linear(8, 1), "spare": nn.Linear(8, 1)})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=0.0)
    for step in range(1, 11):
        inputs = torch.randn(16, 8)
        loss = (model["body"](inputs) - 1.0).pow(2).mean()
        if step == 3:
            loss = loss + 0.0 * model["spare"].weight.sum()
        if step >= 7:
            loss = loss + model["spare"](inputs).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # <- bites
    """
    outcome = run_script(tmp_path, script)
    document = json.loads(locate(str(outcome.run_dir), "--json").stdout)
    located = document["again"]["located"]
    assert (located["phase"], located["code"]) == ("optimizer", "optimizer.step()  # <- bites")
    assert located["reached"].endswith("after the update of step 3")
    assert document["step"] == 4


@pytest.mark.long
@pytest.mark.slow
def test_any_recorded_step_can_be_looked_at(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / "healthy_where.py", "--keep-rewind")
    done = locate(str(outcome.run_dir), "--step", "9")
    assert done.returncode == 1
    assert done.stderr.startswith("steadytrain: runs python ")
    assert "loss and gradients of this step are finite" in done.stdout
    said_of = {("--step", "11"): "not on the tape", ("--step", "0"): "count from 1", (): "no incident"}
    for options, said in said_of.items():
        refused = locate(str(outcome.run_dir), *options)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert said in refused.stderr


@pytest.mark.parametrize("arguments", [("nowhere",), ("nowhere", "--json")])
def test_an_unknown_incident_is_one_line(arguments: tuple[str, ...]) -> None:
    done = locate(*arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_a_run_without_an_incident_is_one_line(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "quiet")
    done = locate(str(path))
    assert done.returncode == 2
    assert "this run has no incident" in done.stderr


PREPARES = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(400, 4)
data[8 * 39 + 3] = {row}
for step in range(45):
    batch = data[8 * step : 8 * step + 8]
    batch = (batch - batch.mean(1, keepdim=True)) / batch.std(1, keepdim=True)
    loss = model(batch).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("row", "made"), [("2.0", True), ("float('nan')", False)])
def test_what_the_script_makes_of_its_batch_is_told_from_bad_data(row: str, made: bool, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PREPARES.format(row=row), encoding="utf-8")
    outcome = run_script(tmp_path, script)
    assert "not traced yet, `steadytrain locate` looks for it" in outcome.err
    path = str(outcome.run.incidents[0])
    done = call("repro", path, "-o", str(tmp_path / "again"), "--compiled-wait-s", "0")
    assert ("aten.div.Tensor makes NaN" in done.stdout) is made
    assert ("no operation is to blame" in done.stdout) is not made
    assert locate(path).returncode == 0
    finding = open_bundle(Path(path)).finding
    if made:
        assert finding.located is not None
        assert (finding.located.phase, finding.located.operation) == ("preprocessing", "aten.div.Tensor")
        onset = call("onset", path)
        assert "the data was finite: aten.div.Tensor" in onset.stdout
    else:
        assert "no operation of the step made it" in finding.came_in


SPOILS_A_WEIGHT = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(40):
    inputs = torch.randn(16, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        if step == 24:
            model[0].weight[3] = 0.0  # a unit that is pruned
        length = model[0].weight.norm(dim=1, keepdim=True)
        model[0].weight.mul_(length.clamp(max=3.0) / length)
"""


@pytest.mark.slow
def test_a_weight_that_the_script_spoils_between_two_steps_leads_to_its_line_and_is_confirmed(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, SPOILS_A_WEIGHT)
    assert outcome.status == 70
    assert "since the update of step 25, or what the script did after it" in outcome.told
    located = json.loads(locate(str(outcome.run_dir), "--json").stdout)["located"]
    assert (located["operation"], located["code"].strip()) == (
        "aten.div.Tensor",
        "model[0].weight.mul_(length.clamp(max=3.0) / length)",
    )
    found = json.loads(call("diagnose", str(outcome.run_dir), "--json").stdout)
    assert (found["verdict"], found["status"]) == ("singular-operation", "confirmed")


def test_the_first_line_names_the_run_and_what_the_new_search_added(tmp_path: Path) -> None:
    source = tmp_path / "copper-lynx" / INCIDENTS_FOLDER / "step-000412"
    recorded, again = Finding(None, "not searched"), Finding(builders.located(), "found in the re-run")
    found: Any = SimpleNamespace(step=412, source=source, recorded=recorded, again=again, broke=True)
    line = next(command_lines(found))
    assert line == "step 412 of copper-lynx: not traced at the incident, named in the new process"


BETWEEN_CALLS = """
import torch
from torch import nn

torch.manual_seed(0)
encoder, decoder = nn.Linear(4, 8), nn.Linear(8, 3)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])

class Trainer:
    def optimize(self, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def step(self, number):
        code = encoder(torch.randn(6, 4))
        code = code / (code.detach().sum() * 0 if number == 5 else 1)
        loss = decoder(code).pow(2).mean()
        self.last = loss.item()
        self.optimize(loss)

trainer = Trainer()
for number in range(1, 9):
    trainer.step(number)
"""


@pytest.mark.slow
def test_what_a_script_computes_between_two_models_is_named(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, BETWEEN_CALLS)
    assert outcome.status == 70
    assert "not traced yet, `steadytrain locate` looks for it: what the script computed" in outcome.err
    done = locate(str(outcome.run_dir))
    assert done.returncode == 0
    assert "code = code / (code.detach().sum() * 0" in done.stdout, done.stdout
