"""Finds objects with a state of their own among the variables of the script's running functions.

They are read without properties: an attribute is what ``__dict__`` holds. Frames are not kept.
"""

from __future__ import annotations

import functools
import linecache
import re
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import named_places
from steadytrain.capture.step.script_frames import is_of_script, running_frames, user_frames, variables_of
from steadytrain.core.torch_private import VERSION

OBJECTS_MAX, DEPTH_MAX, ENTRIES_MAX = 600, 4, 64
MEAN = re.compile(r"mean|avg|^_?mu$")
SPREAD = re.compile(r"var|std|m2|sq|^_?s$")
PLAIN_SPREAD = re.compile(r"var|std|scale|sigma|^_?s$")
VALUES_MAX = 4096
COUNT = re.compile(r"count|^_?(n|num|t|steps|total)(_\w+)?$")
COUNTED_MIN = 1.0
"""Above what a count begins with: 0, 1 or 1e-4."""

NUMBERS = (int, float, np.ndarray, np.generic, Tensor)
CLOSED = (str, bytes, *NUMBERS, type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
AVERAGE = re.compile(r"(?i)ema$|^ema|average")
SETTERS = r"load\w*|restore\w*|resume\w*|set_\w+|from_\w+|read\w*|__setstate__|__dict__"


@dataclass(frozen=True)
class Stateful:
    """One object, under the name by which a running function reaches it."""

    name: str
    thing: Any
    is_statistics: bool

    @property
    def leaf(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]

    @property
    def attributes(self) -> Mapping[str, Any]:
        return attributes_of(self.thing)

    @property
    def has_counted(self) -> bool:
        """Whether statistics have seen data."""
        return self.is_statistics and (count_of(self.thing) or 0.0) > COUNTED_MIN


def stateful_objects() -> list[Stateful]:
    """Those of this thread's functions, the innermost first; each once."""
    found: dict[int, Stateful] = {}
    seen: set[int] = set()
    for name, thing in _reached(seen):
        if id(thing) not in found and has_weak_references(type(thing)):
            statistics = count_of(thing) is not None
            if statistics or _keeps_state(thing):
                found[id(thing)] = Stateful(name, thing, statistics)
    return list(found.values())


def has_weak_references(kind: type) -> bool:
    offset: int = getattr(kind, "__weakrefoffset__", False)
    return offset != 0


def attributes_of(thing: Any) -> dict[str, Any]:
    """What ``thing`` holds under names; buffers of a module, too."""
    if isinstance(thing, functools.partial):
        return {}  # to ask for its ``__dict__`` makes one, which its pickle then shows
    try:
        held = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    if isinstance(thing, nn.Module):
        return {**held, **dict(thing.named_buffers(recurse=False))}
    return held if type(held) is dict else {}


def count_of(thing: Any) -> float | None:
    """The count of running statistics; None if ``thing`` has no mean, spread and count, or counts on a device."""
    numbers = {name: one for name, one in attributes_of(thing).items() if isinstance(one, NUMBERS)}
    counts = [one for name, one in numbers.items() if COUNT.search(name) and not isinstance(one, bool)]
    if not counts or not any(map(MEAN.search, numbers)) or not any(map(SPREAD.search, numbers)):
        return None
    count = counts[0]
    if isinstance(count, Tensor):
        return float(count) if count.numel() == 1 and count.device.type == "cpu" else None
    return float(np.asarray(count).item()) if np.size(count) == 1 else None


def state_of(thing: Any) -> tuple[Any, ...]:
    """The numbers of ``thing`` and, of its tensors, which ones they are: equal as long as nobody writes into them."""
    found: list[Any] = []
    if isinstance(thing, torch.amp.GradScaler):  # its first scaling writes what a load writes
        return (object(),)
    for name, one in attributes_of(thing).items():
        inside = list(one.values())[:ENTRIES_MAX] if isinstance(one, dict) else one if isinstance(one, list) else [one]
        found += [
            (name, id(each), VERSION.of(each)) if isinstance(each, Tensor) else (name, each)
            for each in inside[:ENTRIES_MAX]
            if isinstance(each, (int, float, Tensor))
        ]
    return tuple(found)


def plain_statistics(roots: Iterable[nn.Module]) -> Iterator[str]:
    """Path and class of each module whose mean and spread are plain tensors, and fresh: 0 and 1 everywhere."""
    for path, module in (place for root in roots for place in named_places(root)):
        plain = {
            name: one
            for name, one in vars(module).items()
            if type(one) is Tensor and one.is_floating_point() and 0 < one.numel() <= VALUES_MAX
        }
        means = [one for name, one in plain.items() if MEAN.search(name)]
        spreads = [one for name, one in plain.items() if PLAIN_SPREAD.search(name)]
        fresh = means and spreads and not any(bool(one.any()) for one in means)
        if fresh and all(bool((one == 1).all()) for one in spreads):
            yield f"{path or type(module).__name__} {type(module).__name__}"


def restored_in_source(one: Stateful) -> bool:
    """Whether the script sets what ``one`` holds from outside, as when it reads it from a file of its own."""
    leaf = re.escape(one.leaf.partition("[")[0])
    sets = re.compile(
        rf"\b{leaf}\.(?:{SETTERS})\b|\b{leaf}\.\w+\s*(?:,\s*\w+\.[\w.]+\s*)*=(?!=)|\b{leaf}\s*=[^=\n]*\bload"
    )
    files = {frame.code.co_filename for frame in user_frames() if is_of_script(frame.code.co_filename)}
    return any(sets.search("".join(linecache.getlines(file))) for file in files)


def _reached(seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Objects by the name that reaches them, breadth first from each function."""
    waiting: deque[tuple[str, Any, int]] = deque()
    for frame in running_frames():
        if is_of_script(frame.f_code.co_filename):
            waiting += [(name, one, 0) for name, one in variables_of(frame) if not name.startswith("__")]
    while waiting and len(seen) < OBJECTS_MAX:
        name, thing, depth = waiting.popleft()
        if isinstance(thing, CLOSED) or thing is None or id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, (dict, list, tuple)):
            inside = list(thing.items() if isinstance(thing, dict) else enumerate(thing))[:ENTRIES_MAX]
            if len(thing) <= ENTRIES_MAX:
                waiting += [(f"{name}[{key!r}]", one, depth + 1) for key, one in inside if depth < DEPTH_MAX]
            continue
        yield name, thing
        if depth < DEPTH_MAX and not isinstance(thing, (torch.optim.Optimizer, torch.utils.data.Dataset)):
            is_module = isinstance(thing, nn.Module)  # its parts are saved and loaded with it
            inner = [(key, one) for key, one in attributes_of(thing).items() if not (is_module and type(one) is dict)]
            waiting += [(f"{name}.{key}", one, depth + 1) for key, one in inner[:ENTRIES_MAX]]


def _keeps_state(thing: Any) -> bool:
    """Whether it is an object of the script with a state to save: no model, and nothing that holds model and
    optimizer."""
    if isinstance(thing, (nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)):
        return False
    if isinstance(thing, torch.amp.GradScaler):
        return thing.is_enabled()
    kind = type(thing)
    if not callable(getattr(kind, "state_dict", None)) or not callable(getattr(kind, "load_state_dict", None)):
        return False
    code = getattr(kind.load_state_dict, "__code__", None)
    if code is None or not (is_of_script(code.co_filename) or AVERAGE.search(kind.__name__)):
        return False
    held = list(attributes_of(thing).values())
    models = any(isinstance(one, nn.Module) for one in held)
    if models and any(isinstance(one, torch.optim.Optimizer) for one in held):
        return False
    tensors = any(isinstance(one, Tensor) or _holds_tensors(one) for one in held)
    return tensors or bool(AVERAGE.search(kind.__name__)) or (not models and any(map(_is_number, held)))


def _holds_tensors(one: Any) -> bool:
    values = list(one.values()) if isinstance(one, dict) else one if isinstance(one, list) else []
    return bool(values) and isinstance(values[0], Tensor) and not isinstance(values[0], nn.Parameter)


def _is_number(one: Any) -> bool:
    return isinstance(one, NUMBERS) and not isinstance(one, bool)
