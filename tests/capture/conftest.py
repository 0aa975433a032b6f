"""In-process watches of these tests raise our own errors, run on one thread, and leave nothing behind."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
collect_ignore_glob = [] if HAS_TORCH else ["test_*.py"]  # torch is optional for an install of steadytrain

if HAS_TORCH:
    import torch

    from steadytrain import attach
    from steadytrain.capture.failopen import raise_own_errors

    @pytest.fixture(autouse=True)
    def _own_errors_are_raised() -> Iterator[None]:
        with raise_own_errors():
            yield

    @pytest.fixture(autouse=True)
    def _one_thread_and_nothing_left_behind() -> Iterator[None]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        torch.manual_seed(0)
        yield
        torch.set_num_threads(threads)
        assert attach._active is None, "a test left its watch open"
