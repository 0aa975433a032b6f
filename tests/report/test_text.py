"""The report on a terminal: verdict first, eighty columns, no colour needed."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

import builders
from steadytrain.core.incident import Finding
from steadytrain.core.own_command import pasteable
from steadytrain.report import build, report_values, text
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run


def printed(report: report_values.Report, *, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width, highlight=False, emoji=False, markup=False).print(
        text.renderable(report), crop=False
    )
    return file.getvalue()


def test_an_incident_reads_verdict_first_and_fits_a_screen(tmp_path: Path) -> None:
    bundle = open_bundle(builders.write_bundle(tmp_path / "bundle"))
    lines = printed(build.from_bundle(bundle)).splitlines()
    assert lines[0].startswith("Step 412: the first Inf came from aten.log.default (forward)")
    assert "The update of step 412 was refused" in lines[2]
    assert len(lines) <= 45
    body = [line for line in lines if not line.startswith("next  ")]
    assert len(body) == len(lines) - 1
    assert all(len(line) <= 80 for line in body)
    whole = "\n".join(lines)
    for piece in ("model.head.norm", "train.py:88", "score = torch.log(probability)", "14 zeros", "640 NaN of 640"):
        assert piece in whole
    assert not set(whole) & set("┏┃│─╭")
    assert "\x1b" not in whole


def test_curves_show_where_they_stop_being_finite(tmp_path: Path) -> None:
    lines = printed(build.from_run(open_run(builders.bad_run(tmp_path / "run")))).splitlines()
    (loss,) = [line for line in lines if line.startswith("loss  ")]
    (norm,) = [line for line in lines if line.startswith("gradient norm")]
    assert loss.split()[1].endswith("✗")
    assert ".." in loss
    assert "✗ 1" in norm


def test_commands_are_never_broken(tmp_path: Path) -> None:
    path = builders.write_bundle(tmp_path / ("long-" * 30), builders.incident(finding=Finding(None, "why not")))
    report = build.from_bundle(open_bundle(path))
    lines = printed(report, width=60).splitlines()
    (line,) = [line for line in lines if line.startswith("next  ")]
    assert pasteable(report.commands[0].line) in line


def test_an_unknown_operation_says_why(tmp_path: Path) -> None:
    path = builders.write_bundle(tmp_path / "bundle", builders.incident(finding=Finding(None, "the batch was lost")))
    shown = printed(build.from_bundle(open_bundle(path)))
    assert "not known: the batch was lost" in shown
    assert "steadytrain locate" in shown


def test_rich_markup_in_a_name_is_text(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run", symptoms=[builders.symptom(message="[red]x[/red] :boom: [/]")])
    assert "[red]x[/red] :boom: [/]" in " ".join(printed(build.from_run(open_run(path))).split())


def test_a_quiet_run_names_who_looked(tmp_path: Path) -> None:
    shown = printed(build.from_run(open_run(builders.quiet_run(tmp_path / "run"))))
    assert shown.startswith("No symptom was seen: 2 detectors looked at 1,000 steps")
    assert "Silence is not health" in shown


def test_a_symptom_that_comes_again_and_again_takes_three_lines(tmp_path: Path) -> None:
    spikes = [
        builders.symptom(first_step=step, last_step=step + 9, message=f"rose at {step}") for step in range(10, 60, 10)
    ]
    shown = printed(build.from_run(open_run(builders.bad_run(tmp_path / "run", symptoms=spikes))))
    flat = " ".join(shown.split())
    assert "rose at 20" in flat
    assert "rose at 30" not in flat
    assert f"{spikes[0].name} 3 more times, steps 30 to 59" in flat
