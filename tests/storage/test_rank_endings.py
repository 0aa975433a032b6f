"""Which of several ranks ended first, from what is in their folders."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import builders
from rank_folders import FINISHED, PEER, SIGNALLED, VANISHED, run_of
from steadytrain.cli import runs, show
from steadytrain.report import build
from steadytrain.report.slurm import ending
from steadytrain.storage.processes import is_gone, process_mark
from steadytrain.storage.rank_endings import RankEnd, first_end, first_end_of
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_summaries import summary_of
from steadytrain.storage.signal_notes import ended_by

OURS_ALONE = """Stack (most recent call first):
  File "/home/me/src/steadytrain/capture/looks/rank_agreement.py", line 108 in _wait
  File "/home/me/src/steadytrain/__main__.py", line 22 in <module>
  File "<frozen runpy>", line 198 in _run_module_as_main
"""


def test_a_killed_rank_is_named_and_not_the_sigterm_that_followed(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", (SIGNALLED, 12), (SIGNALLED, 13), (VANISHED, 12), (SIGNALLED, 13))
    first = first_end_of(run)
    assert first is not None
    assert (first.end.rank, first.end.step, first.kind) == (2, 12, "vanished")
    assert first.sentence.startswith("rank 2 ended first, after its 12 steps, and left no record of how (SIGKILL")
    assert first.sentence.endswith("; ranks 0, 1 and 3 got SIGTERM after it")
    report = build.from_run(open_run(run))
    assert report.verdict.startswith("Rank 2 ended first, after its 12 steps")
    assert "The run was ended by SIGTERM" not in " ".join(report.summary)
    assert ending(open_run(run)) == "ended by SIGTERM after rank 2 had ended"
    assert summary_of(run).first_rank == 2


def test_both_commands_name_the_rank(tmp_path: Path) -> None:
    run_of(tmp_path / "r", (SIGNALLED, 12), (VANISHED, 12))
    folder = ["--runs-dir", str(tmp_path)]
    assert "killed (rank 1 first)" in CliRunner().invoke(runs.command, folder).output
    document = json.loads(CliRunner().invoke(show.command, ["r", "--json", *folder]).output)
    assert (document["ended_first"]["rank"], document["ended_first"]["step"]) == (1, 12)


def test_a_rank_with_fewer_batches_is_named(tmp_path: Path) -> None:
    lost = PEER.format(56)
    run = run_of(tmp_path / "r", (lost, 55), (lost, 55), (FINISHED, 55), (SIGNALLED, 55))
    first = first_end_of(run)
    assert first is not None
    assert (first.end.rank, first.reached) == (2, 56)
    assert first.cause == (
        "rank 2 ended after its 55 steps while ranks 0 and 1 went on to step 56: an uneven number of batches"
    )


def test_the_first_rank_may_be_the_one_with_fewer_batches(tmp_path: Path) -> None:
    first = first_end_of(run_of(tmp_path / "r", (FINISHED, 55), (PEER.format(56), 55)))
    assert first is not None
    assert first.end.rank == 0


def test_an_error_of_one_rank_comes_before_the_contact_that_the_others_lost(tmp_path: Path) -> None:
    error = "ended by ValueError in step 13 at train.py:20: bad row"
    first = first_end_of(run_of(tmp_path / "r", (PEER.format(13), 12), (error, 12), (SIGNALLED, 12)))
    assert first is not None
    assert first.sentence == f"rank 1 failed first: {error}; rank 0 lost contact, rank 2 got SIGTERM after it"


def end(number: int, how: Any, step: int = 12, failure: str = "") -> RankEnd:
    return RankEnd(number, step, how, failure)


@pytest.mark.parametrize(
    "ends",
    [
        [end(0, "finished"), end(1, "finished")],
        [end(0, "finished", 60), end(1, "finished", 55)],  # under join(), or ranks at their own pace
        [end(0, "open"), end(1, "open", 11)],
        [end(0, "signal"), end(1, "signal", 11)],  # the launcher was ended
        [end(0, "vanished"), end(1, "vanished")],  # the node
        [end(0, "finished"), end(1, "vanished")],  # a script that leaves by os._exit after its last step
        [end(0, "stopped"), end(1, "vanished")],
        [end(0, "failed"), end(1, "failed")],
        [end(0, "lost contact"), end(1, "lost contact")],  # the network
        [end(0, "finished")],
    ],
)
def test_no_rank_is_named_where_no_record_says(ends: list[RankEnd]) -> None:
    assert first_end(ends) is None


def test_a_run_of_one_process_has_none(tmp_path: Path) -> None:
    assert first_end_of(builders.quiet_run(tmp_path / "run")) is None


def test_a_line_of_ours_is_never_given_as_the_script_s(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", (SIGNALLED, 12))
    note = ended_by(run)
    assert note is not None
    assert note.place == "train.py:35"
    (run / "signals" / "SIGTERM-ends.txt").write_text(OURS_ALONE)
    note = ended_by(run)
    assert note is not None
    assert note.place == ""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_a_process_that_its_parent_has_not_asked_for_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not is_gone(f"{process_mark().rpartition('-')[0]}-{child.pid}") and time.monotonic() < until:
        time.sleep(0.01)
    assert is_gone(f"{process_mark().rpartition('-')[0]}-{child.pid}")
    child.wait()


def test_a_rank_that_waits_at_another_line_than_all_others_is_named() -> None:
    def lost(rank: int, line: str) -> RankEnd:
        failure = f"ended by RuntimeError in step 61 at {line}: Timed out waiting 15000ms for send operation"
        return RankEnd(rank, 60, "lost contact", failure)

    first = first_end([lost(0, "moe.py:46"), lost(1, "moe.py:46"), lost(2, "moe.py:71"), lost(3, "moe.py:46")])
    assert first is not None
    assert (first.end.rank, first.kind) == (2, "elsewhere")
    waited = "rank 2 waited at moe.py:71 in step 61 while ranks 0, 1 and 3 waited at moe.py:46"
    assert first.sentence == f"{waited}: it did not make the call that they waited in; ranks 0, 1 and 3 lost contact"
    for lines in (
        ["a.py:1", "a.py:2"],
        ["a.py:1", "a.py:2", "a.py:3"],
        ["a.py:1"] * 3,
        ["a.py:1"] * 2 + ["a.py:2"] * 2,
    ):
        assert first_end([lost(rank, line) for rank, line in enumerate(lines)]) is None
