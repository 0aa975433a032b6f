"""Tensors of a checkpoint that a load passed over, and moments at the wrong parameter, until the next update.

Each load is compared with what it was given. What a later load, or a write into the tensor, mends before the next
update is dropped. Not here: whether it is a fault (the detectors unloaded-weights and incomplete-resume).
"""

from __future__ import annotations

import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.core.torch_private import VERSION

Shapes = Mapping[str, tuple[tuple[int, ...], torch.dtype]]
Parts = tuple[str, ...]
Renaming = tuple[Parts, Parts]
"""Parts of a name in the model, and what stands for them in the checkpoint."""

SAMPLED_MAX = 16
"""Missing tensors that are compared with all of the checkpoint to find how the names differ."""

RENAMINGS_MAX = 4
PENDING_MAX = 32
NAME_CHARACTERS_MAX = 60


@dataclass(frozen=True)
class _Passed:
    """One load of a model that passed tensors over; ``renamed`` holds those with another name in the checkpoint."""

    place: str
    given: int
    unexpected: int
    renamed: Sequence[tuple[weakref.ref[Tensor], int]]
    rest: Sequence[tuple[weakref.ref[Tensor], int]]
    whole: bool
    at_end: bool
    tensors: int


class LostLoads:
    """Keeps what loads passed over; ``rows`` gives it once, at the gate of the next update."""

    def __init__(self) -> None:
        self._passed: list[_Passed] = []
        self._moments: list[Callable[[], dict[str, float]]] = []

    def model(self, module: nn.Module, own: Mapping[str, Tensor], given: Shapes, lost: Sequence[Sequence[str]]) -> None:
        """``module`` with the tensors ``own`` was given ``given``; ``lost`` holds missing and unexpected names."""
        missing, unexpected = lost
        restored = {id(tensor) for name, tensor in own.items() if name in given}
        self._passed = [_without(one, restored) for one in self._passed][-PENDING_MAX:]
        listed = [name for name in unexpected if name in given]
        # Of a whole checkpoint only the outermost keys are unexpected.
        unexpected = listed or [name for name in given if unexpected and not restored]
        left = [name for name in missing if name in own]
        if not unexpected or not left:
            return
        theirs = {name: given[name][0] for name in unexpected}
        pairs = other_names({name: tuple(own[name].shape) for name in left}, theirs)
        order = {name: at for at, name in enumerate(own)}
        kept = [order[name] for name in own if name not in left]
        pair = next(iter(pairs.items()), ("", ""))
        how = f" ({pair[1][-NAME_CHARACTERS_MAX:]} for {pair[0][-NAME_CHARACTERS_MAX:]})" if pairs else ""
        self._passed.append(
            _Passed(
                place=type(module).__qualname__ + how,
                given=len(given),
                unexpected=len(unexpected),
                renamed=[_held(own[name]) for name in pairs],
                rest=[_held(own[name]) for name in left if name not in pairs],
                whole=len(unexpected) == len(given),
                at_end=bool(kept) and all(order[name] > max(kept) for name in pairs),
                tensors=len(own),
            )
        )

    def optimizer(self, optimizer: torch.optim.Optimizer, reshaped: int, given: Mapping[str, Any]) -> None:
        """``optimizer`` took moments, ``reshaped`` of which have another shape than their parameter."""
        theirs, own = given["named"], given["own_names"]
        swapped = sum(one != other and one in set(own) for one, other in zip(theirs, own, strict=False))
        self._moments = []  # a new load replaces all moments
        exchanged = _exchanged(given.get("settings", ()), optimizer.param_groups)
        if reshaped or swapped or exchanged:
            name = type(optimizer).__qualname__
            found = {f"moments-reshaped:{name}": float(reshaped), f"moments-swapped:{name}": float(swapped)}
            found[f"groups-exchanged:{name}"] = float(exchanged)
            held = weakref.ref(optimizer)
            self._moments.append(lambda: found if (one := held()) is not None and one.state else {})

    def rows(self) -> Iterator[tuple[str, float]]:
        """What is still lost.

        For each place, a class with an example of the names: ``renamed-tensors`` (tensors of the model that the
        checkpoint has under another name), ``unloaded`` (tensors of the checkpoint that were not loaded),
        ``checkpoint-tensors`` (all of them), ``model-tensors``, and ``only-head`` (1 where what was not loaded stands
        behind all that was). ``moments-reshaped`` and ``moments-swapped`` count moments of an optimizer,
        ``groups-exchanged`` its groups with the settings that another one had before.
        """
        passed, self._passed = self._passed, []
        moments, self._moments = self._moments, []
        for one in passed:
            renamed = sum(_untouched(*held) for held in one.renamed)
            if renamed or (one.whole and one.rest and all(_untouched(*held) for held in one.rest)):
                yield f"renamed-tensors:{one.place}", float(renamed)
                yield f"unloaded:{one.place}", float(one.unexpected)
                yield f"checkpoint-tensors:{one.place}", float(one.given)
                yield f"model-tensors:{one.place}", float(one.tensors)
                yield f"only-head:{one.place}", float(one.at_end)
        for found in moments:
            yield from found().items()


def _exchanged(before: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]) -> int:
    """How many groups got the settings that another one had, where a load gave the same settings in another order."""
    first, now = ([_chosen(one) for one in each] for each in (before, groups))
    if len(first) != len(now) or first == now or sorted(first) != sorted(now):
        return 0
    return sum(one != other for one, other in zip(first, now, strict=True))


def _chosen(group: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings that a script chooses by group; the rate as it was before a schedule."""
    rate = group.get("initial_lr", group.get("lr"))
    return tuple(str(one) for one in (rate, group.get("weight_decay"), group.get("momentum"), group.get("betas")))


def inner_state(state: Mapping[Any, Any]) -> Mapping[str, Tensor]:
    """The largest mapping of names to tensors inside ``state``, with ``state``'s key before each name; else empty."""
    found: Mapping[str, Tensor] = {}
    for key, value in state.items():
        if isinstance(value, Mapping):
            named = {f"{key}.{name}": one for name, one in value.items() if isinstance(one, Tensor)}
            found = named if len(named) > len(found) else found
    return found


def other_names(missing: Mapping[str, tuple[int, ...]], theirs: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """For tensors of the model that are ``missing``, the name in ``theirs`` that differs by one renaming.

    Both map names to shapes. The names end alike and the shapes are equal; a few renamings explain all pairs.
    """
    by_end: dict[tuple[str, tuple[int, ...]], list[Parts]] = defaultdict(list)
    for name, shape in theirs.items():
        parts = tuple(name.split("."))
        by_end[parts[-1], shape].append(parts)
    tally: Counter[Renaming] = Counter()
    names = list(missing)
    for name in names[:: -(-len(names) // SAMPLED_MAX) or 1]:
        parts = tuple(name.split("."))
        near = [_difference(parts, other) for other in by_end.get((parts[-1], missing[name]), ())]
        if near:
            least = min(len(ours) + len(other) for ours, other in near)
            tally.update({one for one in near if len(one[0]) + len(one[1]) == least})
    found: dict[str, str] = {}
    used: set[str] = set()
    for (ours, other), (name, shape) in product([one for one, _ in tally.most_common(RENAMINGS_MAX)], missing.items()):
        if name not in found:
            for renamed in _renamed(name, ours, other):
                if renamed not in used and theirs.get(renamed) == shape:
                    found[name] = renamed
                    used.add(renamed)
                    break
    return found


def _difference(ours: Parts, theirs: Parts) -> Renaming:
    """What is left of both without their common end and beginning."""
    end = 0
    while end < min(len(ours), len(theirs)) and ours[-1 - end] == theirs[-1 - end]:
        end += 1
    ours, theirs = ours[: len(ours) - end], theirs[: len(theirs) - end]
    start = 0
    while start < min(len(ours), len(theirs)) and ours[start] == theirs[start]:
        start += 1
    return ours[start:], theirs[start:]


def _renamed(name: str, ours: Parts, theirs: Parts) -> Iterator[str]:
    parts = tuple(name.split("."))
    for at in range(len(parts) - len(ours)):
        if parts[at : at + len(ours)] == ours:
            yield ".".join((*parts[:at], *theirs, *parts[at + len(ours) :]))


def _held(tensor: Tensor) -> tuple[weakref.ref[Tensor], int]:
    return weakref.ref(tensor), VERSION.of(tensor)


def _untouched(held: weakref.ref[Tensor], version: int) -> bool:
    """Whether the tensor is there and nothing was written into it."""
    tensor = held()
    return tensor is not None and VERSION.of(tensor) == version


def _without(one: _Passed, restored: set[int]) -> _Passed:
    """``one`` without the tensors that a later load ``restored``."""
    renamed, rest = (
        [held for held in all_held if id(held[0]()) not in restored] for all_held in (one.renamed, one.rest)
    )
    return replace(one, renamed=renamed, rest=rest)
