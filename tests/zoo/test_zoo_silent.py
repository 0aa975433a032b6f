"""The scripts of ``zoo/silent``, run for real under watch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zoo_cases import check, check_listed, parameters, watched


@pytest.mark.parametrize("case", parameters("silent"))
def test_the_zoo(case: dict[str, Any], tmp_path: Path) -> None:
    check(case, watched("silent", case["script"], tmp_path, "--level", case["level"], "--to", "none"))


def test_the_zoo_lists_every_script() -> None:
    check_listed("silent")
