"""Trials and interventions of other packages: a class or a row, found by its entry point, at work where ours are."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import final

import pytest

from steadytrain.core import plugins
from steadytrain.core.errors import UsageError
from steadytrain.diagnosis import cause_catalog, trial_effects
from steadytrain.diagnosis.cause import Intervention
from steadytrain.diagnosis.cause_catalog import CAUSE_PAGES, INTERVENTIONS, causes, interventions_of
from steadytrain.diagnosis.interventions import CLIP
from steadytrain.diagnosis.trial_effects import alike
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments import trial_catalog, trial_rows
from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec, Verdict
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_catalog import TRIALS, plan_of, summary, trial, trials
from steadytrain.experiments.trial_rows import OneChange
from trial_cases import finite_case

MOMENTUM = OneChange(
    "momentum-half",
    "Half of the momentum.",
    changes="beta1 times 0.5.",
    tells="Moments.",
    beware="Nothing.",
    makes=(Change("momentum", {"factor": 0.5}),),
    removes="moments",
    alike="smaller steps",
)


@final
class SmallerModel(Trial):
    """A model of half the width.

    Changes:
        Its width.

    Tells:
        Nothing.

    Beware:
        Everything.
    """

    removes = "script"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("smaller-model"))


class OfNoKind(SmallerModel):  # type: ignore[misc]
    removes = "weather"


class Clumsy(SmallerModel):  # type: ignore[misc]
    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        raise KeyError("width")


TAKEN = OneChange("clip", "Clips.", changes="a", tells="b", beware="c")
ICE = Intervention("more-ice", 3, "cool the machine", "momentum-half", mends=("second-moment-lag", "strange-weather"))
TOO_HIGH = Intervention("climb", 8, "climb", mends=("bad-batch",))


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Pretend that a distribution names values and classes of this file."""
    caches = (trial_catalog.trials, trial_effects.effects, trial_effects.groups, cause_catalog.added_interventions)

    def offered(group: str, *names: str) -> None:
        points = [EntryPoint(name, f"{__name__}:{name}", group) for name in names]
        monkeypatch.setattr(plugins, "entry_points", lambda group: [point for point in points if point.group == group])
        for one in caches:
            one.cache_clear()

    yield offered
    monkeypatch.undo()
    for one in caches:
        one.cache_clear()


def test_a_row_and_a_class_are_trials_like_ours(offer) -> None:  # type: ignore[no-untyped-def]
    before = len(trials())
    offer(TRIALS.group, "MOMENTUM", "SmallerModel")
    assert len(trials()) == before + 2
    assert trial_catalog.broken() == ()
    assert summary(trial("momentum-half")) == "Half of the momentum."
    assert summary(trial("smaller-model")) == "A model of half the width."
    (spec,) = trial("momentum-half").plan(finite_case())
    assert isinstance(spec, Spec)
    assert spec.changes == MOMENTUM.makes


def test_what_it_declares_is_what_causes_expect(offer) -> None:  # type: ignore[no-untyped-def]
    lag = causes()["second-moment-lag"]
    assert lag.expected("momentum-half") == "persists"
    offer(TRIALS.group, "MOMENTUM")
    assert lag.expected("momentum-half") == "removed"
    assert causes()["bad-batch"].expected("momentum-half") == "persists"
    assert alike("momentum-half") == "smaller steps"
    everyone = [Suspect(name, cause, cause.signature(finite_case())) for name, cause in causes().items()]
    belief, before = (weigh(everyone, verdicts) for verdicts in ([Verdict("momentum-half", "removed")], []))
    assert belief["second-moment-lag"] / belief["bad-batch"] > 8 * before["second-moment-lag"] / before["bad-batch"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("OfNoKind", "no kind of cause is called weather"),
        ("TAKEN", "the name clip is taken"),
        ("finite_case", "is not a subclass of steadytrain.experiments.trial.Trial"),
    ],
)
def test_a_broken_trial_is_told_and_costs_nothing(offer, name: str, why: str) -> None:  # type: ignore[no-untyped-def]
    before = len(trials())
    offer(TRIALS.group, name)
    assert len(trials()) == before
    (failed,) = trial_catalog.broken()
    assert why in failed.why


def test_a_trial_whose_plan_fails_does_not_apply(offer) -> None:  # type: ignore[no-untyped-def]
    offer(TRIALS.group, "Clumsy")
    assert plan_of(trial("clumsy"), finite_case()) == NotApplicable("its plan failed: KeyError: 'width'")


def test_a_fault_in_a_plan_of_ours_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_rows, "planned", Clumsy().plan)
    with pytest.raises(TypeError):
        plan_of(trial("epsilon-up"), finite_case())


def test_an_intervention_stands_beside_those_of_the_causes_that_it_mends(offer) -> None:  # type: ignore[no-untyped-def]
    offer(INTERVENTIONS.group, "ICE")
    assert cause_catalog.broken() == ()
    lag = causes()["second-moment-lag"]
    assert interventions_of("second-moment-lag", lag) == (*lag.interventions, ICE)
    page = CAUSE_PAGES.find("second-moment-lag")
    assert page is not None
    assert "- cool the machine (trial momentum-half)" in CAUSE_PAGES.text(page)
    assert interventions_of("bad-batch", causes()["bad-batch"]) == causes()["bad-batch"].interventions


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("TOO_HIGH", "its rung is 8, and rungs go from 1 to 7"),
        ("CLIP", "it does not say which causes it mends"),
        ("Intervention", "AttributeError"),
    ],
)
def test_a_broken_intervention_is_told(offer, name: str, why: str) -> None:  # type: ignore[no-untyped-def]
    offer(INTERVENTIONS.group, name)
    (failed,) = cause_catalog.broken()
    assert why in failed.why
    assert interventions_of("bad-batch", causes()["bad-batch"]) == causes()["bad-batch"].interventions


def test_a_kind_of_classes_alone_refuses_a_value(offer) -> None:  # type: ignore[no-untyped-def]
    offer(cause_catalog.CAUSES.group, "CLIP")
    (failed,) = cause_catalog.CAUSES.broken()
    assert "is not a subclass" in failed.why
    assert CLIP.mends == ()
    with pytest.raises(UsageError, match="momentum"):
        trial("momentum-half")
