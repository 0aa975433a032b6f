"""Where a script may be written: not among files of others, but in place of rows that were written before."""

from __future__ import annotations

from pathlib import Path

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.repro.script_making import check_folder


def test_rows_of_a_call_without_a_script_are_written_again(tmp_path: Path) -> None:
    (tmp_path / "ROWS.md").write_text("rows", encoding="utf-8")
    (tmp_path / "rows.pt").write_bytes(b"")
    check_folder(tmp_path)
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="is not empty"):
        check_folder(tmp_path)
