"""One row of numbers for each parameter, from a look before and a look after the optimizer's step.

    watch = TensorWatch(names, parameters)
    watch.before_update()              # at the gate: gradients, and a sample of the weights as they still are
    ...                                # the optimizer steps
    readback = watch.after_update([optimizer])
    ...
    if readback.ready():               # at once on the CPU, a step later on a GPU
        reading = readback.result()    # of the table "tensors"

Whole tensors are read once each; the rest is computed from samples, all of one length together. What is kept between
the two looks are the samples of weights and gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadytrain.capture.dense import dense_values
from steadytrain.capture.moments import Moments, find_moments
from steadytrain.capture.tensorstats import device as by_torch
from steadytrain.capture.tensorstats import host
from steadytrain.capture.tensorstats.columns import COLUMNS, EXACT, KINDS
from steadytrain.capture.tensorstats.norms import FLOAT32_MAX
from steadytrain.capture.tensorstats.quiet import quiet
from steadytrain.capture.tensorstats.readback import Readback
from steadytrain.capture.tensorstats.sample import SAMPLE_MAX, Plan, plan_for
from steadytrain.model import Reading

HELD_SHARE_MAX = 0.02
"""Of the memory of parameters and optimizer state (reckoned as three times the parameters), for the samples we keep."""

HELD_BYTES_MIN = 4 << 20
"""What may be kept of a model however small it is."""

SAMPLED = (
    *("gradient_zero_share", "gradient_subnormal_share", "unchanged_share"),
    *("update_norm", "update_min", "update_max", "update_mean", "update_ratio", "gradient_to_second_moment"),
)

_BLOCK_ELEMENTS = 1 << 20  # of samples that are computed with at a time
_PLACE = {name: place for place, name in enumerate(COLUMNS)}


@dataclass
class _Group:
    """Parameters of one device and dtype whose samples have one length: computed as one matrix."""

    rows: list[int]
    weights: Tensor
    gradients: Tensor
    has_gradient: list[bool] = field(default_factory=list)
    smallest_normal: list[float] = field(default_factory=list)


class TensorWatch:
    """Of one stream of steps. Not thread-safe; nothing here writes to a tensor of the user's.

    Args:
        names: what the rows are called, one for each parameter.
        parameters: whose values may move, change dtype or shape; which parameters they are stays.
        sample_max: elements of a sample.
    """

    def __init__(self, names: Sequence[str], parameters: Sequence[Tensor], *, sample_max: int = SAMPLE_MAX) -> None:
        assert len(names) == len(parameters)
        self._names = tuple(names)
        self._parameters = list(parameters)
        self._sample_max = sample_max
        self._laid_out: list[object] = []
        self._plans: dict[int, Plan] = {}
        self._groups: list[_Group] = []
        self._weights: dict[int, Tensor] = {}
        self._before: list[_Exact] | None = None
        self._scale = 1.0
        self._notes: dict[str, bool] = {}

    @property
    def held_bytes(self) -> int:
        """Memory that stays in use between readings."""
        return sum(matrix.nbytes for group in self._groups for matrix in (group.weights, group.gradients))

    def take_notes(self) -> list[str]:
        """What is to be told to the user once: what could not be measured, and why."""
        new = [note for note, told in self._notes.items() if not told]
        self._notes = dict.fromkeys(self._notes, True)
        return new

    def before_update(self, *, scale: float = 1.0) -> None:
        """Look at the gradients, and take a sample of the weights.

        Args:
            scale: what the gradients are still multiplied with (a fused optimizer divides by it itself).
        """
        with quiet(*{parameter.device.type for parameter in self._parameters}):
            self._scale = scale
            self._lay_out()
            gradients = {row: values for row in self._plans if (values := self._gradient(row)) is not None}
            for group in self._groups:
                self._keep_samples(group, gradients)
            self._before = _exact("gradient", gradients)

    def forget(self) -> None:
        """The update will not come: a skipped or refused step."""
        self._before = None

    def after_update(self, optimizers: Sequence[torch.optim.Optimizer]) -> Readback[Reading]:
        """Look at weights, updates and moments. Without a look before, gradients and updates are not in the reading."""
        with quiet(*{parameter.device.type for parameter in self._parameters}):
            looked_before, gradients = self._before is not None, self._before or []
            self._before = None
            self._lay_out()
            moments = self._moments(optimizers)
            first = {row: found.first for row, found in moments.items() if found.first is not None}
            second = {row: found.second for row, found in moments.items() if found.second is not None}
            exact = [
                *gradients,
                *_exact("weight", self._weights),
                *_exact("first_moment", first),
                *_exact("second_moment", second),
            ]
            groups = self._groups if looked_before else []
            sampled = [self._sampled(group, moments) for group in groups]
            tensors = [*(part.partials for part in exact), *sampled]
        rows_of = [group.rows for group in groups]
        epsilons = {row: epsilon for row, found in moments.items() if (epsilon := self._epsilon(row, found))}
        scale = self._scale

        def finish(arrived: list[Tensor]) -> Reading:
            values = np.full((len(self._names), len(COLUMNS)), np.nan)
            for part, tensor in zip(exact, arrived, strict=False):
                _write_exact(values, part, tensor.numpy(), 1.0 / scale if part.kind == "gradient" else 1.0)
            for rows, tensor in zip(rows_of, arrived[len(exact) :], strict=True):
                for place, name in enumerate(SAMPLED):
                    values[rows, _PLACE[name]] = tensor[:, place].numpy()
            self._write_epsilon(values, epsilons)
            np.clip(values, -FLOAT32_MAX, FLOAT32_MAX, out=values)
            return Reading("tensors", self._names, tuple(COLUMNS), values.astype(np.float32))

        return Readback(tensors, finish)

    def _gradient(self, row: int) -> Tensor | None:
        gradient = self._parameters[row].grad
        return dense_values(gradient) if gradient is not None else None

    def _lay_out(self) -> None:
        """Plan anew where a parameter is not what it was, and find the weights where they are now."""
        self._weights = {}
        layout: list[object] = []
        for row, parameter in enumerate(self._parameters):
            values = dense_values(parameter)
            if values is None:
                self._note(f"{self._names[row]} holds no plain floats ({parameter.dtype}): its row stays empty")
            else:
                self._weights[row] = values
                layout.append((row, values.shape, values.stride(), values.dtype, values.device))
        if layout == self._laid_out:
            return
        self._laid_out, self._before = layout, None
        self._plans, self._groups = {}, []
        alike: dict[tuple[torch.device, torch.dtype, int], list[int]] = {}
        size_max = self._size_max()
        for row, values in self._weights.items():
            plan = self._plans[row] = plan_for(values, size_max)
            if plan.length:
                alike.setdefault((values.device, values.dtype, plan.length), []).append(row)
        for (device, dtype, length), rows in alike.items():
            for start in range(0, len(rows), max(1, _BLOCK_ELEMENTS // length)):
                block = rows[start : start + max(1, _BLOCK_ELEMENTS // length)]
                shape = (len(block), length)
                computed = torch.float64 if dtype == torch.float64 else torch.float32
                weights = torch.empty(shape, dtype=dtype, device=device)
                self._groups.append(_Group(block, weights, torch.empty(shape, dtype=computed, device=device)))

    def _size_max(self) -> int:
        """Elements of a sample, so that all samples together stay within their share of memory."""
        sizes = [(values.numel(), values.element_size()) for values in self._weights.values()]
        budget = max(HELD_BYTES_MIN, HELD_SHARE_MAX * 3 * sum(count * size for count, size in sizes))
        size_max = self._sample_max
        while size_max > 64 and sum(min(count, size_max) * (size + max(size, 4)) for count, size in sizes) > budget:
            size_max //= 2
        return size_max

    def _keep_samples(self, group: _Group, gradients: dict[int, Tensor]) -> None:
        group.has_gradient, group.smallest_normal = [], []
        for at, row in enumerate(group.rows):
            plan, weights, gradient = self._plans[row], self._weights[row], gradients.get(row)
            _copy_sample(group.weights[at], plan, weights)
            if gradient is not None and gradient.shape != weights.shape:
                self._note(f"the gradient of {self._names[row]} is sparse: what needs it weight by weight is left out")
                gradient = None
            group.has_gradient.append(gradient is not None)
            group.smallest_normal.append(torch.finfo(gradient.dtype if gradient is not None else weights.dtype).tiny)
            if gradient is not None:
                _copy_sample(group.gradients[at], plan, gradient)

    def _moments(self, optimizers: Sequence[torch.optim.Optimizer]) -> dict[int, Moments]:
        by_id: dict[int, Moments] = {}
        for optimizer in optimizers:
            found = find_moments(optimizer)
            by_id.update(found.moments)
            for note in found.notes:
                self._note(note)
        return {row: by_id[id(self._parameters[row])] for row in self._plans if id(self._parameters[row]) in by_id}

    def _sampled(self, group: _Group, moments: dict[int, Moments]) -> Tensor:
        """The columns :data:`SAMPLED` of a group, ``(rows, columns)`` in the widest dtype of its device."""
        device, computed = group.gradients.device, group.gradients.dtype
        wide = by_torch.accumulator(device)
        after = torch.empty_like(group.weights)
        for at, row in enumerate(group.rows):
            _copy_sample(after[at], self._plans[row], self._weights[row])
        counts = [self._plans[row].count for row in group.rows]
        update = _partials_of_rows(after.to(computed) - group.weights.to(computed))
        weight_squares = _partials_of_rows(after)[:, 0]
        squares, smallest, largest, total, _, finite = update.unbind(1)
        none = finite == 0
        elements = torch.tensor(counts, dtype=wide, device=device)
        norm = (squares / finite * elements).sqrt()
        ratio = (squares / weight_squares).sqrt()

        gradients = group.gradients
        magnitudes = gradients.abs()
        limits = torch.tensor(group.smallest_normal, dtype=computed, device=device)[:, None]
        zero = magnitudes == 0
        length = gradients.shape[1]
        zero_share = zero.sum(1).to(wide) / length
        subnormal_share = (magnitudes < limits).sum(1).to(wide) / length - zero_share
        applied = torch.isfinite(gradients) & ~zero
        same = _bits(after) == _bits(group.weights)
        unchanged = (same & applied).sum(1).to(wide) / applied.sum(1)
        lag = self._gradient_to_second_moment(group, moments, magnitudes)
        columns = torch.stack(
            [
                *(zero_share, subnormal_share, unchanged),
                *(column.masked_fill(none, torch.nan) for column in (norm, smallest, largest, total / finite)),
                *(ratio, lag.to(wide)),
            ],
            dim=1,
        )
        if not all(group.has_gradient):
            without = torch.tensor([not has for has in group.has_gradient], device=device)
            of_gradient = torch.tensor([name.startswith(("gradient", "unchanged")) for name in SAMPLED], device=device)
            columns = columns.masked_fill(without[:, None] & of_gradient, torch.nan)
        return columns

    def _gradient_to_second_moment(self, group: _Group, moments: dict[int, Moments], magnitudes: Tensor) -> Tensor:
        """RMS of g / max(sqrt(v), epsilon), NaN where there is no such v."""
        device, computed = magnitudes.device, magnitudes.dtype
        rows = [
            at
            for at, row in enumerate(group.rows)
            if group.has_gradient[at]
            and row in moments
            and moments[row].ratio_is_defined
            and moments[row].second is not None
        ]
        out = torch.full((len(group.rows),), torch.nan, dtype=computed, device=device)
        if not rows:
            return out
        second = torch.empty((len(rows), magnitudes.shape[1]), dtype=computed, device=device)
        for at, place in enumerate(rows):
            row = group.rows[place]
            values = moments[row].second
            assert values is not None
            _copy_sample(second[at], self._plans[row], values)
        found = [moments[group.rows[place]] for place in rows]
        bias = _bias(found, device, computed)
        epsilon = torch.tensor([moment.epsilon or 0.0 for moment in found], dtype=computed, device=device)
        divisor = (second / bias[:, None]).sqrt().maximum(epsilon[:, None])
        chosen = magnitudes if len(rows) == len(group.rows) else magnitudes[rows]
        ratios = torch.where(torch.isfinite(chosen) & (chosen > 0), chosen / self._scale / divisor, 0.0)
        rms = torch.linalg.vector_norm(ratios, dim=1, dtype=by_torch.accumulator(device)) / magnitudes.shape[1] ** 0.5
        out[rows] = rms.to(computed)
        return out

    def _epsilon(self, row: int, found: Moments) -> float | None:
        """Epsilon as the dtype of the second moment holds it; None where it is not there or zero."""
        if found.second is None or not found.epsilon:
            return None
        held = float(torch.tensor(found.epsilon, dtype=found.second.dtype, device="cpu"))
        if held == 0.0:
            self._note(f"epsilon {found.epsilon:g} is zero in {found.second.dtype}, the dtype of the second moments")
            return None
        return held

    def _write_epsilon(self, values: NDArray[np.float64], epsilons: dict[int, float]) -> None:
        for row, epsilon in epsilons.items():
            gradient = self._parameters[row]
            rms = values[row, _PLACE["gradient_norm"]] / max(1, gradient.numel()) ** 0.5
            values[row, _PLACE["gradient_rms_to_epsilon"]] = rms / epsilon

    def _note(self, note: str) -> None:
        self._notes.setdefault(note, False)


@dataclass(frozen=True)
class _Exact:
    """Partial results of one kind of tensors on one device: a row of ``partials`` for each of ``rows``."""

    kind: str
    rows: list[int]
    partials: Tensor


def _exact(kind: str, tensors: dict[int, Tensor]) -> list[_Exact]:
    by_device: dict[torch.device, list[int]] = {}
    for row, tensor in tensors.items():
        by_device.setdefault(tensor.device, []).append(row)
    found = []
    for device, rows in by_device.items():
        chosen = [tensors[row] for row in rows]
        parts = torch.from_numpy(host.partials(chosen)) if device.type == "cpu" else by_torch.partials(chosen)
        found.append(_Exact(kind, rows, parts))
    return found


def _write_exact(values: NDArray[np.float64], part: _Exact, partials: NDArray[np.float64], factor: float) -> None:
    assert part.kind in KINDS
    squares, smallest, largest, total, nonfinite, finite = partials.astype(np.float64).T
    none = finite == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        measured = (np.sqrt(squares), smallest, largest, total / finite, nonfinite)
    for name, column in zip(EXACT, measured, strict=True):
        if name == "nonfinite":
            values[part.rows, _PLACE[f"{part.kind}_{name}"]] = column
        else:
            values[part.rows, _PLACE[f"{part.kind}_{name}"]] = np.where(none, np.nan, column * factor)


def _partials_of_rows(matrix: Tensor) -> Tensor:
    if matrix.device.type == "cpu":
        return torch.from_numpy(host.partials(list(matrix)))
    return by_torch.partials_of_rows(matrix)


def _copy_sample(target: Tensor, plan: Plan, tensor: Tensor) -> None:
    target.view(plan.chunks, plan.chunk).copy_(plan.view(tensor))


def _bits(tensor: Tensor) -> Tensor:
    """The elements as integers of the same width."""
    of_size = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(of_size[tensor.element_size()])


def _bias(found: Sequence[Moments], device: torch.device, dtype: torch.dtype) -> Tensor:
    """1 - beta2^step for each, 1 where the optimizer does not correct."""
    factors: list[Tensor] = []
    for moment in found:
        beta, step = moment.correction or (0.0, 1.0)
        if isinstance(beta, Tensor) or isinstance(step, Tensor):
            step = torch.as_tensor(step, dtype=torch.float32, device="cpu") if not isinstance(step, Tensor) else step
            beta = beta.to(step.device) if isinstance(beta, Tensor) else beta
            factors.append(1.0 - beta ** step.detach().to(torch.float64).reshape(()))
        else:
            factors.append(torch.tensor(1.0 - beta**step, dtype=torch.float64, device="cpu"))
    return torch.stack([factor.to(device=device, dtype=dtype) for factor in factors]).clamp_min(0.0)
