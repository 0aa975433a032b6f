"""The matrix of frameworks: what a row says of what was seen, and that each script is one of the matrix."""

from __future__ import annotations

import ast
import copy
import re
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import ways  # noqa: E402
import ways_table  # noqa: E402

SCRIPTS = sorted((BENCHMARKS / "ways_rows").glob("train_*.py"))
RUN = {
    "ended": "finished",
    "streams": 1,
    "notes": [],
    "steps": 9,
    "symptoms": [],
    "operation": "",
    "rows": [],
    "acted": [],
}
GOOD: dict[str, Any] = {
    "title": "A", "note": "", "date": "2026-11-01", "machine": "2 cores", "python": "3.11", "versions": {"torch": "2"},
    "loss": {"own": 9, "seen": 9, "compared": 9, "gap": 0.0},
    "arms": {
        "bare": {"status": 0, "digest": "d", "finite": True, "steps": 9, "cpu_s": 1.0, "message": ""},
        "healthy": {"status": 0, "digest": "d", "finite": True, "steps": 9, "cpu_s": 1.5, "message": "", "run": RUN},
        "nan": {"status": 70, "finite": True, "message": "", "run": {**RUN, "operation": "aten.log"}},
        "rate": {"status": 0, "finite": True, "message": "", "run": {**RUN, "symptoms": [["critical", "divergence"]]}},
    },
}  # fmt: skip


def changed(*path: str, value: Any) -> dict[str, Any]:
    row = copy.deepcopy(GOOD)
    place = row
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return row


def test_a_row_that_holds_has_nothing_in_bold_but_its_name() -> None:
    line = ways_table.line_of(GOOD)
    assert line.count("**") == 2
    assert "| identical | same (by 0e+00 at most); 9 of 9 steps | stopped before the update, `aten.log` |" in line
    assert "| divergence | quiet | +0.5 s in all |" in line


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (changed("arms", "healthy", "digest", value="other"), "**differ** (exit status 0)"),
        (changed("arms", "healthy", "run", value={**RUN, "steps": 8}), "**8 of 9 steps**"),
        (changed("loss", value={"own": 9, "seen": 9, "compared": 9, "gap": 0.1}), "**differs** (by 1e-01 at most)"),
        (changed("loss", value={"own": 9, "seen": 0, "compared": 0, "gap": None}), "**no loss**"),
        (changed("arms", "nan", "finite", value=False), "**not stopped**: exit status 70, weights not finite"),
        (changed("arms", "nan", "status", value=0), "**not stopped**: exit status 0, weights finite"),
        (changed("arms", "rate", "run", value={**RUN, "symptoms": [["note", "dead-units"]]}), "**nothing said**"),
        (changed("arms", "healthy", "run", value={**RUN, "symptoms": [["warning", "plateau"]]}), "**plateau**"),
        (changed("arms", "healthy", value={"status": 1, "message": "E", "finite": True}), "**not recorded**"),
        (changed("failed", value="does not install: ERROR"), "| does not install: ERROR | | | | | | 2026-11-01"),
    ],
)
def test_a_row_says_what_falls_short(row: dict[str, Any], said: str) -> None:
    row["arms"]["again"] = {"digest": "d"}
    assert said in ways_table.line_of(row)


@pytest.mark.parametrize(("watched", "said"), [(0.02, "20.0 ms +0 %;"), (0.03, "20.0 ms **+50 %**;")])
def test_a_batch_may_cost_a_twentieth_more(watched: float, said: str) -> None:
    row = changed("arms", "bare", "later_call_cpu_s", value=0.02)
    row["arms"]["healthy"]["later_call_cpu_s"] = watched
    assert said in ways_table.line_of(row)


def test_weights_that_differ_by_themselves_prove_nothing() -> None:
    row = changed("arms", "healthy", "digest", value="other")
    row["arms"]["again"] = {"digest": "a third"}
    assert "| differ also between two bare runs |" in ways_table.line_of(row)


def test_a_row_with_a_script_that_was_ended_for_time_is_not_kept() -> None:
    assert ways.whole(GOOD)
    assert not ways.whole(changed("arms", "rate", "status", value=None))
    assert ways.whole(changed("failed", value="does not install"))


def test_the_table_is_written_between_its_marks_alone(tmp_path: Path) -> None:
    page = tmp_path / "ways.md"
    page.write_text(f"before\n{ways_table.BEGIN}\nold\n{ways_table.END}\nafter\n", encoding="utf-8")
    table = ways_table.write_table([GOOD], page)
    assert page.read_text(encoding="utf-8") == f"before\n{ways_table.BEGIN}\n{table}\n{ways_table.END}\nafter\n"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_one_of_the_matrix(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    called = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    assert ways.header(script, "Title")
    assert re.fullmatch(r"[\w\[\].<>=,\- ]+", ways.header(script, "Needs"))
    assert {"seed", "training"} <= called
    assert "case.rate(" in text
    assert called & {"rows", "table", "poison", "ARM"}  # where its NaN comes from
    assert "steadytrain" not in text


def test_a_path_of_a_machine_is_not_in_a_message() -> None:
    assert ways.last_line("x\nValueError: /home/me/a/b.py is bad\n") == "ValueError: .../b.py is bad"


def test_the_cost_is_that_of_the_cheapest_runs() -> None:
    pairs = [
        ({"cpu_s": 2.0, "later_call_cpu_s": 0.02}, {"cpu_s": 2.5, "later_call_cpu_s": 0.0206}),
        ({"cpu_s": 1.8, "later_call_cpu_s": 0.025}, {"cpu_s": 2.8, "later_call_cpu_s": 0.03}),
    ]
    assert ways_table.cost(ways_table.costs(pairs)) == "20.0 ms +3 %; +0.7 s in all; 2 pairs"
    assert ways_table.cost(ways_table.costs(pairs[1:])) == "25.0 ms **+20 %**; +1.0 s in all; 1 pair"


def test_a_row_that_was_not_measured_says_so() -> None:
    row = {"title": "A", "note": "", "failed": "not measured"}
    assert ways_table.line_of(row) == "| **A** | not measured | | | | | |  |"
