"""``steadytrain repro``: every fault of the zoo becomes a script that fails in a clean process, or is told why not."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import builders
from scripts import Ended, call, run_script
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.staged_bundle import update_incident

ZOO = Path(__file__).parents[2] / "zoo" / "nonfinite"
CASES = {case["script"]: case for case in json.loads((ZOO / "cases.json").read_text())["cases"] if case["exit"] == 70}
WAIT_S_MAX = 120.0
COMPILING_S_MAX = 400.0
"""A dozen compilations, on a machine that does other things as well."""

LINES_MAX, BYTES_MAX = 40, 100_000

# A layer's product, and backward behind a where.
QUICK = ("half_island_overflow.py",)
SECRET = "hunter2hunter2"
MADE_TWICE = QUICK[0]
FAULTY = [script for script, case in CASES.items() if case["operations"] and not case.get("compiled_only")]
COMPILED = [script for script, case in CASES.items() if case.get("compiled_only")]

EPS_ZERO = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=0.0)
    for step in range(1, 6):
        inputs = torch.randn(16, 8)
        inputs[:, 0] = float(step > 3)  # no gradient at first, and Adam divides 0 by 0
        loss = (model(inputs) - 1.0).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def repro(*arguments: str, wait_s: float = WAIT_S_MAX) -> subprocess.CompletedProcess[str]:
    return call("repro", *arguments)


def made(outcome: Ended, folder: Path, *options: str) -> dict[str, Any]:
    """The document of a reproduction that could be made."""
    done = repro(str(outcome.run_dir), "-o", str(folder), "--json", "--compiled-wait-s", "0", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert (document["schema"], document["made"]) == ("steadytrain.repro/1", True)
    return document


def run_clean(script: Path, elsewhere: Path) -> subprocess.CompletedProcess[str]:
    """The script by itself: no environment, no folder of ours, and whatever is not torch's own is not to be had."""
    shutil.copytree(script.parent, elsewhere)
    guard = (
        "import sys, runpy\n"
        "from importlib.machinery import PathFinder\n"
        "class Without(PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('steadytrain', 'safetensors', 'numpy', 'transformers', 'watched'):\n"
        "            return None\n"
        "        return PathFinder.find_spec(name, path, target)\n"
        "sys.meta_path[:] = [Without if one is PathFinder else one for one in sys.meta_path]\n"
        "runpy.run_path(sys.argv[1], run_name='__main__')\n"
    )
    return subprocess.run(
        [sys.executable, "-I", "-c", guard, str(elsewhere / script.name)],
        cwd=elsewhere.parent,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", [script if script in QUICK else pytest.param(script, marks=pytest.mark.long) for script in FAULTY]
)
def test_a_fault_of_the_zoo_becomes_a_small_script_that_fails(script: str, tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / script, arguments=("--api-key", SECRET))
    folder = tmp_path / "made"
    document = made(outcome, folder)
    path = folder / "repro.py"
    text = path.read_text(encoding="utf-8")
    assert document["lines"] == len(text.splitlines()) <= LINES_MAX
    assert sum(document["files"].values()) <= BYTES_MAX
    imported = {
        alias.name.partition(".")[0] if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert imported <= {"torch", "pathlib"}
    assert all(operand["nan"] == operand["inf"] == 0 for operand in document["inputs"])

    alone = run_clean(path, tmp_path / "elsewhere")
    assert alone.returncode == 1
    assert alone.stderr.splitlines()[-1] == f"AssertionError: {document['produced']} out of finite inputs"
    kind = {"NaN": "nan", "+Inf": "inf", "-Inf": "-inf"}[document["produced"]]
    assert kind in alone.stdout

    # What broke in the run is in the script: the operation itself, or in backward the one that it differentiates.
    if CASES[script]["phase"] == "backward":
        assert document["backward"]
        assert "backward" in text
    else:
        assert document["operations"][-1] in CASES[script]["operations"]
    told = text + next(iter(sorted(folder.glob("*.md")))).read_text(encoding="utf-8")
    assert "--api-key" in told
    assert SECRET not in told
    assert str(tmp_path) not in told

    if script == MADE_TWICE:
        made(outcome, tmp_path / "again")
        assert digests(tmp_path / "again") == digests(folder)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("script", COMPILED)
def test_a_fault_of_compiled_code_alone_is_compared_with_eager_mode(script: str, tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / script)
    folder = tmp_path / "made"
    done = repro(str(outcome.run_dir), "-o", str(folder), "--json", wait_s=COMPILING_S_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["variants"]["eager"] == document["variants"]["aot_eager"] == "finite"
    assert document["variants"]["inductor"] == document["produced"]
    assert document["lines"] <= LINES_MAX
    assert sum(document["files"].values()) <= BYTES_MAX
    assert document["operations"][-1] == "aten.div.Tensor"
    text = (folder / "repro.py").read_text(encoding="utf-8")
    assert "torch.compile(forward)" in text
    alone = run_clean(folder / "repro.py", tmp_path / "elsewhere")
    assert (alone.returncode, "in compiled code only" in alone.stderr.splitlines()[-1]) == (1, True)


@pytest.mark.long
@pytest.mark.slow
def test_weights_that_the_optimizer_broke(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, EPS_ZERO)
    assert outcome.status == 70
    document = made(outcome, tmp_path / "made")
    assert document["operations"] == ["aten.addcdiv_.default"]
    assert document["produced"] == "NaN"
    assert run_clean(tmp_path / "made" / "repro.py", tmp_path / "elsewhere").returncode == 1


HALF_SUM = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(1, 5):
        inputs = torch.rand(8, 64)
        outputs = model(inputs) * 0 + inputs * (3000 if step == 4 else 1)
        loss = outputs.half().sum(-1).float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_fault_that_takes_many_numbers_has_them_beside_the_script(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, HALF_SUM)
    document = made(outcome, tmp_path / "made")
    assert document["operations"] == ["aten.sum.dim_IntList"]
    assert set(document["files"]) == {"repro.py", "repro.pt", "ISSUE.md"}
    assert sum(document["files"].values()) <= BYTES_MAX
    alone = run_clean(tmp_path / "made" / "repro.py", tmp_path / "elsewhere")
    assert alone.stderr.splitlines()[-1] == "AssertionError: +Inf out of finite inputs"


@pytest.mark.slow
def test_a_batch_with_nan_in_it_gives_its_rows_and_no_script(tmp_path: Path) -> None:
    import torch

    outcome = run_script(tmp_path, ZOO / "nan_in_batch.py")
    folder = tmp_path / "made"
    done = repro(str(outcome.run_dir), "-o", str(folder))
    assert done.returncode == 1
    told = "the script writes values that are not finite into the batch at nan_in_batch.py:13 (args[0], row 3)"
    assert told in done.stdout
    assert "at nan_in_batch.py:13" in (folder / "ROWS.md").read_text(encoding="utf-8")
    assert sorted(path.name for path in folder.iterdir()) == ["ROWS.md", "rows.pt"]
    kept = torch.load(folder / "rows.pt", weights_only=True)["args[0]"]
    assert kept["rows"].tolist() == [3]
    assert torch.isnan(kept["values"]).nonzero().tolist() == [[0, 5]]


@pytest.mark.slow
def test_the_rows_are_named_by_their_place_in_the_data_set(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / "nan_in_data_set.py")
    folder = tmp_path / "made"
    assert repro(str(outcome.run_dir), "-o", str(folder)).returncode == 1
    assert "- row 0 is `Houses[30]`" in (folder / "ROWS.md").read_text(encoding="utf-8")


FILL = """
class Fill(nn.Module):
    def forward(self, inputs):
        return torch.nan_to_num(inputs)


"""


@pytest.mark.slow
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    from steadytrain.repro.nonfinite_rows import bad_rows

    script = tmp_path / "train.py"
    text = (ZOO / "log_of_zero.py").read_text(encoding="utf-8")
    # The batch holds a NaN that the model handles: whatever goes wrong later, it is not to blame.
    text = text.replace("torch.manual_seed(0)\n", FILL + "torch.manual_seed(0)\n")
    text = text.replace("nn.Sequential(", "nn.Sequential(Fill(), ")
    text = text.replace("inputs * 1e4", "(inputs * 1e4).where(inputs < 2.0, float('nan'))")
    script.write_text(text, encoding="utf-8")
    outcome = run_script(tmp_path, script)
    bundle = outcome.run.incidents[0]
    assert bad_rows(open_bundle(bundle))
    folder = tmp_path / "made"

    def refused(*arguments: str) -> str:
        done = repro(*arguments)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        return done.stderr

    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine", encoding="utf-8")
    assert "is not empty" in refused(str(bundle), "-o", str(full))
    assert "not a folder" in refused(str(bundle), "-o", str(script))
    assert "--wait-s" in refused(str(bundle), "-o", str(folder), "--wait-s", "0")
    assert "--before -1" in refused(str(bundle), "-o", str(folder), "--before", "-1")
    assert [path.name for path in full.iterdir()] == ["notes.txt"]

    script.write_text("import torch\nraise SystemExit(3)\n", encoding="utf-8")
    done = repro(str(bundle), "-o", str(folder))
    assert (done.returncode, folder.exists()) == (1, False)
    assert "ended with 3 before its step" in done.stdout

    script.unlink()
    assert "the script is gone" in refused(str(bundle), "-o", str(folder))
    assert not folder.exists()


@pytest.mark.slow
def test_an_incident_without_weights_or_without_a_fault(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / "log_of_zero.py", "--state-mb", "0")
    done = repro(str(outcome.run_dir), "-o", str(tmp_path / "made"))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "not kept" in done.stderr

    bundle = open_bundle(outcome.run.incidents[0])
    from dataclasses import replace

    update_incident(bundle.path, replace(bundle.incident, losses=(1.0,), parameters=()))
    done = repro(str(bundle.path), "-o", str(tmp_path / "made"))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "nonfinite-loss is none of these" in done.stderr


def test_an_unknown_incident_and_a_run_without_one_are_one_line(tmp_path: Path) -> None:
    done = repro("nowhere", "-o", str(tmp_path / "made"))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    done = repro(str(builders.quiet_run(tmp_path / "quiet")), "-o", str(tmp_path / "made"))
    assert done.returncode == 2
    assert "this run has no incident" in done.stderr
