"""Names objects with state that the script trains with and that the checkpoint of a resume does not hold.

Looked for are running statistics (mean, variance and count, as of observations) and objects with ``state_dict`` and
``load_state_dict``, reachable from the variables of the running functions; and modules of the model whose mean and
spread are plain tensors at 0 and 1, which no ``state_dict`` holds. They are read when the script saves,
when it loads, and at the first updates after a load. Nothing is kept alive: of a checkpoint only its keys are kept, of
an object a weak reference. Not here: whether the loss suffers (the detector unsaved-state).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from steadytrain.capture.snapshots.checkpoint_keys import CheckpointKeys
from steadytrain.capture.snapshots.stateful_objects import (
    Stateful,
    count_of,
    plain_statistics,
    restored_in_source,
    state_of,
    stateful_objects,
)
from steadytrain.capture.step.optimizer_streams import Stream

UPDATES_MAX = 4096
"""Updates after a load in which statistics must move: a rollout serves some hundred updates."""

FIRST_SHARE_MAX = 2.5
"""What fresh statistics counted before the first update, as a multiple of what they count next: they got one or two
rollouts. Statistics that were restored have counted far more."""

LOADS_MAX, FOUND_MAX = 8, 4
SURE, PERHAPS = 1.0, 0.5
"""A resume, since the optimizer was given its state; or a checkpoint that has no state of an optimizer."""


@dataclass
class _Moving:
    """Running statistics whose count is awaited to move."""

    name: str
    held: weakref.ref[Any]
    first: float
    sure: float
    warms_up: bool
    """It was new when the checkpoint was loaded, and no line of the script sets it."""


@dataclass(frozen=True)
class _Life:
    """An object as it was last seen: ``lived`` if it had a life before the load."""

    held: weakref.ref[Any]
    lived: bool
    state: tuple[Any, ...] = ()


class LeftOutStates:
    """Serves all optimizers of a process. After the first updates a step costs a comparison."""

    def __init__(self) -> None:
        self._keys: CheckpointKeys | None = None
        self._known: dict[int, _Life] = {}
        self._loads = 0
        self._moving: list[_Moving] = []
        self._updates = 0

    def saving(self) -> None:
        """The script saves: what is there now has a life before any later load."""
        self._see([_Life(weakref.ref(one.thing), True) for one in stateful_objects()])

    def checkpoint_given(self, checkpoint: Mapping[str, Any]) -> None:
        """A model is about to be given its part of ``checkpoint``."""
        if self._loads < LOADS_MAX:
            self._loads += 1
            found = [one for one in stateful_objects() if self._life(one.thing) is None]
            self._see([_Life(weakref.ref(one.thing), one.has_counted, state_of(one.thing)) for one in found])
            self._keys = CheckpointKeys(checkpoint)

    def loaded(self, module: nn.Module) -> None:
        """``module`` was given a state, and so were the statistics in it."""
        self._see([_Life(weakref.ref(one), True) for one in module.modules() if count_of(one) is not None])

    def _see(self, lives: list[_Life]) -> None:
        self._known = {key: one for key, one in self._known.items() if one.held() is not None}
        self._known |= {id(thing): one for one in lives if (thing := one.held()) is not None}

    def _life(self, thing: Any) -> _Life | None:
        known = self._known.get(id(thing))
        return known if known is not None and known.held() is thing else None

    def rows(self, stream: Stream, *, given: bool) -> Iterator[tuple[str, float]]:
        """At the gate of ``stream``, whose optimizer was ``given`` a state.

        ``left-out-statistics:NAME CLASS`` and ``left-out-state:NAME CLASS`` are 1 for each object that the checkpoint
        of this resume does not hold. It is 0.5 if the checkpoint has no state of an optimizer either, or if it is a
        module whose statistics are plain tensors.
        """
        if self._keys is not None and stream.own_steps == 0:
            keys, self._keys = self._keys, None
            if given or not keys.has_moments:
                yield from self._begun(keys, SURE if given else PERHAPS)
                yield from ((f"left-out-state:{name}", PERHAPS) for name in plain_statistics(stream.roots()))
        for one in list(self._moving):
            yield from self._moved(one)
        self._updates += bool(self._moving)
        if self._updates > UPDATES_MAX:
            self._moving, self._updates = [], 0

    def _begun(self, keys: CheckpointKeys, sure: float) -> Iterator[tuple[str, float]]:
        lives = [(one, self._life(one.thing)) for one in stateful_objects()]
        lives = [(one, life) for one, life in lives if life is None or not life.lived]
        names = {one.leaf for one, _ in lives}
        found = [(one, life) for one, life in lives if not keys.hold(one, names)]
        for one, life in found[:FOUND_MAX]:
            if one.is_statistics:
                warms_up = life is not None and not restored_in_source(one)
                first = count_of(one.thing) or 0.0
                self._moving.append(_Moving(_called(one), weakref.ref(one.thing), first, sure, warms_up))
            elif (life is not None and life.state == state_of(one.thing)) or not restored_in_source(one):
                yield f"left-out-state:{_called(one)}", sure

    def _moved(self, one: _Moving) -> Iterator[tuple[str, float]]:
        thing = one.held()
        count = count_of(thing) if thing is not None else None
        if count == one.first:
            return
        self._moving.remove(one)
        if count is not None and (one.warms_up or one.first <= FIRST_SHARE_MAX * (count - one.first)):
            yield f"left-out-statistics:{one.name}", one.sure


def _called(one: Stateful) -> str:
    return f"{one.name} {type(one.thing).__name__}"
