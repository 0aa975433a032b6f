"""Pages of preflight, check-data, audit and compare: one shell, the worst first, text from a run as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import builders
from scripts import Entered
from steadytrain.checks.data.data_check import Example, Finding, Judgement
from steadytrain.compare.differences import Part
from steadytrain.compare.run_groups import compare_runs
from steadytrain.compare.tensor_differences import Difference
from steadytrain.report import comparison_page
from steadytrain.report.checks_page import audit_page, data_page, preflight_page
from steadytrain.storage.run_folder import open_run

HOSTILE = "<img src=x onerror='alert(1)'>"


def check(name: str, status: str, **changed: Any) -> dict[str, Any]:
    told = {
        "message": f"{name} says {HOSTILE}",
        "meaning": "it means this",
        "means": "it means this",
        "next": "do that",
    }
    return {"name": name, "check": name, "status": status, "numbers": {"share_of_rows": 0.25}, **told, **changed}


def preflight(*checks: dict[str, Any], **changed: Any) -> dict[str, Any]:
    about = {"script": f"{HOSTILE}.py", "model": "Net", "parameters": 1234, "task": "regression", "mode": "fast"}
    seen = {"batches": 3, "rows": 96, "steps": 2, "seconds": 1.5, "why_no_loss": "", "restored": True}
    return {"steadytrain": "0.1.0", "checks": list(checks), **about, **seen, **changed}


def data(*findings: dict[str, Any]) -> dict[str, Any]:
    about = {"source": f"/data/{HOSTILE}.csv", "kind": "CSV", "rows": 1000, "tokens": None, "whole": False}
    return {**about, "fields": {"text": "body"}, "tokenizer": None, "findings": list(findings), "notes": [HOSTILE]}


def audit(*differences: dict[str, Any], against: str | None = "b.pt") -> dict[str, Any]:
    parts = [Part("weights", 4, 4, 3).to_json()]
    about = {"checkpoint": f"/x/{HOSTILE}.pt", "format": "torch", "step": 7, "against": against}
    return {**about, "parts": parts, "differences": list(differences), "loads": [], "notes": []}


def headline(page: str) -> str:
    assert HOSTILE not in page
    assert "default-src 'none'" in page
    assert not re.search(r"<script|https?://", page)
    return re.findall(r"<h1>(.*?)</h1>", page, re.S)[0].replace("&lt;", "<").replace("&gt;", ">").replace("&#39;", "'")


def test_the_worst_check_is_the_headline_and_the_next_command_is_there_once() -> None:
    page = preflight_page(
        preflight(check("one", "pass"), check("two", "warn"), check("three", "fail")), "steadytrain x"
    )
    assert headline(page) == f"three: three says {HOSTILE}"
    assert page.count('class="command"') == 1
    assert [page.index(word) for word in ("✗</span> 1 failed", "!</span> 1 unusual", "✓</span> 1 passed")]
    assert "state restored" in page
    assert "known from the baseline" in preflight_page(preflight(check("a", "fail", known=True), check("b", "pass")))


def test_silence_is_not_health() -> None:
    assert headline(preflight_page(preflight(check("one", "not-run")))).startswith("Unknown")
    assert headline(preflight_page(preflight(check("one", "pass"), restored=False))) == "No check failed"
    assert "compared with nothing" in audit_page(audit(against=None), version="0")
    unknown = {**audit(), "compared": False}
    assert headline(audit_page(unknown, version="0")).endswith(": there was nothing to compare with")


def test_data_and_checkpoints_have_pages_of_the_same_shell() -> None:
    found = Judgement("warn", "some are empty", {"share": 0.25}, [Example(3, "line 4", HOSTILE, "why")])
    page = data_page(data(Finding("empty-rows", found, "it means this", "do that").to_json()), version="0")
    assert headline(page).startswith("empty-rows")
    assert "steadytrain explain empty-rows" in page
    page = audit_page(audit(Difference("weights", HOSTILE, "stale", "old").to_json()), version="0")
    assert headline(page) == "weights: old"
    assert "3 of 4" in page


def test_a_comparison_has_the_same_shell(tmp_path: Path) -> None:
    runs = [open_run(builders.quiet_run(tmp_path / name, name=HOSTILE)) for name in ("one", "two")]
    page = comparison_page.page(compare_runs(runs), version="0")
    assert headline(page) == "Bit-identical"
    assert page.count("<svg") == 1
    assert "&lt;svg" not in page


@pytest.mark.parametrize("command", ["check-data", "audit", "preflight"])
def test_a_page_that_cannot_be_written_is_refused_first(command: str, tmp_path: Path, entered: Entered) -> None:
    status, _, err = entered(command, "-o", tmp_path, "nothing", folder=tmp_path)
    assert (status, "this is a folder" in err, len(err.splitlines())) == (2, True, 1)


def test_check_data_writes_its_page(tmp_path: Path, entered: Entered) -> None:
    (tmp_path / "rows.csv").write_text("text,label\nsome words,1\n,0\nmore words,1\n", encoding="utf-8")
    entered("check-data", "rows.csv", "-o", "page.html", folder=tmp_path)
    assert "rows.csv" in (tmp_path / "page.html").read_text(encoding="utf-8")
