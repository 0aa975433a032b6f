"""``steadytrain report``: one page, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import builders
import tabled
from steadytrain.cli.report import command
from steadytrain.core.errors import UsageError


def report(*arguments: str | Path) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_run_becomes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    said = report(builders.bad_run(tmp_path / "run"), "-o", page)
    assert said.startswith(f"{page}  ")
    first, _, rest = said.partition("\n")
    assert first.endswith(" KiB")
    assert rest.count("next  ") == 1
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["page.html"]


def test_the_name_of_the_page_comes_from_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = builders.bad_run(tmp_path / "runs" / "copper-lynx", name="../copper lynx/<b>")
    monkeypatch.chdir(tmp_path)
    report("copper-lynx", "--runs-dir", tmp_path / "runs")
    report(run / "incidents" / "step-412")
    assert sorted(file.name for file in tmp_path.glob("*.html")) == [
        "steadytrain-..-copper-lynx-b-.html",
        "steadytrain-copper-lynx-step-412.html",
    ]


def test_an_existing_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    report(builders.quiet_run(tmp_path / "run"), "-o", page)
    assert "No symptom was seen" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("output", ["missing/page.html", "."])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, output: str) -> None:
    path = builders.quiet_run(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="folder"):
        CliRunner().invoke(command, [str(path), "-o", str(tmp_path / output)], catch_exceptions=False)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_with_tables_and_its_incident_show_the_layers(tmp_path: Path) -> None:
    run = builders.bad_run(tmp_path / "run")
    tabled.gradients(run, builders.TENSORS, tabled.norms(4, 3))
    for target, maps in ((run, 1), (run / "incidents" / "step-412", 1)):
        report(target, "-o", tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert page.count('<svg class="heat"') == maps
        assert "gradient norm before clipping" in page


def test_a_damaged_bundle_writes_nothing(tmp_path: Path) -> None:
    path = builders.write_bundle(tmp_path / "bundle")
    (path / "model.safetensors").write_bytes(b"other")
    with pytest.raises(UsageError, match="truncated or changed"):
        CliRunner().invoke(command, [str(path), "-o", str(tmp_path / "page.html")], catch_exceptions=False)
    assert not (tmp_path / "page.html").exists()
