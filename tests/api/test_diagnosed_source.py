"""What is diagnosed if a run is asked about a symptom: its incident, or the run from its start."""

from __future__ import annotations

from pathlib import Path

import builders
from steadytrain.api.diagnoses import _source_of


def test_a_symptom_that_the_incident_is_not_about_is_asked_of_the_run(tmp_path: Path) -> None:
    run = builders.bad_run(tmp_path / "run")
    bundle = run / "incidents" / "step-412"
    about = builders.incident().symptoms[0].name
    assert _source_of(run, tmp_path, None) == bundle
    assert _source_of(run, tmp_path, about) == bundle
    assert _source_of(run, tmp_path, "no-learning") == run
    assert _source_of(bundle, tmp_path, "no-learning") == bundle


def test_a_run_without_an_incident_is_its_own_source(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    assert _source_of(run, tmp_path, "no-learning") == _source_of(run, tmp_path, None) == run
