"""Names of plug-ins, what is said of a name that none has, and what other packages may offer."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from steadytrain.checks.data.data_check import DATA_CHECKS, DataCheck, Judgement, Part
from steadytrain.core import plugins
from steadytrain.core.plugins import API_VERSION, Kind, kebab, nearest, of_file
from steadytrain.detectors import DETECTORS
from steadytrain.diagnosis.cause import Cause

KNOWN = ("loss-spike", "loss-level-shift", "dead-units")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Loss_Spike", "did you mean loss-spike?"),
        ("spike", "did you mean loss-spike?"),
        ("dead", "did you mean dead-units?"),
        ("zzz", "one of loss-spike, loss-level-shift, dead-units"),
        ("", "one of loss-spike, loss-level-shift, dead-units"),
    ],
)
def test_a_name_that_nothing_has(name: str, said: str) -> None:
    assert nearest(name, KNOWN) == said


def test_what_is_said_instead_of_all_names() -> None:
    assert nearest("zzz", KNOWN, otherwise="ask for the list") == "ask for the list"


def test_a_file_with_several_classes_is_no_plug_in() -> None:
    with pytest.raises(AssertionError, match="one file, one class"):
        of_file("steadytrain.core.plugins", object)


def test_a_package_without_plug_ins_is_no_kind() -> None:
    with pytest.raises(AssertionError, match="holds 0 of Cause"):
        Kind("cause", Cause, "steadytrain.diagnosis", "steadytrain.causes").shipped()


def test_names_are_known_without_loading_a_plug_in() -> None:
    assert DETECTORS.names() == sorted(DETECTORS.names())
    assert DETECTORS.names() == [kebab(cls) for cls in DETECTORS.shipped()]
    assert len(DETECTORS.names()) > 10
    code = (
        "import sys\nfrom steadytrain.checks.subject.model_check import CHECKS\n"
        "assert 'overfit-one-batch' in CHECKS.names()\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


# Plug-ins of other packages.


class Reversed(DataCheck):
    """Finds rows in reversed order."""

    def look(self, part: Part) -> None: ...

    def judge(self) -> Judgement:
        return Judgement("pass", "nothing is reversed")


class OfAnotherTime(Reversed):
    api_version = API_VERSION + 1


def offer(monkeypatch: pytest.MonkeyPatch, group: str, *names: str) -> None:
    """Pretend that a distribution names classes of this file under ``group``."""
    points = [EntryPoint(name, f"{__name__}:{name}", group) for name in names]
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point for point in points if point.group == group])


def test_a_plug_in_for_another_version_of_the_api_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "steadytrain.data_checks", "OfAnotherTime", "Reversed")
    assert [kebab(cls) for cls in DATA_CHECKS.outside()] == ["reversed"]
    (broken,) = DATA_CHECKS.broken()
    assert broken.entry_point == f"OfAnotherTime = {__name__}:OfAnotherTime"
    assert broken.why == "written for version 2 of the plug-in API; this steadytrain has version 1"


def test_the_older_name_of_a_group_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "steadytrain.symptoms", "Reversed")
    (broken,) = DETECTORS.broken()
    assert "is not a subclass of steadytrain.detectors.Detector" in broken.why
