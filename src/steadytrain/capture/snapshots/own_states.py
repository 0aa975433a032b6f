"""Finds a load that changes nothing, because the state is made of the model's own tensors.

``best = model.state_dict()`` keeps references: the tensors go on changing with the training, and to load them at its
end restores nothing.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import named_tensors
from steadytrain.capture.step.script_frames import user_frames

AT_ONCE = "state_dict())"
"""A line that asks for the state and loads it at once: it is meant to change nothing, or copies between wrappers."""


class OwnStates:
    """Serves all models of a run. ``told`` gets the line of such a load."""

    def __init__(self) -> None:
        self.told: Callable[[str], None] = lambda place: None

    def load_begins(self, module: nn.Module, state: Any) -> None:
        """``module`` is about to load ``state``. Nothing is read from a device."""
        if not isinstance(state, Mapping):
            return
        own = {name: one.data_ptr() for name, one in named_tensors(module) if one.numel() and one.data_ptr()}
        given = {name: one for name in own if isinstance(one := state.get(name), Tensor)}
        if not own or len(given) < len(own) or any(one.data_ptr() != own[name] for name, one in given.items()):
            return
        frames = user_frames()
        line = linecache.getline(frames[0].code.co_filename, frames[0].line) if frames else ""
        if frames and AT_ONCE not in line:
            self.told(frames[0].place)
