"""The changes that trials apply to a launched script, in files by subject.

A change judges nothing and knows no other change.

A change is a dataclass; its fields are its values. Its methods are called at these moments of a step. A change reports
each modification with ``touch``. A trial whose changes touched nothing is reported as not run. A change belongs to one
process and may keep state.

::

    early ── (state restored) ── begin ── step_begins ── call ── ... ── gate ── (update) ── updated
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_origin, get_type_hints

from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import Kind, kebab
from steadytrain.experiments.specs import Change
from steadytrain.trial_runs.launched_script import Launched

if TYPE_CHECKING:
    from torch import nn


@dataclass
class LiveChange:
    """The contract. Subclasses are final dataclasses; their docstring says what they change.

    ``early`` changes act before the script builds its model and loaders, so they need their own launch. ``own_batches``
    is True if the script keeps its own batches and arguments. ``of_functions``: it replaces functions that a script may
    call before its model (a division of the inputs), so it begins right after the last own update.
    """

    is_early: ClassVar[bool] = False
    own_batches: ClassVar[bool] = False
    of_functions: ClassVar[bool] = False

    begun = False
    touched = 0
    nothing: ClassVar[str] = "it changes nothing in this script"
    """Why a trial did not run if the change touched nothing."""

    inputs_alone = False
    """Set if the model got other inputs, but no loader returned the matching targets."""

    def check(self) -> None:
        """Raises ValueError if a value is invalid."""

    def early(self, process: Launched) -> None:
        """Called after torch is imported, before the script starts."""

    def begin(self, process: Launched) -> None:
        """Called once the initial state is restored, right before the first model call."""

    def begin_functions(self, process: Launched) -> None:
        """Begins a change of functions, before the script's next turn of its loop."""
        if self.of_functions:
            self.begin_once(process)

    def begin_once(self, process: Launched) -> None:
        """Begins the change unless it has begun."""
        if not self.begun:
            self.begun = True
            self.begin(process)

    def step_begins(self, process: Launched) -> None:
        """Called right before the first model call of an entry."""

    def fetched(self, process: Launched, step: int | None, batch: Any) -> Any:
        """Gets a loader's batch on its way to the script. Returns it or a replacement."""
        return batch

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Called before the ``number``-th model call of an entry, with its random state set. May return other
        arguments."""
        return None

    def gate(self, process: Launched) -> None:
        """Called right before the update, with the hyper-parameters of the recorded step."""

    def updated(self, process: Launched) -> None:
        """Called after the update."""

    @classmethod
    def acts_on_update(cls) -> bool:
        """Whether it has a part in an update: a step that is not finite has none."""
        return cls.gate is not LiveChange.gate or cls.updated is not LiveChange.updated

    def end(self, process: Launched) -> None:
        """Take the change back, between two steps of a run that goes on. A trial never does. Replaced functions end
        without it."""

    def measured(self) -> dict[str, float]:
        """The measurements over the trial, called at its end."""
        return {}

    def touch(self) -> None:
        self.touched += 1


@dataclass
class OtherMeasure(LiveChange):
    """A change of what the loss measures. Probes always measure it; training steps follow it only with ``train``, so
    that a run without it is the control of one with it."""

    train: bool = field(default=True, kw_only=True)

    def measures(self, process: Launched) -> bool:
        """Whether the present step measures the changed loss."""
        return self.train or process.role != "train"


def change_kinds() -> dict[str, type[LiveChange]]:
    return dict(_kinds())


def make(change: Change) -> LiveChange:
    """Creates the change and checks its values.

    Raises:
        UsageError: the kind is unknown, or a value is missing, unknown, of another type or invalid.
    """
    kinds = _kinds()
    if change.kind not in kinds:
        raise UsageError(f"no change is called {change.kind!r}; one of {', '.join(sorted(kinds))}")
    cls = kinds[change.kind]
    known = {one.name: one for one in fields(cls) if one.init}
    for name in change.values:
        if name not in known:
            raise UsageError(f"{change.kind}: no value {name!r}; it has {', '.join(known) or 'none'}")
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, one in known.items():
        if name in change.values:
            values[name] = _typed(change.kind, name, change.values[name], hints[name])
        elif one.default is MISSING and one.default_factory is MISSING:
            raise UsageError(f"{change.kind}: the value {name!r} is missing")
    try:
        made = cls(**values)
        made.check()
    except ValueError as error:
        raise UsageError(f"{change.kind}: {error}") from None
    return made


def is_one_of(name: str, wanted: Sequence[str]) -> bool:
    """Whether a dotted name equals or ends with one of ``wanted``. A survey's names start at the called module, which
    may lie
    inside another one.
    """
    return any(name == one or name.endswith(f".{one}") for one in wanted)


def modules_called(process: Launched, wanted: Sequence[str]) -> list[nn.Module]:
    return [module for module, name in process.modules().items() if is_one_of(name, wanted)]


def at_least(name: str, value: float, bound: float) -> None:
    """Raises ValueError unless ``value`` is finite and at least ``bound``."""
    if not (math.isfinite(value) and value >= bound):
        raise ValueError(f"{name} {value}: must be a number of at least {bound:g}")


def more_than(name: str, value: float, bound: float) -> None:
    if not (math.isfinite(value) and value > bound):
        raise ValueError(f"{name} {value}: must be a number above {bound:g}")


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} {value!r}: must be one of {', '.join(allowed)}")


def _typed(kind: str, name: str, value: Any, hint: Any) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if get_origin(hint) is list:
        entries = get_args(hint)[0]
        if isinstance(value, list) and all(isinstance(entry, entries) for entry in value):
            return value
        raise UsageError(f"{kind}: {name} {value!r}: must be a list of {entries.__name__}")
    if isinstance(hint, type) and isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool):
        return value
    raise UsageError(f"{kind}: {name} {value!r}: must be {getattr(hint, '__name__', hint)}")


CHANGES = Kind(
    "change",
    LiveChange,
    __name__,
    "steadytrain.changes",
    attempt=lambda cls: None,  # its fields are the values of a trial
    lacks=lambda cls: None,
    several=True,
)


@cache
def _kinds() -> dict[str, type[LiveChange]]:
    return {kebab(cls): cls for cls in CHANGES.classes()}
