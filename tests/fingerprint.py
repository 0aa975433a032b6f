"""What a training loop did, to the last bit: for loops inside a test and for the scripts that tests run.

A line a moment, so that two runs that part tell at which step and over what.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

STEPS = 6


class Training:
    """The diary of one loop: what it owns is hashed after backward and after the update, the random state with it.

    ``nan_at`` is the step whose batch gets a NaN. The batch is planted, not the loss, so that the failing step fails
    again when it is done again.
    """

    def __init__(self, *, nan_at: int | None = None, steps: int = STEPS) -> None:
        self.nan_at = nan_at
        self._steps = steps
        self.lines: list[str] = []
        self.losses: list[float] = []
        self._owned: tuple[Any, ...] = ()

    def owns(self, *things: Any) -> None:
        """Modules, optimizers, schedulers or lists of tensors."""
        self._owned = things

    def steps(self) -> Iterator[int]:
        yield from range(1, self._steps + 1)

    def batch(self, step: int, *shape: int) -> torch.Tensor:
        values = torch.randn(*shape)
        return self.planted(step, values)

    def planted(self, step: int, values: torch.Tensor) -> torch.Tensor:
        if step == self.nan_at:
            values.view(-1)[0] = float("nan")
        return values

    def went_back(self, step: int, loss: torch.Tensor | float) -> None:
        """Between backward and the update."""
        self.losses.append(float(loss.detach()) if isinstance(loss, torch.Tensor) else loss)
        self._note(step, "backward", loss, [tensor.grad for thing in self._owned for tensor in _tensors(thing)])

    def updated(self, step: int) -> None:
        self._note(step, "update", self.state())

    def state(self) -> str:
        return digest([thing.state_dict() if hasattr(thing, "state_dict") else thing for thing in self._owned])

    def _note(self, step: int, moment: str, *values: Any) -> None:
        self.lines.append(f"{step} {moment} {digest(values)} random {random_digest()}")


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def digest(value: Any) -> str:
    """A hash over every byte of nested containers of tensors and plain values."""
    sha = hashlib.sha256()
    _feed(sha, value)
    return sha.hexdigest()[:16]


def random_digest() -> str:
    """The global random states: Python's, NumPy's and torch's."""
    return digest([random.getstate(), np.random.get_state(), torch.get_rng_state()])


def _feed(sha: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        sha.update(f"{value.dtype}{tuple(value.shape)}".encode())
        if value.layout == torch.strided:
            sha.update(value.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            _feed(sha, [value._indices(), value._values()])
    elif isinstance(value, Mapping):
        _feed(sha, list(value.items()))
    elif isinstance(value, (list, tuple)):
        sha.update(f"[{len(value)}".encode())
        for entry in value:
            _feed(sha, entry)
    elif hasattr(value, "tobytes"):
        sha.update(value.tobytes())
    else:
        sha.update(repr(value).encode())


def _tensors(thing: Any) -> list[torch.Tensor]:
    if isinstance(thing, torch.nn.Module):
        return list(thing.parameters())
    return thing if isinstance(thing, list) else []
