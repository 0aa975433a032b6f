"""Where a page goes: a regular file is replaced, and nothing else is."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.report.page_file import write_page, write_pages


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


def test_of_several_pages_all_are_written_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / "first.xml", tmp_path / "second.md"
    first.write_text("old")
    with pytest.raises(UsageError, match=r"gone/third\.md: cannot be written"):
        write_pages({first: "new", second: "new", tmp_path / "gone" / "third.md": "new"})
    assert (first.read_text(), sorted(path.name for path in tmp_path.iterdir())) == ("old", ["first.xml"])
    assert write_pages({first: "new", second: "newer"}) == {first: 3, second: 5}
    assert (first.read_text(), second.read_text()) == ("new", "newer")
