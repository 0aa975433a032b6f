"""Files that may be hostile: sizes are checked before a byte is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from steadytrain.core import bounded_files
from steadytrain.core.bounded_files import check_json, check_memory, check_size, open_regular, read_bytes, read_json
from steadytrain.core.errors import UsageError


def sparse(path: Path, size: int) -> Path:
    path.write_bytes(b"{}")
    os.truncate(path, size)
    return path


def test_a_file_that_is_mostly_holes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = sparse(tmp_path / "window.steps", 20 << 30)
    with pytest.raises(UsageError, match="were written; refused"):
        open_regular(path)


def test_a_small_file_with_holes_is_read(tmp_path: Path) -> None:
    assert len(read_bytes(sparse(tmp_path / "small", 1 << 20), bytes_max=1 << 20)) == 1 << 20


def test_a_file_of_data_with_some_holes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with path.open("wb") as file:
        file.write(b"x" * (bounded_files.HOLLOW_BYTES_MIN // 2))
        file.truncate(bounded_files.HOLLOW_BYTES_MIN + 4096)
    assert check_size(path) > bounded_files.HOLLOW_BYTES_MIN


def test_a_pipe_does_not_block_and_a_folder_and_a_device_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "device", tmp_path):
        with pytest.raises(UsageError, match="not a file"):
            open_regular(path)


def test_a_file_above_its_bound_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 100)
    with pytest.raises(UsageError, match="larger than the 99 bytes"):
        read_bytes(tmp_path / "long", bytes_max=99)


def test_what_does_not_fit_in_free_memory_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bounded_files, "free_memory_bytes", lambda: 100 << 20)
    check_memory(tmp_path, 50 << 20)
    with pytest.raises(UsageError, match="51 MiB of memory"):
        check_memory(tmp_path, 51 << 20)


def test_a_document_whose_values_would_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bounded_files, "free_memory_bytes", lambda: 100 << 20)
    check_json(b"[" + b"1," * 1000 + b"1]", tmp_path)
    with pytest.raises(UsageError, match="of memory"):
        check_json(b"[]," * 1_000_000, tmp_path)


def test_a_document_nested_too_deep_is_a_value_error(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_bytes(b"[" * 100_000)
    with pytest.raises(ValueError, match="nested"):
        read_json(tmp_path / "deep.json", bytes_max=1 << 20)
