"""The first screen: what it claims, how firmly, and what it does not claim."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import builders
import tabled
from steadytrain.core.incident import Action, BadTensor, Finding
from steadytrain.core.model import ScriptLine, Series
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import (
    Axis,
    BatchRow,
    Diagnosis,
    Evidence,
    PatchTried,
    RankedCause,
    Remedy,
    Status,
    TrialRow,
)
from steadytrain.report import (
    build,
    diagnosis_shown,
    first_screen,
    html,
    incidents_shown,
    source_lines,
    svg,
    symptoms_shown,
    zoom,
)
from steadytrain.report import text as text_report
from steadytrain.report.first_screen import TrialEvidence, _dedented, proof
from steadytrain.report.measured import with_measured
from steadytrain.report.thinned_curves import curve, spans_decades
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.testing.windows import steps

SCRIPT = "import torch\n\nif True:\n    p = model(x)\n    score = torch.log(p)\n    loss = score.sum()\n"


def diagnosis(status: Status | None, *, patch: PatchTried | None = None) -> Diagnosis:
    ranked = RankedCause("bad-cause", "The batch is bad.", status or "possible", 0.9, (), None, (3,), (), "")
    verdict = "bad-cause" if status in ("confirmed", "likely") else "unknown"
    known = status if verdict != "unknown" else None
    causes = (ranked,) if status else ()
    return Diagnosis("i", "s", "exact", "", verdict, known, "nothing explains it", causes, (), patch=patch)


def headline(status: Status | None) -> tuple[str, str]:
    return first_screen.headline(diagnosis_shown.part(diagnosis(status)), "the located operation")


def test_the_headline_is_the_cause_as_firmly_as_it_is_known() -> None:
    assert first_screen.headline(None, "the located operation") == ("the located operation", "")
    assert headline("confirmed") == ("The batch is bad.", "confirmed")
    assert headline("likely") == ("The batch is bad.", "likely")
    assert headline("possible") == ("The cause is not proven. Possible: bad-cause", "possible")
    assert headline(None) == ("The cause is unknown: nothing explains it", "unknown")


def test_the_headline_accuses_the_row() -> None:
    def says(named: tuple[int, ...], *shown: BatchRow) -> str:
        known = diagnosis("confirmed")
        known = replace(known, diagnoses=(replace(known.diagnoses[0], batch_rows=named),), rows=shown)
        return first_screen.headline(diagnosis_shown.part(known), "")[0]

    three = BatchRow(3, 1083, "0", "int64", 4, 0, (1, 2))
    assert says((3,), three) == "The batch is bad: row 3 of step 1,083"
    assert says((3,), replace(three, sample="Houses[17]")) == "The batch is bad: row 3 of step 1,083, Houses[17]"
    assert says((3, 5), three) == "The batch is bad: rows 3, 5 of step 1,083"
    assert says((), three) == says((4,), three) == "The batch is bad."


def test_the_status_says_how_it_ended_and_what_was_touched() -> None:
    refused = [Action(4, "stop", "refused-update", "")]
    observed = [Action(4, "observe", "observed", "")]

    def words(*arguments: object, known: bool = True) -> list[str]:
        found = first_screen.status_line(*arguments, known=known)  # type: ignore[arg-type]
        return [f"{word.sign} {word.text}" for word in found]

    assert words("finished", False, [], False) == [
        "✓ finished",
        "✓ no update with NaN or Inf was seen",
        "✓ not touched by the guard",
    ]
    assert words("stopped", False, refused, True) == [
        "✗ stopped by steadytrain",
        "✓ weights intact: the bad update was not made",
        "! touched by the guard: 1 update refused",
    ]
    off_course = first_screen.status_line("stopped", False, refused, True, left_at=122)
    assert f"{off_course[1].sign} {off_course[1].text}" == (
        "✗ the bad update was refused, but the loss left its course at step 122"
    )
    assert words("failed", False, observed, True)[:2] == [
        "✗ crashed",
        "✗ the bad update was not refused: weights may be damaged",
    ]
    assert words(None, False, [], False)[0] == "? running, or was killed"
    assert words(None, True, [], True)[:2] == ["✗ crashed or was killed", "? weights: not known"]
    assert words(None, False, [], False, known=False)[0] == "? how the run ended is not in this bundle"


def test_a_trial_stands_beside_its_control_and_its_placebo() -> None:
    rows = [
        TrialRow("unchanged", "persists", "the same"),
        TrialRow("drop-batch", "removed", "finite"),
        TrialRow("drop-batch-placebo", "persists", "as in the control"),
        TrialRow("float32", "not-run", "is float32"),
    ]
    first, second = first_screen.evidence(rows)
    assert (first.trial, first.effect, first.control, first.placebo) == (
        "drop-batch",
        "removed",
        "persists",
        "persists",
    )
    assert (second.trial, second.placebo) == ("float32", "")


def test_a_line_is_shown_with_its_neighbours_only_if_the_script_still_has_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    shown = source_lines.source_lines(str(script), 5, "score = torch.log(p)")
    assert [(line.number, line.text, line.marked) for line in shown] == [
        (3, "if True:", False),
        (4, "    p = model(x)", False),
        (5, "    score = torch.log(p)", True),
        (6, "    loss = score.sum()", False),
    ]
    for file, line, code in (
        (str(script), 4, "score = torch.log(p)"),
        (str(script), 99, "score = torch.log(p)"),
        (str(tmp_path / "gone.py"), 5, "score = torch.log(p)"),
        (str(tmp_path), 5, "score = torch.log(p)"),
        (None, None, "score = torch.log(p)"),
    ):
        (alone,) = source_lines.source_lines(file, line, code)
        assert alone.text == "score = torch.log(p)"
    secret = tmp_path / "secret.txt"
    secret.write_text(SCRIPT)
    assert len(source_lines.source_lines(str(secret), 5, "score = torch.log(p)")) == 1
    assert source_lines.source_lines(str(script), 5, "") == ()


def test_the_fix_is_the_patch_with_what_it_did(tmp_path: Path) -> None:
    patch = PatchTried("c", "add epsilon", "t.py", "--- a\n+++ b\n-x\n+y\n", "removed", "all finite", 1.0, 1.0, 9)
    fix = first_screen.fix_card(diagnosis_shown.part(diagnosis("confirmed", patch=patch)), [("p", "cmd")])
    assert fix is not None
    assert (fix.what, fix.works, fix.diff[-1]) == ("add epsilon", True, "+y")
    assert fix.effect == "in a patched copy of the script: removed. All finite"
    nothing = first_screen.fix_card(None, [("find the cause", "steadytrain diagnose x")])
    assert nothing is not None
    assert (nothing.works, nothing.command) == (False, "steadytrain diagnose x")


def test_a_fix_that_no_trial_makes_is_told_in_words_and_the_page_has_no_rungs(tmp_path: Path) -> None:
    remedy = Remedy("read-rows", 4, "read the rows", None, None, None)
    known = diagnosis("confirmed")
    part = diagnosis_shown.part(replace(known, diagnoses=(replace(known.diagnoses[0], interventions=(remedy,)),)))
    fix = first_screen.fix_card(part, [("p", "cmd")])
    assert fix is not None
    assert fix.effect == "no trial can show it: you make it by hand"
    report = build.from_bundle(open_bundle(builders.write_bundle(tmp_path / "bundle")))
    page = html.page(replace(report, diagnosis=part), None, version="1")
    assert "read the rows" in page
    assert "<th>rung" not in page


def test_an_incident_without_a_diagnosis_is_headed_by_the_operation(tmp_path: Path) -> None:
    report = build.from_bundle(open_bundle(builders.write_bundle(tmp_path / "bundle")))
    assert report.first is not None
    assert report.first.headline == report.verdict
    text = html.page(report, None, version="0")
    assert '<div class="cards">' in text
    assert "how the run ended is not in this bundle" in text
    assert '<details class="fold">' in text


def test_a_batch_that_came_in_bad_heads_the_page_and_stands_where_no_operation_does(tmp_path: Path) -> None:
    why = "the batch already holds NaN: args[0], 1 of 256 values, first at [3, 2], before any operation"
    bundle = builders.write_bundle(tmp_path / "step-412", builders.incident(finding=Finding(None, why)))
    first = build.from_bundle(open_bundle(bundle)).first
    assert first is not None
    assert first.where is not None
    assert (first.headline, first.where.line) == (f"Step 412: {why}", why)
    other = builders.incident(finding=Finding(None, "no operation was found: the re-run was finite"))
    first = build.from_bundle(open_bundle(builders.write_bundle(tmp_path / "step-413", other))).first
    assert first is not None
    assert first.where is not None
    assert first.headline == "Step 412: 2 of 3 gradients are not finite"
    assert first.where.line == "no single operation was located"


def test_a_quiet_run_has_no_cards_and_nothing_folded(tmp_path: Path) -> None:
    text = html.page(build.from_run(open_run(builders.quiet_run(tmp_path / "run"))), None, version="0")
    assert '<div class="cards">' not in text
    assert '<details open class="fold">' in text


def test_bands_are_named_and_the_gravest_is_drawn_last() -> None:
    rows = symptoms_shown.symptom_rows(
        [
            (builders.symptom(10, name="divergence"), ""),
            (builders.symptom(5, last=40, name="loss-plateau", severity="note"), ""),
            (builders.symptom(10, last=20, name="loss-spike", severity="warning"), ""),
        ]
    )
    series = Series(np.arange(1, 41), np.linspace(5, 1, 40))
    drawn = curve("loss", "loss", series)
    assert drawn is not None
    text = svg.drawing(drawn, rows)
    assert re.findall(r'class="band (\w+)"', text) == ["note", "warning", "critical"]
    for line in ("grid", "line"):
        assert text.index(">divergence</text>") > text.rindex(f'class="{line}"')  # none runs through the name


def test_a_rate_of_float32_has_short_ticks() -> None:
    values = np.float32([0.003, 0.003, 0.003]).astype(float) * (1 + np.array([0, 3e-8, 6e-8]))
    drawn = curve("learning_rate", "learning rate", Series(np.arange(3), values))
    assert drawn is not None
    assert ">0.003</text>" in svg.drawing(drawn, ())
    assert {zoom._rounded(value) for value in drawn.values} == {0.003}


def test_no_map_is_drawn_past_the_last_step(tmp_path: Path) -> None:
    run = builders.bad_run(tmp_path / "run", steps=builders.records(25), symptoms=[], incidents=[])
    tabled.tensors(run, range(1, 22, 10), ("a", "b"), update_ratio=np.full((3, 2), 1e-3))
    opened = open_run(run)
    (measured,) = with_measured(build.from_run(opened), opened).measured
    ends = {heat.name: (heat.starts[-1], heat.end) for heat in measured.heats}
    assert ends["update_ratio"] == (31, 26)


def test_bad_gradients_are_counted_once() -> None:
    tensors = tuple(BadTensor(f"p{at}", (1,), "torch.float32", 1, 0, 1) for at in range(40))
    part = incidents_shown.incident_part(builders.incident(parameters=tensors), Path("x"))
    console = Console(width=100, file=io.StringIO())
    console.print(text_report._incident(part))
    assert "and 36 more" in console.file.getvalue()  # type: ignore[attr-defined]


def test_overlapping_bands_are_all_named_above_each_other() -> None:
    names = ("divergence", "loss-spike", "loss-plateau", "no-learning")
    rows = symptoms_shown.symptom_rows(
        [(builders.symptom(10, last=20 + at, name=name), "") for at, name in enumerate(names)]
    )
    drawn = curve("loss", "loss", Series(np.arange(1, 41), np.linspace(5, 1, 40)))
    assert drawn is not None
    labels = svg.band_labels(rows, 1, 40, svg.WIDE.across(1, 40), svg.WIDE)
    assert [label.row for label in labels] == [0, 1, 2]  # the fourth has no room
    assert len(set(re.findall(r'class="tick named critical" x="[\d.]+" y="([\d.]+)"', svg.drawing(drawn, rows)))) == 3


def test_the_evidence_is_one_line_with_control_and_placebo() -> None:
    def row(trial: str, effect: str, placebo: str = "", second: str = "") -> TrialEvidence:
        return TrialEvidence(trial, effect, "persists", placebo, second, "")

    rows = [row("clip", "removed"), row("drop-batch", "removed", "persists", "removed"), row("other", "persists")]
    assert proof(rows) == (
        "drop-batch removes the symptom (control: persists; placebo: persists; second seed: removed); 2 more trials"
    )
    assert proof(rows, ("clip: every value is finite",)).startswith("clip removes the symptom (control: persists)")
    assert proof(rows[2:]) == proof(()) == ""


def test_a_diff_loses_the_indentation_that_all_its_lines_share() -> None:
    diff = ["     a = 1", "-        b = 2", "+        b = 3", " ", "     c"]
    assert _dedented(diff) == (" a = 1", "-    b = 2", "+    b = 3", " ", " c")
    assert _dedented([]) == ()


@pytest.mark.parametrize(
    ("values", "wide"),
    [([5.0, 5e12], True), ([5.0, 2.0, float("nan")], False), ([0.0, 1e9], False), ([float("inf")], False), ([], False)],
)
def test_a_rise_over_decades_gets_a_logarithmic_axis(values: list[float], wide: bool) -> None:
    assert spans_decades(np.array(values)) is wide


def test_a_line_that_a_symptom_names_is_where_unless_the_cause_is_another(tmp_path: Path) -> None:
    at = ScriptLine(str(tmp_path / "gone.py"), 7, "target = q(x)")
    named = builders.symptom(3, name="live-target", severity="warning", message="gone.py:7 makes it", at=at)
    plain = builders.symptom(2, name="loss-spike", severity="warning", message="the loss spiked")
    note = replace(named, severity="note")
    card = first_screen.where_card(None, [plain, named], None)
    assert card is not None
    assert card.line == f"{tmp_path}/gone.py:7"
    assert [line.text for line in card.source] == ["target = q(x)"]  # the file is gone: the line alone
    assert "no_grad" in first_screen.advice([plain, named])
    assert first_screen.advice([plain, note]) == ""
    for told, line in (("gone.py:7 carries a gradient", card.line), ("the rate is too high", None)):
        known = diagnosis("likely")
        cause = replace(known.diagnoses[0], evidence=(Evidence("signature", "supports", told, "symptom live-target"),))
        part = diagnosis_shown.part(replace(known, diagnoses=(cause,)))
        card_of_cause = first_screen.where_card(None, [named], part)
        assert card_of_cause is not None
        assert card_of_cause.line == (line or "no single operation was located")


def test_a_symptom_that_goes_on_is_drawn_to_its_end() -> None:
    window = steps(loss=np.linspace(5.0, 1.0, 1000))
    drawn = [first_screen.loss_near(window, 500, last) for last in (0, 700, 1000)]
    assert [(one.steps[0], one.steps[-1]) for one in drawn if one is not None] == [(440, 520), (440, 700), (440, 900)]
    whole = first_screen.loss_near(steps(loss=np.linspace(5.0, 1.0, 90)), 20, 90)
    assert whole is not None
    assert whole.title == "loss of the run"


def test_an_incident_is_told_as_its_symptom_ended(tmp_path: Path) -> None:
    early = builders.symptom(10, last=14, name="lost-progress", severity="warning", message="the loss rose")
    late = replace(early, last_step=90, message="the loss rose; it was back at step 91")
    bundle = builders.incident(kind="symptom", symptoms=(early,), finding=Finding(None, ""), parameters=(), losses=())
    run = builders.bad_run(tmp_path / "run", symptoms=[late], incidents=[bundle])
    report = build.from_run(open_run(run))
    assert report.verdict == "warning: lost-progress at steps 10 to 90: the loss rose; it was back at step 91"
    console = Console(width=200, file=io.StringIO())
    console.print(text_report.renderable(report))
    assert console.file.getvalue().count("the loss rose") == 1  # type: ignore[attr-defined]


def test_a_run_with_notes_alone_had_no_alarm_and_needs_no_fix(tmp_path: Path) -> None:
    note = builders.symptom(10, last=14, name="loss-spike", severity="note", message="the loss spiked")
    run = builders.bad_run(tmp_path / "run", steps=builders.records(60), symptoms=[note], incidents=[])
    report = build.from_run(open_run(run))
    assert report.verdict.startswith("No alarm; note: loss-spike at steps 10 to 14")
    assert report.first is not None
    assert report.first.fix is None


@pytest.mark.parametrize(
    ("verdict", "status", "begins"),
    [("shape-broadcast", "likely", "Diagnosis: likely: shape-broadcast"), ("unknown", None, "No alarm; note")],
)
def test_a_diagnosis_of_a_run_that_raised_nothing_leads(
    verdict: str, status: str | None, begins: str, tmp_path: Path
) -> None:
    note = builders.symptom(10, last=14, name="loss-spike", severity="note", message="the loss spiked")
    run = builders.bad_run(tmp_path / "run", steps=builders.records(60), symptoms=[note], incidents=[])
    answer_files.keep(run, Diagnosis("i", "s", "exact", "", verdict, status, "by the shapes", (), ()))
    shown = build.from_run(open_run(run)).verdict
    assert shown.startswith(begins)
    assert "No alarm; note: loss-spike at steps 10 to 14" in shown


def test_why_begins_with_the_symptom_of_the_incident(tmp_path: Path) -> None:
    spike = builders.symptom(3, last=9, name="loss-spike", severity="warning", message="the loss spiked")
    note = builders.symptom(2, last=9, name="plateau", severity="note", message="the loss stands")
    run = builders.bad_run(tmp_path / "run", symptoms=[note, spike, builders.symptom()])
    first = build.from_run(open_run(run)).first
    assert first is not None
    assert first.why is not None
    assert first.why.lines[:2] == ("2 of 3 gradients are not finite", "the loss spiked")
    assert "the loss stands" not in first.why.lines


def test_a_run_and_its_incident_name_the_same_next_command(tmp_path: Path) -> None:
    untraced = builders.incident(finding=Finding(None, "not searched: no loss was seen"))
    run = open_run(builders.bad_run(tmp_path / "run", incidents=[untraced]))
    (bundle,) = run.incidents
    reports = build.from_run(run), build.from_bundle(open_bundle(bundle))
    purposes = [report.commands[0].purpose for report in reports]
    assert purposes == ["search for the first bad operation"] * 2
    assert reports[0].commands[0].line == reports[1].commands[0].line


def test_one_word_for_what_a_fix_did_and_for_where_it_began(tmp_path: Path) -> None:
    patch = PatchTried("c", "clear the gradients", "t.py", "", "persists", "seen again", 1.0, 1.0, 9)
    part = diagnosis_shown.part(diagnosis("confirmed", patch=patch))
    assert part.patch == "clear the gradients: no effect. Seen again"
    assert part.patch_effect == "in a patched copy of the script: no effect. Seen again"
    lies = replace(diagnosis("confirmed"), axis=Axis("harness", "the loop clears nothing"))
    assert diagnosis_shown.part(lies).axis == "training loop: the loop clears nothing"
    out = Console(width=100, file=io.StringIO())
    out.print(text_report.renderable(build.from_run(open_run(builders.bad_run(tmp_path / "run")))))
    assert "first bad operation" in out.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_without_a_symptom_has_no_cause_to_find() -> None:
    ruled_out = RankedCause("weight-decay-misuse", "Decay.", "refuted", 0.0, (), None, (), (), "")
    healthy = replace(diagnosis(None), symptom="", diagnoses=(ruled_out,))
    part = diagnosis_shown.part(healthy)
    assert (part.verdict, part.refuted) == ("No symptom, so no cause to find", ())
    assert diagnosis_shown.part(diagnosis(None)).verdict == "Cause unknown"
