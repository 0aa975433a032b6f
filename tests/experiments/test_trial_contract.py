"""What a trial is, as values: JSON and back, keys, and that every trial is documented and found."""

from __future__ import annotations

import inspect
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.experiments.outcome_files import Finished, trials_folder
from steadytrain.experiments.specs import Change, Entry, NotApplicable, Outcome, ProbeSeen, Spec, StepSeen, Verdict
from steadytrain.experiments.trial import KINDS
from steadytrain.experiments.trial_catalog import summary, trial, trials
from trial_cases import finite_case

SPEC = Spec("rewarm", 1, 33, (Entry(12, "probe"), Entry(34), Entry(None)), (Change("learning-rate", {"factor": 0.1}),))


def outcome_of(spec: Spec) -> Outcome:
    return Outcome(
        spec,
        True,
        steps=(StepSeen(1, 2.5, math.inf, True, 0.01), StepSeen(2, math.nan, None, False)),
        probes=(ProbeSeen(0, 12, 2.25), ProbeSeen(3, None, None)),
        seconds=1.5,
        exact=False,
        ended="the script's loop was over after 1 of 2 steps",
        notes=("one",),
    )


def test_values_become_json_and_come_back() -> None:
    outcome = outcome_of(SPEC)
    text = json.dumps(outcome.to_json(), allow_nan=False)
    again = Outcome.from_json(json.loads(text))
    assert repr(again) == repr(outcome)
    assert again.first_nonfinite == 2
    verdict = Verdict("rewarm", "removed", {"peak_excess": math.inf}, "why")
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json(), allow_nan=False))) == verdict


def test_the_key_is_of_everything_in_a_spec() -> None:
    others = [
        replace(SPEC, trial="clip"),
        replace(SPEC, repeat=2),
        replace(SPEC, begin=None),
        replace(SPEC, lead="one"),
        replace(SPEC, schedule=SPEC.schedule[:-1]),
        replace(SPEC, schedule=(Entry(12, "refused"), *SPEC.schedule[1:])),
        replace(SPEC, changes=()),
        replace(SPEC, changes=(Change("learning-rate", {"factor": 0.2}),)),
    ]
    assert len({SPEC.key, *(other.key for other in others)}) == len(others) + 1
    assert Spec.from_json(json.loads(json.dumps(SPEC.to_json()))).key == SPEC.key
    assert len({SPEC, *others}) == len(others) + 1  # and they can be hashed


def test_every_trial_is_documented_and_found_by_its_name() -> None:
    assert len({one.name for one in trials()}) == len(trials())
    for one in trials():
        assert trial(one.name) is one
        text = inspect.getdoc(one) or ""
        assert {*one.removes.split(), *one.either.split()} <= set(KINDS), one.name
        assert not {*one.removes.split()} & {*one.either.split()}, one.name
        assert summary(one).endswith("."), one.name
        for section in ("Changes:", "Tells:", "Beware:"):
            assert re.search(rf"^{section}\n    \S", text, re.MULTILINE), (one.name, section)
    assert next(one.name for one in trials() if one.control) == "unchanged"
    with pytest.raises(UsageError, match="did you mean drop-batch"):
        trial("drop-bach")


def test_every_trial_plans_or_says_why_not() -> None:
    cases = [
        finite_case(),
        finite_case(begins=(), taped=()),
        finite_case(begins=(95,)),
        finite_case(symptom=replace(finite_case().symptoms[0], name="no-learning")),
        finite_case(symptom=None, window=finite_case().window.slice(0, 0)),
    ]
    for case in cases:
        for one in trials():
            plan = one.plan(case)
            if isinstance(plan, NotApplicable):
                assert plan.why
                continue
            assert plan
            for spec in plan:
                assert spec.trial == one.name
                assert spec.trained > 0
                assert spec.begin is None or spec.begin in case.begins
                assert one.plan(case) == plan  # the same case, the same plan


def test_finished_trials_are_of_this_incident_this_script_and_these_versions(tmp_path: Path) -> None:
    source, script = tmp_path / "run", tmp_path / "train.py"
    source.mkdir()
    (source / "run.json").write_text("{}", encoding="utf-8")
    script.write_text("1", encoding="utf-8")
    environment = {"script": str(script), "argv": ["train.py"]}
    kept = Finished(source, environment)
    assert kept.read(SPEC) is None
    kept.write(outcome_of(SPEC))
    assert repr(Finished(source, environment).read(SPEC)) == repr(outcome_of(SPEC))
    assert trials_folder(source) == source / "trials"
    assert [file.parent for file in source.rglob("rewarm-*.json")] == [source / "trials"]
    assert kept.read(replace(SPEC, repeat=9)) is None
    assert Finished(source, {**environment, "argv": ["train.py", "--more"]}).read(SPEC) is None
    script.write_text("2", encoding="utf-8")
    assert Finished(source, environment).read(SPEC) is None


def test_only_trials_that_would_end_so_again_are_read_again(tmp_path: Path) -> None:
    source, script = tmp_path / "run", tmp_path / "train.py"
    source.mkdir()
    script.write_text("1", encoding="utf-8")
    kept = Finished(source, {"script": str(script), "argv": ["train.py"]})
    missing = Outcome(SPEC, False, "the script failed: ModuleNotFoundError: No module named 'data'", seconds=0.4)
    killed = Outcome(SPEC, False, "it took more than 3 GB of memory")
    idle = Outcome(SPEC, False, "no module is called head", seconds=0.4)
    assert [one.lasts for one in (missing, killed, idle, outcome_of(SPEC))] == [False, False, True, True]
    kept.write(missing)  # by an older version
    assert kept.read(SPEC) is None
    kept.write(idle)
    assert kept.read(SPEC) == idle


def test_the_folder_of_trials_lies_beside_a_bundle(tmp_path: Path) -> None:
    bundle = tmp_path / "incidents" / "loss-spike-step-000090"
    bundle.mkdir(parents=True)
    (bundle / "incident.json").write_text("{}", encoding="utf-8")
    assert trials_folder(bundle) == tmp_path / "incidents" / "trials" / bundle.name
