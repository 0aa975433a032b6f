"""What is missing is named by its own packages: our name is on no index."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from steadytrain.core import extras

ROOT = Path(__file__).parents[2]


def test_an_extra_is_named_by_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ["numpy>=2", "pyarrow>=17; extra == 'query'", 'duckdb>=1.2 ; extra == "query"', "bokeh; extra == 'report'"]
    monkeypatch.setattr(extras, "requires", lambda name: known)
    assert extras.install("query") == "pip install 'pyarrow>=17' 'duckdb>=1.2'"
    assert extras.pip_install("steadytrain[report]") == "pip install bokeh"
    assert extras.pip_install("their-tool") == "pip install their-tool"


def test_where_nothing_is_known_of_the_extra_the_clone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "requires", gone)
    assert extras.install("query") == "pip install 'CLONE[query]'"


def test_no_page_and_no_message_installs_our_bare_name() -> None:
    bare = re.compile(r"pip install\s+(?:-U\s+)?['\"]?steadytrain\b")
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "src").rglob("*.py")]
    assert not [str(path) for path in pages if bare.search(path.read_text(encoding="utf-8"))]
