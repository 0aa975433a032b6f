"""Files of users: each fault is one line that begins with the file's name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.core.toml_files import FILE_BYTES_MAX, read_toml


def test_a_document(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('a = 1\n[b]\nc = "d"\n', encoding="utf-8")
    assert read_toml(tmp_path / "p.toml", what="policy") == {"a": 1, "b": {"c": "d"}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a = ", "not TOML: Invalid value"),
        (b"a = '\xff'", "not UTF-8 text (byte 5)"),
        (b"#" * (FILE_BYTES_MAX + 1), "larger than 1024 KiB, so it is no policy"),
        (b"a = " + b"[" * 100_000, "not TOML: "),
        (b".".join([b"a"] * 3_000) + b" = 1", "not TOML: "),
        (b"a = " + b"9" * 5_000, "not TOML: "),
        (b"[b]\nc = [1, 2" + b"0" * 400 + b"]", "not TOML: c is a whole number of more than 64 bits"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "p.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_toml(path, what="policy")
    assert str(refused.value).startswith(f"{path}: {told}")
    assert "\n" not in str(refused.value)


def test_what_is_no_file_is_refused_without_a_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "nothing"):
        with pytest.raises(UsageError, match=str(path)):
            read_toml(path, what="policy")
