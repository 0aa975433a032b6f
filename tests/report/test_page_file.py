"""Where a page goes: a regular file is replaced, and nothing else is."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.report.page_file import write_page


def test_a_pipe_or_device_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, came = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: came.append(pipe.read_text()))
    reader.start()
    assert write_page(pipe, "a page") == 6
    reader.join(30)
    assert came == ["a page"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "page.html").write_text("old")
    (tmp_path / "latest.html").symlink_to("real/page.html")
    write_page(tmp_path / "latest.html", "new")
    assert (tmp_path / "latest.html").is_symlink()
    assert (tmp_path / "real" / "page.html").read_text() == "new"
    assert sorted(path.name for path in (tmp_path / "real").iterdir()) == ["page.html"]


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_page(tmp_path, "a page")
