"""In-process watches of these tests run on one thread and leave nothing behind."""

from __future__ import annotations

from machine_fixtures import cuda, started

from in_process import NOT_COLLECTED, _one_thread_and_nothing_left_behind

__all__ = ["_one_thread_and_nothing_left_behind", "cuda", "started"]
collect_ignore_glob = NOT_COLLECTED
