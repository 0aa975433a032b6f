"""Data files that are damaged or hostile: one error of ours, whatever the library raises."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from steadytrain.checks.data.data_check import Options
from steadytrain.checks.data.formats.delimited_rows import _value
from steadytrain.checks.data.formats.token_file import TokenFile
from steadytrain.checks.data.number_files import NumberFile, of_npy
from steadytrain.core.errors import UsageError


@pytest.mark.parametrize("error", [SystemError("NULL"), MemoryError(), UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")])
def test_an_error_of_any_kind_from_pyarrow_is_one_line(error: Exception) -> None:
    from steadytrain.checks.data.arrow_rows import reading

    with pytest.raises(UsageError, match="cannot be read as Arrow") as told, reading(Path("rows.arrow"), "as Arrow"):
        raise error
    assert "\n" not in str(told.value)


def test_a_file_that_shrinks_while_it_is_read_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.bin"
    np.arange(1 << 21, dtype=np.uint16).tofile(path)
    parts = TokenFile().rows(path, Options(None, 512), lambda name, done, size: None)
    next(parts)
    os.truncate(path, 4096)
    with pytest.raises(UsageError, match="became smaller"):
        list(parts)


def test_an_array_by_columns_has_the_same_rows(tmp_path: Path) -> None:
    array = np.arange(12.0).reshape(3, 4)
    np.save(tmp_path / "c.npy", array)
    np.save(tmp_path / "f.npy", np.asfortranarray(array))
    by_row, by_column = of_npy(tmp_path / "c.npy"), of_npy(tmp_path / "f.npy")
    assert isinstance(by_row, NumberFile)
    assert by_row.rows(1, 9).tolist() == array[1:].tolist()
    assert isinstance(by_column, np.ndarray)
    assert by_column.tolist() == array.tolist()


def test_a_header_that_claims_more_than_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(100))
    with pytest.raises(UsageError, match="too few"):
        NumberFile(tmp_path / "x.bin", np.dtype("<i8"), (2**60, 2**60))


def test_a_huge_whole_number_in_a_table_is_a_float() -> None:
    assert _value("12") == 12
    assert _value("9223372036854775808") == pytest.approx(2.0**63)
    assert _value("1" * 5_000) == float("inf")


def test_a_header_that_is_no_python_is_one_line(tmp_path: Path) -> None:
    header = b"{'descr': ('<i8', (".ljust(118)
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(UsageError, match="header"):
        of_npy(tmp_path / "x.npy")
