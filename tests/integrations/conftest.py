"""Ways of training run on one thread, leave no watch open, and need no network.

The contract looks for modules and for what is left among all objects of the process. The frameworks make hundreds of
thousands of them when they are imported; here they are set aside, which takes half the time off the tests.
"""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", WANDB_MODE="offline")

HAS_TORCH = importlib.util.find_spec("torch") is not None
collect_ignore_glob = [] if HAS_TORCH else ["test_*.py"]  # torch is optional for an install of steadytrain

if HAS_TORCH:
    import torch

    from steadytrain import attach
    from steadytrain.core.levels import LEVELS

    @pytest.fixture(autouse=True, scope="module")
    def _the_frameworks_own_objects_set_aside() -> Iterator[None]:
        gc.collect()
        gc.freeze()
        yield
        gc.unfreeze()

    @pytest.fixture(autouse=True)
    def _full_looks_in_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
        """These trainings are short: at the level's own cadence most of their steps would not be looked at."""
        every = replace(LEVELS["full"], weights_every=1, tensors_every=1, modules_every=1, histograms_every=1)
        monkeypatch.setitem(LEVELS, "full", every)

    @pytest.fixture(autouse=True)
    def _one_thread_and_nothing_left_behind() -> Iterator[None]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)
        assert attach.attached() is None, "a test left its watch open"
