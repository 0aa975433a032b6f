"""Finds out whether the targets of the loss move with the model, so that a loss that rises is no loss of progress.

Three findings say so. A **copy** of the trained model, in no optimizer, runs in most steps, gets no gradient, and its
weights change: a target network, a momentum encoder. A teacher that stays as it is, and a copy that is evaluated now
and then, are none. **Rollouts**: the model runs without gradients on rows that no earlier pass had, and then trains on
these rows, more than once: a policy that collects its own data. Validation data, or the same training data evaluated
again, are none; nor is one pass without gradients before the one with them (cached gradients, selection of samples).
**Outputs of its own**: two distances of one loss compare the same two tensors, each with a gradient to another of them,
as the codebook loss of a VQ-VAE does; or the model itself, in training mode, runs without gradients on as many other,
new rows as the distance of the loss compares, as a bootstrapped value does.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.module_hooks import ModuleHook, Report, hook_before
from steadytrain.capture.looks.model_copies import ModelKind, copies_of, kind_of, models_of, sampled
from steadytrain.capture.looks.noisy_teachers import SEARCH_STEP, NoisyTeachers
from steadytrain.capture.looks.row_keys import ROWS_MAX, row_keys
from steadytrain.capture.looks.shared_copies import SharedCopies
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.model import COPY_FOLLOWS, OWN_OUTPUTS, OWN_ROLLOUTS, IntArray
from steadytrain.core.torch_private import COMPILED_CALL

SEARCH_STEPS = (2, 64)
"""Steps of a stream in which the process is searched for copies of its model."""

STALE_STEPS = 128
"""Steps after which a copy that never changed is reported, and then twice as many, and so on."""

INPUTS_STEPS, INPUTS_MIN = 32, 8
"""Steps in which the rows of such a copy are compared with those of the model, and how many have to differ."""

COPIES_MAX = 8
COPY_STEPS_MIN, COPY_SHARE = 8, 0.5
"""A copy has to run in at least this share of at least so many steps."""

COMPARED_FIRST, COMPARED_EVERY = 64, 16
"""Steps in which the weights of a copy are compared: each of the first ones, then now and then, until they moved."""

ROLLOUTS_MIN = 2
PASSES_MAX = 6
"""Passes without gradients that are compared with the training rows after them, and how many of them have to agree."""

CALLS_RATIO = 4
"""A rollout calls the model at least so many times as often as the step that follows it."""

LOSSES_MIN = 2
"""Losses that have to be so built."""

BOOTSTRAPPED_MIN, BOOTSTRAPPED_STEPS = 5, 32
"""Looks that have to find a call for the targets, and the steps in which its rows are compared."""

ASIDES_MAX = 2
"""Calls of several rows without gradients in such a step: cached gradients take more."""

ROWS_SHARE = 0.5


@dataclass
class _Copy:
    """One copy of a model that ``stream`` trains (by id).

    ``first`` says that it began with the values that the model began with, ``other_rows`` in how many of the first
    steps it was called with other rows.
    """

    module: weakref.ref[nn.Module]
    stream: int
    values: tuple[Tensor, ...]
    remove: Callable[[], None] = lambda: None
    called: bool = False
    steps: int = 0
    steps_called: int = 0
    moved: bool = False
    first: bool = False
    keys: Tensor | None = None
    other_rows: int = 0


class Copies:
    """The copies of the trained models of a process.

    Args:
        counts: whether a call comes from the script now.
        report: gets our own errors.
    """

    def __init__(self, counts: Callable[[], bool], report: Report) -> None:
        self._counts = counts
        self._report = report
        self._copies: list[_Copy] = []
        self._first: dict[ModelKind, tuple[Tensor, ...]] = {}

    def begin(self, stream: Stream) -> None:
        """Keep a few values of the models of ``stream`` before its first update."""
        self._first = {kind_of(part): sampled(part) for part in models_of(stream)}

    @property
    def compares_rows(self) -> bool:
        return any(one.first and one.steps < INPUTS_STEPS for one in self._copies)

    def search(self, stream: Stream) -> None:
        """Find the copies of the models that ``stream`` trains, and count their calls from now on."""
        found = copies_of(stream)
        inside = {id(part) for one in found for part in one.modules() if part is not one}
        known = {id(one.module()) for one in self._copies}
        for module in found:
            fits = len(self._copies) < COPIES_MAX and COMPILED_CALL.on(module) is None and bool(sampled(module))
            if fits and id(module) not in inside and id(module) not in known:
                self._follow(module, stream)

    def gate(self, stream: Stream, keys: Tensor | None) -> bool:
        """Count a step of ``stream``, whose model was called with the rows ``keys``. Returns whether a copy follows."""
        for copy in [one for one in self._copies if one.stream == id(stream)]:
            module = copy.module()
            if module is None:
                copy.remove()
                self._copies.remove(copy)
                continue
            copy.steps += 1
            if copy.called:
                copy.called = False
                copy.steps_called += next(module.parameters()).grad is None
                if copy.keys is not None and keys is not None:
                    same = torch.isin(copy.keys, keys.to(copy.keys.device)).float().mean()
                    copy.other_rows += float(same) < ROWS_SHARE  # a replay memory has some steps beside each other
                copy.keys = None
            if not copy.moved and (copy.steps <= COMPARED_FIRST or copy.steps % COMPARED_EVERY == 0):
                pairs = zip(sampled(module), copy.values, strict=False)
                copy.moved = any(one.device == was.device and not torch.equal(one, was) for one, was in pairs)
            if copy.moved and copy.steps_called >= max(COPY_STEPS_MIN, COPY_SHARE * copy.steps):
                return True
        return False

    def stale(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``stale-copy:CLASS`` is the steps in which a copy that runs in the loss has kept the model's first values.

        Only copies count that run on other rows than the model, as target networks do and reference models do not.
        """
        for copy in self._copies:
            module = copy.module()
            due = copy.steps >= STALE_STEPS and copy.steps & (copy.steps - 1) == 0
            if copy.stream != id(stream) or not due or module is None or copy.moved or not copy.first:
                continue
            if copy.steps_called >= COPY_SHARE * copy.steps and copy.other_rows >= INPUTS_MIN:
                yield f"stale-copy:{type(module).__name__}", float(copy.steps)

    def remove(self, *, but_first: bool = False) -> None:
        """Take all hooks away, ``but_first`` those of copies that may be stale."""
        kept = [one for one in self._copies if but_first and one.first and not one.moved]
        for copy in self._copies:
            if copy not in kept:
                copy.remove()
        self._copies = kept

    def _follow(self, module: nn.Module, stream: Stream) -> None:
        copy = _Copy(weakref.ref(module), id(stream), sampled(module))
        began = self._first.get(kind_of(module), ())
        pairs = list(zip(copy.values, began, strict=False))
        copy.first = bool(pairs) and all(one.device == was.device and torch.equal(one, was) for one, was in pairs)

        def called(_: nn.Module, args: Any) -> None:
            copy.called = copy.called or self._counts()
            if copy.first and copy.steps < INPUTS_STEPS:
                copy.keys = row_keys(args, {})

        copy.remove = hook_before(module, ModuleHook(called, self._report)).remove
        self._copies.append(copy)


@dataclass
class _Pass:
    """Calls without gradients between two steps, by keys of their input rows."""

    keys: list[Tensor] = field(default_factory=list)
    rows: int = 0
    calls: int = 0


class Rollouts:
    """Compares the rows of calls without gradients with those that the model is trained on after them."""

    def __init__(self) -> None:
        self.over = False
        """Whether there is nothing more to find out."""

        self._now = _Pass()
        self._trained: Tensor | None = None
        self._earlier: list[IntArray] = []
        self._agreed = 0

    def called_aside(self, args: Any, kwargs: Any) -> None:
        """The script calls a model without gradients."""
        self._now.calls += 1
        if self._now.rows < ROWS_MAX and (keys := row_keys(args, kwargs)) is not None:
            self._now.keys.append(keys)
            self._now.rows += len(keys)

    def called(self, args: Any, kwargs: Any) -> None:
        """The script calls a model with gradients."""
        if self._now.calls >= CALLS_RATIO and self._trained is None:
            self._trained = row_keys(args, kwargs)

    def gate(self, seen: StepInProgress) -> bool:
        """A step ends. Returns whether the model collects its own training data."""
        now, trained = self._now, self._trained
        self._now, self._trained = _Pass(), None
        if not now.keys:
            return False
        keys = torch.cat(now.keys).cpu().numpy()
        calls = len(seen.micro_batches) + seen.left_out
        if trained is not None and now.calls >= CALLS_RATIO * calls:
            rows = trained.cpu().numpy()
            fresh = np.isin(rows, keys)
            for earlier in self._earlier:
                fresh &= ~np.isin(rows, earlier)
            self._agreed += bool(fresh.mean() >= ROWS_SHARE)
        self._earlier.append(keys)
        self.over = len(self._earlier) >= PASSES_MAX or self._agreed >= ROLLOUTS_MIN
        return self._agreed >= ROLLOUTS_MIN


class MovingTargets:
    """Follows one run until it is known that its targets move."""

    def __init__(self, counts: Callable[[], bool], compiles: Callable[[], bool], report: Report) -> None:
        self._copies, self._rollouts = Copies(counts, report), Rollouts()
        self._shared, self._noisy = SharedCopies(), NoisyTeachers(counts, report)
        self._compiles = compiles
        self._known = False
        self._follows_itself = 0
        self._keys: Tensor | None = None
        self._trained: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._aside: Tensor | None = None
        self._aside_before: Tensor | None = None
        self._steps = self._asides = self._bootstrapped = 0

    def loss_read(self, *, follows_itself: bool, compared: Collection[int]) -> None:
        """A look has read a loss.

        ``follows_itself`` if outputs of the model are its targets; its distances compare so many elements.
        """
        self._follows_itself += follows_itself
        aside, before, trained = self._aside, self._aside_before, self._keys
        if aside is not None and len(aside) in compared and 0 < self._asides <= ASIDES_MAX:
            same = [
                one
                for one in (before, trained)
                if one is not None and bool(torch.isin(aside, one.to(aside.device)).all())
            ]
            self._bootstrapped += not same

    def called_aside(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._shared.called_aside(module)
        if not self._known and self._steps < BOOTSTRAPPED_STEPS and module.training and module in self._trained:
            self._aside = row_keys(args, kwargs)
            self._asides += self._aside is not None and len(self._aside) > 1
        if not self._known and not self._rollouts.over:
            self._rollouts.called_aside(args, kwargs)

    def called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._shared.called(module)
        if not self._known and not self._rollouts.over:
            self._rollouts.called(args, kwargs)
        first = not self._known and self._steps < BOOTSTRAPPED_STEPS
        if first:
            self._trained.add(module)
        if first or self._copies.compares_rows:
            self._keys = row_keys(args, kwargs)

    def gate(self, stream: Stream, seen: StepInProgress) -> float | None:
        """A step of ``stream`` is at the gate. Returns the fact ``moving_targets`` once it is known."""
        if self._compiles():  # a hook would make compiled code be compiled again
            self.remove()
        elif stream.own_steps == 0:
            self._copies.begin(stream)
        elif stream.own_steps + 1 in SEARCH_STEPS:
            self._copies.search(stream)
            if stream.own_steps + 1 == SEARCH_STEP:
                self._noisy.search(stream)
        keys, self._keys = self._keys, None
        self._aside, self._aside_before, self._asides = None, self._aside, 0
        self._steps += 1
        fact = COPY_FOLLOWS if self._copies.gate(stream, keys) else None
        if self._known:
            return None
        if not self._rollouts.over and self._rollouts.gate(seen):
            fact = OWN_ROLLOUTS
        if self._follows_itself >= LOSSES_MIN or self._bootstrapped >= BOOTSTRAPPED_MIN:
            fact = OWN_OUTPUTS
        if fact is not None:
            self._known = True
            self._copies.remove(but_first=True)
        return fact

    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """Copies that should follow and do not, and those that are none."""
        yield from self._copies.stale(stream)
        yield from self._shared.rows(stream)
        yield from self._noisy.rows(stream)

    def training_begins(self) -> None:
        """A new optimizer: what runs beside the model is counted again, as a reference of this training."""
        self._shared = SharedCopies()

    def remove(self) -> None:
        self._copies.remove()
        self._noisy.remove()
