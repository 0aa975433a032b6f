"""Names of plug-ins, and what is said of a name that none has."""

from __future__ import annotations

import pytest

import steadytrain.detectors
import steadytrain.diagnosis.causes
from steadytrain.core.plugins import kebab, nearest, of_file, of_package
from steadytrain.detectors import Detector
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


def test_files_that_are_none_are_left_out() -> None:
    with pytest.raises(AssertionError, match="holds 0 of Cause"):
        of_package(steadytrain.diagnosis, Cause)
    names = [kebab(cls) for cls in of_package(steadytrain.detectors, Detector)]
    assert names == sorted(names)
    assert len(names) > 10
