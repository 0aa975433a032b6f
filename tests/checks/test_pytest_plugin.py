"""The pytest plug-in: its fixtures pass, fail and refuse as they should, and the example project's tests run."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "preflight_in_tests"

TESTS = """
import pytest
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.two(functional.dropout(torch.relu(self.one(x)), 0.5))


@pytest.fixture
def given():
    torch.manual_seed(0)
    x = torch.randn(8, 4)
    loss = lambda net, batch: functional.cross_entropy(net(batch[0]), batch[1])
    return {"model": Net(), "batches": [(x, x[:, :3].argmax(1))], "loss_fn": loss}


def test_passes(given, steadytrain_assert_no_batch_leak):
    assert steadytrain_assert_no_batch_leak(**given).status == "pass"


def test_fails(given, steadytrain_assert_deterministic_eval):
    steadytrain_assert_deterministic_eval(**given)


def test_cannot_be_checked(given, steadytrain_assert_causal):
    steadytrain_assert_causal(**given)


@pytest.mark.steadytrain_preflight
def test_every(given, steadytrain_check):
    steadytrain_check(**given)
"""


def run(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    installed = any(point.name == "steadytrain" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "steadytrain.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", *plugin, *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_fixtures_pass_fail_and_refuse(tmp_path: Path) -> None:
    (tmp_path / "test_net.py").write_text(textwrap.dedent(TESTS), encoding="utf-8")
    done = run("test_net.py", folder=tmp_path)
    assert done.returncode == 1
    assert "PASSED test_net.py::test_passes" in done.stdout
    assert "FAILED test_net.py::test_fails" in done.stdout
    assert re.search(r"eval-determinism: two calls in evaluation mode differ by", done.stdout)
    assert "causality could not be checked: the task is classification" in done.stdout
    assert "means: " in done.stdout
    assert re.search(r"SKIPPED .*pytest --steadytrain runs it", done.stdout)


@pytest.mark.long
def test_under_steadytrain_each_check_is_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_net.py").write_text(textwrap.dedent(TESTS), encoding="utf-8")
    done = run(
        "--steadytrain",
        "test_net.py",
        *("-k", "every and (initial-loss or eval-determinism or batch-norm-rows or loss-misuse)"),
        folder=tmp_path,
    )
    assert "PASSED test_net.py::test_every[initial-loss]" in done.stdout
    assert "PASSED test_net.py::test_every[loss-misuse]" in done.stdout
    assert "FAILED test_net.py::test_every[eval-determinism]" in done.stdout
    assert "the model has no batch normalisation" in done.stdout


@pytest.mark.long
def test_the_example_project_holds_its_properties() -> None:
    done = run(EXAMPLE, folder=ROOT)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b8 passed", done.stdout)


@pytest.mark.long
def test_a_property_of_the_example_holds() -> None:
    done = run(EXAMPLE, "-k", "see_the_answer or next_tokens", folder=ROOT)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b2 passed", done.stdout)


def test_the_plugin_loads_no_torch() -> None:
    code = "import sys, steadytrain.pytest_plugin; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
