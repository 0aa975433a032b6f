"""Helpers of every replaying process: merge recorded inputs into the script's own, and compare gradient norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.snapshots.digests import digest
from steadytrain.capture.step.gate import Measurement
from steadytrain.replay.recorded_steps import RecordedStep
from steadytrain.replay.verdict import number_text
from steadytrain.storage.tree import Opaque

NAMES_MAX = 3


def evaluated_between(last: RecordedStep, following: RecordedStep) -> bool:
    """Whether the recorded run called its model between the two steps, for example to evaluate."""
    calls, then = last.calls[-1:], following.calls[:1]
    return not calls or not then or calls[0]["random_after"] != then[0]["random_before"]


class Merging:
    """Merges recorded inputs into the script's own. Each tensor gets the layout and device of the script's tensor."""

    def __init__(self) -> None:
        self.same = True
        self.not_kept: list[str] = []

    def put(self, recorded: Any, own: Any) -> Any:
        if isinstance(recorded, Opaque):
            if len(self.not_kept) < NAMES_MAX and not recorded.type_name.endswith("WithHistory"):
                self.not_kept.append(recorded.type_name)
            return own
        if isinstance(recorded, Tensor):
            return self._tensor(recorded, own)
        if isinstance(recorded, Mapping) and isinstance(own, Mapping):
            self.same &= recorded.keys() == own.keys()
            merged = {key: self.put(value, own.get(key)) for key, value in recorded.items()}
            return merged if type(own) is dict else _rebuilt(own, merged)
        if isinstance(recorded, (list, tuple)) and isinstance(own, (list, tuple)):
            self.same &= len(recorded) == len(own)
            values = [self.put(value, own[at] if at < len(own) else None) for at, value in enumerate(recorded)]
            return values if type(own) is list else type(own)(*values) if hasattr(own, "_fields") else tuple(values)
        self.same &= recorded == own
        return recorded

    def _tensor(self, recorded: Tensor, own: Any) -> Tensor:
        if not isinstance(own, Tensor):
            self.same = False
            return recorded
        if own.shape != recorded.shape or own.dtype != recorded.dtype:
            self.same = False
            return recorded.to(own.device)
        self.same = self.same and digest(own) == digest(recorded)
        placed = torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device=own.device)
        if _overlaps(own):
            placed = torch.empty_like(recorded, device=own.device)
        return placed.copy_(recorded)


def _overlaps(tensor: Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def _rebuilt(own: Any, merged: dict[str, Any]) -> Any:
    try:
        return type(own)(merged)
    except Exception:  # a mapping type of the script
        return merged


def norms_of(measured: Measurement) -> dict[str, str]:
    """The norm of each gradient by tensor name, as exact hex text, in the form of the tape."""
    values: Sequence[float] = measured.record.gradient_norms.tolist()
    return {name: float(norm).hex() for name, norm in zip(measured.tensor_names, values, strict=True)}


def number_differences(
    losses: Sequence[str], norms: Mapping[str, str], measured: Measurement
) -> Iterator[tuple[str, str, str, str]]:
    """What differs from the recorded numbers of a gate: the phase, the name, the recorded and the present number."""
    own = [float(loss).hex() for loss in measured.losses]
    if len(own) != len(losses):
        yield "forward", "number of losses", str(len(losses)), str(len(own))
    for number, (there, here) in enumerate(zip(losses, own, strict=False)):
        if there != here:
            yield "forward", f"loss {number}" if len(own) > 1 else "loss", number_text(there), number_text(here)
    present = norms_of(measured)
    for name, there in norms.items():
        here = present.get(name, "absent")
        if there != here:
            yield "backward", f"gradient norm of {name}", number_text(there), number_text(here)
