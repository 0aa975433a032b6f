"""The scripts of ``zoo/collapse``, run for real under watch, at the level that looks at tensors every eight steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zoo_cases import check, check_listed, parameters, watched


@pytest.mark.parametrize("case", parameters("collapse"))
def test_the_zoo(case: dict[str, Any], tmp_path: Path) -> None:
    check(case, watched("collapse", case["script"], tmp_path, "--level", case["level"], "--to", "none"))


def test_the_zoo_lists_every_script() -> None:
    check_listed("collapse")
