"""Which format a file has, what of a folder is a log, and one line for everything that is none."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from reading import read, read_one, text

from steadytrain.core.errors import UsageError
from steadytrain.logs import Columns, find_logs, read_logs
from steadytrain.logs.search import readers

PLAIN = "step,loss\n1,2.0\n2,1.5\n3,1.0\n"


def test_every_format_has_a_name_a_docstring_and_a_test() -> None:
    kinds = [reader.kind for reader in readers()]
    assert len(set(kinds)) == len(kinds)
    for reader in readers():
        module = type(reader).__module__
        assert __import__(module, fromlist=["x"]).__doc__
        assert (Path(__file__).parent / f"test_{module.rpartition('.')[2]}.py").is_file()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "only blank lines"),
        (bytes(range(256)) * 10, "a binary file of an unknown kind"),
        (gzip.compress(PLAIN.encode(), mtime=0), "compressed with gzip; decompress it first"),
        (b"hello\n", "no line of it has a loss and its number"),
        (b"\xff\xfe", "no line of it has a loss and its number"),
    ],
)
def test_files_that_are_no_log(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=said) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert len(str(raised.value).splitlines()) == 1


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="cannot be read"):
        read(Path("a" * 5000))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match=r"a pipe or a device, .*; write it to a file first"):
        read(pipe)


def test_a_folder_without_logs(tmp_path: Path) -> None:
    text(tmp_path, "readme.md", "loss: 1.0")
    with pytest.raises(
        UsageError, match=r"no logs in this folder; looked for run folders and \*\.csv, .*trainer_state"
    ):
        read(tmp_path)


def test_a_folder_with_good_and_bad_logs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        text(tmp_path / name, "metrics.csv", PLAIN)
    text(tmp_path, "broken.csv", "nothing here\n")
    text(tmp_path, "server.log", "started\n")
    found = find_logs(tmp_path, Columns())
    assert [log.name for log in found.logs] == ["a/metrics.csv", "b/metrics.csv"]
    (line,) = found.skipped
    assert line.startswith(f"{tmp_path}/broken.csv: its first line does not name columns")
    assert read_logs(tmp_path, Columns())[0].notes[-1] == f"Not read: {line}"


def test_a_folder_with_only_bad_logs(tmp_path: Path) -> None:
    text(tmp_path, "one.csv", "nothing here\n")
    text(tmp_path, "two.csv", "")
    with pytest.raises(UsageError, match=r"one.csv: .*\(and 1 more that could not be read\)"):
        read(tmp_path)


def test_files_without_a_suffix_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    contents = {
        "csv": PLAIN,
        "json-lines": '{"step": 1, "loss": 2}\n{"step": 2, "loss": 1}\n',
        "text": "step 1 loss 2\nstep 2 loss 1\n",
        "trainer-state": '{"log_history": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]}',
    }
    for kind, content in contents.items():
        assert read_one(text(tmp_path, "log", content)).kind == kind
