"""Every detector keeps the promises of its kind, and a broken stranger costs nothing."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import re
import sys
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pytest

from steadytrain.core import plugins
from steadytrain.core.model import SIGNALS, TABLES, Symptom, Window
from steadytrain.detectors import DETECTORS, SYMPTOM_PAGES, Detector
from steadytrain.grouping import catalog
from steadytrain.testing import steps

ROOT = Path(__file__).parents[2]
ALL = catalog.log_detectors()
ALWAYS_NOTES = {
    *("summed-gradients", "constant-targets", "replaced-weights", "swapped-channels"),
    *("moving-frozen-norms", "shared-time", "unexpected-inputs", "diluted-divergence", "evaluation-setback"),
}
"""Detectors of what may be meant, whatever else is known of the run."""

every_detector = pytest.mark.parametrize("detector", ALL, ids=[type(entry).__name__ for entry in ALL])


def windows_of(detector: Detector, name: str) -> tuple[Window, ...]:
    """``SICK`` or ``HEALTHY`` of the detector's own test file: windows that it sees something in, and look-alikes."""
    stem = catalog.detector_name(type(detector)).replace("-", "_")
    path = ROOT / "tests" / "detectors" / f"test_{stem}.py"
    spec = importlib.util.spec_from_file_location(f"windows_of_{stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    windows: tuple[Window, ...] = getattr(module, name)
    return windows


def contents(window: Window) -> dict[str, object]:
    """A window as plain dictionaries and arrays, which NumPy can compare."""
    inner = {name: vars(value) for name, value in {**window.tables, **window.metrics}.items()}
    own = {one.name: getattr(window, one.name) for one in fields(window)}  # without what was worked out of them
    return {**own, "tables": inner, "metrics": sorted(window.metrics)}


def test_the_shipped_detectors_are_found() -> None:
    names = [catalog.detector_name(type(detector)) for detector in ALL]
    assert names == sorted(names)
    assert set(names) >= {"divergence", "loss-spike", "nonfinite-gradient", "nonfinite-loss"}


@every_detector
def test_its_name_derives_file_and_test(detector: Detector) -> None:
    cls = type(detector)
    stem = catalog.detector_name(cls).replace("-", "_")
    assert cls.__module__ == f"steadytrain.detectors.{stem}"
    assert (ROOT / "tests" / "detectors" / f"test_{stem}.py").is_file()


@every_detector
def test_it_is_a_final_frozen_dataclass(detector: Detector) -> None:
    assert is_dataclass(detector)
    assert not type(detector).__subclasses__()
    if sys.version_info >= (3, 11):
        assert type(detector).__final__  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        detector.anything = 1  # type: ignore[attr-defined]


@every_detector
def test_its_docstring_explains(detector: Detector) -> None:
    found = SYMPTOM_PAGES.of(detector)
    assert found.summary.endswith(".")
    assert found.summary.count(". ") == 0
    assert found.sections["means"]
    assert found.sections["causes"].startswith("- ")
    assert found.sections["next"].startswith("1. ")


@every_detector
def test_every_threshold_says_where_its_number_comes_from(detector: Detector) -> None:
    for threshold in SYMPTOM_PAGES.of(detector).thresholds:
        assert threshold.about != "not documented", threshold.name
        assert re.search(r"_(steps|max|min|nats|scales|share|ratio|readings|rows|z|s)$|^z$", threshold.name), (
            f"{threshold.name} names no unit"
        )
    assert len(SYMPTOM_PAGES.of(detector).thresholds) == len(fields(detector))


@every_detector
def test_it_needs_signals_that_exist(detector: Detector) -> None:
    assert detector.needs
    assert {name for name in detector.needs if "." not in name} <= {*SIGNALS, "gradient_norms", "metrics"}
    assert {name.partition(".")[0] for name in detector.needs if "." in name} <= set(TABLES)


@every_detector
def test_it_is_pure(detector: Detector) -> None:
    windows = windows_of(detector, "SICK") + windows_of(detector, "HEALTHY")
    copies = copy.deepcopy(windows)
    first = [detector.check(window) for window in windows]
    again = [detector.check(window) for window in reversed(windows)]
    assert [str(symptom) for symptom in first] == [str(symptom) for symptom in reversed(again)]
    for window, before in zip(windows, copies, strict=True):
        np.testing.assert_equal(contents(window), contents(before))


@every_detector
def test_its_symptoms_carry_its_name_and_survive_json(detector: Detector) -> None:
    for window in windows_of(detector, "SICK"):
        found = detector.check(window)
        assert found
        assert [symptom.first_step for symptom in found] == sorted(symptom.first_step for symptom in found)
    for symptom in found:
        assert (symptom.severity != "note") == (symptom.name not in ALWAYS_NOTES)
        assert symptom.name == catalog.detector_name(type(detector))
        assert Symptom.from_json(symptom.to_json()) == symptom


@every_detector
def test_its_look_alikes_raise_nothing_above_a_note(detector: Detector) -> None:
    windows = windows_of(detector, "HEALTHY")
    assert windows
    for window in windows:
        assert {symptom.severity for symptom in detector.check(window)} <= {"note"}


@every_detector
def test_it_is_silent_on_an_empty_window(detector: Detector) -> None:
    assert detector.check(steps()) == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("LossSpike", "loss-spike"), ("Divergence", "divergence"), ("HTTPErrorRate", "http-error-rate")],
)
def test_detector_name(name: str, expected: str) -> None:
    assert catalog.detector_name(type(name, (), {})) == expected


# Detectors of other packages.


@final
@dataclass(frozen=True)
class StrangerSpike(Detector):
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    level: float = 3.0

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return ()


@final
@dataclass(frozen=True)
class LossSpike(Detector):
    """Has a name that is taken."""

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return ()


@dataclass(frozen=True)
class Unfinished(Detector):
    """Lacks check."""


@dataclass(frozen=True)
class Demanding(Detector):
    """Has a field without a default."""

    level: float

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return ()


NOT_A_DETECTOR = 7


def install(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    points = [EntryPoint(name, f"{__name__}:{name}", DETECTORS.group) for name in names]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == DETECTORS.group else [])
    importlib.import_module(__name__)


def test_a_detector_of_another_package_is_found_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "StrangerSpike")
    assert StrangerSpike() in catalog.log_detectors()
    assert catalog.broken() == ()
    page = SYMPTOM_PAGES.find("stranger-spike")
    assert page is not None
    assert "level = 3.0" in SYMPTOM_PAGES.text(page)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("LossSpike", "is taken"),
        ("Unfinished", "abstract"),
        ("Demanding", "level"),
        ("NOT_A_DETECTOR", "not a subclass"),
        ("Missing", "AttributeError"),
    ],
)
def test_a_broken_one_is_reported_and_the_others_work(monkeypatch: pytest.MonkeyPatch, name: str, why: str) -> None:
    install(monkeypatch, name, "StrangerSpike")
    assert len(catalog.log_detectors()) == len(ALL) + 1
    (failed,) = catalog.broken()
    assert why in failed.why
    assert name in failed.entry_point


def test_a_package_that_fails_to_import_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("gone", "no_such_package_anywhere:Gone", DETECTORS.group)]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == DETECTORS.group else [])
    assert catalog.log_detectors() == ALL
    assert "ModuleNotFoundError" in catalog.broken()[0].why


def test_the_page_leaves_other_packages_out(monkeypatch: pytest.MonkeyPatch) -> None:
    before = SYMPTOM_PAGES.markdown(command="")
    install(monkeypatch, "StrangerSpike")
    assert SYMPTOM_PAGES.markdown(command="") == before


def test_rules_for_logs_stay_out_of_runs_under_watch() -> None:
    of_logs = {type(one).__name__ for one in ALL if one.of_logs}
    assert of_logs >= {"FlatStart", "LostLevel", "MetricCollapse"}
    assert {type(one).__name__ for one in catalog.detectors()} == {type(one).__name__ for one in ALL} - of_logs
