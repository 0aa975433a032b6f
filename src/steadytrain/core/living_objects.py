"""The objects of a class in the process, found without touching those of other threads.

``gc.get_objects()`` also gives tuples that another thread is still filling. While such a list exists, that thread's
``tuple(generator)`` fails with a SystemError, because its tuple has a second reference. So the list is made and dropped
within one call into C, in which no other thread runs, and the objects are found through what refers to their class.
Before Python 3.12, a collection may begin within that call and run finalizers, so it waits.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def living(*kinds: type[Kind]) -> list[Kind]:
    """The objects of these classes and of those derived from them, judged by their type and not by ``__class__``.

    A class that is only registered with an abstract one is not derived from it. Takes about as long as two looks at
    all objects of the process, 50 ms each in a large one; see :func:`one_search`.
    """
    wanted = _derived(kinds)
    if _search.covers(kinds):
        return [thing for thing in _search.things() if id(type(thing)) in wanted]
    return _found(wanted)


def _found(wanted: dict[int, type]) -> list[Any]:
    waits = sys.version_info < (3, 12) and gc.isenabled()
    if waits:
        gc.disable()
    try:
        present = set(map(id, map(type, chain.from_iterable(map(gc.get_objects, (None,))))))  # one call: see above
    finally:
        if waits:
            gc.enable()
    classes = [wanted[one] for one in wanted.keys() & present]
    return [thing for thing in gc.get_referrers(*classes) if id(type(thing)) in wanted] if classes else []


def instances(*kinds: type[Kind]) -> list[Kind]:
    """The objects of these few classes, without those of derived ones. Takes a third of the time of :func:`living`."""
    if not kinds:
        return []
    wanted, known = set(map(id, kinds)), _search.held
    things = known if known is not None and _search.covers(kinds) else gc.get_referrers(*kinds)
    return [thing for thing in things if id(type(thing)) in wanted]


@contextmanager
def one_search(*kinds: type) -> Iterator[None]:
    """Within the block the process is searched once, and only if it is asked: for the objects of ``kinds``, from which
    :func:`living` and :func:`instances` of this thread then choose.

    No code of the script may run in the block: the objects that it makes would not be found, and those that it drops
    would stay.
    """
    outer = _search.kinds, _search.held
    _search.kinds, _search.held = kinds, None
    try:
        yield
    finally:
        _search.kinds, _search.held = outer


class _Search(threading.local):
    kinds: tuple[type, ...] = ()
    held: list[Any] | None = None

    def covers(self, kinds: tuple[type, ...]) -> bool:
        """Whether all of ``kinds`` are among those searched for, or derived from them."""
        return bool(self.kinds and kinds) and all(any(one in kind.__mro__ for one in self.kinds) for kind in kinds)

    def things(self) -> list[Any]:
        if self.held is None:
            self.held = _found(_derived(self.kinds))
        return self.held


_search = _Search()


def _derived(kinds: tuple[type, ...]) -> dict[int, type]:
    """The classes, and all below them, by their id: a metaclass may have a hash of its own."""
    found: dict[int, type] = {}
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        if id(kind) not in found:
            found[id(kind)] = kind
            waiting += type.__subclasses__(kind)
    return found
