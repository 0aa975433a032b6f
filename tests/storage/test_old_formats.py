"""Run folders of earlier versions are read for ever: each fixture was written by the code of its time.

``run-1``: 12 steps with their gradient norms in the step records, the last one not finite, and its incident.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import builders
from steadytrain.cli.show import command as show
from steadytrain.core.incident import Action
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_search import list_runs

FIXTURES = Path(__file__).parents[1] / "fixtures"
EXPECTED = json.loads((FIXTURES / "run-1.json").read_text())


def test_a_run_of_version_1_reads_as_it_was_written() -> None:
    run = open_run(FIXTURES / "run-1")
    assert run.name == "copper-lynx"
    assert run.ended == "stopped"
    assert run.actions == (Action(12, "stop", "refused-update", "the gradient is not finite"),)
    assert [(symptom.name, symptom.first_step) for symptom in run.symptoms] == [("nonfinite-gradient", 12)]
    assert run.tables() == []
    window = run.window()
    assert window.steps.tolist() == list(range(1, 13))
    for signal in ("loss", "gradient_norm"):
        np.testing.assert_array_equal(window.signals[signal], np.array([float(text) for text in EXPECTED[signal]]))
    assert window.time.tolist() == EXPECTED["time"]
    assert window.refused.tolist() == [False] * 11 + [True]
    assert window.tensor_names == builders.TENSORS
    np.testing.assert_array_equal(window.gradient_norms[:11], np.tile(np.float32([0.5, 0.4, 0.1]), (11, 1)))
    np.testing.assert_array_equal(window.gradient_norms[11], np.float32([0.5, math.nan, math.inf]))
    assert len(window.series("loss_scale")) == 0


def test_its_incident_opens() -> None:
    (path,) = open_run(FIXTURES / "run-1").incidents
    bundle = open_bundle(path)
    assert bundle.incident.step == 12
    assert bundle.window.steps.tolist() == list(range(7, 13))
    assert bundle.window.tensor_names == builders.TENSORS


def test_it_is_listed_and_shown() -> None:
    assert [run.steps for run in list_runs(FIXTURES)] == [12]
    shown = CliRunner().invoke(show, [str(FIXTURES / "run-1")], catch_exceptions=False)
    assert "aten.log.default" in shown.output


def test_it_can_be_asked() -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    from steadytrain.storage.query import ask

    with ask([open_run(FIXTURES / "run-1")], "SELECT count(*), count(loss), count(loss_scale) FROM steps") as answer:
        assert list(answer.rows) == [(12, 12, 0)]
