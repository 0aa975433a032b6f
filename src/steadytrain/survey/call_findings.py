"""What the calls of the surveyed steps showed: losses, domain edges, attention, tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

LISTED_MAX = 16


@dataclass(frozen=True)
class LossCall:
    """One call of a loss function with its tensors."""

    name: str
    input: Tensor
    target: Tensor
    reduction: str
    ignore_index: int | None
    input_kind: str
    line: str
    ends: tuple[float, float] | None = None
    """The range of the operation that made the input; None if unbounded or unknown."""

    places_cut: int = 0
    """Places of each sequence that the script left out at its begin, as in ``logits[:, 1:]``."""


@dataclass
class Seen:
    losses: list[LossCall] = field(default_factory=list)
    loss_forms: dict[str, dict[str, Any]] = field(default_factory=dict)
    probabilities_as_logits: list[str] = field(default_factory=list)
    logits_as_log_probabilities: list[str] = field(default_factory=list)
    swapped: list[str] = field(default_factory=list)
    broadcast: list[str] = field(default_factory=list)
    softmax_dimension: list[str] = field(default_factory=list)
    singular: dict[str, dict[str, Any]] = field(default_factory=dict)
    half_peak: float = 0.0
    half_used: bool = False
    half_overflow: list[str] = field(default_factory=list)
    detached: list[str] = field(default_factory=list)
    behind_cuts: set[int] = field(default_factory=set)
    fully_masked: int = 0
    attention_largest: float = 0.0
    tables: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    batch_norm_values: int | None = None
    functional_dropout: bool = False
    dropout: dict[str, float] = field(default_factory=dict)
    smoothing: float = 0.0
    retain_graph: bool = False
    divisors: list[float] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    backward_lines: list[str] = field(default_factory=list)
    ctc_infeasible: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def add_listed(listed: list[Any], value: Any) -> None:
    """Appends ``value`` once, up to ``LISTED_MAX`` values."""
    if value not in listed and len(listed) < LISTED_MAX:
        listed.append(value)
