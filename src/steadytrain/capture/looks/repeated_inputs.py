"""Detects steps that repeat the inputs of the previous step, and shows where these inputs come from.

A sample of the values represents the inputs. All of the first steps are compared, later two of each sixteen, and each
step after a pair of equal ones. Not here: whether the repetition is intended, as in full-batch training.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.call_settings import EVERY_STEPS
from steadytrain.capture.step.input_recorder import MicroBatch, tensors_in
from steadytrain.core.torch_private import IS_FUNCTORCH

SAMPLED_MAX = 1024
CALLS_MAX = 4
INPUTS_MAX = 8
FIRST_STEPS = 48
"""The first steps, each of which is compared: enough to be sure that the script reuses one batch. Of later ones two in
each ``EVERY_STEPS`` are."""

VARIED_MIN, FAR_LONGER = 4, 4
"""Steps with other inputs than the step before after which a row of equal ones is unusual, if it is so many times as
long as the longest row before it."""

CYCLE_MAX = 8
"""First steps whose inputs are kept to be recognised."""

CYCLED_STEPS_MAX = 48
"""Steps without a loader whose inputs are compared with them."""


Inputs = list[weakref.ref[Tensor]]


def inputs_of(args: Any, kwargs: Any) -> Inputs:
    """Weak references to the tensors of a call, at most ``INPUTS_MAX``; none for those of a function transform."""
    found = [one for one in tensors_in((args, kwargs)) if not IS_FUNCTORCH(one) and one.dim() > 0]
    return [weakref.ref(one) for one in found[:INPUTS_MAX]]


@dataclass
class Fetched:
    """The number of batches from loaders since the last step, the rows that were drawn for them (0 if unknown), the
    rows of their largest data set, and the number of the data set of the newest one that is trained on."""

    batches: int = 0
    drawn: int = 0
    rows_in_all: int = 0
    dataset: int = -1


class RepeatedInputs:
    """Counts, for one stream, the steps in a row with the same inputs."""

    def __init__(self) -> None:
        self.cycled = CycledInputs()
        self._digest = b""
        self._looked_step = 0
        self._sizes: tuple[int, ...] = ()
        self._count = 0
        self._longest = 0
        self._varied = 0
        self._held: list[weakref.ref[Tensor]] = []
        self._same_tensors = True
        self._fetched = 0

    def compares(self, step: int, fetched: int) -> bool:
        """Whether the inputs of this step, counted from 1, are worth a digest. ``fetched``: batches from loaders."""
        in_a_row = self._count > 1 and self._looked_step == step - 1
        return step <= FIRST_STEPS or step % EVERY_STEPS < 2 or in_a_row or self.cycled.compares(fetched)

    def step(self, step: int, given: Inputs, calls: Sequence[MicroBatch], data: Fetched) -> Iterator[tuple[str, float]]:
        """The row of one step: ``given`` are the tensors of its first call of the model, ``calls`` all its calls.

        ``same-batch:PLACE`` counts the steps in a row with the same inputs. PLACE is ``loader`` if a data loader with
        more rows returned a batch in each of these steps, ``kept`` if it returned the one that the script reuses. It is
        ``tensors`` if the script passes the same tensor objects, and ``values`` if it creates equal tensors again.
        There is no row if one batch holds all the data of the loaders. ``stuck-batch:PLACE`` is the same number where
        the steps before had other inputs of the same sizes, and no row of equal ones as long.
        """
        again = len(given) == len(self._held) and all(
            now() is before() is not None for now, before in zip(given, self._held, strict=True)
        )
        self._held = given
        digest = digest_of(*((call.args, call.kwargs) for call in calls[:CALLS_MAX]))
        if not digest:
            return
        if self._looked_step != step - 1:
            self._digest = b""
        repeats = digest == self._digest
        sizes = tuple(call.samples for call in calls)
        if not repeats:
            self._begin_row(sizes, varies=bool(self._digest))
        self._count += 1
        self._looked_step = step
        self._same_tensors = (self._same_tensors and again) if repeats else True
        self._fetched = self._fetched + data.batches if repeats else data.batches
        self._digest = digest
        if step <= FIRST_STEPS or self.cycled.compares(data.batches):
            self.cycled.step(digest, data.batches)
        rows = sum(call.samples for call in calls[:CALLS_MAX])
        if 0 < data.rows_in_all <= rows:
            return
        of_loader = data.rows_in_all > rows
        if of_loader and self._fetched >= max(2, self._count):
            place = "loader"
        elif self._same_tensors:
            place = "kept" if of_loader and self._fetched else "tensors"
        else:
            place = "values"
        if step <= FIRST_STEPS:
            yield f"same-batch:{place}", self._count
        if self._varied >= VARIED_MIN and self._count > FAR_LONGER * self._longest:
            yield f"stuck-batch:{place}", self._count

    def _begin_row(self, sizes: tuple[int, ...], *, varies: bool) -> None:
        """Inputs that are not those of the step before, or of a step that nothing is known of."""
        if sizes != self._sizes:
            self._varied, self._longest, self._sizes = 0, 0, sizes
        elif varies:
            self._varied += 1
            self._longest = max(self._longest, self._count)
        self._count = 0

    def break_off(self) -> None:
        """Steps passed that were not looked at: no row of equal steps goes on."""
        self._digest, self._held, self._fetched = b"", [], 0
        self.cycled.break_off()


class CycledInputs:
    """Compares the inputs of steps for which no loader was asked with those of the first steps with a batch each."""

    def __init__(self) -> None:
        self.steps = 0
        """Steps in a row that have the inputs of first steps, in their order, without a loader."""
        self._first: list[bytes] = []
        self._at = -1
        self._left = CYCLED_STEPS_MAX

    def break_off(self) -> None:
        """Steps passed that were not looked at."""
        self.steps, self._at = 0, -1

    def compares(self, fetched: int) -> bool:
        """Whether a step that had ``fetched`` batches from loaders before it is worth a digest of its inputs."""
        return fetched == 0 and len(self._first) > 1 and self._left > 0 and self.steps < len(self._first)

    def step(self, digest: bytes, fetched: int) -> None:
        if fetched:
            self.steps, self._at = 0, -1
            if len(self._first) < CYCLE_MAX and digest not in self._first:
                self._first.append(digest)
        elif self.compares(fetched):
            at = self._first.index(digest) if digest in self._first else -1
            self.steps = 0 if at < 0 else self.steps + 1 if at == self._at + 1 else 1
            self._at = at
            self._left -= 1


@torch.no_grad()
def digest_of(*things: Any) -> bytes:
    """A digest of sampled values of the first tensors in each of ``things``; empty if there are none.

    A tensor of a function transform (``vmap``, ``grad``) is passed over: it has no values once its transform returned.
    """
    parts = []
    for thing in things:
        for one in list(tensors_in(thing))[:INPUTS_MAX]:
            if (
                not IS_FUNCTORCH(one)
                and one.numel()
                and type(one) is Tensor
                and not one.is_quantized
                and not one.is_nested
                and one.layout == torch.strided
                and not one.is_complex()
            ):
                flat = one.detach().reshape(-1)
                stride = -(-flat.numel() // SAMPLED_MAX) | 1
                parts.append(flat[::stride].double().cpu().numpy().tobytes())
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest() if parts else b""
