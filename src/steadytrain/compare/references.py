"""The run's state as the reference for a checkpoint: fingerprints of what it saved, or its records if there are none.

A fingerprint (``saved/``) knows every tensor bit for bit. A run without one still has the norms of its tensors at the
measured steps, the names in the optimizer's order, and its settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steadytrain.compare.checkpoint_contents import CheckpointContents, Held
from steadytrain.compare.tensor_differences import UNKNOWN_DTYPE
from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError
from steadytrain.storage.run_folder import Run
from steadytrain.storage.tape_files import find_recording, read_chunk

BATCH_TOTALS = frozenset({"batches", "batches_seen", "total_batches"})
BATCHES_OF_EPOCH = frozenset({"_num_yielded", "num_yielded", "_num_batches_fetched", "batches_of_epoch"})
"""Names that loaders and loops use for the number of batches taken."""

CARDS = "saved"
CARD_BYTES_MAX = 256 << 20
_MOMENTS = {
    "exp_avg": "first_moment_norm",
    "momentum_buffer": "first_moment_norm",
    "exp_avg_sq": "second_moment_norm",
    "square_avg": "second_moment_norm",
}


@dataclass(frozen=True)
class Reference:
    """The expected state of a checkpoint, and states of the same run at other steps."""

    expected: CheckpointContents
    others: tuple[CheckpointContents, ...]
    note: str | None = None


def cards_of(run: Run) -> list[CheckpointContents]:
    """The fingerprints of what the run saved, oldest first.

    Raises:
        UsageError: one is damaged or of a newer format.
    """
    found = []
    for file in sorted((run.path / CARDS).glob("step-*.json")):
        try:
            found.append(CheckpointContents.from_json(read_json(file, bytes_max=CARD_BYTES_MAX)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"{file}: not a readable fingerprint of this run ({str(error)[:160]})") from None
    return sorted(found, key=lambda card: card.step or 0)


def names_of(run: Run, cards: Sequence[CheckpointContents]) -> list[str] | None:
    """The parameters in the order of the run's first optimizer, None if the run did not record it."""
    for card in reversed(cards):
        if card.settings and card.named:
            return [name for group in card.settings for name in group["parameters"]]
    streams = run.streams()
    if not streams or "gradients" not in run.tables(streams[0]):
        return None
    return list(run.table("gradients", streams[0]).rows) or None


def reference(run: Run, found: CheckpointContents, cards: Sequence[CheckpointContents]) -> Reference:
    """The run's state at the step of the checkpoint ``found``.

    Raises:
        UsageError: the run has nothing to compare a checkpoint with.
    """
    offset = _offset(run)
    if not cards:
        return _from_records(run, found, offset)
    at, matched = _card_for(found, cards, offset)
    card = cards[at]
    shown = (card.step or 0) + (offset or 0)
    expected = replace(
        card,
        step=found.step if matched else shown,
        position={} if offset is None or found.kind == "torch.save" else {"global_step": shown},
    )
    note = None
    if not matched:
        note = f"the run kept no fingerprint of step {found.step}; the nearest is from step {shown}"
    return Reference(expected, tuple(other for other in cards if other is not card), note)


def batches_taken(run: Run, found: CheckpointContents) -> int | None:
    """Batches that the run's first data loader had returned by the step of ``found``, None if no tape covers it."""
    if found.step is None:
        return None
    step = found.step - (_offset(run) or 0)
    chunk = find_recording(run.path).chunk_of(step)
    if chunk is None:
        return None
    try:
        steps = read_chunk(chunk)["steps"]
        fetched = next(one["fetched"] for one in steps if int(one["step"]) == step)
        return int(fetched["0"])
    except (UsageError, StopIteration, KeyError, TypeError, ValueError):
        return None


def with_batches(
    expected: CheckpointContents, found: CheckpointContents, taken: int | None
) -> tuple[CheckpointContents, str | None]:
    """``expected`` with the data position as a checkpoint of this kind stores it, and a note about it.

    Totals are compared exactly. A loader's own count restarts with every epoch, so only a count above the total is
    wrong.
    """
    if taken is None or not found.position:
        return expected, None
    known: dict[str, int] = {}
    for name, value in found.position.items():
        last = name.rpartition(".")[2]
        counted = isinstance(value, int) and not isinstance(value, bool)
        if counted and (last in BATCH_TOTALS or (last in BATCHES_OF_EPOCH and value > taken)):
            known[name] = taken
    note = f"the run had taken {taken:,} batches from its data loader by then"
    return replace(expected, position={**(expected.position or {}), **known}), note


def loads_of(run: Run) -> list[dict[str, Any]]:
    """The run's recorded loads of checkpoints."""
    loads = run.facts.get("loads")
    return [load for load in loads if isinstance(load, dict)] if isinstance(loads, list) else []


def _card_for(found: CheckpointContents, cards: Sequence[CheckpointContents], offset: int | None) -> tuple[int, bool]:
    """The position of the fingerprint for the checkpoint's step, or of the nearest one, and whether the step
    matches.
    """
    told = (found.position or {}).get("global_step")
    alike = [_alike(found.weights, card.weights) for card in cards]
    best = max(range(len(cards)), key=lambda at: (alike[at], at))
    if isinstance(told, int):
        wanted = [told - (offset or 0), told - (offset or 0) + 1]  # a hand-written loop may count from 0
        named = [at for step in wanted for at, card in enumerate(cards) if card.step == step]
        if best in named and alike[best] > 0:
            return best, True
        if named and cards[named[0]].step == wanted[0]:
            return named[0], True
    if alike[best] > 0.5:
        return best, True
    if found.counters:
        most = max(found.counters.values())
        counted = [at for at, card in enumerate(cards) if card.counters and max(card.counters.values()) == most]
        if counted:
            return counted[-1], True
    if found.step is None:
        return best, True
    nearest = min(range(len(cards)), key=lambda at: abs((cards[at].step or 0) + (offset or 0) - (found.step or 0)))
    return nearest, False


def _alike(found: Mapping[str, Held] | None, card: Mapping[str, Held] | None) -> float:
    """Share of the fingerprint's tensors that the checkpoint holds bit for bit."""
    if not found or not card:
        return 0.0
    digests = {held.digest for held in found.values()}
    telling = [held for held in card.values() if held.digest is not None and held.norm]
    return sum(held.digest in digests for held in telling) / len(telling) if telling else 0.0


def _offset(run: Run) -> int | None:
    """The trainer's step number minus ours, None if the run resumed without a recorded offset."""
    trainers = run.facts.get("trainers")
    for fact in reversed(trainers) if isinstance(trainers, list) else ():
        if isinstance(fact, Mapping) and isinstance(fact.get("global_step_minus_step"), int):
            return int(fact["global_step_minus_step"])
    resumed = any(load.get("what") == "optimizer" for load in loads_of(run))
    return None if resumed else 0


def _from_records(run: Run, found: CheckpointContents, offset: int | None) -> Reference:
    settings = _settings_of(run)
    weights, moments, step = _norms_at(run, found, offset)
    if settings is None and weights is None:
        raise UsageError(
            f"{run.path}: has neither fingerprints of saved states nor a record of its optimizer; nothing to compare"
        )
    shown = "its records" if step is None else f"its records of step {step}"
    expected = CheckpointContents(
        source=f"{run.name}: {shown}",
        kind="run",
        step=found.step,
        weights=weights,
        moments=moments,
        settings=settings,
    )
    note = "the run kept no fingerprint of what it saved: " + (
        "only settings are compared" if weights is None else "tensors are compared by their recorded norms"
    )
    return Reference(expected, (), note)


def _settings_of(run: Run) -> tuple[dict[str, Any], ...] | None:
    optimizer = run.facts.get("optimizer")
    groups = optimizer.get("groups") if isinstance(optimizer, Mapping) else None
    if not isinstance(groups, list):
        return None
    # Recorded before the first step; the learning rate has changed since.
    without = ("parameters", "lr")
    return tuple({name: value for name, value in group.items() if name not in without} for group in groups)


def _norms_at(
    run: Run, found: CheckpointContents, offset: int | None
) -> tuple[dict[str, Held] | None, dict[str, Held] | None, int | None]:
    """Norms of weights and moments at the checkpoint's step, if the run measured them at that step."""
    streams = run.streams()
    if found.step is None or not streams or "tensors" not in run.tables(streams[0]):
        return None, None, None
    table, step = run.table("tensors", streams[0]), found.step - (offset or 0)
    here = np.flatnonzero(table.steps == step)
    if not len(here):
        return None, None, None
    values = dict(zip(table.columns, table.values[here[-1]].T, strict=True))

    def norms(column: str, name: str, held: Mapping[str, Held]) -> Held | None:
        if column not in values or name.partition("/")[0] not in table.rows:
            return None
        norm = float(values[column][table.rows.index(name.partition("/")[0])])
        if np.isnan(norm):
            return None
        same = held.get(name)
        return Held(same.shape if same else (), same.dtype if same else UNKNOWN_DTYPE, norm=norm)

    kinds = {name.rpartition("/")[2] for name in found.moments or {}} & set(_MOMENTS)
    weights = {row: held for row in table.rows if (held := norms("weight_norm", row, found.weights or {}))}
    moments = {
        f"{row}/{kind}": held
        for row in table.rows
        for kind in sorted(kinds)
        if (held := norms(_MOMENTS[kind], f"{row}/{kind}", found.moments or {}))
    }
    return weights or None, moments or None, step
