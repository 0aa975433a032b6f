"""What each trial does to an incident of each kind: the likelihoods that the engine thinks with.

A trial declares the kinds of causes (``KINDS`` of ``steadytrain.experiments.trial``) whose symptom it ``removes``, and
those of which it does ``either``; of all others the symptom persists. ``tests/diagnosis/trial_effects.txt`` shows them
as one table. The first ten kinds are those of the published interventions that the project's own experiments were
compared with (a byte-level GPT, two seeds, six incidents, eleven trials); ``make bench-trials`` measures them again.
Two lessons: a lower learning rate helps against nearly everything, so it tells next to nothing; and clearing the
moments with a re-warm also hides a bad batch, so it counts only beside the re-warm alone.

Nothing but its own trial removes a fault in the script itself (a gradient that is not cleared, a wrong loss), though
what makes steps smaller may hide it. A cause begins with a kind and names its own exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from steadytrain.diagnosis.cause import Expectation
from steadytrain.experiments.trial import KINDS
from steadytrain.experiments.trial_catalog import trials


def like(
    kind: str, *, removed: tuple[str, ...] = (), persists: tuple[str, ...] = (), either: tuple[str, ...] = ()
) -> Mapping[str, Expectation]:
    """What every trial does where the cause is of this kind, with the exceptions of one cause.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"no kind of cause is called {kind!r}; one of {', '.join(KINDS)}")
    own: tuple[tuple[tuple[str, ...], Expectation], ...] = (
        (removed, "removed"),
        (persists, "persists"),
        (either, "either"),
    )
    return _Expected(kind, {trial: expectation for names, expectation in own for trial in names})


def alike(trial: str) -> str:
    """The group of trials that change nearly the same thing as this one, or its own name."""
    return groups().get(trial) or trial


def group_tests() -> tuple[str, ...]:
    """The trials that switch a whole branch of causes off at once."""
    return tuple(one.name for one in trials() if one.group_test)


@dataclass(frozen=True)
class _Expected(Mapping[str, Expectation]):
    """Asks the trials when it is read: a package may offer a cause and a trial from one file."""

    kind: str
    own: Mapping[str, Expectation]

    def __getitem__(self, trial: str) -> Expectation:
        return self.own[trial] if trial in self.own else effects(self.kind)[trial]

    def __iter__(self) -> Iterator[str]:
        return iter({**effects(self.kind), **self.own})

    def __len__(self) -> int:
        return len({**effects(self.kind), **self.own})


@cache
def effects(kind: str) -> Mapping[str, Expectation]:
    """What each trial does to the symptom of a cause of this kind."""
    return {
        one.name: "removed" if kind in one.removes.split() else "either" if kind in one.either.split() else "persists"
        for one in trials()
    }


@cache
def groups() -> Mapping[str, str]:
    """The group of each trial, empty where it has none."""
    return {one.name: one.alike for one in trials()}
