"""The plug-ins that carry each trait are those that a list in the core once named; one of another package is treated
as ours are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar, final

import pytest

from steadytrain.checks.data.data_check import DATA_CHECKS
from steadytrain.checks.subject.model_check import CHECKS
from steadytrain.core import plugins
from steadytrain.core.incident import Action, Finding, Incident
from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import Kind, name_of
from steadytrain.detectors import DETECTORS, Aim, Detector, Quantity
from steadytrain.diagnosis.trial_effects import group_tests
from steadytrain.experiments import trial_catalog
from steadytrain.experiments.case_files import leading_symptom
from steadytrain.experiments.outcome_measures import quantity_of
from steadytrain.experiments.specs import NotApplicable, Outcome, Spec
from steadytrain.experiments.trial_catalog import TRIALS, always_run, trials
from steadytrain.experiments.trial_rows import OneChange
from steadytrain.experiments.trial_starts import START
from steadytrain.grouping import catalog, judge
from steadytrain.grouping.courses import course_of
from steadytrain.grouping.gravest import gravity
from steadytrain.grouping.harmless import is_benign
from steadytrain.grouping.stories import tell
from steadytrain.trial_runs import trial_session
from trial_cases import finite_case, window

ONCE = [
    (
        *(DETECTORS, "aim", "progress"),
        "no-learning plateau frozen-parameters lost-updates vanishing-gradients dead-units representation-collapse "
        "zero-learning-rate parameters-outside-optimizer gradients-carried-over repeated-batch misused-loss "
        "broadcast-loss left-in-evaluation misplaced-labels visible-labels supervised-padding rows-without-labels "
        "clipped-while-scaled clipped-after-step noisy-evaluation inverted-mask stale-target unscaled-inputs "
        "constant-targets vanishing-weights untied-weights incomplete-resume idle-schedule "
        "misnormalized-attention frozen-running-statistics few-trained-parameters summed-gradients "
        "unloaded-weights mistimed-schedule spent-schedule repeated-order sorted-labels "
        "worker-duplicates optimizer-without-gradients loss-above-guess stopped-updates replaced-weights "
        "shared-target misplaced-edges mixed-rows unrelated-noise uniform-noise foreign-gradients "
        "separate-draws unused-episode-end uniform-code unequal-reductions frozen-adapters "
        "growing-weight rounded-ids opposite-metric uncopied-state false-negatives "
        "scrambled-axes read-padding separate-orders constant-penalty row-positions live-target slow-average "
        "unsaved-state masked-end linear-model noisy-teacher repeated-seed unmasked-padding "
        "refitted-preprocessing fitted-before-split split-windows smoothed-masks augmented-validation "
        "swapped-channels shared-layers cut-sample wrong-best logit-threshold short-lived-optimizer "
        "squared-spread unmasked-nodes kept-statistics evaluation-scale trained-evaluation few-norm-values "
        "moving-frozen-norms unexpected-inputs unreachable-targets inverted-weights visible-target "
        "shared-time self-pairs unit-ratio choking-clip unscaled-targets "
        "cleared-gradients kept-graphs diluted-divergence frozen-new-tokens flat-derivative "
        "rebuilt-vocabulary regrouped-rows carried-state wrong-sign unmixed-labels overwritten-rows shared-state "
        "free-weights unrestored-state coarse-inputs opposite-padding mirrored-labels growing-state "
        "limit-as-end times-in-float32 clipped-nothing runaway-temperature renumbered-categories "
        "overwritten-sums changing-closure labels-without-rank mixed-orders kept-loss-scale "
        "discarded-changes reversed-risk-sets kept-residual shifted-edges shrunken-loads added-correction "
        "stale-casts shrinking-clip unlike-recomputation contradictory-targets dropped-result "
        "reversed-straight-through equal-inputs reversed-returns "
        "overlap-of-logits cut-off-scale dominant-decay nan-buffer undrawn-rows",
    ),
    (DETECTORS, "aim", "finite", "nonfinite-loss nonfinite-gradient"),
    (
        *(DETECTORS, "bursts", True),
        "loss-spike divergence gradient-norm-spike exploding-gradients update-norm-spike lost-progress "
        "learning-rate-jump loss-turned-negative",
    ),
    (DETECTORS, "quantity", "gradient_norm", "exploding-gradients gradient-norm-spike"),
    (DETECTORS, "quantity", "update_ratio", "update-norm-spike second-moment-lag"),
    (DETECTORS, "yields_to_update", True, "gradient-norm-spike"),
    (DETECTORS, "is_below_zero", True, "loss-turned-negative"),
    (DETECTORS, "leaves_open", True, "no-learning"),
    (
        *(DETECTORS, "states_fact", True),
        "gradients-carried-over misused-loss broadcast-loss clipped-after-step clipped-nothing "
        "optimizer-without-gradients unreachable-targets worker-duplicates flat-derivative undrawn-rows",
    ),
    (DETECTORS, "excused_z_max", 50.0, "loss-spike"),
    (DETECTORS, "nonfinite_rank", 3, "nonfinite-activation"),
    (DETECTORS, "nonfinite_rank", 4, "nonfinite-loss"),
    (DETECTORS, "nonfinite_rank", 5, "nonfinite-gradient"),
    (DETECTORS, "nonfinite_rank", 6, "nonfinite-weight nonfinite-optimizer-state"),
    (DETECTORS, "same_event_as", "lost-progress", "lost-level"),
    (DETECTORS, "part_of", "divergence", "loss-spike"),
    (DATA_CHECKS, "of_loader", "fault", "repeated-ngrams empty-rows nonfinite-features"),
    (DATA_CHECKS, "of_loader", "oddity", "exact-duplicates"),
    (DATA_CHECKS, "of_loader", "order", "row-order"),
    (CHECKS, "first", True, "initial-loss overfit-one-batch"),
]


@pytest.mark.parametrize(("kind", "trait", "value", "names"), ONCE)
def test_a_trait_is_declared_by_those_that_were_once_listed(
    kind: Kind[object], trait: str, value: object, names: str
) -> None:
    assert {name_of(cls) for cls in kind.shipped() if getattr(cls, trait) == value} == set(names.split())


def test_every_symptom_of_what_is_not_finite_has_its_rank() -> None:
    ranked = {name_of(cls) for cls in DETECTORS.shipped() if cls.nonfinite_rank is not None}
    assert ranked == {name for name in DETECTORS.names() if name.startswith("nonfinite")}


def test_the_controls_run_in_the_order_that_they_always_had() -> None:
    assert [one.name for one in always_run()] == ["unchanged", "perturbed", "other-seed"]


def test_trials_of_the_learning_rate_alone_change_nothing_else() -> None:
    of_the_rate = {"learning-rate", "fixed-learning-rate", "ramp-learning-rate"}
    kinds: dict[str, set[str]] = {}
    for one in trials():
        plan = one.plan(finite_case())
        if isinstance(plan, NotApplicable):
            facts = {"update_ratio_first_median": 1.0}
            plan = one.plan(finite_case(onset=3, step=6, begins=(START,), facts=facts))
        changes = () if isinstance(plan, NotApplicable) else [change for spec in plan for change in spec.changes]
        kinds[one.name] = {change.kind for change in changes}
    known = {name for name, those in kinds.items() if those and those <= of_the_rate}
    assert {one.name for one in trials() if one.rate_only} == known
    assert len(known) == 9


def test_one_trial_is_a_group_test() -> None:
    assert group_tests() == ("all-safe",)


# One of another package.


@final
@dataclass(frozen=True)
class Sleepy(Detector):
    """The run sleeps."""

    aim: ClassVar[Aim] = "progress"
    leaves_open: ClassVar[bool] = True
    quantity: ClassVar[Quantity | None] = "update_ratio"

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return (Symptom("sleepy", "note", 90, 90, "it sleeps"),)


@final
@dataclass(frozen=True)
class Bang(Detector):
    """Something bursts."""

    bursts: ClassVar[bool] = True
    excused_z_max: ClassVar[float] = 5.0

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return ()


@final
@dataclass(frozen=True)
class Infinite(Detector):
    """A number of ours is not finite."""

    aim: ClassVar[Aim] = "finite"
    nonfinite_rank: ClassVar[int | None] = 9

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return ()


STILL = OneChange(
    "still", "Nothing.", changes="Nothing.", tells="Nothing.", beware="Nothing.", control=True, always=True
)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    caches = (catalog._named, trial_catalog.trials, trial_catalog.always_run)
    for one in caches:
        one.cache_clear()
    yield
    for one in caches:
        one.cache_clear()


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    """Pretend that a distribution names what stands in this file."""
    points = [EntryPoint(name, f"{__name__}:{name}", DETECTORS.group) for name in ("Sleepy", "Bang", "Infinite")]
    points.append(EntryPoint("STILL", f"{__name__}:STILL", TRIALS.group))
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point for point in points if point.group == group])


def saw(name: str, first: int = 90, signals: tuple[str, ...] = ("loss",), **numbers: float) -> Symptom:
    return Symptom(name, "warning", first, first + 2, name, signals=signals, numbers=numbers)


def incident(name: str) -> Incident:
    action, finding = Action(90, "observe", "observed", ""), Finding(None, "")
    given = (saw(name),)
    return Incident("run", 90, "main", "", given, (), action, finding, (), None, 1, "", "", kind="symptom")


@pytest.mark.usefixtures("offered")
def test_a_detector_of_another_package_says_what_a_trial_looks_for() -> None:
    case = finite_case()
    aims = {name: replace(case, symptom=saw(name)).aim for name in ("sleepy", "infinite", "bang", "nobody-knows")}
    assert aims == {"sleepy": "progress", "infinite": "finite", "bang": "excess", "nobody-knows": "excess"}
    assert quantity_of(replace(case, symptom=saw("sleepy"))) == "update_ratio"
    assert leading_symptom((saw("sleepy"), saw("bang", 60))) == saw("bang", 60)
    assert leading_symptom((saw("bang", 60), saw("infinite"))) == saw("infinite")
    assert gravity(incident("sleepy")) > gravity(incident("bang"))


@pytest.mark.usefixtures("offered")
def test_its_symptoms_are_grouped_as_ours_are() -> None:
    falling = window([5.0 - 0.01 * step for step in range(100)])
    judged = judge(falling, [Sleepy()])
    assert (judged.health, judged.why) == ("unknown", "it sleeps")
    (story,) = tell([saw("infinite"), saw("loss-spike")], falling)
    assert story.names == ("loss-spike", "infinite")
    rising = window([1.0 + 0.01 * (-1) ** step for step in range(90)] + [9.0] * 80)
    assert course_of(rising, saw("bang")) is not None
    assert course_of(rising, saw("infinite")) is None


@pytest.mark.usefixtures("offered")
def test_clipping_excuses_it_as_far_as_it_says() -> None:
    clipped = window([1.0] * 100, clip_coefficient=0.5)
    back = {z: replace(saw("bang", z=z), course="recovered") for z in (4.0, 6.0)}
    assert is_benign(clipped, back[4.0]).startswith("its gradients were clipped")
    assert is_benign(clipped, back[6.0]) == ""


@pytest.mark.usefixtures("offered")
def test_a_control_of_another_package_runs_after_ours() -> None:
    assert [one.name for one in always_run()] == ["unchanged", "perturbed", "other-seed", "still"]


@pytest.mark.usefixtures("offered")
def test_what_always_runs_is_run_beside_the_trials_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run_trials(source: Path, specs: Sequence[Spec], **how: object) -> Iterator[Outcome]:
        ran.extend(spec.trial for spec in specs)
        return iter(())

    monkeypatch.setattr(trial_session, "run_trials", run_trials)
    verdicts, _ = trial_session.run_named(Path("incident"), finite_case(), ["clip"], trial_session.How())
    assert ran == ["unchanged", "perturbed", "other-seed", "still", "clip"]
    assert list(verdicts) == ran
