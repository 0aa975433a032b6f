"""The last lines of a run whose own process trained nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steadytrain.core.model import Symptom
from steadytrain.detection.summary import summary
from steadytrain.storage.run_folder import RUN_FILE


@pytest.mark.parametrize("failure", [None, "ended by SystemExit(0) after step 0"])
def test_a_process_whose_children_trained_says_that_they_are_recorded(tmp_path: Path, failure: str | None) -> None:
    (tmp_path / RUN_FILE).write_text("{}")
    watcher: Any = SimpleNamespace(streams=[], failure=failure, has_folder=False)
    (line,) = summary(watcher, tmp_path)
    assert line.startswith("; ".join(filter(None, [failure, "recorded by the processes that the script started"])))
    assert "next: " in line
    assert "nothing was recorded" not in line


def test_the_names_and_the_severities_count_the_same_symptoms(tmp_path: Path) -> None:
    names = ["foreign-gradients", *["lost-progress"] * 3, "divergence"]
    symptoms = [Symptom(name, "warning" if at == 0 else "note", 2 + at, 9, name) for at, name in enumerate(names)]
    said = {("foreign-gradients", "main", 2): "warning", ("divergence", "main", 6): "critical"}
    recorder = SimpleNamespace(too_short_for=lambda _: {}, idle_detectors=[], actions=[], told=said)
    watcher: Any = SimpleNamespace(
        streams=[SimpleNamespace(own_steps=9, updates_before=0)],
        stopped=None,
        failure=None,
        symptoms=symptoms,
        stories=[],
        let_go=[],
        recorded_steps=None,
        recorder=recorder,
        detector_names=["a"],
        notes=["a text"],
        has_folder=False,
    )
    line, lowered = summary(watcher, tmp_path)
    assert lowered == "note (no longer critical): divergence"
    told = "foreign-gradients, lost-progress (3 times), divergence (1 warning, 4 notes)"
    assert line == f"9 steps seen; symptoms: {told}; 1 note on the watch itself above"
