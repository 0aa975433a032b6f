"""The public API and the help of every command change on purpose only: ``make golden`` writes them again."""

from __future__ import annotations

import pytest

import golden_files

pytest.importorskip("torch")

NAMES = sorted({*golden_files.current(), *golden_files.frozen()})


@pytest.mark.parametrize("name", NAMES)
def test_it_is_as_it_was_frozen(name: str) -> None:
    assert golden_files.current().get(name) == golden_files.frozen().get(name), "meant? then `make golden`"


@pytest.mark.parametrize("line", golden_files.current()["public_api.txt"].splitlines())
def test_what_is_public_is_typed(line: str) -> None:
    json_documents = ("Mapping[str, Any]", "dict[str, Any]")
    assert "Any" not in line or any(document in line for document in json_documents)
