"""Finds updates that no ``torch.optim`` optimizer makes, and guards those whose call can be caught.

While a run has no stream, each backward is followed by a look: known frameworks (:data:`FRAMEWORKS`) and plain objects
with a method of :data:`METHODS` that hold the parameters get their method wrapped. Other updates are made by hand
(``hand_updates``). A run with a ``torch.optim`` optimizer has a stream after its first update, and from then on nothing
here runs.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.manual_updates import HandWritten, UpdateByHand
from steadytrain.capture.step.hand_updates import HandUpdates
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.core.own_errors import unless_it_fails

if TYPE_CHECKING:
    from steadytrain.capture.step.watcher import Watcher

METHODS = ("step", "apply_gradients")
LOOKS_MAX = 3
"""Searches for objects that hold the parameters; an optimizer may be made after the first backward."""

CONTAINER_DEPTH, CONTAINER_ITEMS = 4, 4096
STAND_INS_MAX = 16


@dataclass(frozen=True)
class Framework:
    """An optimizer class of a framework, and the method that makes the update."""

    module: str
    name: str
    method: str


FRAMEWORKS = (
    Framework("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"),
    Framework("fastai.optimizer", "Optimizer", "step"),
)


class ForeignOptimizers:
    """Serves one watcher. :meth:`remove` takes back every wrapper."""

    def __init__(self, run: LiveRun, watcher: Watcher) -> None:
        self._run = run
        self._watcher = watcher
        self._undo: list[Callable[[], None]] = []
        self._wrapped: set[tuple[type, str]] = set()
        self._held: dict[int, tuple[Any, HandWritten]] = {}
        self._looks = 0
        self.hand = HandUpdates(run, watcher)
        self._inside = False

    def backward_begins(self, roots: Sequence[Tensor], *, accumulates: bool) -> None:
        """A backward begins, and no optimizer of ``torch.optim`` has made a step."""
        if self.hand.is_off:
            return
        if self._is_over():
            self.trained()
        else:
            self.hand.backward_begins(roots, accumulates=accumulates)

    def backward_ended(self) -> None:
        """A backward has ended. An update by hand begins here, so it may raise :class:`RunStopped`."""
        if self.hand.is_off or self._is_over():
            return
        if self._looks < LOOKS_MAX and not self._run.streams and self._made() is None:
            self._looks += 1
            with self._run.own_time, self._run.guard.part("looking for optimizers of frameworks"):
                self._wrap_frameworks()
                self._wrap_holders()
        self.hand.backward_ended()

    def look(self) -> None:
        """The script does something that may follow an update by hand."""
        if not self.hand.is_off and not self._is_over():
            with self._run.own_time, self._run.guard.part("looking for updates by hand"):
                self.hand.look()

    def gradients_zeroed(self, *, between_passes: bool) -> None:
        """``between_passes``: by an optimizer that has moved the weights to begin a second pass there, as SAM does."""
        if between_passes:
            self.state_loaded()
        elif not self.hand.is_off and not self._is_over():
            with self._run.own_time, self._run.guard.part("looking for updates by hand"):
                self.hand.gradients_zeroed()

    def close(self) -> None:
        """The script is over."""
        if not self.hand.is_off and not self._is_over():
            self.hand.close()

    def _is_over(self) -> bool:
        """Whether another one makes the updates: an optimizer, or the script with ``watch.update()``."""
        return any(not isinstance(one, UpdateByHand) for stream in self._run.streams for one in stream.optimizers)

    def _made(self) -> torch.optim.Optimizer | None:
        made = self._run.made()
        return None if isinstance(made, HandWritten) else made

    def state_loaded(self) -> None:
        """The script has loaded a state, or moved the weights for a while: this was no update."""
        if not self.hand.is_off:
            self.hand.state_loaded()

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._held.clear()
        self.trained()

    def trained(self) -> None:
        """The run has a stream, or ends: hold nothing of the script's."""
        if not self.hand.is_off:
            self.hand.stop()

    # -- what is wrapped -------------------------------------------------------------------------------------------

    def _wrap_frameworks(self) -> None:
        for one in FRAMEWORKS:
            owner = getattr(sys.modules.get(one.module), one.name, None)
            if isinstance(owner, type):
                self._wrap(owner, one.method)

    def _wrap_holders(self) -> None:
        """Wrap the methods of plain objects that hold the parameters and do not run this backward themselves."""
        wanted = {id(one) for one in self.hand.leaves}
        if not wanted:
            return
        running = _running()
        methods: dict[type, str | None] = {}
        for one in gc.get_objects():
            kind = type(one)
            if kind not in methods:
                methods[kind] = _method_of(kind)
            name = methods[kind]
            if name is None or not any(id(held) in wanted for held in _tensors(_fields(one), CONTAINER_DEPTH)):
                continue
            owner = next(base for base in kind.__mro__ if name in vars(base))
            if getattr(vars(owner)[name], "__code__", None) not in running:
                self._wrap(owner, name)

    def _wrap(self, owner: type, name: str) -> None:
        original = vars(owner).get(name)
        if original is None or not callable(original) or (owner, name) in self._wrapped:
            return
        self._wrapped.add((owner, name))

        @functools.wraps(original)
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            with self._around(optimizer):
                return original(optimizer, *args, **kwargs)

        def undo() -> None:
            if vars(owner).get(name) is step:  # other code may have wrapped our wrapper since
                setattr(owner, name, original)

        with suppress(AttributeError, TypeError):  # a class that takes no attributes stays unwrapped
            setattr(owner, name, step)
            self._undo.append(undo)

    @contextmanager
    def _around(self, optimizer: Any) -> Iterator[None]:
        """The gate before the update, and the end of the step after it."""
        run, watcher, stand_in = self._run, self._watcher, None
        if self._inside or not run.is_script() or torch.compiler.is_compiling():
            yield
            return
        self._inside = True
        try:
            with run.guard.part("the gate"):
                stand_in = self._stand_in(optimizer)
                if stand_in is not None:
                    stand_in.param_groups[0]["lr"] = _rate(optimizer)
                    watcher.step_begins(stand_in, (stand_in,), {})
            yield
            with run.guard.part("recording a step"):
                if stand_in is not None:
                    watcher.step_ends(stand_in, (stand_in,), {})
        finally:
            self._inside = False

    def _stand_in(self, optimizer: Any) -> HandWritten | None:
        """The placeholder of ``optimizer``; None if it has no gradients to apply, or the weights changed already."""
        kept = self._held.get(id(optimizer))
        if kept is not None:
            return kept[1]
        held = {id(one): one for one in _tensors(_fields(optimizer), CONTAINER_DEPTH)}
        known = self.hand.leaves
        parameters = [one for one in known if id(one) in held] or known
        parameters = parameters or [one for one in held.values() if one.is_leaf and one.requires_grad]
        if not any(one.grad is not None for one in parameters) or len(self._held) >= STAND_INS_MAX:
            return None
        if not self._run.streams and self.hand.changed:
            return None  # something else made the update; the next backward reports it
        stand_in = HandWritten(parameters)
        self._held[id(optimizer)] = (optimizer, stand_in)
        self._run.recorder.set_fact(
            "optimizers_not_of_torch", sorted({_name(type(one)) for one, _ in self._held.values()})
        )
        return stand_in


def _method_of(kind: type) -> str | None:
    """The method by which instances of ``kind`` may update parameters."""
    module = getattr(kind, "__module__", None)
    if not isinstance(module, str) or module.split(".")[0] in ("torch", "steadytrain", "builtins"):
        return None
    if issubclass(kind, (type, nn.Module, torch.optim.Optimizer, Tensor)):
        return None
    bodies = [vars(base) for base in kind.__mro__]
    for name in METHODS:
        body = next((body[name] for body in bodies if name in body), None)
        if hasattr(body, "__code__"):
            return name
    return None


def _fields(one: Any) -> Any:
    try:
        return object.__getattribute__(one, "__dict__")
    except AttributeError:
        return {}


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    """The tensors in plain containers; no attribute of an object is read."""
    if isinstance(value, Tensor):
        yield value
    elif depth and type(value) in (dict, list, tuple):
        items: Iterable[Any] = value.values() if type(value) is dict else value
        for item in list(items)[:CONTAINER_ITEMS]:
            yield from _tensors(item, depth - 1)


def _running() -> set[Any]:
    frame, codes = sys._getframe(), set()
    above: Any = frame
    while above is not None:
        codes.add(above.f_code)
        above = above.f_back
    return codes


def _rate(optimizer: Any) -> float | None:
    """The learning rate where the object says it in a usual way."""
    with unless_it_fails(Exception):
        fields = _fields(optimizer)
        groups = fields.get("param_groups") or fields.get("hypers")
        value = groups[0].get("lr") if groups else fields.get("lr", getattr(optimizer, "learning_rate", None))
        return None if value is None else float(value)
    return None


def _name(kind: type) -> str:
    return f"{kind.__module__.split('.')[0]}.{kind.__qualname__}"
