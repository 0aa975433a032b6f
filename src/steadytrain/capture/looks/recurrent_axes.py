"""Follows the shapes that recurrent layers are given in the first steps of a stream.

``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` read [places, rows, features] unless they are made with ``batch_first=True``.
Given [rows, places, features] they run over the rows of the batch. Nothing is hooked once code was compiled.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from steadytrain.capture.hooks.model_discovery import named_places
from steadytrain.capture.hooks.module_hooks import ModuleHook, Report, hook_after
from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.looks.mixed_rows import Attended
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.tensors.activations.compiled import something_was_compiled

LAYERS_MAX = 4
LAST_STEP = 16


class RecurrentAxes:
    """Serves one stream. Create it at the gate of the first step."""

    def __init__(self, stream: Stream, report: Report) -> None:
        self.found = False
        """Whether the model has recurrent layers."""
        self._read: dict[int, Attended] = {}
        self._until = stream.own_steps + LAST_STEP
        self._handles: list[RemovableHandle] = []
        if is_sharded(stream.parameters) or something_was_compiled():
            return
        places = (module for root in stream.roots() for _, module in named_places(root))
        layers = [module for module in places if isinstance(module, nn.RNNBase)]
        self.found = bool(layers)
        self._handles = [hook_after(layer, ModuleHook(self._ended, report)) for layer in layers[:LAYERS_MAX]]

    def _ended(self, module: nn.RNNBase, args: Any, output: Any) -> None:
        given = args[0] if args else None
        if module.training and isinstance(given, Tensor) and given.dim() == 3:
            rows, places = (0, 1) if module.batch_first else (1, 0)
            self._read[id(module)] = int(given.shape[rows]), int(given.shape[places])

    def read(self, stream: Stream) -> list[Attended]:
        """The number of sequences that each layer has read last, and their length."""
        read = list(self._read.values())
        self._read = {}
        if stream.own_steps >= self._until:
            self.release()
        return read

    def release(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
