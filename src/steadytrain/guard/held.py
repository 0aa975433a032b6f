"""The interventions that hold on a live run: made by a rung, by hand, or after a resume, until they are taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from steadytrain.guard.intervention import Intervention, Numbers
from steadytrain.guard.live import Live
from steadytrain.trial_runs.launched_script import CannotApplyError


class Held:
    """By name, one of each kind. ``make`` gives a new one with the settings of the policy."""

    def __init__(self, live: Live, make: Callable[[str], Intervention]) -> None:
        self._live = live
        self._make = make
        self._held: dict[str, Intervention] = {}
        self._returning: dict[str, Intervention] = {}
        self._by_hand: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def __iter__(self) -> Iterator[Intervention]:
        """All that change an update: those that hold and those whose effect still fades."""
        return iter([*self._held.values(), *self._returning.values()])

    def __bool__(self) -> bool:
        return bool(self._held or self._returning)

    @property
    def names(self) -> list[str]:
        """The names of all of them."""
        return [*self._held, *self._returning]

    @property
    def of_ladder(self) -> list[str]:
        """Those that a rung made."""
        return [name for name in self._held if name not in self._by_hand]

    def adopt(self, made: Mapping[str, Intervention]) -> None:
        """Hold what was made elsewhere, until somebody takes it back."""
        kept = {name: one for name, one in made.items() if one.watches or one.holds(self._live)}
        self._held.update(kept)
        self._by_hand.update(kept)

    def kind_of(self, name: str) -> Intervention:
        """A new one of this name, with the settings of the policy."""
        return self._make(name)

    def apply(self, name: str) -> tuple[Numbers, Numbers] | None:
        """Make it, or make it again. Returns values before and after; None if nothing changed.

        Raises:
            CannotApplyError: it cannot be made.
        """
        there = self._held.get(name) or self._returning.pop(name, None)
        one = there or self._make(name)
        self._check(one)
        before, after = one.again(self._live) if there is not None else one.apply(self._live)
        if not after and one.conditional and there is None:
            return None  # nothing had jumped
        if there is not None or one.holds(self._live):
            self._held[name] = one
        return (before, after) if after or there is None else None

    def put(self, name: str, one: Intervention) -> tuple[Numbers, Numbers]:
        """Make one that the user asked for, in place of one of its kind; the user takes it back.

        Raises:
            CannotApplyError: it cannot be made.
        """
        self._check(one)
        self._live.rung_begins(self._live.step + 1, 0)
        if name in self._held:
            self._held.pop(name).revert(self._live)
        before, after = one.apply(self._live)
        if one.holds(self._live):
            self._held[name] = one
            self._by_hand.add(name)
        return before, after

    def fade(self, name: str, one: Intervention) -> tuple[Numbers, Numbers] | None:
        """Make one that lets go by itself. None if one of its kind holds or fades.

        Raises:
            CannotApplyError: it cannot be made.
        """
        if name in self.names:
            return None
        numbers = one.apply(self._live)
        self._returning[name] = one
        return numbers

    def revert(self, name: str) -> bool:
        """Take it back. Returns whether that is an action: what stays is not undone."""
        one = self._held.pop(name)
        self._by_hand.discard(name)
        one.revert(self._live)
        self._again_functions()
        if not one.is_over(self._live):
            self._returning[name] = one
        return not one.stays

    def let_go(self, name: str) -> bool:
        """Take it back at once; False if it does not hold."""
        one = self._held.pop(name, None)
        self._by_hand.discard(name)
        if one is not None:
            one.revert(self._live)
            self._again_functions()
        return one is not None

    def over(self) -> list[str]:
        """Those whose effect has faded since the last call."""
        gone = [name for name, one in self._returning.items() if one.is_over(self._live)]
        return [name for name in gone if not self._returning.pop(name).stays]

    def _check(self, one: Intervention) -> None:
        unfit = one.why_not(self._live)
        if unfit is not None:
            raise CannotApplyError(unfit)

    def _again_functions(self) -> None:
        """Replaced functions are one mode: without the one that was taken back, the others begin again."""
        self._live.functions.end()
        for one in self._held.values():
            one.functions_ended(self._live)
