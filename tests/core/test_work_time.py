"""A budget counts work: a second on a busy machine counts less, on a quiet one all of it."""

from __future__ import annotations

import pytest

from steadytrain.core.work_time import SLOWER_MAX, WorkTime, work_time


@pytest.mark.parametrize(
    ("load", "cores", "counted"),
    [(0.0, 2, 10.0), (2.0, 2, 10.0), (3.0, 2, 10.0), (5.0, 2, 5.0), (7.0, 2, 10 / 3), (40.0, 2, 2.5), (40.0, 64, 10.0)],
)
def test_ten_seconds_count_as_much_as_the_share_of_them(load: float, cores: int, counted: float) -> None:
    now = [100.0]
    clock = WorkTime(now=lambda: now[0], load=lambda: load, cores=cores)
    began = clock()
    now[0] = 110.0
    assert clock() - began == pytest.approx(counted)


def test_it_follows_the_load_and_never_goes_back() -> None:
    now, load = [0.0], [20.0]
    clock = WorkTime(now=lambda: now[0], load=lambda: load[0], cores=1)
    now[0] = 4.0
    busy = clock()
    assert busy == 4.0 / SLOWER_MAX
    load[0], now[0] = 1.0, 6.0
    assert clock() == busy + 2.0


def test_the_clock_of_the_process_goes() -> None:
    assert work_time() <= work_time()
    assert 1.0 <= work_time.slower() <= SLOWER_MAX
