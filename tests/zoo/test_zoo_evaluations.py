"""The scripts of ``zoo/evaluations``, run for real, and the logs that they write analyzed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zoo_cases import analyzed, check, check_listed, parameters


@pytest.mark.parametrize("case", parameters("evaluations"))
def test_the_zoo(case: dict[str, Any], tmp_path: Path) -> None:
    check(case, analyzed("evaluations", case["script"], tmp_path))


def test_the_zoo_lists_every_script() -> None:
    check_listed("evaluations")
