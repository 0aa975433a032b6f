"""The check between backward and the update: it measures the loss and every gradient.

NaN and Inf propagate into L2 norms, so a healthy step costs one norm per tensor and one copy to the host. Only if a
norm is not finite, the gate counts the elements exactly. Not here: what follows from the result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadytrain.capture.step.loss import loss_of_step, unscaled
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.capture.step.ranks import HAS_BAD_GRADIENT, WENT_WRONG, BadRank, first_bad_rank, rank, world_size
from steadytrain.capture.step.step_gradients import changed_since, dense_of, gradients_of, overflowed
from steadytrain.capture.tensors.dense import has_empty_shard
from steadytrain.capture.tensors.gradient_scaling import NO_UNDERFLOW, Scaling, underflow
from steadytrain.capture.tensors.statistics import (
    OVERFLOWED,
    exact_state,
    fetch,
    global_norm,
    l2_norms,
    recorded_norm,
)
from steadytrain.core.incident import BadTensor
from steadytrain.core.model import GRADIENT_ABSENT
from steadytrain.core.torch_private import SCALE
from steadytrain.storage.segments import StepRecord


@dataclass(frozen=True)
class LeftOut:
    """Why a finite update is skipped. ``symptom``: the name of the symptom that it is, "" where the step shows none.
    ``in_a_row_max``: how many may be skipped in a row, None for as many as ``--max-skips`` says."""

    why: str
    symptom: str = ""
    in_a_row_max: int | None = None


@dataclass
class Measurement:
    """The result of the gate for one step.

    ``losses`` are the unscaled losses of the backward calls. ``tensor_names`` name the columns of
    ``record.gradient_norms``. ``bad`` are the non-finite gradients of this rank. ``bad_rank`` reports a bad step for
    all ranks that step together; None for any other step. The gradients still carry the factor ``scale``.
    ``committed`` means that the step is already on record.
    """

    losses: tuple[float, ...]
    record: StepRecord
    tensor_names: tuple[str, ...]
    bad: tuple[BadTensor, ...]
    bad_rank: BadRank | None
    scale: float
    committed: bool = False
    factor: float = 1.0
    """What an intervention multiplied the gradients by."""

    raised: bool = False
    """Whether the script itself raised because of this step."""

    left_out: LeftOut | None = None
    """Why the update is skipped although everything is finite."""

    @property
    def loss_finite(self) -> bool:
        return all(math.isfinite(loss) for loss in self.losses)

    @property
    def is_incident(self) -> bool:
        bad_here = not self.loss_finite or bool(self.bad)
        return not self.record.skipped and (bad_here or self.bad_rank is not None or self.raised)

    @property
    def is_of_another_rank(self) -> bool:
        """Whether another rank reports this step."""
        return self.bad_rank is not None and self.bad_rank.rank != rank()


@torch.no_grad()
def measure(
    stream: Stream,
    optimizer: torch.optim.Optimizer,
    seen: StepInProgress,
    scaling: Scaling,
    *,
    skipped: bool,
    weigh: bool,
    time_s: float,
    own_s: float = 0.0,
) -> Measurement:
    """Read norms and losses in one device-to-host copy; count non-finite elements exactly only if a norm shows them.

    Args:
        scaling: the gradient scalers, and what they and the clipping did in this step.
        skipped: whether a scaler is known to have skipped this step.
        weigh: whether to also compute the norm of the weights and count underflowed gradients.
        time_s: wall-clock time of the record, in seconds since the epoch.
        own_s: seconds that steadytrain itself spent in this step.
    """
    look = _Look(stream, optimizer, seen, scaling, weigh=weigh)
    before, applied = look.norms()
    losses, loss = look.losses()
    skipped = skipped or any(value > 0 for value in look.found_inf())
    norms = {position: before.get(position, norm) for position, norm in applied.items()}
    bad = _exact_look(stream, seen, look.gradients, applied, norms) if not skipped else ()
    row = np.full(len(stream.parameters), GRADIENT_ABSENT, np.float32)
    row[list(norms)] = list(norms.values())
    names, row = _learning(stream, row)
    loss_bad = not skipped and not all(math.isfinite(loss) for loss in losses)
    bad_rank = look.first_bad_rank(WENT_WRONG if loss_bad else HAS_BAD_GRADIENT if bad else 0)
    record = StepRecord(
        step=stream.step + 1,
        time=time_s,
        scalars={
            "loss": loss,
            "gradient_norm": global_norm(list(norms.values())) if norms else None,
            "gradient_norm_applied": global_norm(list(applied.values())) if applied else None,
            "parameter_norm": global_norm(look.weights()) if weigh else None,
            "learning_rate": _learning_rate(optimizer),
            "samples": seen.amount(lambda batch: batch.samples),
            "tokens": seen.amount(lambda batch: batch.tokens),
            "step_s": max(0.0, time.perf_counter() - seen.began - own_s),
            "data_wait_s": seen.waited_s,
            "overflow_share": overflowed(stream.parameters, seen.clipping, look.gradients, applied),
            "underflow_share": look.underflow.share(look.small()),
            **scaling.scalars(
                stream.name,
                look.own(),
                before=list(before.values()),
                applied=[applied[at] for at in before if at in applied],
                skipped=skipped,
            ),
        },
        gradient_norms=row,
        skipped=skipped,
    )
    return Measurement(losses, record, names, bad, bad_rank, look.scale)


class _Fetch:
    """Copies the values of many tensors to the host at once.

    It refers to no :class:`_Look`: in a cycle of references the gradients of a step would stay in memory until the
    garbage collector runs, many steps later.
    """

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._values: list[float] = []

    def ask(self, tensors: Sequence[Tensor]) -> Callable[[], list[float]]:
        """Returns a function that gives the values of ``tensors``, each 0-d, after :meth:`run`."""
        if not tensors:
            return _no_values
        start = len(self._tensors)
        self._tensors += tensors
        stop = len(self._tensors)
        return lambda: self._values[start:stop]

    def run(self) -> None:
        self._values, self._tensors = fetch(self._tensors), []


def _no_values() -> list[float]:
    return []


class _Look:
    """Fetches all values of one step from the devices in one copy, on construction; methods return them."""

    def __init__(
        self,
        stream: Stream,
        optimizer: torch.optim.Optimizer,
        seen: StepInProgress,
        scaling: Scaling,
        *,
        weigh: bool,
    ) -> None:
        self._stream, self._seen, self._scaling = stream, seen, scaling
        asked = _Fetch()
        self.gradients = gradients_of(stream.parameters)
        clipping = seen.clipping
        # Skip the gradients that clipping has just read.
        self._unread, self._clipped = self.gradients, {}
        if clipping.clips or clipping.norms:
            self._unread = changed_since(clipping.left, stream.parameters, self.gradients)
            before = clipping.norms
            self._clipped = {at: before[id(p)] for at, p in enumerate(stream.parameters) if id(p) in before}
        found_inf, grad_scale = _tensor_of(optimizer, "found_inf"), _tensor_of(optimizer, "grad_scale")
        own = scaling.tensors()
        self.underflow = NO_UNDERFLOW
        if weigh:
            scale = own[0] if own else next(iter(grad_scale), None)
            self.underflow = underflow([values for _, values in self.gradients], scale=scale, carried=bool(grad_scale))
        unread_norms = l2_norms([values for _, values in self._unread]) if self._unread else []
        self._roots = asked.ask([term.root for term in seen.losses])
        self._factors = asked.ask([factor.value for term in seen.losses for factor in term.factors])
        self._counts = asked.ask([term.counted for term in seen.losses if isinstance(term.counted, Tensor)])
        scales = [scale for scaler in scaling.scalers.values() if (scale := SCALE.of(scaler)) is not None]
        self._scales = asked.ask(scales)
        self.found_inf, self._grad_scale = asked.ask(found_inf), asked.ask(grad_scale)
        self._total = asked.ask([clipping.total] if clipping.total is not None else [])
        self.own, self.small = asked.ask(own), asked.ask(self.underflow.tensors)
        self._applied, self._before = asked.ask(unread_norms), asked.ask(list(self._clipped.values()))
        self.weights = asked.ask(l2_norms(dense_of(stream.parameters)) if weigh else [])
        self._joint = stream.joint if stream.joint is not None and stream.joint.are_now() else None
        asked.run()
        self.scale = self._grad_scale()[0] if grad_scale else 1.0
        """The factor that the gradients still carry (a fused optimizer divides by it itself)."""

    def norms(self) -> tuple[dict[int, float], dict[int, float]]:
        """By position: norms of clipped gradients before the first clip, and norms as the optimizer applies them."""
        clipping, scale = self._seen.clipping, self.scale
        before_scale = scale * self._scaling.norm_factor(self.own())
        before = {at: norm / before_scale for at, norm in zip(self._clipped, self._before(), strict=True)}
        coefficient = clipping.coefficient(self._total()[0]) if clipping.total is not None else 1.0
        read = {at: norm / scale for (at, _), norm in zip(self._unread, self._applied(), strict=True)}
        applied = {at: read[at] if at in read else before[at] * coefficient for at, _ in self.gradients}
        if len(read) < len(applied) and not all(math.isfinite(norm) for norm in applied.values()):
            norms_now = fetch(l2_norms([values for _, values in self.gradients]))
            applied = {at: norm / scale for (at, _), norm in zip(self.gradients, norms_now, strict=True)}
        return before, applied

    def losses(self) -> tuple[tuple[float, ...], float | None]:
        """The loss of each backward call, without loss scale and accumulation factor, and the loss of the step."""
        terms, roots, scales, values = self._seen.losses, self._roots(), set(self._scales()), iter(self._factors())
        factors = [[(next(values), factor.power) for factor in term.factors] for term in terms]
        losses = tuple(
            unscaled(root, found, scales=scales, backward_calls=len(roots))
            for root, found in zip(roots, factors, strict=True)
        )
        counts = iter(self._counts())
        first = self._seen.first_pass or len(terms)
        return losses, loss_of_step(losses[:first], terms[:first], factors[:first], counts)

    def first_bad_rank(self, badness: int) -> BadRank | None:
        """The rank that reports this step; None if nothing is bad or this process decides alone."""
        return first_bad_rank(badness, self._joint) if self._joint is not None else None


def _learning(stream: Stream, row: NDArray[np.float32]) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """Names and norms without parameters that have no gradient because they are frozen (``requires_grad`` is False), or
    because this rank's shard of them is empty.

    Fine-tuning scripts pass such parameters to the optimizer and expect no update. A frozen parameter that still has a
    gradient is updated, so it stays in.
    """
    if not (row == GRADIENT_ABSENT).any():
        return stream.tensor_names, row
    frozen = [at for at, one in enumerate(stream.parameters) if not one.requires_grad or has_empty_shard(one)]
    still = {at for at in frozen if row[at] == GRADIENT_ABSENT}
    if len(still) in (0, len(row)):
        return stream.tensor_names, row
    kept = [at for at in range(len(row)) if at not in still]
    return tuple(stream.tensor_names[at] for at in kept), row[kept]


def _tensor_of(optimizer: torch.optim.Optimizer, name: str) -> list[Tensor]:
    value = getattr(optimizer, name, None)
    return [value] if isinstance(value, Tensor) else []


@torch.no_grad()
def bad_gradients(stream: Stream, seen: StepInProgress) -> tuple[BadTensor, ...]:
    """The non-finite gradients of this process, as they were before clipping. Runs no collective."""
    gradients = gradients_of(stream.parameters)
    norms = dict(zip((at for at, _ in gradients), fetch(l2_norms([values for _, values in gradients])), strict=True))
    return _exact_look(stream, seen, gradients, norms, dict(norms))


def reason(measured: Measurement) -> str:
    """Why the step is an incident, or its update is skipped, in one clause."""
    if measured.left_out is not None:
        return measured.left_out.why
    if not measured.loss_finite:
        bad = next(loss for loss in measured.losses if not math.isfinite(loss))
        return f"the loss is {kind_of(bad)}{_where(measured)}"
    if measured.bad:
        first = measured.bad[0]
        more = f" and {len(measured.bad) - 1} more" if len(measured.bad) > 1 else ""
        return f"the gradient of {first.name}{more} holds {_contents(first)}{_where(measured)}"
    assert measured.bad_rank is not None
    what = "loss" if measured.bad_rank.is_origin else "gradient"
    return f"the {what} of rank {measured.bad_rank.rank} is not finite"


def _where(measured: Measurement) -> str:
    """The rank at which the step went wrong, if this process has it. Ranks that decide alone say which they are."""
    if measured.bad_rank is None:
        return f" on rank {rank()}" if world_size() > 1 else ""
    known = measured.bad_rank.is_origin and not measured.is_of_another_rank
    return f" on rank {rank()}" if known else ""


def _exact_look(
    stream: Stream,
    seen: StepInProgress,
    gradients: Sequence[tuple[int, Tensor]],
    applied: Mapping[int, float],
    norms: dict[int, float],
) -> tuple[BadTensor, ...]:
    """The gradients with non-finite elements; writes their exact norms into ``norms``.

    Clipping by a NaN norm makes every gradient NaN. If the norms before clipping are known, the result has only the
    gradients that were already non-finite then.
    """
    for position, norm in norms.items():
        if not math.isfinite(norm) and math.isfinite(applied[position]):  # clipped: only the norm had overflowed
            norms[position] = recorded_norm(seen.clipping.states.get(id(stream.parameters[position]), OVERFLOWED))
    suspects = [(position, gradient) for position, gradient in gradients if not math.isfinite(applied[position])]
    if not suspects:
        return ()
    before = {at: seen.clipping.states.get(id(stream.parameters[at])) for at, _ in gradients}
    clip_seen = any(id(stream.parameters[at]) in seen.clipping.norms for at, _ in gradients)
    bad = []
    for position, gradient in suspects:
        state = exact_state(gradient)
        if state.finite:  # only the norm overflowed
            norms[position] = recorded_norm(state)
            continue
        if clip_seen and math.isfinite(norms[position]):
            continue
        state = before[position] or state
        if state.finite:
            continue
        norms[position] = recorded_norm(state)
        parameter = stream.parameters[position]
        bad.append(
            BadTensor(
                name=stream.tensor_names[position],
                shape=tuple(parameter.shape),
                dtype=str(gradient.dtype),
                nan=state.nan,
                inf=state.inf,
                count=state.count,
            )
        )
    if not bad and any(not exact_state(gradient).finite for _, gradient in suspects):
        # The norm overflowed before clipping, and the clip turned finite gradients into NaN: report the current ones.
        for position, gradient in suspects:
            state = exact_state(gradient)
            if not state.finite:
                norms[position] = recorded_norm(state)
                name, shape = stream.tensor_names[position], tuple(gradient.shape)
                bad.append(BadTensor(name, shape, str(gradient.dtype), state.nan, state.inf, state.count))
    return tuple(bad)


def _learning_rate(optimizer: torch.optim.Optimizer) -> float | None:
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    if isinstance(rate, Tensor):
        return float(rate) if rate.device.type == "cpu" else None
    return float(rate) if isinstance(rate, (int, float)) else None


def kind_of(value: float) -> str:
    """``NaN``, ``Inf`` or ``-Inf`` for a non-finite number."""
    return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"


def _contents(tensor: BadTensor) -> str:
    parts = [f"{count} {word}" for count, word in ((tensor.nan, "NaN"), (tensor.inf, "Inf")) if count]
    return f"{' and '.join(parts)} of {tensor.count} values"
