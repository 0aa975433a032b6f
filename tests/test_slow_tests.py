"""The list of slow tests marks what it names, and names nothing that is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import slow_tests

ROOT = Path(__file__).parents[1]
TEXT = """
# why
tests/a.py
    test_all
    test_one[x y]
tests/b.py
    test_gone
"""


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid, self.marks = nodeid, list[str]()

    def add_marker(self, marker: Any) -> None:
        self.marks.append(marker.name)


def test_what_is_listed_is_long_and_nothing_else() -> None:
    names = ["a.py::test_all[1]", "a.py::test_all[2]", "a.py::test_one[x y]", "a.py::test_one[x]", "b.py::test_all[1]"]
    items = [Item(f"tests/{name}") for name in names]
    unknown = slow_tests.mark(items, slow_tests.listed(TEXT))  # type: ignore[arg-type]
    assert [item.marks == ["long"] for item in items] == [True, True, True, False, False]
    assert unknown == ["tests/b.py::test_gone"]


def test_a_file_that_was_not_collected_is_not_judged() -> None:
    assert slow_tests.mark([], slow_tests.listed(TEXT)) == []


def test_each_file_of_the_list_is_there() -> None:
    files = slow_tests.listed(slow_tests.LIST.read_text(encoding="utf-8"))
    assert len(files) > 10
    assert [path for path in files if not (ROOT / path).is_file()] == []
