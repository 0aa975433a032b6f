"""The last lines of a run whose own process trained nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steadytrain.detection.summary import summary
from steadytrain.storage.run_folder import RUN_FILE


@pytest.mark.parametrize("failure", [None, "ended by SystemExit(0) after step 0"])
def test_a_process_whose_children_trained_says_that_they_are_recorded(tmp_path: Path, failure: str | None) -> None:
    (tmp_path / RUN_FILE).write_text("{}")
    watcher: Any = SimpleNamespace(streams=[], failure=failure, has_folder=False)
    (line,) = summary(watcher, tmp_path)
    assert line.startswith("; ".join(filter(None, [failure, "recorded by the processes that the script started"])))
    assert "next: " in line
    assert "nothing was recorded" not in line
