"""The comparison of runs or groups of runs, as a value and as the document ``steadytrain.compare/1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from steadytrain.compare.circumstances import Entry, differing, seed_of
from steadytrain.compare.first_difference import Agreement, agreement
from steadytrain.compare.seed_noise import CONFIDENCE, Noise, seed_noise, tail_mean, tail_steps
from steadytrain.core.errors import UsageError
from steadytrain.core.json_values import JsonValue, number_to_json
from steadytrain.core.model import SEVERITIES, Series, Symptom
from steadytrain.storage.run_folder import Run

SCHEMA = "steadytrain.compare/1"

Verdict = Literal["equal", "differ", "no-difference", "cannot-tell"]


@dataclass(frozen=True)
class Member:
    """One compared run. ``tail`` is its number in a comparison of groups, None if it has none."""

    run: Run
    loss: Series
    seed: str | None
    group: str | None = None
    tail: float | None = None

    def to_json(self) -> dict[str, Any]:
        steps = self.loss.steps
        return {
            "run": self.run.name,
            "path": str(self.run.path),
            "group": self.group,
            "seed": self.seed,
            "steps": len(steps),
            "first_step": int(steps[0]) if len(steps) else None,
            "last_step": int(steps[-1]) if len(steps) else None,
            "ended": self.run.ended,
            "symptom": None if self.gravest is None else self.gravest.to_json(),
            "tail_loss": self.tail,
        }

    @property
    def gravest(self) -> Symptom | None:
        """The gravest symptom above a note, the first of several."""
        alarms = [symptom for symptom in self.run.symptoms if symptom.severity != "note"]
        return min(alarms, key=lambda one: (-SEVERITIES.index(one.severity), one.first_step), default=None)


@dataclass(frozen=True)
class Pair:
    """The first run and another. ``left_loss`` and ``right_loss`` are at the last shared step."""

    left: str
    right: str
    agreement: Agreement
    entries: tuple[Entry, ...]
    last_step: int | None
    left_loss: float | None
    right_loss: float | None

    @property
    def equal(self) -> bool:
        return self.agreement.first is None

    def to_json(self) -> dict[str, Any]:
        first = self.agreement.first
        return {
            "left": self.left,
            "right": self.right,
            "equal": self.equal,
            "shared_steps": self.agreement.shared_steps,
            "last_equal_step": self.agreement.last_equal_step,
            "first_difference": None if first is None else first.to_json(),
            "entries": [entry.to_json() for entry in self.entries],
            "last_shared_step": self.last_step,
            "left_loss": None if self.left_loss is None else number_to_json(self.left_loss),
            "right_loss": None if self.right_loss is None else number_to_json(self.right_loss),
            "notes": list(self.agreement.notes),
        }


@dataclass(frozen=True)
class Comparison(JsonValue, keys="verdict runs:members pairs groups entries tail_steps:tail notes", schema=SCHEMA):
    """The whole output of ``steadytrain compare``. Either ``pairs`` or ``groups`` is empty."""

    verdict: Verdict
    members: tuple[Member, ...]
    pairs: tuple[Pair, ...]
    groups: tuple[Noise, ...]
    entries: tuple[Entry, ...]
    tail: tuple[int, int] | None
    notes: tuple[str, ...]


def compare_runs(runs: Sequence[Run]) -> Comparison:
    """Compare every run with the first: equal to the bit, or where they diverge.

    Raises:
        UsageError: a run has no steps, or is damaged.
    """
    members = [_member(run) for run in runs]
    first, *others = members
    pairs = [_pair(first, other) for other in others]
    notes = []
    if any(not pair.equal and any(entry.is_seed for entry in pair.entries) for pair in pairs):
        notes.append(
            "the runs have different seeds, so they cannot be equal; to compare beyond the seeds, use "
            "--group A=RUNS --group B=RUNS with three seeds or more each"
        )
    notes += [
        note for pair, other in zip(pairs, others, strict=True) if (note := _unseeded(pair, first.run, other.run))
    ]
    verdict: Verdict = "equal" if all(pair.equal for pair in pairs) else "differ"
    return Comparison(verdict, tuple(members), tuple(pairs), (), (), None, tuple(notes))


def compare_groups(groups: Mapping[str, Sequence[Run]]) -> Comparison:
    """Compare every group with the first, by the losses at the end of the steps that all runs reached.

    Raises:
        UsageError: a run has no steps, or the runs share none.
    """
    members = [_member(run, group) for group, runs in groups.items() for run in runs]
    span = tail_steps([member.loss for member in members])
    if span is None:
        raise UsageError("the runs share no steps; groups are compared at the last steps that all of them reached")
    members = [
        Member(member.run, member.loss, member.seed, member.group, tail_mean(member.loss, span)) for member in members
    ]
    notes = [
        f"{member.run.name}: its loss is not finite in steps {span[0]:,} to {span[1]:,}; it was left out"
        for member in members
        if member.tail is None
    ]
    values = {name: _by_seed([member for member in members if member.group == name]) for name in groups}
    first, *others = groups
    confidence = 1 - (1 - CONFIDENCE) / len(others)  # Bonferroni correction for several questions
    answers = tuple(seed_noise(first, other, values[first], values[other], confidence=confidence) for other in others)
    verdicts = [answer.verdict for answer in answers]
    verdict: Verdict = (
        "differ" if "differ" in verdicts else "cannot-tell" if "cannot-tell" in verdicts else "no-difference"
    )
    entries = _between_groups([list(runs) for runs in groups.values()])
    return Comparison(verdict, tuple(members), (), answers, entries, span, tuple(notes))


def _unseeded(pair: Pair, left: Run, right: Run) -> str | None:
    """A note where two runs part at their first shared step and a run drew its random numbers without a seed."""
    if pair.equal or pair.agreement.last_equal_step is not None:
        return None
    names = [run.name for run in (left, right) if _is_unseeded(run)]
    if not names:
        return None
    return (
        f"they part at their first step, and no seed was set in {' and '.join(names)}: such runs draw different random "
        "numbers from the start; give both the same with `steadytrain run --seed N`"
    )


def _is_unseeded(run: Run) -> bool:
    randomness = run.facts.get("randomness")
    return isinstance(randomness, Mapping) and randomness.get("seeded") is False


def _member(run: Run, group: str | None = None) -> Member:
    streams = run.streams()
    if not streams:
        raise UsageError(f"{run.path}: has no recorded steps; there is nothing to compare")
    window = run.scalars(streams[0])
    here = window.present["loss"] if "loss" in window.present else np.zeros(len(window), bool)
    if not len(window):
        raise UsageError(f"{run.path}: has no recorded steps; there is nothing to compare")
    return Member(run, Series(window.steps[here], window.signals["loss"][here]), seed_of(run), group)


def _pair(left: Member, right: Member) -> Pair:
    steps, at, other = np.intersect1d(left.loss.steps, right.loss.steps, return_indices=True)
    last = int(steps[-1]) if len(steps) else None
    found = agreement(left.run, right.run)
    if not found.shared_steps:
        raise UsageError(f"{left.run.path} and {right.run.path}: share no recorded step; nothing can be compared")
    return Pair(
        left=left.run.name,
        right=right.run.name,
        agreement=found,
        entries=differing(left.run, right.run),
        last_step=last,
        left_loss=float(left.loss.values[at[-1]]) if last is not None else None,
        right_loss=float(right.loss.values[other[-1]]) if last is not None else None,
    )


def _by_seed(members: Sequence[Member]) -> dict[str, float]:
    """Tail losses by seed if every run has its own, else by run."""
    seeds = [member.seed for member in members]
    by_seed = all(seed is not None for seed in seeds) and len(set(seeds)) == len(seeds)
    return {
        f"seed {member.seed}" if by_seed else str(member.run.path): member.tail
        for member in members
        if member.tail is not None
    }


def _between_groups(groups: Sequence[Sequence[Run]]) -> tuple[Entry, ...]:
    """Entries with one value in all runs of the first group and another in all runs of some other group."""
    first = groups[0]
    found: dict[str, Entry] = {}
    for other in groups[1:]:
        pairs = [{entry.name: entry for entry in differing(left, right)} for left in first for right in other]
        for name, entry in pairs[0].items():
            same = all(
                name in pair and (pair[name].left, pair[name].right) == (entry.left, entry.right) for pair in pairs
            )
            if same:
                found.setdefault(name, entry)
    return tuple(found.values())
