"""docs/ARCHITECTURE.md shows the rooms of the import contract, and says of each what its package's docstring says."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "steadytrain"
DOCUMENT = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([a-z_/]+)` \| (.*) \|$", DOCUMENT, re.M))
ENTRY = "__main__"


def contract_rooms() -> list[str]:
    """The rooms of the layers contract, the highest first, without the way in."""
    layers = re.search(r"^layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    assert layers is not None
    return [room for room in re.findall(r'"(\w+)"', layers[1]) if room != ENTRY]


def test_the_picture_has_every_room_once_and_in_order() -> None:
    picture = re.search(r"```mermaid\n(.*?)```", DOCUMENT, re.S)
    assert picture is not None
    arrows = re.findall(r"(\w+)(?= --> (\w+))", picture[1])
    order = contract_rooms()
    assert set(arrows) == set(pairwise(order))


def test_the_table_has_every_room_in_order() -> None:
    assert [name for name in ROWS if name in contract_rooms()] == contract_rooms()


@pytest.mark.parametrize("name", [name for name in ROWS if (PACKAGE / name / "__init__.py").exists()])
def test_the_docstring_says_the_same(name: str) -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text(encoding="utf-8")))
    assert text is not None
    assert " ".join(text.replace("``", "`").split()).startswith(ROWS[name])


def test_every_package_with_files_has_a_docstring() -> None:
    bare = [path for path in PACKAGE.rglob("__init__.py") if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]
    assert bare == []
