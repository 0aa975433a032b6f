"""The contract of interventions: one file each in ``interventions``, which is its place in the catalogue too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from steadytrain.core.plugins import Kind

if TYPE_CHECKING:
    from steadytrain.guard.live import Live
    from steadytrain.trial_runs.changes import LiveChange

Numbers = Mapping[str, float]
Setting = float | str
"""The value of a setting; text only where its default is text."""

NOT_AT_A_START = ("roll-back", "hold-learning-rate", "hold-settings", "skip", "quarantine-rows")
"""Interventions that need steps of this run before them."""


class Intervention:
    """A change of a live run that can be taken back. Subclasses are dataclasses; their fields are their settings.

    The first line of the docstring says what it does. ``replayed``: a replay of the steps makes the same change,
    because it is in the hyper-parameters or gradients on the tape. ``stays``: there is nothing to take back.
    ``conditional``: a rung leaves it out where it finds nothing to change.
    ``watches``: a policy that names it calls it at each gate from the first step on, before it is made.
    """

    replayed: ClassVar[bool] = False
    stays: ClassVar[bool] = False
    watches: ClassVar[bool] = False
    conditional: ClassVar[bool] = False

    def check(self) -> None:
        """Raises ValueError if a setting is invalid."""

    def describe(self) -> str:
        """What it does, in one clause."""
        return (type(self).__doc__ or "").split("\n", maxsplit=1)[0].rstrip(".")

    def why_not(self, live: Live) -> str | None:
        """Why it cannot be made in this training; None if it can."""
        return None

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        """Begin it, between two steps. Returns numbers from before and after."""
        return {}, {}

    def again(self, live: Live) -> tuple[Numbers, Numbers]:
        """The ladder asks for it once more while it holds."""
        return {}, {}

    def begins(self, live: Live) -> None:
        """A gate begins: hyper-parameters may be set for this update."""

    def gate(self, live: Live) -> str | None:
        """Loss and gradients are finite and measured; gradients may be changed. Returns why the update is to be
        skipped; None to make it."""
        return None

    def updated(self, live: Live) -> None:
        """The update was made."""

    def revert(self, live: Live) -> None:
        """Begin to take it back."""

    def functions_ended(self, live: Live) -> None:
        """Another one was taken back, and with it the functions that all of them had replaced."""

    def is_over(self, live: Live) -> bool:
        """Whether nothing of it holds any more, after :meth:`revert`."""
        return True

    def holds(self, live: Live) -> bool:
        """Whether something of it is left to hold once it was made."""
        return not self.stays or not self.is_over(live)


class ChangeIntervention(Intervention):
    """One that makes the change of a trial (``trial_runs.changes``) on the live run."""

    _made: LiveChange | None = None
    _replaces: bool = False
    """Whether it replaces functions."""

    def change(self) -> LiveChange:
        """A new change."""
        raise NotImplementedError

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        self._made, before = self.change(), live.functions.replaced
        self._made.begin_once(live)
        self._replaces = live.functions.replaced > before
        return {}, {}

    def functions_ended(self, live: Live) -> None:
        if self._made is not None and self._replaces:
            self._made.begin(live)

    def begins(self, live: Live) -> None:
        if self._made is not None:
            self._made.step_begins(live)

    def gate(self, live: Live) -> str | None:
        if self._made is not None:
            self._made.gate(live)
        return None

    def updated(self, live: Live) -> None:
        if self._made is not None:
            self._made.updated(live)

    def revert(self, live: Live) -> None:
        if self._made is not None:
            self._made.end(live)
        self._made = None


INTERVENTIONS = Kind(
    "live intervention",
    Intervention,
    "steadytrain.guard.interventions",
    "steadytrain.live_interventions",
    attempt=lambda cls: cls().check(),
    lacks=lambda cls: None,
)


def kinds() -> dict[str, type[Intervention]]:
    """Every intervention by name, in alphabetical order."""
    from steadytrain.core.plugins import kebab

    return {kebab(cls): cls for cls in sorted(INTERVENTIONS.classes(), key=kebab)}
