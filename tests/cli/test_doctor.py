"""``steadytrain doctor``: versions, what works here and what does not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from steadytrain.cli import doctor
from steadytrain.core.errors import UsageError
from steadytrain.core.torch_names import NAMES, TorchName
from steadytrain.core.torch_private import ENGINE, GRAPH_TASK


def run(*options: str) -> tuple[int, str]:
    done = CliRunner().invoke(doctor.command, list(options), standalone_mode=False)
    assert done.exception is None, done.exception
    return done.return_value, done.output


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_each_extra_of_ours_is_named_with_what_it_is_for() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    table = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = dict(re.findall(r"^(\w+) = \[([^\]]*)\]$", table, re.MULTILINE))
    theirs = ("torch", "hf", "lightning", "accelerate", "ray", "docs", "demo", "dev")
    first = [re.findall(r'"([\w-]+)', packages)[0] for name, packages in extras.items() if name not in theirs]
    assert len(first) >= 9
    assert set(first) <= set(doctor.OPTIONAL)


def test_a_training_can_be_watched_here(torch: Any) -> None:
    status, out = run("--json")
    found = json.loads(out)
    assert (status, found["schema"], found["works"]) == (0, "steadytrain.doctor/1", True)
    assert found["torch"]["version"] == torch.__version__
    assert found["python"]["executable"] == sys.executable
    assert len(found["names"]) == len(NAMES)
    assert not [name for name in found["names"] if name["needed"] and not name["works"]]


def test_a_process_of_its_own_tests_every_name(torch: Any) -> None:
    """Nothing else has imported the names there."""
    done = subprocess.run(
        [sys.executable, "-m", "steadytrain", "doctor", "--json"], capture_output=True, text=True, check=True
    )
    assert [one["name"] for one in json.loads(done.stdout)["names"]] == [one.full for one in NAMES]


def test_the_text_has_versions_and_the_verdict(torch: Any) -> None:
    status, out = run()
    assert status == 0
    assert re.search(rf"^torch +{re.escape(torch.__version__)}$", out, re.M)
    assert "A training can be watched" in out


def without(name: TorchName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(name.owner(), name.attribute)


def test_a_name_that_a_watch_needs_is_missing(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    without(ENGINE, monkeypatch)
    status, out = run()
    assert status == 1
    assert "A training cannot be watched with this torch. It lacks:" in out
    assert f"  {ENGINE.full}: {ENGINE.lost} (needed)" in out.splitlines()


def test_another_name_is_missing(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    without(GRAPH_TASK, monkeypatch)
    status, out = run()
    assert status == 0
    assert f"  {GRAPH_TASK.full}: {GRAPH_TASK.lost}" in out.splitlines()


def test_torch_is_too_old(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    status, out = run()
    assert status == 1
    assert "torch 2.5.1 is too old: install 2.6 or newer." in out


@pytest.mark.parametrize(
    ("torch", "status", "said"),
    [
        ("sys.modules['torch'] = None", 0, "torch is not installed"),
        ("sys.path.insert(0, sys.argv.pop())", 1, "torch cannot be imported (OSError: libcudart.so is missing)"),
    ],
    ids=["absent", "broken"],
)
def test_torch_cannot_be_used(tmp_path: Path, torch: str, status: int, said: str) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so is missing')")
    code = f"import sys; {torch}; sys.argv = ['steadytrain', 'doctor']; from steadytrain.cli.main import entry; entry()"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    assert said in done.stdout


def test_a_kernel_without_landlock_is_said(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_files_are_protected", lambda: False)
    _, out = run()
    assert "File protection: partly" in out


def test_every_field_is_documented() -> None:
    described = (Path(__file__).parents[2] / "docs" / "schemas.md").read_text(encoding="utf-8")
    section = described.split("## `steadytrain.doctor/1`")[1].split("\n## ")[0]
    for field in {key for key in fields(doctor.examine()) if "." not in key}:
        assert f"`{field}" in section or f".{field}" in section, field


def fields(document: dict[str, Any]) -> list[str]:
    found = []
    for key, value in document.items():
        found.append(key)
        if isinstance(value, dict) and key != "frameworks":
            found += fields(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            found += fields(value[0])
    return found


def test_a_wrong_setting_and_a_missing_script_are_no_success(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEADYTRAIN_SEED", "x")
    result = CliRunner().invoke(doctor.command, [], standalone_mode=False, catch_exceptions=False)
    assert (result.return_value, "STEADYTRAIN_SEED=x: 'x' is not a whole number" in result.output) == (1, True)
    with pytest.raises(UsageError, match=r"nosuch\.py: no such file"):
        CliRunner().invoke(doctor.command, ["nosuch.py"], standalone_mode=False, catch_exceptions=False)
