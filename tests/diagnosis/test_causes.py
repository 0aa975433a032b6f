"""Every cause keeps the promises of its kind, and a broken stranger costs nothing."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import final

import pytest

from steadytrain.core import plugins
from steadytrain.diagnosis import cause_catalog
from steadytrain.diagnosis.cause import Expectation
from steadytrain.diagnosis.causes import Cause, Signature
from steadytrain.diagnosis.interventions import CLIP
from steadytrain.diagnosis.trial_effects import alike, effects, like
from steadytrain.experiments.case import Case
from steadytrain.experiments.trial_catalog import trials

HERE = Path(__file__).parent
ROOT = Path(__file__).parents[2]
CAUSES = cause_catalog.shipped()
TRIALS = {trial.name for trial in trials()}
BY_HAND = {"layer-norm"}
"""A norm before a layer, where the trial of that name replaces batch norms."""

RIVALS = [line.split(": ") for line in (HERE / "rivals.txt").read_text(encoding="utf-8").splitlines()]
EFFECTS = (HERE / "trial_effects.txt").read_text(encoding="utf-8").splitlines()
every_cause = pytest.mark.parametrize("name", CAUSES)


@every_cause
def test_it_is_final_and_documented(name: str) -> None:
    cause = CAUSES[name]
    found = cause_catalog.CAUSE_PAGES.of(cause)
    if sys.version_info >= (3, 11):
        assert type(cause).__final__  # type: ignore[attr-defined]
    assert found.summary.endswith(".")
    assert found.summary.count(". ") == 0
    assert found.sections["means"]
    assert found.sections["causes"].startswith("- ")
    assert found.sections["next"].startswith("1. ")
    assert cause.source
    assert cause.grade in "ABCD"
    assert cause.base_rate > 0
    assert max(len(line) for line in cause_catalog.CAUSE_PAGES.text(found).splitlines()) <= 120


@every_cause
def test_its_rivals_exist_and_know_it(name: str) -> None:
    rivals = cause_catalog.rivals_of(name, CAUSES)
    assert len(set(rivals)) == len(rivals)
    for rival in rivals:
        assert rival != name
        assert name in cause_catalog.rivals_of(rival, CAUSES)


@pytest.mark.parametrize(("name", "rivals"), RIVALS, ids=[name for name, _ in RIVALS])
def test_the_rivals_are_those_that_both_sides_once_listed(name: str, rivals: str) -> None:
    """In their order, as pages show it. A cause that was added since is no part of it."""
    listed = {known for known, _ in RIVALS}
    assert [rival for rival in cause_catalog.rivals_of(name, CAUSES) if rival in listed] == rivals.split()


@every_cause
def test_it_names_trials_that_exist_and_expects_what_it_rests_on(name: str) -> None:
    cause = CAUSES[name]
    named = {one.trial for one in cause.interventions if one.trial}
    assert {*cause.confirming, *cause.spared, *cause.expects, *named} <= TRIALS
    assert not {*cause.confirming} & {*cause.spared}
    for trial in cause.confirming:
        assert cause.expected(trial) in ("removed", "either")
    for trial in cause.spared:
        assert cause.expected(trial) in ("persists", "either")


def test_every_trial_is_what_some_cause_expects_a_control_or_a_group_test() -> None:
    """A trial that no cause knows tells nothing; a name of a trial that is not there is a promise that is not kept."""
    known = {name for cause in CAUSES.values() for name in (*cause.expects, *cause.confirming, *cause.spared)}
    known |= {one.trial for cause in CAUSES.values() for one in cause.interventions if one.trial}
    assert known <= TRIALS
    assert TRIALS - known == set()


@every_cause
def test_an_intervention_of_a_trials_name_is_tried_by_that_trial(name: str) -> None:
    """What a hand has to do has another name than what a replay can try."""
    for one in CAUSES[name].interventions:
        if one.name in TRIALS and one.trial != one.name:
            assert one.trial is not None or one.name in BY_HAND, one.name


@every_cause
def test_its_interventions_have_rungs(name: str) -> None:
    interventions = CAUSES[name].interventions
    assert interventions
    assert all(1 <= one.rung <= 7 for one in interventions)
    assert len({one.name for one in interventions}) == len(interventions)


@pytest.mark.parametrize("row", EFFECTS[1:], ids=[row.split()[0] for row in EFFECTS[1:]])
def test_what_a_trial_does_is_what_was_measured(row: str) -> None:
    """To each kind of cause: ``+`` removes the symptom, ``-`` does not, ``o`` either."""
    name, *wanted = row.split()
    marks = {"removed": "+", "persists": "-", "either": "o"}
    assert [marks[effects(kind)[name]] for kind in EFFECTS[0].split()[1:]] == wanted


def test_an_unknown_kind_of_cause_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind of cause is called 'dat'"):
        like("dat")


def test_trials_that_change_nearly_the_same_count_as_one() -> None:
    assert alike("float32") == alike("bfloat16") == "numerics"
    assert alike("drop-batch") == "drop-batch"
    assert alike("a trial of another package") == "a trial of another package"


# Causes of other packages.


@final
class StrangeWeather(Cause):
    """The sun shone on the machine."""

    base_rate = 1.0
    expects: dict[str, Expectation] = {}  # noqa: RUF012 - as somebody may write it
    interventions = (CLIP,)
    grade = "D"
    source = "a neighbour"

    def signature(self, case: Case) -> Signature:
        return Signature()


class BadBatch(StrangeWeather):  # type: ignore[misc]
    """Has a name that is taken."""


class Silent(Cause):
    """Says nothing of itself."""

    def signature(self, case: Case) -> Signature:
        return Signature()


def install(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    points = [EntryPoint(name, f"{__name__}:{name}", cause_catalog.CAUSES.group) for name in names]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == cause_catalog.CAUSES.group else [])
    cause_catalog.causes.cache_clear()


@pytest.fixture(autouse=True)
def _forget() -> object:
    yield
    cause_catalog.causes.cache_clear()


def test_a_cause_of_another_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "StrangeWeather")
    assert "strange-weather" in cause_catalog.causes()
    assert cause_catalog.broken() == ()
    page = cause_catalog.CAUSE_PAGES.find("strange-weather")
    assert page is not None
    assert "The sun shone" in cause_catalog.CAUSE_PAGES.text(page)
    assert "strange-weather" not in cause_catalog.CAUSE_PAGES.markdown(command="")


@pytest.mark.parametrize(
    ("name", "why"), [("BadBatch", "is taken"), ("Silent", "base_rate"), ("Gone", "AttributeError")]
)
def test_a_broken_one_is_told_and_the_others_work(monkeypatch: pytest.MonkeyPatch, name: str, why: str) -> None:
    install(monkeypatch, name, "StrangeWeather")
    assert len(cause_catalog.causes()) == len(CAUSES) + 1
    (failed,) = cause_catalog.broken()
    assert why in failed.why
