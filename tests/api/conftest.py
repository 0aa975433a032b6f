"""In-process watches of these tests raise our own errors, run on one thread, and leave nothing behind."""

from __future__ import annotations

from in_process import NOT_COLLECTED, _one_thread_and_nothing_left_behind, _own_errors_are_raised

__all__ = ["_one_thread_and_nothing_left_behind", "_own_errors_are_raised"]
collect_ignore_glob = NOT_COLLECTED
