"""Activation checkpoints that recompute what the forward computed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, final

import torch.utils.checkpoint

from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import Launched


@final
@dataclass
class PreserveRandomState(LiveChange):
    """Every activation checkpoint restores the random state for its recomputed forward."""

    is_early = True
    nothing = "every checkpoint restores the random state already"

    def early(self, process: Launched) -> None:
        original = torch.utils.checkpoint.checkpoint

        @functools.wraps(original)
        def checkpoint(*args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("preserve_rng_state", True):
                self.touch()
                kwargs["preserve_rng_state"] = True
            return original(*args, **kwargs)

        torch.utils.checkpoint.checkpoint = checkpoint
