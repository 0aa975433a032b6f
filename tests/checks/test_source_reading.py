"""A preflight reads the source of the script by the rules of a watch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from check_outcomes import outcome
from healthy_models import tabular

ZOO = Path(__file__).parents[2] / "zoo" / "silent"
FOUND = {"name": "wrong-best", "severity": "warning", "message": "train.py:7 keeps the worst"}


@pytest.mark.parametrize(
    ("source", "status", "says"),
    [
        (None, "not-run", "preflight SCRIPT"),
        ([], "pass", "no mistake"),
        ([FOUND], "fail", "train.py:7 keeps the worst (wrong-best)"),
        ([{**FOUND, "severity": "note"}], "warn", "wrong-best"),
        ([FOUND] * 5, "fail", "; 2 more"),
    ],
)
def test_what_was_read_is_told(source: Any, status: str, says: str) -> None:
    observed = {"steps": []} if source is None else {"steps": [], "source": source}
    found = outcome("source-reading", tabular(), observed=observed)
    assert found.status == status
    assert says in found.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "status", "says"),
    [
        ("variance_for_deviation.py", "fail", "(squared-spread)"),
        ("healthy_log_deviation.py", "pass", "no mistake"),
    ],
)
def test_a_script_is_read_before_its_first_update(script: str, status: str, says: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "steadytrain", "preflight", "--json", "--checks", "source-reading", ZOO / script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    (check,) = json.loads(done.stdout)["checks"]
    assert (check["name"], check["status"]) == ("source-reading", status), done.stderr
    assert says in check["message"]
