"""Autocast contexts that cast each weight anew."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, final

import torch

from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import Launched


@final
@dataclass
class UncachedAutocast(LiveChange):
    """Every autocast context keeps no copies of weights."""

    is_early = True
    nothing = "no autocast context keeps copies of weights"

    def early(self, process: Launched) -> None:
        original = torch.autocast.__enter__

        @functools.wraps(original)
        def enter(context: Any) -> Any:
            entered = original(context)  # type: ignore[no-untyped-call]
            if torch.is_autocast_cache_enabled():
                self.touch()
                torch.set_autocast_cache_enabled(False)  # the context puts it back at its end
            return entered

        torch.autocast.__enter__ = enter  # type: ignore[method-assign]
