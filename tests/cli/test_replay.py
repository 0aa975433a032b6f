"""``steadytrain replay`` through the real command: exact, or the reason named."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import builders
from scripts import Ended, call, run_script, write_script

WAIT_S_MAX = 180.0

SCRIPT = """
    import time
    import numpy as np
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(2)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator()
    generator.seed()
    for step in range(1, 11):
        inputs, targets = torch.randn(32, 8), torch.randint(0, 4, (32,))
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs, targets)
        if step == 7:
            FAULT
            loss = loss + (outputs.sum() * 0).sqrt()  # its gradient is not finite, its value is
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

SCATTER = """indices = torch.randint(0, 8, (1_000_000,))
            values = torch.randn(1_000_000)
            table = torch.zeros(8).index_put_((indices,), values, accumulate=True)
            loss = loss + table.sum() * 1e-2"""

FAULTS = {
    "clock": ("loss = loss * (1 + time.time() % 1)", "outside-value", "aten.mul.Tensor", None),
    "draw": (
        "loss = loss + torch.randn(1, generator=generator).sum()",
        "outside-value",
        "aten.randn.generator",
        "give the generator a fixed seed",
    ),
    "numpy": (
        "loss = loss + torch.from_numpy(np.random.default_rng().random(3)).sum()",
        "outside-value",
        "aten.lift_fresh.default",
        None,
    ),
    "scatter": (
        SCATTER,
        "nondeterministic-operation",
        "aten.index_put_.default",
        "torch.use_deterministic_algorithms(True)",
    ),
}


def stopped(folder: Path, fault: str = "pass") -> Ended:
    outcome = run_script(folder, SCRIPT.replace("FAULT", fault))
    assert outcome.status == 70, outcome.err
    assert outcome.warnings == []
    return outcome


def replay(*arguments: str, environment: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    return call("replay", *arguments, environment=environment)


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["schema"] == "steadytrain.replay/1"
    return document


@pytest.mark.slow
def test_a_plain_step_is_exact_and_its_symptom_comes_again(tmp_path: Path) -> None:
    outcome = stopped(tmp_path)
    done = replay(str(outcome.run_dir), "--times", "2", "--json")
    document = result(done)
    assert done.returncode == 1, done.stderr
    assert (document["exact"], document["symptom"], document["kind"], document["times"]) == (True, True, None, 2)
    assert (document["until_step"], document["changed"], document["script_batches_equal"]) == (7, [], True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=[pytest.mark.long] if place > 1 else []) for place, fault in enumerate(FAULTS)],
)
def test_what_is_not_repeatable_is_named(fault: str, tmp_path: Path) -> None:
    source, kind, operation, switch = FAULTS[fault]
    outcome = stopped(tmp_path, source)
    done = replay(str(outcome.run_dir), "--json")
    document = result(done)
    assert done.returncode == 1, done.stderr
    assert document["first_difference"]["step"] == 7
    assert document["kind"] == kind, document["why"]
    assert document["operation"]["operation"] == operation
    line = (tmp_path / "train.py").read_text(encoding="utf-8").splitlines()[document["operation"]["line"] - 1]
    assert document["operation"]["code"] == line.strip()
    assert line.strip() in source
    assert (document["switch"] or "").startswith(switch or "")


@pytest.mark.long
@pytest.mark.slow
def test_a_changed_file_is_named_and_a_changed_environment_too(tmp_path: Path) -> None:
    outcome = stopped(tmp_path)
    script = tmp_path / "train.py"
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace("if step == 7:", "if step == 7:\n        loss = loss * 2"), encoding="utf-8")
    document = result(replay(str(outcome.run_dir), "--json", environment={"OMP_NUM_THREADS": "2"}))
    assert (document["exact"], document["kind"], document["operation"]) == (False, "environment-changed", None)
    assert document["changed"] == [f"{script}: the file has changed", "$OMP_NUM_THREADS: 1 then, 2 now"]


@pytest.mark.long
@pytest.mark.slow
def test_a_mended_script_is_clean_and_a_script_of_another_model_cannot_be_told(tmp_path: Path) -> None:
    outcome = stopped(tmp_path)
    script = tmp_path / "train.py"
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace("(outputs.sum() * 0).sqrt()", "outputs.sum() * 0"), encoding="utf-8")
    assert replay(str(outcome.run_dir), "--once").returncode == 0
    script.write_text(text.replace("16", "17"), encoding="utf-8")
    done = replay(str(outcome.run_dir))
    assert (done.returncode, done.stdout) == (125, "")
    assert "builds another model" in done.stderr.splitlines()[-1]
    assert f"{script}: the file has changed" in done.stderr
    script.write_text("raise SystemExit('no data')", encoding="utf-8")
    done = replay(str(outcome.run_dir), "--json")
    assert (done.returncode, len(done.stderr.splitlines())) == (125, 1)
    script.unlink()
    done = replay(str(outcome.run_dir))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "the script is gone" in done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_a_script_that_moved_is_found_by_its_tree(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    outcome = run_script(tmp_path / "old", SCRIPT.replace("FAULT", "pass"), runs_dir=tmp_path / "runs")
    shutil.move(tmp_path / "old", tmp_path / "new")
    assert replay(str(outcome.run_dir)).returncode == 2
    done = replay(str(outcome.run_dir), "--json", "--tree", f"{tmp_path / 'old'}={tmp_path / 'new'}")
    assert done.returncode == 1, done.stderr
    assert (result(done)["exact"], result(done)["changed"]) == (True, [])


CHANGES_FOLDER = """
    import os
    factor = float(open("factor.txt").read())
    os.makedirs("out", exist_ok=True)
    os.chdir("out")
"""


@pytest.mark.slow
def test_a_script_that_changes_its_folder_is_launched_from_where_it_began(tmp_path: Path) -> None:
    (tmp_path / "factor.txt").write_text("1", encoding="utf-8")
    outcome = run_script(tmp_path, CHANGES_FOLDER + SCRIPT.replace("FAULT", "pass"))
    assert outcome.status == 70, outcome.err

    document = result(replay(str(outcome.run_dir), "--json"))

    assert (document["exact"], document["symptom"]) == (True, True)
    assert not (tmp_path / "out" / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "no such run or incident"),
        (("nowhere", "--times", "0"), "--times 0"),
        (("nowhere", "--wait-s", "0"), "--wait-s 0"),
        (("nowhere", "--tree", "here"), "OLD=NEW"),
        (("nowhere", "--tree", "a=/no/such/folder"), "no such folder"),
    ],
)
def test_bad_use_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = replay(*arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert said in done.stderr


def test_a_run_without_an_incident_is_one_line(tmp_path: Path) -> None:
    done = replay(str(builders.quiet_run(tmp_path / "quiet")))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.slow
def test_own_files_and_no_others_are_in_the_environment(tmp_path: Path) -> None:
    write_script(tmp_path, "SCALE = 1.0", "part.py")
    outcome = run_script(
        tmp_path, "from part import SCALE\n" + "\n".join(SCRIPT.replace("FAULT", "pass").split("\n    "))
    )
    environment = json.loads((outcome.run.incidents[0] / "environment.json").read_text(encoding="utf-8"))
    assert sorted(environment["sources"]) == [str(tmp_path / "part.py"), str(tmp_path / "train.py")]
