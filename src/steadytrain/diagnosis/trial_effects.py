"""The expected effect of each trial on each kind of incident: the likelihoods of the engine.

A trial declares the kinds of causes (``KINDS`` of ``steadytrain.experiments.trial``) whose symptom it ``removes``, and
those for which it does ``either``; for all others the symptom persists. ``tests/diagnosis/trial_effects.txt`` shows
them as one table. The first ten kinds are those of the published interventions that the project's own experiments were
compared with (a byte-level GPT, two seeds, six incidents, eleven trials); ``make bench-trials`` measures them again.
Two lessons: a lower learning rate helps against nearly everything, so it separates next to nothing; and clearing the
moments with a re-warm also hides a bad batch, so it counts only compared with the re-warm alone.

Only its own trial removes a fault in the script (a gradient that is not cleared, a wrong loss), though smaller steps
may hide it. A cause starts from a kind and names its own exceptions.
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
    """The expected effect of every trial for a cause of this kind, with the cause's exceptions.

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
    """The group of trials with nearly the same change as this one, or its own name."""
    return groups().get(trial) or trial


def group_tests() -> tuple[str, ...]:
    """The trials that disable a whole branch of causes at once."""
    return tuple(one.name for one in trials() if one.group_test)


@dataclass(frozen=True)
class _Expected(Mapping[str, Expectation]):
    """Reads the trials on access, because a package may offer a cause and a trial in one file."""

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
    """The effect of each trial on the symptom of a cause of this kind."""
    return {
        one.name: "removed" if kind in one.removes.split() else "either" if kind in one.either.split() else "persists"
        for one in trials()
    }


@cache
def groups() -> Mapping[str, str]:
    """The group of each trial, "" if it has none."""
    return {one.name: one.alike for one in trials()}
