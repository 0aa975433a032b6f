"""Compares what the script loads into model and optimizers with the given state, and fingerprints what it saves.

``load_state_dict`` may lose state without a message: tensors that ``strict=False`` skips, moments of another shape,
moments rounded to the weights' dtype, parameters in another order. Each load becomes one entry of the fact ``loads``.
If something was lost, a note reports it. Nothing is changed and no load is stopped. A script that saves a checkpoint
first reads an optimizer's state dict; then a fingerprint (``state_fingerprints.py``) is written, at most so often that
all fingerprints together cost a hundredth of the time.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.hooks.model_discovery import (
    find_model,
    named_tensors,
    optimizer_parameters,
    plain_name,
)
from steadytrain.capture.snapshots.lost_loads import LostLoads, inner_state
from steadytrain.capture.snapshots.own_states import OwnStates
from steadytrain.capture.snapshots.replaced_weights import ReplacedWeights
from steadytrain.capture.snapshots.resumed_states import ResumedStates
from steadytrain.capture.snapshots.scaled_loads import ScaledLoads
from steadytrain.capture.snapshots.state_fingerprints import card
from steadytrain.compare.checkpoint_contents import plain_state
from steadytrain.core.living_objects import living
from steadytrain.core.torch_private import INNER_SCHEDULERS
from steadytrain.storage.bundle import write_json

LOADS_MAX = 32
"""Loads kept in the fact, which bounds the disk use of a script that loads in a loop."""

NAMES_MAX = 16
CARDS_MAX = 8
"""Fingerprints kept, the newest: as many as there usually are checkpoints."""

CARD_SHARE_MAX = 0.01
"""The share of the time that fingerprints may take."""

CARDS_FOLDER = "saved"
SHAPED_LIKE_PARAMETER = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg", "sum")
SETTINGS_THAT_STAY = ("betas", "eps", "weight_decay", "momentum", "nesterov", "amsgrad", "alpha", "rho", "dampening")
"""Settings that no schedule changes: a load that changes them changes the training."""

CYCLE_MARK = "base_momentum"
"""Keys that OneCycleLR and CyclicLR add to a group whose momentum, or first beta, they change."""

KEEP_NO_STATE = ("SGD",)
"""Optimizers for which an empty state is normal."""


class StateEvents(Protocol):
    """The watcher's methods that the wrappers call."""

    def load_watch(self) -> LoadedStates | None: ...
    def saving(self, optimizer: torch.optim.Optimizer) -> None: ...


def state_wrappers(events: StateEvents, guard: Guard) -> Iterator[tuple[type, str, Callable[..., Any]]]:
    """The replacements of ``load_state_dict`` and ``state_dict``: owner, name, wrapper. Errors of ours stop at
    ``guard``."""
    load_model, load_optimizer = nn.Module.load_state_dict, torch.optim.Optimizer.load_state_dict
    ask_optimizer = torch.optim.Optimizer.state_dict

    @functools.wraps(load_model)
    def model_loads(self: nn.Module, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        watch = events.load_watch()
        given = guard.wrap(watch.model_given)(state_dict) if watch is not None else None
        if watch is not None:
            guard.wrap(watch.own.load_begins)(self, state_dict)
            guard.wrap(watch.replaced.load_begins)(self)
            guard.wrap(watch.scaled.load_begins)(self, state_dict)
        result = load_model(self, state_dict, *args, **kwargs)
        if watch is not None and given is not None:
            guard.wrap(watch.model_loaded)(self, given, result)
        return result

    @functools.wraps(load_optimizer)
    def optimizer_loads(self: torch.optim.Optimizer, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        watch = events.load_watch()
        given = guard.wrap(watch.optimizer_given)(self, state_dict) if watch is not None else None
        result = load_optimizer(self, state_dict, *args, **kwargs)
        if watch is not None and given is not None:
            guard.wrap(watch.optimizer_loaded)(self, given)
        return result

    @functools.wraps(ask_optimizer)
    def optimizer_state(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        watch = events.load_watch()
        if watch is not None:
            guard.wrap(watch.state_asked)(self)
            events.saving(self)
        return ask_optimizer(self, *args, **kwargs)

    yield nn.Module, "load_state_dict", model_loads
    yield torch.optim.Optimizer, "load_state_dict", optimizer_loads
    yield torch.optim.Optimizer, "state_dict", optimizer_state


Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


class LoadedStates:
    """Records loads. An error of our own is reported once and does not affect the script's call."""

    def __init__(
        self,
        guard: Guard,
        note: Callable[[str], None],
        set_fact: Callable[[str, Any], None],
        loaded: Callable[[], None] = lambda: None,
    ) -> None:
        self._guard = guard
        self._note = note
        self._set_fact = set_fact
        self._loaded = loaded
        self.lost, self.resumed, self.replaced = LostLoads(), ResumedStates(), ReplacedWeights()
        self.own, self.scaled = OwnStates(), ScaledLoads()
        self._loads: list[dict[str, Any]] = []
        self._card_cost_s = 0.0
        self._card_ended: float | None = None
        self._asked_while_empty: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    # -- models ----------------------------------------------------------------------------------------------------

    def model_given(self, state: Any) -> Shapes | None:
        """Shapes and dtypes of the state that a model is about to load."""
        given: Shapes = {}
        with self._guard.part("looking at what is loaded"):
            self.resumed.model_given(state)
            for name, value in state.items() if isinstance(state, Mapping) else ():
                if isinstance(value, Tensor):
                    given[str(name)] = (tuple(value.shape), value.dtype)
            if not given and isinstance(state, Mapping):  # a whole checkpoint in place of the model's part of it
                given = {name: (tuple(one.shape), one.dtype) for name, one in inner_state(state).items()}
        return given or None

    def model_loaded(self, module: nn.Module, given: Shapes, result: Any) -> None:
        with self._guard.part("looking at what was loaded"):
            # Does not call state_dict, which may gather shards from other ranks.
            tensors = dict(named_tensors(module))
            missing = [str(name) for name in getattr(result, "missing_keys", ())]
            unexpected = [str(name) for name in getattr(result, "unexpected_keys", ())]
            restored = {tensor.data_ptr() for name, tensor in tensors.items() if name in given and tensor.numel()}
            # A tied weight may be present under another name.
            missing = [name for name in missing if name not in tensors or tensors[name].data_ptr() not in restored]
            cast = [
                name
                for name, (_, dtype) in given.items()
                if name in tensors and tensors[name].dtype != dtype and tensors[name].is_floating_point()
            ]
            reshaped = [name for name, (shape, _) in given.items() if name in tensors and tensors[name].shape != shape]
            self.resumed.model_loaded(module, whole=not missing)
            self.lost.model(module, tensors, given, (missing, unexpected))
            entry = {
                "what": "model",
                "class": type(module).__qualname__,
                "given": len(given),
                "restored": len([name for name in given if name in tensors]),
                **_listed(missing=missing, unexpected=unexpected, reshaped=reshaped, cast=cast),
            }
            # Loading an adapter, or one part of the model, leaves the rest unchanged: that is no loss.
            lost = []
            if missing and len(missing) * 2 < len(tensors):
                lost.append(f"{_named(missing)} not in the loaded state, so it keeps its initial value")
            narrowed = [name for name in cast if _narrower(tensors[name].dtype, given[name][1])]
            if narrowed:
                lost.append(f"{_named(narrowed)} rounded from {_word(given[narrowed[0]][1])}")
            self._add(entry, f"the weights of {type(module).__name__}", lost)

    # -- optimizers ------------------------------------------------------------------------------------------------

    def optimizer_given(self, optimizer: torch.optim.Optimizer, state: Any) -> dict[str, Any] | None:
        """Shapes, dtypes and settings of the state that an optimizer is about to load, by parameter position."""
        given: dict[str, Any] | None = None
        with self._guard.part("looking at what is loaded"):
            if not isinstance(state, Mapping) or "state" not in state or "param_groups" not in state:
                return None
            self.resumed.optimizer_given(optimizer, state)
            keys = [key for group in state["param_groups"] for key in group["params"]]
            moments: list[Shapes] = []
            for key in keys:
                entries = state["state"].get(key, {})
                tensors = entries.items() if isinstance(entries, Mapping) else ()
                moments.append({n: (tuple(v.shape), v.dtype) for n, v in tensors if isinstance(v, Tensor)})
            given = {
                "moments": moments,
                "named": [name for group in state["param_groups"] for name in group.get("param_names") or ()],
                "own_names": [name for group in optimizer.param_groups for name in group.get("param_names") or ()],
                "settings": [_settings(group) for group in optimizer.param_groups],
            }
        return given  # noqa: RET504 (a guarded part may end without it)

    def state_asked(self, optimizer: torch.optim.Optimizer) -> None:
        """Remember optimizers whose state was read while empty: Accelerate reads it and loads it back at once."""
        with self._guard.part("looking at what is saved"):
            if not optimizer.state:
                self._asked_while_empty.add(optimizer)

    def optimizer_loaded(self, optimizer: torch.optim.Optimizer, given: dict[str, Any]) -> None:
        with self._guard.part("looking at what was loaded"):
            if optimizer in self._asked_while_empty and not any(given["moments"]):
                self._asked_while_empty.discard(optimizer)
                return
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            names = _names(optimizer)
            called = [names.get(id(parameter), f"parameter.{at}") for at, parameter in enumerate(parameters)]
            moments: list[Shapes] = given["moments"]
            missing = [name for name, held in zip(called, moments, strict=False) if not held]
            kinds = {moment for held in moments for moment in held}
            partly = [
                f"{name}/{moment}"
                for name, held in zip(called, moments, strict=False)
                if held
                for moment in sorted(kinds - set(held))
            ]
            reshaped, cast = [], []
            for name, parameter, held in zip(called, parameters, moments, strict=False):
                now = optimizer.state.get(parameter, {})
                for moment, (shape, dtype) in held.items():
                    if moment in SHAPED_LIKE_PARAMETER and shape != parameter.shape:
                        reshaped.append(f"{name}/{moment}")
                    if isinstance(now.get(moment), Tensor) and _narrower(now[moment].dtype, dtype):
                        cast.append(f"{name}/{moment}")
            swapped = [
                f"{theirs} into {own}"
                for theirs, own in zip(given["named"], given["own_names"], strict=False)
                if theirs != own
            ]
            self.lost.optimizer(optimizer, len(reshaped), given)
            self.replaced.optimizer_loaded()
            changed = _changed(given["settings"], [_settings(group) for group in optimizer.param_groups])
            entry = {
                "what": "optimizer",
                "class": type(optimizer).__qualname__,
                "given": len([held for held in moments if held]),
                "restored": len([parameter for parameter in parameters if optimizer.state.get(parameter)]),
                "settings": changed,
                **_listed(missing=[*missing, *partly], reshaped=reshaped, cast=cast, swapped=swapped),
            }
            self._add(entry, f"the state of {type(optimizer).__name__}", self._lost(optimizer, entry, missing, moments))

    def _lost(
        self, optimizer: torch.optim.Optimizer, entry: Mapping[str, Any], missing: list[str], moments: list[Shapes]
    ) -> list[str]:
        lost = []
        if missing and (len(missing) < len(moments) or type(optimizer).__name__ not in KEEP_NO_STATE):
            none = len(missing) == len(moments)
            lost.append(f"{'no moments at all' if none else 'no moments of ' + _named(missing)}: they begin at zero")
        if len(entry["missing"]) > len(missing):
            lost.append(f"{_named(entry['missing'][len(missing) :])} not given")
        if entry["reshaped"]:
            lost.append(f"moments of {_named(entry['reshaped'])} have another shape: the parameters' order changed")
        if entry["swapped"]:
            lost.append(f"parameters in another order ({_named(entry['swapped'])})")
        if entry["cast"]:
            lost.append(f"{_named(entry['cast'])} rounded to the parameters' dtype")
        lost += [f"{name} {before} became {after}" for name, before, after in _that_stay(entry["settings"], optimizer)]
        return lost

    # -- saving ----------------------------------------------------------------------------------------------------

    def save(
        self,
        folder: Path,
        *,
        run: str,
        step: int,
        roots: list[nn.Module],
        optimizer: torch.optim.Optimizer,
        names: Mapping[int, str],
        scaler: Any,
    ) -> None:
        """Write a fingerprint of the current state, unless fingerprints have used up their share of the time."""
        began = time.perf_counter()
        if self._card_ended is not None and began - self._card_ended < self._card_cost_s / CARD_SHARE_MAX:
            return
        held = card(
            source=f"{run} at step {step}",
            step=step,
            roots=roots,
            optimizer=optimizer,
            names=names,
            schedulers=schedulers_of(optimizer),
            scaler=scaler,
            position={"step": step},
        )
        place = folder / CARDS_FOLDER
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / f"step-{step:08d}.json", held.to_json())
        for old in sorted(place.glob("step-*.json"))[:-CARDS_MAX]:
            old.unlink(missing_ok=True)
        self._card_ended = time.perf_counter()
        self._card_cost_s = self._card_ended - began

    def _add(self, entry: dict[str, Any], what: str, lost: list[str]) -> None:
        self._loaded()
        if len(self._loads) < LOADS_MAX:
            self._loads.append({**entry, "lost": lost})
            self._set_fact("loads", self._loads)
        if lost:
            self._note(f"loading {what} lost something: {'; '.join(lost)}")


def _names(optimizer: torch.optim.Optimizer) -> dict[int, str]:
    parameters = optimizer_parameters([optimizer])
    return {key: plain_name(name) for key, name in find_model(parameters).names.items()}


def schedulers_of(optimizer: torch.optim.Optimizer) -> list[Any]:
    """The schedulers of this optimizer, found among the garbage collector's objects: a script need not pass them."""
    found = living(LRScheduler)
    mine = [thing for thing in found if moves(getattr(thing, "optimizer", None), optimizer)]
    inner = {id(part) for thing in mine for part in INNER_SCHEDULERS.on(thing, ())}
    return [thing for thing in mine if id(thing) not in inner]


def moves(owner: Any, optimizer: torch.optim.Optimizer) -> bool:
    """Whether a scheduler's optimizer is this one, or a wrapper of it, as in Accelerate."""
    return owner is optimizer or (owner is not None and getattr(owner, "optimizer", None) is optimizer)


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return plain_state(group, without=("params", "param_names"))


def _changed(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[list[Any]]:
    """Settings that the load replaced: group, name, the script's value, the current value."""
    return [
        [number, name, old[name], value]
        for number, (old, new) in enumerate(zip(before, after, strict=False))
        for name, value in new.items()
        if name in old and old[name] != value
    ][:NAMES_MAX]


def _that_stay(changed: list[list[Any]], optimizer: torch.optim.Optimizer) -> list[tuple[str, Any, Any]]:
    """The settings that a load replaced although no schedule changes them."""
    cycled = [CYCLE_MARK in group for group in optimizer.param_groups]
    found = {
        (name, str(before), str(after))
        for number, name, before, after in changed
        if name in SETTINGS_THAT_STAY and not (cycled[number] and _of_momentum(name, before, after))
    }
    return sorted(found)


def _of_momentum(name: str, before: Any, after: Any) -> bool:
    """Whether a momentum schedule explains this difference: it changes momentum or Adam's first beta."""
    return name == "momentum" or (name == "betas" and list(before)[1:] == list(after)[1:])


def _listed(**names: list[str]) -> dict[str, Any]:
    """Lists of names cut to a bound, with the total number of longer ones."""
    found: dict[str, Any] = {}
    for what, listed in names.items():
        found[what] = listed[:NAMES_MAX]
        if len(listed) > NAMES_MAX:
            found[f"{what}_count"] = len(listed)
    return found


def _named(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _narrower(dtype: torch.dtype, given: torch.dtype) -> bool:
    """Whether values of ``given`` may not fit ``dtype``."""
    if dtype == given or not dtype.is_floating_point or not given.is_floating_point:
        return False
    here, there = torch.finfo(dtype), torch.finfo(given)
    return here.eps > there.eps or here.max < there.max
