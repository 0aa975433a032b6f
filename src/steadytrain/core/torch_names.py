"""What a private name of torch is, and how it is resolved and tested. The names are in ``torch_private``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any


class MissingNameError(AttributeError):
    """This version of torch lacks a private name. The text says which one, and what is lost."""


class TorchName:
    """One private name, as ``module:attribute.path``.

    Args:
        place: its module and name.
        lost: one sentence on what does not work without it.
        needed: whether a watch refuses to start without it.
    """

    def __init__(self, place: str, lost: str, *, needed: bool = False) -> None:
        self.module, _, self.path = place.partition(":")
        *self._holders, self.attribute = self.path.split(".")
        self.lost = lost
        self.needed = needed
        self._found: Any = None
        NAMES.append(self)

    @property
    def full(self) -> str:
        """The dotted name: ``torch.autograd._engine_run_backward``."""
        return f"{self.module}.{self.path}"

    def owner(self) -> Any:
        """The module or class that holds the name now. Raises ``MissingNameError`` if this torch has none."""
        try:
            thing: Any = sys.modules.get(self.module) or importlib.import_module(self.module)
            for part in self._holders:
                thing = getattr(thing, part)
        except (ImportError, AttributeError) as error:
            raise MissingNameError(self.why()) from error
        return thing

    def now(self) -> Any:
        """Resolve the name anew.

        Raises:
            MissingNameError: this torch has no such name.
        """
        try:
            return getattr(self.owner(), self.attribute)
        except AttributeError as error:
            raise MissingNameError(self.why()) from error

    def get(self) -> Any:
        """The object, resolved on the first call and cached."""
        if self._found is None:
            self._found = self.now()
        return self._found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.get()(*args, **kwargs)

    def loaded(self) -> Any:
        """The object, or None if its module is not imported or lacks it. Imports nothing."""
        thing = sys.modules.get(self.module)
        for part in self.path.split("."):
            thing = getattr(thing, part, None)
        return thing

    def works(self) -> bool:
        """Feature test: whether this torch has the name. Imports its module."""
        try:
            self.now()
        except MissingNameError:
            return False
        return True

    def why(self) -> str:
        """Say in one sentence what is missing and what that means."""
        return f"torch {getattr(sys.modules.get('torch'), '__version__', '')} has no {self.full}: {self.lost}"


class TorchAttribute(TorchName):
    """A private attribute of all objects of a class, as ``module:Class.attribute``.

    Args:
        made: makes an object of the class for the feature test. Without it the test inspects the class itself: for a
            method, a slot, or a name in the code of its methods.
    """

    def __init__(self, place: str, lost: str, *, needed: bool = False, made: Callable[[], Any] | None = None) -> None:
        super().__init__(place, lost, needed=needed)
        self.of: Callable[[Any], Any] = attrgetter(self.attribute)
        self._made = made

    def on(self, thing: Any, default: Any = None) -> Any:
        """The attribute of ``thing``; ``default`` if it has none, or if a backward has freed the saved value."""
        try:
            return getattr(thing, self.attribute, default)
        except RuntimeError:
            return default

    def put(self, thing: Any, value: Any) -> None:
        """Set the attribute of ``thing``."""
        setattr(thing, self.attribute, value)

    def works(self) -> bool:
        try:
            owner = self.owner()
            if self._made is not None:
                return hasattr(self._made(), self.attribute)
        except MissingNameError:
            return False
        return hasattr(owner, self.attribute) or any(self.attribute in names for names in _names_in_code(owner))


NAMES: list[TorchName] = []
"""All names, in the order in which they are defined."""


def _names_in_code(kind: Any) -> Iterable[tuple[str, ...]]:
    for part in kind.__mro__:
        for value in vars(part).values():
            code = getattr(value, "__code__", None)
            if code is not None:
                yield code.co_names
