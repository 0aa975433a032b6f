"""The guard keeps no model alive: a script may train one after the other."""

from __future__ import annotations

import gc
from typing import Any

from torch import nn

from steadytrain.guard.live import Live

UNUSED: Any = None


def test_a_model_that_the_script_dropped_is_freed() -> None:
    live = Live(UNUSED, UNUSED, lowest_share=0.1)
    first, second = nn.Linear(2, 1), nn.Linear(2, 1)
    live.roots = [first, second]
    assert live.roots == [first, second]
    assert len(live.parameters) == 4
    del first
    gc.collect()
    assert live.roots == [second]
