"""Which ranks can be launched together again, from where, and with which variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.storage.rank_group import WORLD_OF_ONE, RankGroup, alone, rank_group
from steadytrain.storage.run_folder import RunWriter
from steadytrain.storage.tape_files import Recording, find_recording

LAUNCHER = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}


def recorded(folder: Path, *, snapshots: tuple[int, ...], last: int) -> Recording:
    """An empty recording with these snapshots and a tape from step 1 to ``last``."""
    (folder / "tape").mkdir(parents=True)
    for name in (f"000001-{last:06d}.json", f"000001-{last:06d}.safetensors"):
        (folder / "tape" / name).touch()
    for step in snapshots:
        place = folder / "snapshots" / f"step-{step:06d}"
        place.mkdir(parents=True)
        for name in ("state.json", "state.safetensors"):
            (place / name).touch()
    return find_recording(folder)


def run_of_two(folder: Path, **changed: Any) -> Path:
    """A run of two ranks with tapes. ``changed`` replaces entries of the first rank's description."""
    run = folder / "run"
    for rank, place in enumerate((run, run / "ranks" / "0001")):
        told = {**LAUNCHER, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        facts = {"name": "run", "rank": rank, "world_size": 2, "launcher": told}
        RunWriter(place, {**facts, **(changed if not rank else {})}).close()
        recorded(place, snapshots=(1, 64) if rank else (1, 64, 96), last=100 - rank)
    return run


def group_of(*recordings: Recording) -> RankGroup:
    return RankGroup(0, tuple(one.folder for one in recordings), recordings, tuple({} for _ in recordings))


def test_all_start_at_the_newest_snapshot_that_all_have_and_end_where_the_shortest_tape_does(tmp_path: Path) -> None:
    group = rank_group(run_of_two(tmp_path))
    assert group is not None
    shot, last = group.choose(first=None, until=None)
    assert (shot.step, last) == (64, 99)
    assert [one.step for one in group.common.snapshots] == [1, 64]
    with pytest.raises(UsageError, match="step 100: from step 65 on, the tape of rank 1 reaches only 99"):
        group.choose(first=None, until=100)


def test_ranks_without_a_common_snapshot_cannot_start_together(tmp_path: Path) -> None:
    one = recorded(tmp_path / "0", snapshots=(1, 32), last=80)
    other = recorded(tmp_path / "1", snapshots=(2, 64), last=80)
    with pytest.raises(UsageError, match="no snapshot of the same step"):
        group_of(one, other).choose(first=None, until=None)


def test_each_rank_gets_what_its_launcher_told_it_and_a_meeting_on_this_machine(tmp_path: Path) -> None:
    group = rank_group(run_of_two(tmp_path) / "ranks" / "0001")
    assert group is not None
    assert group.rank == 1
    given = group.variables(1, port=4000)
    assert {name: given[name] for name in LAUNCHER} == {**LAUNCHER, "RANK": "1", "LOCAL_RANK": "1"}
    assert (given["MASTER_ADDR"], given["MASTER_PORT"], given["ROLE_RANK"]) == ("127.0.0.1", "4000", "1")
    single = group.variables_alone(1, port=4000)
    assert {name: single[name] for name in WORLD_OF_ONE} == WORLD_OF_ONE


def test_one_process_of_several_ranks_is_launched_in_a_world_of_one() -> None:
    environment = {"world_size": 2, "environment": LAUNCHER}
    assert alone(environment, port=1)["WORLD_SIZE"] == "1"
    assert alone({"world_size": 1, "environment": LAUNCHER}, port=1) == {}
    assert alone({"world_size": 2, "environment": {}}, port=1) == {}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"launcher": {}}, r"were not started by a launcher such as torchrun \(they had no RANK\)"),
        ({"launcher": {**LAUNCHER, "LOCAL_WORLD_SIZE": "1"}}, "ran on several machines"),
        ({"model": {"devices": ["cuda:0"]}}, "its tensors were on cuda:0; several ranks are launched again on the CPU"),
        ({"rank": 2}, "it is of rank 2 of 2, which is none"),
        ({"world_size": 3, "launcher": {"RANK": "0"}}, "nothing of rank 2 is there, and all ranks are needed"),
        ({"world_size": 17, "launcher": {"RANK": "0"}}, "it had 17 ranks; at most 16"),
    ],
)
def test_what_cannot_be_launched_together_is_refused_with_the_reason(
    changed: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=why):
        rank_group(run_of_two(tmp_path, **changed))


def test_a_run_of_one_process_is_no_group(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunWriter(run, {"name": "run", "world_size": 1}).close()
    assert rank_group(run) is None
    assert json.loads((run / "run.json").read_text())["world_size"] == 1
