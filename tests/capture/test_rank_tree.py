"""The tree by which many ranks find their greatest value, walked by hand and by real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from steadytrain.capture.step.rank_tree import MEMBERS_MAX, rounds, way_of


def greatest(values: dict[int, int]) -> tuple[dict[int, int], int]:
    """What each rank has when all have gone their ways, each group waiting for all its members, and the most groups
    that one rank went through."""
    ranks = tuple(values)
    ways = {rank: way_of(rank, ranks) for rank in ranks}
    held, at = dict(values), dict.fromkeys(ranks, 0)
    while any(at[rank] < len(ways[rank]) for rank in ranks):
        ready = [
            members
            for members in {ways[rank][at[rank]] for rank in ranks if at[rank] < len(ways[rank])}
            if all(at[one] < len(ways[one]) and ways[one][at[one]] == members for one in members)
        ]
        assert ready, "the ranks wait for each other"
        for members in ready:
            held |= dict.fromkeys(members, max(held[one] for one in members))
            at |= {one: at[one] + 1 for one in members}
    return held, max(map(len, ways.values()))


@pytest.mark.parametrize("count", [2, 3, 16, 17, 33, 64, 65, 200, 1000])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_every_rank_ends_with_the_greatest_value(count: int, place: float) -> None:
    ranks = [3 * one for one in range(count)]
    values = dict.fromkeys(ranks, 0) | {ranks[round(place * (count - 1))]: 7}
    held, most = greatest(values)
    assert set(held.values()) == {7}
    assert most <= 9


def test_few_ranks_are_one_group() -> None:
    assert way_of(2, (0, 1, 2, 3)) == [(0, 1, 2, 3)]


def test_groups_stay_small_and_rounds_few() -> None:
    assert {len(members) for rank in range(0, 10_000, 37) for members in way_of(rank, tuple(range(10_000)))} <= set(
        range(2, 2 * MEMBERS_MAX + 1)
    )
    assert rounds(16) == 30
    assert rounds(10_000) < 150


PROGRAM = """
import os
import torch
import torch.distributed as dist
from steadytrain.capture.step import rank_tree, ranks

rank_tree.FLAT_MAX = rank_tree.MEMBERS_MAX = 2
dist.init_process_group("gloo")
for step in range(3):
    found = ranks._greatest(10 * step if dist.get_rank() == step + 1 else step, (0, 1, 2, 3))
    os.write(1, f"rank {dist.get_rank()} step {step}: {found}\\n".encode())
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_real_processes_in_a_tree_of_two_levels(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=True)
    said = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    greatest_of = (0, 10, 20)
    assert said == [f"rank {rank} step {step}: {greatest_of[step]}" for rank in range(4) for step in range(3)]
