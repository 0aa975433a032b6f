"""Each fixture of the pytest plug-in lets a sound model through and fails a faulty one; no name is a project's own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
import faulty_models as faulty
import healthy_models as healthy
import planted_loops
import planted_models
from healthy_models import Given
from test_pytest_plugin import run

from replaying import plain_process
from steadytrain.pytest_plugin import ASSERTIONS

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
Maker = Callable[[], Given]


def padded() -> Given:
    return healthy.given(healthy.gpt2(), healthy.with_padding())


CASES: dict[str, tuple[Maker, Maker, str]] = {
    "overfits_one_batch": (healthy.tabular, planted_models.same_inputs, "the loss of 4 rows"),
    "causal": (healthy.recurrent, planted_models.chooses_by_what_comes, "causality-by-change"),
    "no_batch_leak": (healthy.vision_transformer, planted_models.rows_swapped, "a row depends on the others"),
    "resumes_exactly": (healthy.tabular, faulty.forgetful, "the model is not as it was saved"),
    "accumulation_equivalent": (
        planted_loops.accumulated_right,
        planted_loops.accumulated,
        "differs from that of the whole batch",
    ),
    "gradients_reach_everything": (healthy.lora, planted_models.head_forgotten, "are in no optimizer"),
    "labels_aligned": (planted_models.hidden_loss(1), planted_models.labels_shifted_twice, "shifted more than once"),
    "initial_loss": (healthy.tabular, planted_models.loud_embedding, "far too high"),
    "uses_inputs": (healthy.tabular, planted_models.sees_labels, "the labels are seen"),
    "order_invariant": (healthy.tabular, planted_loops.place_matters, "turned round"),
    "deterministic_eval": (planted_loops.drops_in_training, planted_loops.drops_always, "differ by"),
    "batch_size_invariant": (healthy.tabular, planted_loops.squeezes, "alone"),
    "padding_invariant": (padded, planted_loops.reads_padding, "outputs at real tokens change"),
    "loss_used_right": (
        healthy.binary,
        planted_loops.with_loss(healthy.binary, planted_loops.sigmoid_twice),
        "sigmoid of it again",
    ),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with plain_process():
        yield


def test_every_fixture_has_a_case() -> None:
    assert CASES.keys() == ASSERTIONS.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_sound_model_passes(name: str, request: pytest.FixtureRequest) -> None:
    healthy_model, _, _ = CASES[name]
    assert request.getfixturevalue(f"steadytrain_assert_{name}")(**healthy_model()).status in ("pass", "warn")


@pytest.mark.parametrize("name", CASES)
def test_a_faulty_model_fails(name: str, request: pytest.FixtureRequest) -> None:
    _, faulty_model, why = CASES[name]
    with pytest.raises(pytest.fail.Exception, match=why):
        request.getfixturevalue(f"steadytrain_assert_{name}")(**faulty_model())


PROJECT = """
import pytest


@pytest.fixture
def assert_causal():
    return "the project's own"


@pytest.mark.preflight
def test_of_the_project(assert_causal):
    assert assert_causal == "the project's own"
"""


def test_markers_and_fixtures_of_a_project_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(PROJECT, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    preflight: ours\n", encoding="utf-8")
    done = run("--strict-markers", "test_project.py", folder=tmp_path)
    assert "PASSED test_project.py::test_of_the_project" in done.stdout, done.stdout


def test_every_name_that_the_plugin_brings_begins_with_its_own(tmp_path: Path) -> None:
    listed: subprocess.CompletedProcess[str] = run("--fixtures", "--markers", folder=tmp_path)
    listed_fixtures = run("--fixtures", "-v", folder=tmp_path).stdout
    ours = [line for line in listed_fixtures.splitlines() if "steadytrain/pytest_plugin.py" in line]
    assert len(ours) == len(ASSERTIONS) + 1
    assert all(line.startswith("steadytrain_") for line in ours)
    assert "@pytest.mark.steadytrain_preflight" in listed.stdout
    assert "@pytest.mark.preflight" not in listed.stdout
