"""The report as a value: what it says of a run and of an incident, and what it does not claim."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Action, BadTensor, Finding, Samples
from steadytrain.core.model import Series
from steadytrain.report import build, incidents_shown, wording
from steadytrain.report import report_values as values
from steadytrain.report.symptoms_shown import bands_of
from steadytrain.report.thinned_curves import NOT_FINITE, POINTS_MAX, curve, spark, thin
from steadytrain.storage.bundle import open_bundle, seal
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.segments import SegmentWriter


def of_bundle(path: Path, **changes: object) -> values.Report:
    return build.from_bundle(open_bundle(builders.write_bundle(path / "bundle", builders.incident(**changes))))


def everything(report: values.Report) -> str:
    return repr(dataclasses.asdict(report))


# Quiet runs first.


def test_silence_is_not_called_health(tmp_path: Path) -> None:
    report = build.from_run(open_run(builders.quiet_run(tmp_path / "run")))
    assert report.severity is None
    assert (
        report.verdict == "No symptom was seen: 2 detectors looked at 1,000 steps (nonfinite-loss, nonfinite-gradient)"
    )
    assert "Silence is not health" in report.summary[0]
    assert "healthy" not in everything(report)
    labels = [fact.label for facts in (report.facts, *(one.facts for one in report.environment)) for fact in facts]
    assert labels.count("detectors") == 1


def test_a_run_that_does_not_say_who_looked_says_so(tmp_path: Path) -> None:
    report = build.from_run(open_run(builders.quiet_run(tmp_path / "run", facts={})))
    assert report.verdict == "Running, 1,000 steps, nothing wrong yet"
    assert "The run is not over." in report.summary
    path = builders.quiet_run(tmp_path / "elsewhere", facts={})
    description = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**description, "process": "00000000-1"}))
    report = build.from_run(open_run(path))
    assert "does not list its detectors" in report.verdict
    assert "killed, or still runs elsewhere" in " ".join(report.summary)
    (path / "run.json").write_text(json.dumps({**description, "process_start": 1}))
    assert build.from_run(open_run(path)).verdict == "Killed after 1,000 steps, without a symptom until then"


def test_a_run_without_a_step(tmp_path: Path) -> None:
    report = build.from_run(open_run(builders.write_run(tmp_path / "run")))
    assert report.verdict == "No step was recorded"
    assert report.curves == ()


def test_a_run_folder_of_which_only_the_description_is_left(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "run")
    shutil.rmtree(path / "steps")
    for file in path.glob("index.sqlite*"):
        file.unlink()
    assert build.from_run(open_run(path)).verdict == "No step was recorded"


def test_what_was_not_recorded_is_named(tmp_path: Path) -> None:
    steps = [dataclasses.replace(record, scalars={"loss": 1.0}) for record in builders.records(3)]
    report = build.from_run(open_run(builders.quiet_run(tmp_path / "run", steps=steps)))
    assert "The gradient norm was not recorded." in report.notes


def test_a_failed_run_says_so_without_blaming(tmp_path: Path) -> None:
    facts = {**builders.FACTS, "ended": "failed", "exit_status": 3}
    report = build.from_run(open_run(builders.quiet_run(tmp_path / "run", facts=facts)))
    assert report.verdict.startswith("The script failed with status 3; no symptom in the numbers until then")


def test_the_error_that_ended_a_run_is_said_with_its_line(tmp_path: Path) -> None:
    failure = "ended by RuntimeError in step 61 at main.py:120: all elements of target should be between 0 and 1"
    facts = {**builders.FACTS, "ended": "failed", "exit_status": 1, "failure": failure}
    report = build.from_run(open_run(builders.quiet_run(tmp_path / "run", facts=facts)))
    assert report.verdict.startswith(f"The script was {failure}; ")


# Runs with symptoms.


def test_a_stopped_run_leads_with_the_first_bad_operation(tmp_path: Path) -> None:
    report = build.from_run(open_run(builders.bad_run(tmp_path / "run")))
    assert report.severity == "critical"
    assert report.verdict == (
        "Step 412: the first Inf came from aten.log.default (forward) in model.head.norm, train.py:88"
    )
    (sentence,) = report.summary
    assert sentence.startswith("steadytrain touched this run: it refused the update of step 412, so weights")
    assert [row.name for row in report.symptoms] == ["nonfinite-gradient"]
    assert builders.FACTS["notes"][0] in report.notes


def test_the_samples_of_the_batch_are_told_the_bad_ones_first(tmp_path: Path) -> None:
    first = Samples(0, "Hou\x1bses", tuple(range(100, 120)), (3, 4), ("features",))
    several = of_bundle(tmp_path / "two", samples=(first, Samples(1, "Houses", (7,))))
    assert [note for note in several.incidents[0].notes if note.startswith("Samples")] == [
        "Samples: Hou\\x1bses[103] (row 3), Hou\\x1bses[104] (row 4) with NaN or Inf in 'features'; of batch 0, "
        "20 of Hou\\x1bses: 100, 101, 102, 103, 104, 105, 106, 107 and 12 more",
        "Samples: of batch 1, 1 of Houses: 7",
    ]
    alone = of_bundle(tmp_path / "one", samples=(Samples(0, "Houses", (7, 9)),))
    assert "Samples: 2 of Houses: 7, 9" in alone.incidents[0].notes


@pytest.mark.parametrize("samples", [3, [{}], [{"batch": "x"}], [None]])
def test_samples_that_cannot_be_read_are_a_damaged_bundle(samples: Any, tmp_path: Path) -> None:
    bundle = builders.write_bundle(tmp_path / "bundle")
    document = json.loads((bundle / "incident.json").read_text())
    (bundle / "incident.json").write_text(json.dumps(document | {"samples": samples}))
    seal(bundle)
    with pytest.raises(UsageError):
        open_bundle(bundle)


def test_the_gravest_symptom_leads_where_there_is_no_incident(tmp_path: Path) -> None:
    symptoms = [
        builders.symptom(10, severity="note", name="loss-plateau"),
        builders.symptom(20, last=24, severity="warning", name="loss-spike", message="rose"),
    ]
    report = build.from_run(open_run(builders.quiet_run(tmp_path / "run", symptoms=symptoms)))
    assert report.verdict == "warning: loss-spike at steps 20 to 24: rose"


def test_symptoms_of_one_story_stand_together_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    symptoms = [
        builders.symptom(14, name="nonfinite-loss", signals=("loss",)),
        builders.symptom(900, name="loss-spike", severity="warning", signals=("loss",)),
        builders.symptom(12, name="update-norm-spike", severity="warning", signals=("tensors.update_norm",)),
    ]
    report = build.from_run(open_run(builders.quiet_run(tmp_path / "run", symptoms=symptoms)))
    told = [(symptom.story, symptom.name) for symptom in report.symptoms]
    assert told == [
        ("story 1", "update-norm-spike"),
        ("story 1", "nonfinite-loss"),
        ("story 2", "loss-spike"),
    ]
    assert "Steps 12 to 14: update-norm-spike, then nonfinite-loss." in report.summary
    lone = build.from_run(open_run(builders.quiet_run(tmp_path / "lone", symptoms=symptoms[:1])))
    assert [symptom.story for symptom in lone.symptoms] == [""]


def test_stories_without_an_alarm_take_no_number(tmp_path: Path) -> None:
    symptoms = [
        builders.symptom(20, name="gradient-norm-spike", severity="note", signals=("gradient_norm",)),
        builders.symptom(600, name="loss-spike", severity="warning", signals=("loss",)),
        builders.symptom(900, name="nonfinite-loss", signals=("loss",)),
    ]
    report = build.from_run(open_run(builders.quiet_run(tmp_path / "run", symptoms=symptoms)))
    told = {symptom.name: symptom.story for symptom in report.symptoms}
    assert told == {"gradient-norm-spike": "", "loss-spike": "story 1", "nonfinite-loss": "story 2"}
    quiet = build.from_run(open_run(builders.quiet_run(tmp_path / "quiet", symptoms=symptoms[:1] * 1)))
    assert [symptom.story for symptom in quiet.symptoms] == [""]


def test_a_symptom_on_another_rank_is_not_lost(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "run")
    builders.bad_run(path / "ranks" / "rank-2")
    report = build.from_run(open_run(path))
    assert report.severity == "critical"
    assert report.symptoms[0].origin == "rank 2"
    assert report.incidents[0].step == 412


def test_an_incident_that_cannot_be_opened_is_a_note(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run")
    (path / "incidents" / "step-412" / "window.steps").unlink()
    report = build.from_run(open_run(path))
    assert report.incidents == ()
    assert any("window.steps is missing" in note for note in report.notes)
    assert report.verdict.startswith("critical: nonfinite-gradient")


def test_what_stopped_the_run_comes_before_an_earlier_warning(tmp_path: Path) -> None:
    warned = builders.symptom(90, name="second-moment-lag", severity="warning")
    early = builders.incident(93, kind="symptom", symptoms=(warned,))
    report = build.from_run(open_run(builders.bad_run(tmp_path / "run", incidents=[early, builders.incident()])))
    assert [part.step for part in report.incidents] == [412, 93]
    assert report.verdict.startswith("Step 412: the first Inf came from aten.log.default")


def test_many_of_everything_stays_bounded(tmp_path: Path) -> None:
    symptoms = [builders.symptom(step) for step in range(300)]
    frozen = [builders.incident(step) for step in range(100, 112)]
    report = build.from_run(open_run(builders.bad_run(tmp_path / "run", symptoms=symptoms, incidents=frozen)))
    assert len(report.symptoms) == build.SYMPTOMS_MAX
    assert len(report.incidents) == incidents_shown.INCIDENTS_MAX
    assert "300 symptoms are recorded; the first 100 are shown." in report.notes


# Incidents.


def test_an_incident_tells_operation_operands_parameters_and_action(tmp_path: Path) -> None:
    report = of_bundle(tmp_path)
    (part,) = report.incidents
    assert part.place is not None
    assert part.place.operation == "aten.log.default"
    assert part.place.line == "/home/user/project/train.py:88"
    assert part.place.inputs[0] == wording.Fact("self", "float32 [32, 10], 0 to 0.981, 14 zeros")
    assert part.parameters[0] == wording.Fact("model.head.weight", "640 NaN of 640 elements, float32 [10, 64]")
    assert "weights and optimizer state are as they were" in part.action
    assert [found.name for found in report.curves] == ["loss", "gradient_norm", "learning_rate"]
    assert not any("locate" in command.line for command in report.commands)
    assert report.commands[0].line == f"steadytrain diagnose {tmp_path / 'bundle'}"


def test_an_incident_without_a_known_operation_says_why_and_what_to_run(tmp_path: Path) -> None:
    report = of_bundle(tmp_path, finding=Finding(None, "the batch was not kept"))
    assert report.verdict == "Step 412: 2 of 3 gradients are not finite"
    assert report.incidents[0].why == "the batch was not kept"
    assert report.commands[0].line == f"steadytrain locate {tmp_path / 'bundle'}"


def test_an_observed_step_does_not_claim_that_weights_were_kept(tmp_path: Path) -> None:
    report = of_bundle(tmp_path, action=Action(412, "observe", "observed", ""))
    assert report.summary == ("steadytrain only observed step 412 and changed nothing.",)


def test_an_incident_of_almost_nothing_is_told(tmp_path: Path) -> None:
    bare = builders.incident(
        symptoms=(), parameters=(), losses=(), loss_origin=None, batch_note="", state_note="", finding=Finding(None, "")
    )
    bundle = open_bundle(builders.write_bundle(tmp_path / "bundle", bare, environment={}))
    report = build.from_bundle(bundle)
    assert report.severity is None
    assert report.environment == ()


@pytest.mark.parametrize("odd", [3, "text", [1], [{"a": [1, {"b": None}]}], {"class": 5, "gpus": "x"}, True, None])
def test_an_environment_of_odd_types_is_shown(tmp_path: Path, odd: object) -> None:
    environment = dict.fromkeys(builders.ENVIRONMENT, odd)
    bundle = open_bundle(builders.write_bundle(tmp_path / "bundle", environment=environment))
    build.from_bundle(bundle)
    run = builders.bad_run(tmp_path / "run", facts=dict.fromkeys(builders.FACTS, odd), git=odd, argv=odd)
    build.from_run(open_run(run))


def test_many_parameters_are_counted_and_not_listed(tmp_path: Path) -> None:
    many = tuple(BadTensor(f"p{index}", (1,), "torch.float32", 1, 0, 1) for index in range(500))
    (part,) = of_bundle(tmp_path, parameters=many).incidents
    assert len(part.parameters) == incidents_shown.PARAMETERS_MAX + 1
    assert part.parameters[-1].value == "and 476 more"


def test_text_from_a_stranger_cannot_steer_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07 \u202egnp.exe \udcff \x9b31m"
    report = of_bundle(
        tmp_path,
        run=evil.replace("\udcff", ""),
        loss_origin=evil,
        batch_note=evil,
        symptoms=(builders.symptom(message=evil, tensors=(evil,)),),
        finding=Finding(builders.located(module=evil, code=evil, chain=(evil,)), evil),
        parameters=(BadTensor(evil, (1,), "torch.float32", 1, 0, 1),),
    )
    drawn = report.verdict + report.title + str(report.incidents) + str(report.symptoms) + str(report.facts)
    assert not any(character in drawn for character in "\x1b\x07\x9b\u202e\udcff")
    assert "\\x1b" in report.verdict


# Curves.


@given(st.lists(st.floats(width=32), min_size=1, max_size=400), st.integers(20, 60))
def test_thinning_keeps_both_extremes_the_ends_and_what_is_not_finite(values: list[float], points_max: int) -> None:
    array = np.array(values)
    kept = thin(array, points_max=points_max)
    assert len(kept) <= points_max
    assert {kept[0], kept[-1]} == {0, len(array) - 1}
    finite = array[np.isfinite(array)]
    thinned = array[kept]
    if len(finite):
        assert thinned[np.isfinite(thinned)].min() == finite.min()
        assert thinned[np.isfinite(thinned)].max() == finite.max()
    if len(finite) < len(array):
        bad = np.flatnonzero(~np.isfinite(array))
        assert bad[0] in kept


def test_a_spike_and_a_nan_of_one_step_survive_a_million_steps() -> None:
    values = np.ones(1_000_000)
    values[123_456], values[654_321] = 1e6, np.nan
    found = curve("loss", "loss", Series(np.arange(1_000_000), values))
    assert found is not None
    assert len(found.steps) <= POINTS_MAX
    assert 1e6 in found.values
    assert 654_321 in found.steps
    assert (found.not_finite, found.count, found.largest) == (1, 1_000_000, 1e6)
    assert found.spark.count(NOT_FINITE) == 1
    assert "█" in found.spark


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 1.0], "▁▁"),
        ([0.0, 1.0], "▁█"),
        ([np.nan, np.inf, -np.inf], NOT_FINITE * 3),
        ([1.0, np.nan, 2.0], f"▁{NOT_FINITE}█"),
        ([], ""),
    ],
)
def test_sparklines(values: list[float], expected: str) -> None:
    assert spark(np.array(values)) == expected


def test_a_gradient_norm_of_zeros_is_not_drawn_on_a_logarithmic_axis() -> None:
    zeros = curve("gradient_norm", "gradient norm", Series(np.arange(3), np.zeros(3)), scale="log")
    assert zeros is not None
    assert not zeros.logarithmic


# Several optimizers.


def two_optimizers(folder: Path, **facts: object) -> Path:
    symptoms = [
        builders.symptom(5, name="loss-spike", severity="warning", message="the loss of one spiked", stream="main"),
        builders.symptom(7, name="divergence", severity="critical", message="the other rose", stream="optimizer-2"),
    ]
    path = builders.write_run(folder, steps=builders.records(40), symptoms=symptoms, facts={**builders.FACTS, **facts})
    segments = SegmentWriter(path / "steps" / "optimizer-2", stream="optimizer-2")
    for record in builders.records(40):
        segments.append(record, builders.TENSORS)
    segments.close()
    return path


def test_each_optimizer_has_its_curves_and_its_symptoms(tmp_path: Path) -> None:
    names = {"main": "opt_d", "optimizer-2": "opt_g"}
    report = build.from_run(open_run(two_optimizers(tmp_path / "run", stream_names=names)))
    assert [one.title for one in report.curves if one.name == "loss"] == ["loss of opt_d", "loss of opt_g"]
    assert [one.origin for one in report.symptoms] == ["opt_d", "opt_g"]
    for drawn in report.curves:
        assert {one.stream for one in bands_of(drawn, report.symptoms)} == {drawn.stream}
    alone = build.from_run(open_run(two_optimizers(tmp_path / "alone")), stream="optimizer-2")
    assert [one.title for one in alone.curves if one.name == "loss"] == ["loss"]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"optimizer-2": {"class": "Net", "parameters": 5, "optimizer": "SGD"}}, "Net, 5 parameters, by SGD of opt_g"),
        ({f"optimizer-{at}": {"class": "N"} for at in range(2, 8)}, "; and 2 more"),
        ([1], None),
        ({"optimizer-2": 3}, None),
    ],
)
def test_the_models_of_further_optimizers_are_facts(tmp_path: Path, others: object, said: str | None) -> None:
    names = {"main": "opt_d", "optimizer-2": "opt_g"}
    report = build.from_run(open_run(two_optimizers(tmp_path / "run", stream_names=names, other_models=others)))
    found = [fact.value for fact in report.facts if fact.label == "further models"]
    assert [value[-len(said) :] for value in found] == [said] if said is not None else found == []


@pytest.mark.parametrize("facts", [{}, {"stream_names": {"main": "opt", "optimizer-2": "opt"}}, {"stream_names": 3}])
def test_without_a_name_of_its_own_an_optimizer_keeps_its_number(tmp_path: Path, facts: dict[str, object]) -> None:
    report = build.from_run(open_run(two_optimizers(tmp_path / "run", **facts)))
    assert [one.stream for one in report.symptoms] == ["main", "optimizer-2"]


def test_nobody_has_to_find_the_cause_of_a_note(tmp_path: Path) -> None:
    note = builders.symptom(7, name="dead-units", severity="note", message="units are dead")
    alarm = builders.symptom(9, name="divergence", severity="critical", message="the loss rises")
    quiet = build.from_run(open_run(builders.quiet_run(tmp_path / "quiet", symptoms=[note])))
    sick = build.from_run(open_run(builders.quiet_run(tmp_path / "sick", symptoms=[note, alarm])))
    assert [one.commands[0].purpose for one in (quiet, sick)] == ["keep this as a page", "find the cause"]


def test_a_crash_comes_first_and_silence_is_not_said_over_it(tmp_path: Path) -> None:
    failure = "ended by ValueError after step 1000 at train.py:10: no such file: shard 7"
    facts = {**builders.FACTS, "ended": "failed", "exit_status": 1, "notes": [], "failure": failure}
    path = builders.quiet_run(tmp_path / "run", facts=facts)
    report = build.from_run(open_run(path))
    assert report.verdict.startswith(f"The script was {failure}; no symptom in the numbers until then: 2 detectors")
    assert "No symptom was seen" not in everything(report)
    assert not any("shard 7" in line for line in report.summary)  # it is said once
