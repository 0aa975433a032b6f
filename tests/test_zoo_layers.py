"""The scripts of ``zoo/layers``, run for real under watch, at the level that looks at tensors every eight steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zoo_cases import cases, check, check_listed, watched


def parameters() -> list[Any]:
    """The cases, each with its marks."""
    return [
        pytest.param(
            case,
            id=Path(case["script"]).stem,
            marks=[pytest.mark.slow, *([pytest.mark.long] if case.get("long") else [])],
        )
        for case in cases("layers")
    ]


@pytest.mark.parametrize("case", parameters())
def test_the_zoo(case: dict[str, Any], tmp_path: Path) -> None:
    check(case, watched("layers", case["script"], tmp_path, "--level", case["level"], "--to", "none"))


def test_the_zoo_lists_every_script() -> None:
    check_listed("layers")


def test_every_healthy_case_expects_nothing() -> None:
    healthy = [case for case in cases("layers") if case["script"].startswith("healthy_")]
    assert len(healthy) >= 6
    assert [case["script"] for case in healthy if case["expect"] or case["exit"] or "beside" in case] == []
