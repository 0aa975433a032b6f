"""The thinking, on simulated outcomes: each cause's own table leads to it and to no other, noise leads to nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadytrain.core.incident import Located
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import UNKNOWN, Diagnosis
from steadytrain.diagnosis.cause import CERTAIN, STRONG
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.causes import Cause, Sign, Signature
from steadytrain.diagnosis.conclusion import Circumstances, conclude
from steadytrain.diagnosis.proof import Control, needed, proof
from steadytrain.diagnosis.trial_choice import choose, gain, leading
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.specs import Effect, Verdict
from steadytrain.experiments.trial_catalog import trials

CAUSES = causes()
TRIALS = tuple(trial.name for trial in trials())
SHOWN = Control(True, True, True, "loss on fixed batches rises by 1.2")
LASTING = ("nondeterminism", "hardware-fault")
"""Causes whose proof is that the replay does not show the symptom, or is not exact: nothing is confirmed then."""


class _Held(dict[str, Contrast]):
    """Every trial held against its placebo and a second seed."""

    def get(self, trial: str, default: object = None) -> Contrast:  # type: ignore[override]
        return Contrast(trial, True, "")

    def __contains__(self, trial: object) -> bool:
        return False


HELD = _Held()

every_cause = pytest.mark.parametrize("name", CAUSES)


def suspects(signs: Mapping[str, Signature] | None = None) -> tuple[Suspect, ...]:
    """All causes, with these signatures and empty ones for the rest."""
    given_signs = signs or {}
    return tuple(Suspect(name, cause, given_signs.get(name, Signature())) for name, cause in CAUSES.items())


def sign(weight: float = STRONG, **more: bool) -> Signature:
    return Signature((Sign("it was seen", weight, "fact x", {"x": 1.0}, **more),))


def circumstances(control: Control = SHOWN, *, surveyed: bool = True, symptom: str = "loss-spike") -> Circumstances:
    return Circumstances(symptom, control, surveyed, (), "run/incidents/x", contrasts=HELD)


def outcome_of(cause: Cause, trial: str) -> Effect:
    """What the table of the cause says; what is said to be either is not removed."""
    return "removed" if cause.expected(trial) == "removed" else "persists"


def tried(cause: Cause, names: Sequence[str] = TRIALS) -> list[Verdict]:
    return [Verdict(name, outcome_of(cause, name), {"peak_excess": 0.1}, "it did") for name in names]


@dataclass
class Simulated:
    """A diagnosis whose trials are answered by a table; counts the trials that it took."""

    signs: Mapping[str, Signature]
    truth: Cause
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def run(self) -> Diagnosis:
        everyone = suspects(self.signs)
        by_name = {one.name: one for one in everyone}
        self.verdicts = {"unchanged": Verdict("unchanged", outcome_of(self.truth, "unchanged"), why="it came again")}
        for _ in range(40):
            belief = weigh(everyone, self.verdicts.values())
            waiting = {trial: 100.0 for trial in TRIALS if trial not in self.verdicts}
            best = next(iter(belief))
            proven = best != UNKNOWN and belief[best] > 0.9 and self._proven(by_name[best], tuple(waiting))
            needs = [trial for name in leading(belief) for trial in needed(by_name[name], self.verdicts, waiting)]
            chosen = choose(everyone, belief, waiting, needs, count=4)
            if proven or not chosen:
                break
            self.verdicts |= {trial: Verdict(trial, outcome_of(self.truth, trial), why="so it was") for trial in chosen}
        return conclude(everyone, list(self.verdicts.values()), circumstances())

    def _proven(self, suspect: Suspect, waiting: Sequence[str]) -> bool:
        return proof(suspect, self.verdicts, SHOWN, waiting, surveyed=True, contrasts=HELD).proven


# Each cause's own table.


@every_cause
def test_a_broken_rule_and_its_own_table_confirm_it_and_no_other(name: str) -> None:
    cause = CAUSES[name]
    answer = Simulated({name: sign(CERTAIN, invariant=True)}, cause).run()
    assert answer.verdict == name
    assert {one.cause for one in answer.diagnoses if one.status == "confirmed"} <= {name}
    if any(cause.expected(trial) == "removed" for trial in cause.confirming) and name not in LASTING:
        assert answer.status == "confirmed"


@every_cause
def test_its_signs_and_its_own_table_never_confirm_another(name: str) -> None:
    answer = Simulated({name: sign(STRONG)}, CAUSES[name]).run()
    assert {one.cause for one in answer.diagnoses if one.status == "confirmed"} <= {name}
    assert answer.diagnoses[0].cause == name


@every_cause
def test_the_rivals_signs_do_not_lead_astray(name: str) -> None:
    """All rivals have been hinted at as well; the trials follow the table of one."""
    cause = CAUSES[name]
    signs = {rival: sign(0.7) for rival in cause.rivals} | {name: sign(STRONG)}
    answer = Simulated(signs, cause).run()
    assert {one.cause for one in answer.diagnoses if one.status == "confirmed"} <= {name}


@every_cause
def test_the_proof_takes_few_trials(name: str) -> None:
    simulated = Simulated({name: sign(CERTAIN, invariant=True)}, CAUSES[name])
    simulated.run()
    assert len(simulated.verdicts) <= 24


# Noise.


DRAWS = 100


def test_noise_confirms_nothing() -> None:
    """Results drawn by chance: none is confirmed; of 6,000 draws 3 made a cause likely."""
    effects: tuple[Effect, ...] = ("removed", "persists")
    unknown = 0
    for seed in range(DRAWS):
        source = random.Random(seed)
        verdicts = [Verdict(name, source.choice(effects), why="by chance") for name in TRIALS]
        answer = conclude(suspects(), verdicts, circumstances())
        assert "confirmed" not in {one.status for one in answer.diagnoses}
        unknown += answer.verdict == UNKNOWN
    assert unknown >= 0.99 * DRAWS


@settings(max_examples=60)
@given(st.integers(0, 10**9), st.sampled_from(sorted(CAUSES)))
def test_noise_confirms_nothing_even_where_something_was_seen(seed: int, name: str) -> None:
    source = random.Random(seed)
    effects: tuple[Effect, ...] = ("removed", "persists", "inconclusive", "delayed")
    verdicts = [Verdict(trial, source.choice(effects), why="by chance") for trial in TRIALS]
    answer = conclude(suspects({name: sign(STRONG)}), verdicts, circumstances())
    assert not [one for one in answer.diagnoses if one.status == "confirmed"]


def test_nothing_seen_and_nothing_tried_is_unknown() -> None:
    answer = conclude(suspects(), (), circumstances(Control(False, False, None, "no tape was kept"), surveyed=False))
    assert (answer.verdict, answer.status, answer.replay) == (UNKNOWN, None, "not possible")
    assert answer.record_next
    assert "rewind-mb" in answer.record_next[0]


def test_an_unknown_cause_names_the_first_bad_operation_and_its_line() -> None:
    where = Located("loss", "aten.div.Tensor", "nan", "", "/a/train.py", 8, "loss = a / b", (), (), "loss", "traced")
    answer = conclude(suspects(), (), replace(circumstances(), located=where))
    assert answer.verdict == UNKNOWN
    assert answer.why.startswith("The first NaN came from aten.div.Tensor at train.py:8: loss = a / b. ")
    assert "aten" not in conclude(suspects(), (), circumstances()).why
    made = replace(where, operation="aten.lift_fresh.default", code='loss = a * torch.tensor(float("nan"))')
    said = conclude(suspects(), (), replace(circumstances(), located=made)).why
    assert said.startswith("The first NaN came from torch.tensor at train.py:8: ")


def test_where_only_time_was_missing_no_other_recording_is_asked_for() -> None:
    spent = replace(circumstances(Control(False, False, None, "the budget was spent"), surveyed=False), spent=True)
    advice = conclude(suspects(), (), spent).record_next
    assert advice[0].startswith("more time")
    assert not any("tape" in one or "launched" in one for one in advice)


def test_no_recording_is_asked_for_that_cannot_be_made() -> None:
    note = "the optimizer evaluates its closure several times, which no tape records"
    advice = conclude(suspects(), (), circumstances(Control(False, False, None, note))).record_next
    assert not any("rewind-mb" in one for one in advice)


def test_a_sentence_keeps_the_letters_of_a_name_of_code() -> None:
    seen = Signature((Sign("aten.div.Tensor at a.py:3 made it", CERTAIN, "finding"),))
    assert "aten.div.Tensor" in conclude(suspects({"singular-operation": seen}), (), circumstances()).why


# What is never confirmed.


@every_cause
@pytest.mark.parametrize(
    "control",
    [
        Control(False, False, None, "no tape"),
        Control(True, True, False, "it came again"),
        Control(True, True, None, "it came again"),
    ],
    ids=["not possible", "not exact", "not compared"],
)
def test_nothing_is_confirmed_without_an_exact_replay(name: str, control: Control) -> None:
    signs = {name: sign(CERTAIN, invariant=True, equivalence=True)}
    answer = conclude(suspects(signs), tried(CAUSES[name]), circumstances(control))
    assert "confirmed" not in {one.status for one in answer.diagnoses}
    assert answer.record_next


@every_cause
def test_trials_alone_confirm_nothing_where_no_survey_looked_for_silent_causes(name: str) -> None:
    answer = conclude(suspects({name: sign()}), tried(CAUSES[name]), circumstances(surveyed=False))
    assert "confirmed" not in {one.status for one in answer.diagnoses}


@every_cause
def test_a_control_without_the_symptom_proves_no_cure(name: str) -> None:
    control = Control(True, False, True, "nothing rises")
    answer = conclude(suspects({name: sign()}), tried(CAUSES[name]), circumstances(control))
    assert "confirmed" not in {one.status for one in answer.diagnoses}


@pytest.mark.parametrize("early", [True, False])
def test_an_older_snapshot_is_asked_for_only_where_the_replay_began_too_late(early: bool) -> None:
    control = Control(True, False, True, "nothing rises", early=early)
    answer = conclude(suspects(), (), circumstances(control))
    assert any("a snapshot from before the symptom" in advice for advice in answer.record_next) is not early


@pytest.mark.parametrize(("effect", "status"), [("inconclusive", "likely"), ("persists", "possible")])
def test_a_cause_whose_own_cure_did_not_help_is_not_likely(effect: Effect, status: str) -> None:
    """Labels that are wrong from some step on: other data help, and to leave one batch out does not."""
    verdicts = [Verdict("fresh-data", "removed"), Verdict("perturbed", "persists"), Verdict("drop-batch", effect)]
    answer = conclude(suspects({"bad-batch": sign(CERTAIN - 0.5)}), verdicts, circumstances())
    (found,) = [one for one in answer.diagnoses if one.cause == "bad-batch"]
    assert found.confidence > 0.5
    assert found.status == status


@every_cause
def test_what_cures_a_rival_as_well_is_no_proof(name: str) -> None:
    cause = CAUSES[name]
    if not cause.spared:
        pytest.skip("nothing must be spared")
    verdicts = {one.trial: one for one in tried(cause)}
    spared = replace(verdicts[cause.spared[0]], effect="removed")
    found = proof(
        Suspect(name, cause, sign()),
        {**verdicts, spared.trial: spared},
        SHOWN,
        waiting=(),
        surveyed=True,
        contrasts=HELD,
    )
    assert not found.proven


def test_without_a_symptom_and_a_broken_rule_nothing_is_more_than_possible() -> None:
    for name in CAUSES:
        answer = conclude(suspects({name: sign(STRONG)}), (), circumstances(symptom=""))
        assert {one.status for one in answer.diagnoses} <= {"possible", "refuted"}


# Two that met.


def test_a_hard_batch_and_a_vulnerable_state_are_told_as_having_met() -> None:
    signs = {"bad-batch": sign(), "second-moment-lag": sign()}
    cured = {"drop-batch": "removed", "beta2-lower": "removed", "update-clipping": "removed"}
    verdicts = [Verdict(name, cured.get(name, "persists"), why="so it was") for name in TRIALS]  # type: ignore[arg-type]
    answer = conclude(suspects(signs), verdicts, circumstances())
    assert "confirmed" not in {one.status for one in answer.diagnoses}
    assert any("met" in note and "bad-batch" in note and "second-moment-lag" in note for note in answer.notes)


def test_a_batch_that_is_damaged_by_itself_has_met_nothing() -> None:
    signs = {"bad-batch": sign(CERTAIN), "second-moment-lag": sign(0.2)}
    effects: dict[str, Effect] = {"unchanged": "persists", "drop-batch": "removed", "beta2-lower": "removed"}
    verdicts = [Verdict(name, effect, why="so it was") for name, effect in effects.items()]
    answer = conclude(suspects(signs), verdicts, circumstances())
    assert (answer.verdict, answer.status, answer.notes) == ("bad-batch", "likely", ())


# The parts.


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from(TRIALS), st.sampled_from(["removed", "persists", "worse", "delayed", "not-run"])),
    st.dictionaries(st.sampled_from(sorted(CAUSES)), st.floats(-9.0, 5.0)),
)
def test_beliefs_are_probabilities_and_the_same_whatever_the_order(
    effects: dict[str, Effect], weights: dict[str, float]
) -> None:
    everyone = suspects({name: sign(weight) for name, weight in weights.items()})
    verdicts = [Verdict(name, effect) for name, effect in effects.items()]
    belief = weigh(everyone, verdicts)
    assert np.isclose(sum(belief.values()), 1.0)
    assert all(0.0 <= share <= 1.0 for share in belief.values())
    assert set(belief) == {*CAUSES, UNKNOWN}
    assert list(belief.values()) == sorted(belief.values(), reverse=True)
    again = weigh(everyone, verdicts[::-1])
    assert list(again) == list(belief)
    np.testing.assert_allclose(list(again.values()), list(belief.values()))


@settings(max_examples=30)
@given(st.sampled_from(TRIALS), st.dictionaries(st.sampled_from(sorted(CAUSES)), st.floats(-5.0, 5.0)))
def test_a_trial_is_never_expected_to_make_us_know_less(trial: str, weights: dict[str, float]) -> None:
    everyone = suspects({name: sign(weight) for name, weight in weights.items()})
    assert gain(trial, everyone, weigh(everyone, ())) >= -1e-9


def test_a_cheap_trial_comes_before_a_dear_one_that_tells_as_much() -> None:
    signs = {"bad-batch": sign(0.7), "second-moment-lag": sign(0.7)}
    everyone = suspects(signs)
    belief = weigh(everyone, ())
    assert choose(everyone, belief, {"drop-batch": 100.0, "beta2-lower": 1000.0}, (), count=1) == ("drop-batch",)
    assert choose(everyone, belief, {"drop-batch": 10000.0, "beta2-lower": 10.0}, (), count=1) == ("beta2-lower",)


def test_the_group_test_comes_first_where_the_numerics_are_suspect() -> None:
    everyone = suspects({"compiled-code-mismatch": sign(), "bad-batch": sign()})
    belief = weigh(everyone, ())
    costs = dict.fromkeys(TRIALS, 100.0)
    assert choose(everyone, belief, costs, (), count=4)[0] == "all-safe"
    assert "all-safe" not in choose(
        suspects({"bad-batch": sign(CERTAIN)}), weigh(everyone, ()), {"clip": 1.0}, (), count=4
    )


def test_an_answer_survives_json_and_the_disk(tmp_path: Path) -> None:
    answer = Simulated({"bad-batch": sign()}, CAUSES["bad-batch"]).run()
    assert Diagnosis.from_json(answer.to_json()) == answer
    (tmp_path / "incident.json").write_text("{}")
    source = tmp_path
    assert answer_files.read(source) is None
    answer_files.keep(source, answer)
    assert answer_files.read(source) == answer


def test_the_document_is_the_one_that_is_promised() -> None:
    document = Simulated({"bad-batch": sign()}, CAUSES["bad-batch"]).run().to_json()
    assert document["schema"] == "steadytrain.diagnosis/1"
    assert {"incident", "replay", "diagnoses", "trials"} <= set(document)
    first = document["diagnoses"][0]
    assert {"cause", "status", "confidence", "evidence", "layer", "batch_rows", "interventions"} <= set(first)
    assert {"trial", "verdict", "numbers"} <= set(first["evidence"][0])
    assert {entry["verdict"] for entry in first["evidence"]} <= {"supports", "refutes", "inconclusive", "not-run"}


def test_interventions_go_from_fast_to_invasive() -> None:
    answer = Simulated({"learning-rate-too-high": sign()}, CAUSES["learning-rate-too-high"]).run()
    rungs = [remedy.rung for remedy in answer.diagnoses[0].interventions]
    assert rungs == sorted(rungs)


def test_the_rate_from_before_a_jump_decides_where_a_third_of_it_is_too_much_still() -> None:
    high = causes()["learning-rate-too-high"]
    effects = {"learning-rate-third": "persists", "learning-rate-tenth": "persists", "drop-batch": "persists"}
    verdicts = {name: Verdict(name, effect) for name, effect in effects.items()}  # type: ignore[arg-type]
    before = Verdict("constant-learning-rate", "removed")
    suspect = Suspect("learning-rate-too-high", high, sign())
    assert not proof(suspect, verdicts, SHOWN, waiting=(), surveyed=True, contrasts=HELD).proven
    waiting = ("constant-learning-rate",)
    assert proof(suspect, verdicts, SHOWN, waiting=waiting, surveyed=True, contrasts=HELD).needs == waiting
    found = proof(suspect, {**verdicts, before.trial: before}, SHOWN, waiting=(), surveyed=True, contrasts=HELD)
    assert found.by == "constant-learning-rate removes the symptom, drop-batch does not"
