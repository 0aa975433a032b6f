"""What a checkpoint holds beside the weights that a model was given from it, and whether an optimizer was given it.

Before the first update only. The checkpoint is found through the references to the part that ``load_state_dict`` is
given, so it must still be alive (``checkpoint = torch.load(path)``); nothing of it is kept but numbers and settings.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.snapshots.left_out_states import LeftOutStates

SEARCHES_MAX = 3
"""Loads of a model for which the references are searched: each takes up to 0.1 s for a large program."""

ENTRIES_MAX = 1000
COUNTERS = ("last_epoch", "verbose")
POSITIONS = ("step", "global_step", "steps", "iteration", "iter", "it", "update", "epoch")
"""Names under which checkpoints say how far a training had come."""


@dataclass(frozen=True)
class Beside:
    """Optimizer state of ``parameters`` parameters, and the settings of a schedule that stood at ``schedule_at``.

    ``position`` is how far the training had come, and ``unit`` the word for it in the checkpoint; 0 if it does not say.
    """

    parameters: int = 0
    schedule_at: int = 0
    settings: Mapping[str, Any] | None = None
    position: int = 0
    unit: str = ""


class ResumedStates:
    """Serves all optimizers of a process, until the first update of each."""

    def __init__(self) -> None:
        self.left_out = LeftOutStates()
        self._found = Beside()
        self._loaded: tuple[weakref.ref[nn.Module], Beside] | None = None
        self._searches = 0
        self._rates: weakref.WeakKeyDictionary[torch.optim.Optimizer, float] = weakref.WeakKeyDictionary()
        self._times: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()

    def model_given(self, state: Any) -> None:
        """A model is about to be given ``state``."""
        self._found = Beside()
        if isinstance(state, Mapping) and self._searches < SEARCHES_MAX:
            self._searches += 1
            for holder in gc.get_referrers(state):
                if type(holder) is dict and _is_checkpoint(holder, state):
                    self._found = _beside(holder)
                    self.left_out.checkpoint_given(_outermost(holder))

    def model_loaded(self, module: nn.Module, *, whole: bool) -> None:
        """``module`` was given the state, ``whole`` if nothing of it was missing."""
        found, self._found = self._found, Beside()
        self.left_out.loaded(module)
        if whole and (found.parameters or found.schedule_at or found.position):
            self._loaded = weakref.ref(module), found

    def optimizer_given(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
        """``optimizer`` is about to be given ``state``."""
        rate = next((group.get("lr") for group in state["param_groups"]), None)
        if rate is not None and state["state"]:
            self._rates[optimizer] = float(rate)
            self._times[optimizer] = self.times_given(optimizer) + 1

    def take(self, parameters: Collection[Tensor]) -> Beside:
        """What the checkpoint holds from which all ``parameters`` of an optimizer were loaded; given once."""
        module = self._loaded[0]() if self._loaded is not None else None
        if self._loaded is None or module is None:
            return Beside()
        own = {id(one) for one in module.parameters()}
        if not all(id(one) in own for one in parameters):
            return Beside()
        _, found = self._loaded
        self._loaded = None
        return found

    def rate_of(self, optimizer: torch.optim.Optimizer) -> float:
        """The learning rate that was loaded with the state of ``optimizer``; 0 if none was."""
        return self._rates.get(optimizer, 0.0)

    def times_given(self, optimizer: torch.optim.Optimizer) -> int:
        """How often ``optimizer`` was given a state, also between its updates."""
        return self._times.get(optimizer, 0)


def same_settings(schedule: Any, settings: Mapping[str, Any]) -> bool:
    """Whether ``schedule`` was made with the settings of a schedule that a checkpoint holds."""
    own = dict(_settings(schedule.state_dict()))
    return bool(own) and own == dict(_settings(settings))


def _is_checkpoint(holder: dict[Any, Any], state: Any) -> bool:
    """Whether ``holder`` is a checkpoint: not the variables of a module, and not the attributes of an object."""
    if len(holder) > ENTRIES_MAX or "__name__" in holder or not all(isinstance(key, str) for key in holder):
        return False
    values = holder.values()
    return any(one is state for one in values) and not any(
        isinstance(one, (nn.Module, torch.optim.Optimizer)) for one in values
    )


def _outermost(holder: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint of which ``holder`` is a part, or itself."""
    found = [one for one in gc.get_referrers(holder) if type(one) is dict and _is_checkpoint(one, holder)]
    return found[0] if len(found) == 1 else holder


def _beside(holder: dict[str, Any]) -> Beside:
    parameters, at, settings = 0, 0, None
    for value in holder.values():
        one = value[0] if isinstance(value, (list, tuple)) and value else value
        if not isinstance(one, Mapping):
            continue
        if "param_groups" in one and isinstance(one.get("state"), Mapping):
            parameters = max(parameters, len(one["state"]))
        elif isinstance(one.get("last_epoch"), int):
            at, settings = int(one["last_epoch"]), dict(_settings(one))
    unit = next((one for one in POSITIONS if type(holder.get(one)) is int and holder[one] > 0), "")
    return Beside(parameters, at, settings, holder.get(unit, 0), unit)


def _settings(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The plain numbers and lists of numbers of a schedule's state that its steps do not move."""
    for name, value in state.items():
        plain = isinstance(value, (bool, int, float, str)) or (
            isinstance(value, list) and all(isinstance(one, (int, float)) for one in value)
        )
        if plain and not name.startswith("_") and name not in COUNTERS:
            yield name, value
