"""Which contrasts a diagnosis runs, and when it stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from steadytrain.diagnosis.cause import CERTAIN, Sign, Signature
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.proof import Control
from steadytrain.diagnosis.weighing import Suspect
from steadytrain.experiments.case import Case
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.specs import NO_TIME_LEFT, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial_catalog import trial
from steadytrain.trial_runs.contrasts import Known, run_contrasts
from trial_cases import CALM, FLAT, HURT, SPIKE, finite_case, made


def known(*, waiting: tuple[str, ...] = ()) -> Known:
    """A bad batch that is all but proven."""
    signs = Signature((Sign("it was seen", CERTAIN, "fact x"),))
    suspects = [Suspect(name, one, signs if name == "bad-batch" else Signature()) for name, one in causes().items()]
    effects = {"unchanged": "persists", "drop-batch": "removed", "beta2-lower": "persists", "perturbed": "persists"}
    verdicts = {name: Verdict(name, effect) for name, effect in effects.items()}  # type: ignore[arg-type]
    control = Control(True, True, True, "it came again")
    return Known(suspects, verdicts, control, waiting, True, [made("unchanged", SPIKE, HURT)])


class Runs:
    """Answers specs: the placebo shows the symptom, all others do not."""

    def __init__(self, why_not: str | None = None) -> None:
        self.lines: list[str] = []
        self.specs: list[Spec] = []
        self._why_not = why_not

    def __call__(self, line: str, specs: Sequence[Spec]) -> list[Outcome]:
        self.lines.append(line)
        self.specs += specs
        if self._why_not:
            return [Outcome(spec, False, self._why_not) for spec in specs]
        return [outcome(spec, sick=spec.trial.endswith("placebo")) for spec in specs]


def outcome(spec: Spec, *, sick: bool) -> Outcome:
    """An outcome of this very spec, with losses by its own entries."""
    steps = [place for place, entry in enumerate(spec.schedule) if entry.role == "train"]
    plain = made(spec.trial, SPIKE if sick else CALM, HURT if sick else FLAT)
    losses = [seen.loss for seen in plain.steps] + [2.0] * len(steps)
    seen = tuple(replace(plain.steps[0], entry=place, loss=loss) for place, loss in zip(steps, losses, strict=False))
    return Outcome(spec, True, steps=seen)


@pytest.fixture
def case() -> Case:
    return finite_case(begins=(86,))


def removed(case: Case) -> dict[str, list[Outcome]]:
    plan = trial("drop-batch").plan(case)
    assert not isinstance(plan, NotApplicable)
    return {"drop-batch": [outcome(spec, sick=False) for spec in plan]}


def test_only_the_trial_that_would_confirm_is_repeated(case: Case) -> None:
    runs, contrasts = Runs(), dict[str, Contrast]()
    outcomes = removed(case)
    assert len(outcomes["drop-batch"]) == 2
    assert run_contrasts(known(), case, outcomes, contrasts, runs)
    assert [spec.trial for spec in runs.specs] == ["drop-batch", "drop-batch-placebo"]
    assert contrasts["drop-batch"].held
    assert runs.lines == ["trying drop-batch with another seed and its placebo (leaving out the batch of step 88)"]


def test_nothing_runs_while_a_rivals_cure_is_still_to_be_tried(case: Case) -> None:
    runs, contrasts = Runs(), dict[str, Contrast]()
    waiting = ("float32",)
    assert run_contrasts(known(waiting=waiting), case, removed(case), contrasts, runs)
    assert (runs.specs, contrasts) == ([], {})


def test_a_contrast_that_the_time_did_not_allow_is_no_contrast(case: Case) -> None:
    contrasts = dict[str, Contrast]()
    assert not run_contrasts(known(), case, removed(case), contrasts, Runs(NO_TIME_LEFT))
    assert contrasts == {}


def test_what_ran_already_does_not_run_again(case: Case) -> None:
    runs, contrasts = Runs(), dict[str, Contrast]()
    outcomes = removed(case)
    assert run_contrasts(known(), case, outcomes, contrasts, runs)
    again = Runs()
    outcomes["other"] = [outcome(spec, sick=spec.trial.endswith("placebo")) for spec in runs.specs]
    assert run_contrasts(known(), case, outcomes, dict[str, Contrast](), again)
    assert again.specs == []
