"""Numbers of printed logs that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from steadytrain.logs.reader import Columns
from steadytrain.logs.search import find_logs


@pytest.mark.parametrize(
    "odd", ["step 5/1,5 loss 3", "step 5/1,,5 loss 3", f"5/{'1' * 5000} [00:01<00:02, 3it/s] loss 3"]
)
def test_a_count_that_is_no_number_does_not_end_the_reading(odd: str, tmp_path: Path) -> None:
    lines = [f"step {step} loss {4 / step:.3f}" for step in range(1, 20)]
    (tmp_path / "train.log").write_text("\n".join([*lines, odd]), encoding="utf-8")
    assert find_logs(tmp_path / "train.log", Columns()).logs
