"""Measures one row of numbers for each parameter, before and after the optimizer's step.

    watch = TensorWatch(names, parameters)
    watch.before_update()              # at the gate: gradients, and a sample of the weights as they still are
    ...                                # the optimizer steps
    readback = watch.after_update([optimizer])
    ...
    if readback.ready():               # at once on the CPU, a step later on a GPU
        reading = readback.result()    # of the table "tensors"

Each whole tensor is read once (``passes``); the rest comes from samples (``sample_statistics``). Between the two
measurements only the samples of weights and gradients are kept. Nothing here writes to the user's tensors or draws a
random number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from steadytrain.capture.tensors.dense import dense_values
from steadytrain.capture.tensors.optimizer_state import Moments, find_moments
from steadytrain.capture.tensors.statistics.assemble import Parts
from steadytrain.capture.tensors.statistics.layout import Group, Layout, lay_out, signature_of
from steadytrain.capture.tensors.statistics.passes import Passed, Passes
from steadytrain.capture.tensors.statistics.quiet import quiet
from steadytrain.capture.tensors.statistics.readback import Readback
from steadytrain.capture.tensors.statistics.sample_chunks import SAMPLE_MAX
from steadytrain.capture.tensors.statistics.sample_statistics import Samples, SecondMoment
from steadytrain.capture.tensors.statistics.tensor_columns import KINDS
from steadytrain.core.model import Reading
from steadytrain.core.torch_private import FOREACH_COPY

NOTES_MAX = 64
"""Different notes shown; further ones are dropped."""


class _Notes:
    """What could not be measured, each told once. Apart from the watch, which it would hold in a cycle with the
    parameters otherwise: they would live until Python looks for cycles."""

    def __init__(self) -> None:
        self._told: dict[str, bool] = {}

    def add(self, note: str) -> None:
        if len(self._told) < NOTES_MAX:
            self._told.setdefault(note, False)

    def take(self) -> list[str]:
        new = [note for note, told in self._told.items() if not told]
        self._told = dict.fromkeys(self._told, True)
        return new


class TensorWatch:
    """Serves one stream of steps. Not thread-safe.

    Args:
        names: the names of the rows, one for each parameter.
        parameters: fixed; their values, devices, dtypes and shapes may change.
        sample_max: elements per sample; fewer if all samples together would need too much memory.
    """

    def __init__(self, names: Sequence[str], parameters: Sequence[Tensor], *, sample_max: int = SAMPLE_MAX) -> None:
        assert len(names) == len(parameters)
        self._names = tuple(names)
        self._parameters = list(parameters)
        self._sample_max = sample_max
        self._layout = Layout()
        self._notes = _Notes()
        self._passes = Passes(self._notes.add)
        self._before: list[tuple[str, Passed]] | None = None
        self._scale = 1.0

    @property
    def held_bytes(self) -> int:
        """Memory that stays in use between readings."""
        return self._layout.held_bytes

    def take_notes(self) -> list[str]:
        """New notes for the user: what could not be measured, and why."""
        return self._notes.take()

    def before_update(self, *, scale: float = 1.0) -> None:
        """Measure the gradients, and take a sample of the weights.

        Args:
            scale: the factor that the gradients still carry (a fused optimizer divides by it itself).
        """
        with quiet(self._parameters):
            weights = self._weights()
            if signature_of(weights) != self._layout.signature:
                self._layout = lay_out(weights, self._sample_max)
            gradients = {row: values for row in weights if (values := self._gradient(row)) is not None}
            for group in self._layout.groups:
                self._keep_samples(group, weights, gradients)
            self._scale = scale
            self._before = [("gradient", passed) for passed in self._passes.over("gradient", gradients)]

    def forget(self) -> None:
        """No update follows: the step was skipped or refused."""
        self._before = None

    def after_update(
        self, optimizers: Sequence[torch.optim.Optimizer], *, kinds: Collection[str] = KINDS
    ) -> Readback[Reading]:
        """Measure weights, updates and moments. Without ``before_update`` the reading lacks gradients and updates.

        Args:
            optimizers: those that have stepped.
            kinds: which of ``KINDS`` are read whole besides the gradient; the exact columns of the others are NaN.
        """
        with quiet(self._parameters):
            weights = self._weights()
            if signature_of(weights) != self._layout.signature:  # changed since before_update: no update to measure
                self._layout, self._before = lay_out(weights, self._sample_max), None
            looked, self._before = self._before, None
            moments = self._moments(optimizers)
            tensors = {
                "weight": weights,
                "first_moment": {row: found.first for row, found in moments.items() if found.first is not None},
                "second_moment": {row: found.second for row, found in moments.items() if found.second is not None},
            }
            whole = list(looked or [])
            for kind, of_kind in tensors.items():
                if kind in kinds:
                    whole += [(kind, passed) for passed in self._passes.over(kind, of_kind)]
            groups = self._layout.groups if looked is not None else ()
            parts = Parts(
                names=self._names,
                whole=whole,
                samples=[(group.rows, self._samples(group, weights, moments).columns()) for group in groups],
                epsilons={row: epsilon for row, found in moments.items() if (epsilon := self._epsilon(found))},
                counts={row: values.numel() for row, values in weights.items()},
                scale=self._scale,
            )
            return Readback(parts.tensors(), parts.reading)

    def _weights(self) -> dict[int, Tensor]:
        weights = {}
        for row, parameter in enumerate(self._parameters):
            values = dense_values(parameter)
            if values is None:
                kind = f"{parameter.dtype} on {parameter.device.type}"
                self._notes.add(f"{self._names[row]} holds no plain floats ({kind}): its row stays empty")
            else:
                weights[row] = values
        return weights

    def _gradient(self, row: int) -> Tensor | None:
        gradient = self._parameters[row].grad
        return dense_values(gradient) if gradient is not None else None

    def _keep_samples(self, group: Group, weights: Mapping[int, Tensor], gradients: Mapping[int, Tensor]) -> None:
        group.smallest_normal = []
        plans, targets, sources = self._layout.plans, [], []
        for row, held_weights, held_gradient in zip(group.rows, group.weights, group.gradients, strict=True):
            gradient = gradients.get(row)
            targets.append(held_weights)
            sources.append(plans[row].view(weights[row]))
            if gradient is not None and gradient.shape != weights[row].shape:
                self._notes.add(f"the gradient of {self._names[row]} is sparse: it has no element-wise measurements")
                gradient = None
            group.smallest_normal.append(torch.finfo(gradient.dtype).tiny if gradient is not None else None)
            if gradient is not None:
                targets.append(held_gradient)
                sources.append(plans[row].view(gradient))
        shaped = [target.view(source.shape) for target, source in zip(targets, sources, strict=True)]
        FOREACH_COPY(shaped, sources)

    def _moments(self, optimizers: Sequence[torch.optim.Optimizer]) -> dict[int, Moments]:
        by_id: dict[int, Moments] = {}
        for optimizer in optimizers:
            found = find_moments(optimizer)
            by_id.update(found.moments)
            for note in found.notes:
                self._notes.add(note)
        rows = self._layout.plans
        return {row: by_id[id(self._parameters[row])] for row in rows if id(self._parameters[row]) in by_id}

    def _samples(self, group: Group, weights: Mapping[int, Tensor], moments: Mapping[int, Moments]) -> Samples:
        plans = self._layout.plans
        second: list[SecondMoment | None] = []
        for row, smallest_normal in zip(group.rows, group.smallest_normal, strict=True):
            found = moments.get(row, Moments())
            if smallest_normal is None or found.second is None or not found.ratio_is_defined:
                second.append(None)
            else:
                view = plans[row].view(found.second)
                second.append(SecondMoment(view, found.root_bias(), found.epsilon or 0.0))
        return Samples(
            before=group.weights,
            gradients=group.gradients,
            after=[plans[row].view(weights[row]) for row in group.rows],
            counts=[plans[row].count for row in group.rows],
            smallest_normal=group.smallest_normal,
            second=second,
            scale=self._scale,
        )

    def _epsilon(self, found: Moments) -> float | None:
        """Epsilon rounded to the dtype of the second moment; None if there is none or it is zero."""
        if found.second is None or not found.epsilon:
            return None
        held = _as_held(found.epsilon, found.second.dtype)
        if held == 0.0:
            dtype = found.second.dtype
            self._notes.add(f"epsilon {found.epsilon:g} is zero in {dtype}, the dtype of the second moments")
            return None
        return held


@lru_cache(maxsize=64)
def _as_held(epsilon: float, dtype: torch.dtype) -> float:
    return float(torch.tensor(epsilon, dtype=dtype, device="cpu"))
