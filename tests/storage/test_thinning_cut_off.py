"""No moment of the rewriting loses what a reader may read: it is cut off, killed, or read beside."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from retained_tables import ROWS, always, assert_true_readings, reading, write

from parameters import telling
from steadytrain.storage import numbered_files as parts
from steadytrain.storage import tables
from steadytrain.storage.compaction import compact_table
from steadytrain.storage.numbered_files import list_parts
from steadytrain.storage.tables import TableWriter, read_series, read_table

# Cut off, full, raced.


class Killed(BaseException):
    """Stands for the end of the process: nothing that would tidy up runs."""


CALLS = ("replace", "fsync", "unlink")


def _count_calls(monkeypatch: pytest.MonkeyPatch, limit: int | None) -> list[str]:
    """Let ``limit`` calls of the system that change what a reader sees go through; then none, whatever is tried."""
    seen: list[str] = []

    def counted(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            if limit is not None and len(seen) >= limit:
                raise Killed
            seen.append(name)
            return real(*args, **options)

        return call

    places = [os, *([accessor] if (accessor := getattr(pathlib, "_NormalAccessor", None)) else [])]  # Python 3.10
    for owner in places:
        for name in CALLS:
            if hasattr(owner, name):
                call = counted(name, getattr(os, name))
                monkeypatch.setattr(owner, name, call if owner is os else staticmethod(call))
    return seen


def test_wherever_the_rewriting_is_cut_off_a_reader_sees_all_of_the_old_or_of_the_new(
    tmp_path: Path, small: None, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = range(1, 201)
    with monkeypatch.context() as patch:
        seen = _count_calls(patch, None)
        whole = write(tmp_path / "whole" / "main", steps)
        compact_table(whole, places=[], known={}, may_go_on=always)
    final = read_table(whole).steps.tolist()
    assert len(seen) > 20
    for limit in range(len(seen)):
        folder = write(tmp_path / str(limit) / "main", steps)
        with monkeypatch.context() as patch:
            _count_calls(patch, limit)
            with pytest.raises(Killed):
                compact_table(folder, places=[], known={}, may_go_on=always)
        table = read_table(folder)
        assert_true_readings(table)
        assert set(final) <= set(table.steps.tolist())
        compact_table(folder, places=[], known={}, may_go_on=always)
        assert read_table(folder).steps.tolist() == final
        assert not list(folder.glob(".*"))


KILLED_SCRIPT = """
import sys
from pathlib import Path
from steadytrain.storage import compaction, tables
from steadytrain.storage.compaction import compact_table
sys.path[:0] = sys.argv[2].split(":")
import retained_tables as tests
tables.RECORDS_PER_SEGMENT_MAX = 10
compaction.full_steps_of = lambda rows, columns: 64
compaction.COLUMNAR_BYTES_MIN = 0
if sys.argv[3] == "raw":
    compaction.is_available = lambda: False
writer, step = tables.TableWriter(Path(sys.argv[1]), "t"), 0
print("ready", flush=True)
while True:
    for step in range(step + 1, step + 101):
        writer.append(step, 1000.0 + step / 3, tests.reading(step))
    compact_table(Path(sys.argv[1]) / "t", places=[], known={}, may_go_on=tests.always)
"""


@pytest.mark.slow
@pytest.mark.parametrize("wait_s", telling([0.05, 0.13, 0.31], ["0.13"]))
def test_a_kill_while_it_compacts_leaves_a_table_that_reads(tmp_path: Path, form: str, wait_s: float) -> None:
    here = Path(__file__).parent
    command = [sys.executable, "-c", KILLED_SCRIPT, str(tmp_path / "main"), f"{here}:{here.parent}", form]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(wait_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
    table = read_table(tmp_path / "main" / "t")
    assert_true_readings(table)
    newest = int(table.steps[-1])
    assert set(range(max(1, newest - 60), newest + 1)) <= set(table.steps.tolist())
    assert set(range(10, newest // 10 * 10, 10)) - set(table.steps.tolist()) <= set(
        range(10, max(10, newest - 700), 10)
    )


def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, small: None, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "main", range(1, 301))
    before = read_table(folder)

    def refuse(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space"):
            compact_table(folder, places=[], known={}, may_go_on=always)
    assert not list(folder.glob(".*"))
    np.testing.assert_array_equal(read_table(folder).values, before.values)


def test_a_reader_beside_the_rewriting_never_misses_a_step(tmp_path: Path, small: None, form: str) -> None:
    folder, known = tmp_path / "main" / "t", {}
    writer = TableWriter(tmp_path / "main", "t")
    done, one_reading = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not done.is_set():
                if folder.exists():
                    table = read_table(folder)
                    assert_true_readings(table)
                    newest = int(table.steps.max(initial=0))
                    assert set(range(max(1, newest - 60), newest + 1)) <= set(table.steps.tolist())
                    read_series(folder, ROWS[0], "norm") if newest else None
                    one_reading.set()
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(1, 1201):
        writer.append(step, 1000.0 + step / 3, reading(step))
        if step % 40 == 0:
            # A reading that ends beside this rewriting; a writer that rewrote without end would let none end.
            one_reading.clear()
            while not done.is_set() and not one_reading.wait(0.1):
                pass
            compact_table(folder, places=[], known=known, may_go_on=always)
    done.set()
    reader.join(60)
    writer.close()
    assert failures == []
    assert not reader.is_alive()


def test_parts_that_another_covers_do_not_count_and_are_cleaned_up(tmp_path: Path) -> None:
    for name in ("000001.rows", "000002.rows", "000001-000002.rows", "000001-000002.parquet", "000003.rows"):
        (tmp_path / name).touch()
    for name in ("notes.rows", "1.rows", "000004-000003.rows", "000009.txt"):
        (tmp_path / name).touch()
    names = [part.path.name for part in list_parts(tmp_path, tables.SUFFIXES)]
    assert names == ["000001-000002.parquet", "000003.rows"]
    parts.clean(tmp_path, tables.SUFFIXES)
    assert sorted(path.name for path in tmp_path.glob("0000*.rows")) == ["000003.rows", "000004-000003.rows"]
    assert parts.next_number(tmp_path, tables.SUFFIXES) == 4


def test_a_part_that_is_no_file_of_the_run_is_not_followed(tmp_path: Path) -> None:
    folder = write(tmp_path / "main", range(3))
    elsewhere = write(tmp_path / "other", range(5))
    (folder / "000002.rows").symlink_to(elsewhere / "000001.rows")
    (folder / "000002.json").symlink_to(elsewhere / "000001.json")
    assert len(read_table(folder)) == 3


def test_a_part_that_is_rewritten_under_its_name_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    """It was thinned for newer parts, and the first listing lacks them."""
    (tmp_path / "000001.rows").write_text("dense")
    seen: list[list[str]] = []

    def read(listed: list[parts.Part]) -> list[str]:
        if not seen:
            (tmp_path / "new").write_text("thinned")
            os.replace(tmp_path / "new", tmp_path / "000001.rows")
            (tmp_path / "000002.rows").write_text("dense")
        seen.append([part.path.read_text() for part in listed])
        return seen[-1]

    assert parts.read_parts(tmp_path, tables.SUFFIXES, read) == ["thinned", "dense"]
    assert seen == [["thinned"], ["thinned", "dense"]]
