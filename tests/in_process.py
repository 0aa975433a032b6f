"""Fixtures of tests that watch in their own process: one thread, and nothing stays."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
NOT_COLLECTED = [] if HAS_TORCH else ["test_*.py"]  # torch is optional for an install of steadytrain


@pytest.fixture(autouse=True)
def _one_thread_and_nothing_left_behind() -> Iterator[None]:
    import torch

    from steadytrain import attach

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
    assert attach.attached() is None, "a test left its watch open"
