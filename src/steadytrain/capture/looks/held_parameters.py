"""Finds parameters that receive gradients from a loss although no optimizer holds them.

Two looks compare the values of such a parameter. If it changed, the script updates it in another way (copies in
another precision, a manual update). Sharded parameters are skipped, because backward fills a gathered copy of what the
optimizer holds.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import (
    find_model,
    living_modules,
    living_optimizers,
    named_places,
    optimizer_parameters,
    plain_name,
)
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.torch_private import PARAMETERS

ROWS_MAX = 32
"""Parameter names per kind of row in one look."""

PARTS_MAX = 256
FROZEN_EVERY, CHANGES_MAX = 8, 4
"""Steps between two counts of what is frozen, and the most changes that are reported."""

OWN_ATTRIBUTES = frozenset(vars(nn.Module()))
"""What every module has: its registered modules lie there, too."""


def is_sharded(parameters: Sequence[Tensor]) -> bool:
    """Whether the optimizer holds shards of parameters."""
    return any(kind.__name__ in ("DTensor", "FlatParameter") for kind in set(map(type, parameters)))


class HeldParameters:
    """Serves one stream. Remembers the norms of the parameters outside every optimizer from the previous look."""

    def __init__(self) -> None:
        self._norms: dict[str, float] = {}
        self._frozen: dict[int, weakref.ref[nn.Parameter]] | None = None
        self._changes = self._thawed_before = 0

    def changed(self, stream: Stream, called: Iterable[nn.Module]) -> bool:
        """Whether a parameter of the models of ``stream``, or of those ``called`` for its step, that needed no gradient
        at its first step needs one now. Counted in every 8th step, and reported a few times."""
        if stream.own_steps % FROZEN_EVERY or self._changes >= CHANGES_MAX:
            return False
        if self._frozen is None:
            self._frozen = {id(one): weakref.ref(one) for one in _frozen_in([*stream.roots(), *called])}
            return False
        before, self._thawed_before = self._thawed_before, len(self._thawed())
        more = self._thawed_before > before
        self._changes += more
        return more

    def _thawed(self) -> set[int]:
        """The parameters, by id, that were frozen at first and are not any more."""
        known = (self._frozen or {}).items()
        return {key for key, there in known if (one := there()) is not None and one.requires_grad}

    def look(
        self, stream: Stream, streams: Iterable[Stream], filled: Mapping[int, nn.Parameter]
    ) -> Iterator[tuple[str, float]]:
        """Rows for the parameters that backward ``filled`` before a step of ``stream``.

        ``outside-optimizer:NAME`` is a parameter that no optimizer holds; its value is the share of the held
        parameters that precede it in the model. ``outside-share:model`` is the share of the filled elements that no
        optimizer holds. ``stranger:NAME`` is a parameter that the optimizer holds, that no module holds, and that
        backward does not fill. ``unregistered:CLASS.ATTRIBUTE`` is a plain list, tuple or dictionary of a module that
        holds modules with such parameters; its value is their number. ``thawed-outside:model`` counts those outside
        that needed no gradient when the optimizer took its first step. ``twin-optimizer:model`` counts other optimizers
        that hold exactly the parameters of this one. ``decay-groups:model`` is 1 if its groups differ in weight decay.
        """
        if is_sharded(stream.parameters):
            return
        known = list(streams)
        held = {id(one) for other in known for one in other.parameters}
        outside = [one for key, one in filled.items() if key not in held]
        if outside:
            held |= {id(one) for one in optimizer_parameters(living_optimizers())}
            outside = [one for one in outside if id(one) not in held]
        if not outside:
            self._norms = {}
            return
        order = _in_order(outside)
        inside = [at for at, (key, _) in enumerate(order) if key in held]
        norms = self._moved(order, {id(one): one for one in outside})
        stayed = [name for name, norm in norms.items() if self._norms.get(name) == norm]
        if any(name in self._norms for name in norms.keys() - set(stayed)):
            stayed = []  # the script updates them itself
        self._norms = norms
        places = {name: at for at, (_, name) in enumerate(order)}
        for name in stayed[:ROWS_MAX]:
            before = sum(at < places[name] for at in inside)
            yield f"outside-optimizer:{name}", before / len(inside) if inside else 1.0
        if stayed:
            total = sum(one.numel() for one in filled.values())
            yield "outside-share:model", sum(one.numel() for one in outside) / max(1, total)
            if thawed := self._thawed() & {id(one) for one in outside}:
                yield "thawed-outside:model", float(len(thawed))
            own = {id(one) for one in stream.parameters}
            twins = sum(other is not stream and {id(one) for one in other.parameters} == own for other in known)
            if twins:
                yield "twin-optimizer:model", float(twins)
            if any(map(_splits_by_decay, stream.optimizers)):
                yield "decay-groups:model", 1.0
            yield from self._strangers(stream, filled)
            yield from _unregistered(stream, {id(one) for one in outside})

    def _strangers(self, stream: Stream, filled: Mapping[int, nn.Parameter]) -> Iterator[tuple[str, float]]:
        known = {id(one) for module in living_modules() for one in PARAMETERS.of(module).values() if one is not None}
        for one, name in list(zip(stream.parameters, stream.tensor_names, strict=False)):
            if id(one) not in known and id(one) not in filled:
                yield f"stranger:{name}", 1.0

    def _moved(self, order: Sequence[tuple[int, str]], outside: Mapping[int, nn.Parameter]) -> dict[str, float]:
        named = [(name, outside[key]) for key, name in order if key in outside][: 2 * ROWS_MAX]
        if not named:
            return {}
        norms = torch.stack([one.detach().double().norm() for _, one in named])
        return dict(zip((name for name, _ in named), norms.tolist(), strict=True))


def _frozen_in(roots: Iterable[nn.Module]) -> list[nn.Parameter]:
    return [one for root in roots for one in root.parameters() if not one.requires_grad]


def _unregistered(stream: Stream, outside: set[int]) -> Iterator[tuple[str, float]]:
    for module in {id(one): one for root in stream.roots() for one in root.modules()}.values():
        for name, value in vars(module).items():
            if name in OWN_ATTRIBUTES or not isinstance(value, (list, tuple, dict)):
                continue
            parts = list(value.values() if isinstance(value, dict) else value)[:PARTS_MAX]
            parts = [one for one in parts if isinstance(one, nn.Module)]
            if any(id(parameter) in outside for one in parts for parameter in one.parameters()):
                yield f"unregistered:{type(module).__name__}.{name}", float(len(parts))


def _in_order(parameters: Sequence[Tensor]) -> list[tuple[int, str]]:
    """Id and name of each parameter of the models that hold ``parameters``, in model order, without duplicates."""
    model = find_model(parameters)
    found: dict[int, str] = {}
    for root in model.roots:
        lead = f"{type(root).__name__}." if len(model.roots) > 1 else ""
        for path, module in named_places(root):
            for name, one in PARAMETERS.of(module).items():
                if one is not None:
                    found.setdefault(id(one), lead + plain_name(f"{path}.{name}" if path else name))
    return list(found.items())


def _splits_by_decay(optimizer: torch.optim.Optimizer) -> bool:
    """Whether groups of one rate sort the parameters into those with weight decay and those without."""
    groups = [
        one for one in optimizer.param_groups if one["params"] and isinstance(one.get("weight_decay"), float | int)
    ]
    rates = {float(one["lr"]) for one in groups if "lr" in one}
    return len(rates) == 1 and {bool(one["weight_decay"]) for one in groups} == {True, False}
