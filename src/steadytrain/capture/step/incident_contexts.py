"""What is handed to whoever looks for the first bad operation: the whole step, or one call before its backward."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from steadytrain.capture.hooks.model_discovery import plain_name
from steadytrain.capture.incident.context import IncidentContext
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.loss import LossTerm
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.script_frames import LoopLines, loop_lines


def before_backward(run: LiveRun) -> IncidentContext:
    """The last call of the model and its loss, while the lines that made them still have their variables."""
    batch, term = run.seen.micro_batches[-1], run.seen.losses[-1]
    parameters = {
        plain_name(name): parameter for root in run.modules.called for name, parameter in root.named_parameters()
    }
    return IncidentContext(
        step=0,
        micro_batches=[batch],
        losses=[term],
        loss_finite=False,
        parameters=parameters,
        roots=run.modules.called,
        buffers=run.buffers,
        fetched=(),
        loop=loop_lines(batch.frames, term.frames),
        alone=not any(stream.together for stream in run.streams),
        no_lap="the loss is looked at before backward",
    )


def let_go_context(
    run: LiveRun,
    stream: Stream,
    batches: Sequence[MicroBatch],
    terms: Sequence[LossTerm],
    *,
    step: int,
    losses: Sequence[float],
    loop: LoopLines | None,
) -> IncidentContext:
    """A batch that the script lets go without an update."""
    if loop is None and batches and terms:
        loop = loop_lines(batches[-1].frames, terms[-1].frames)
    return IncidentContext(
        step=step,
        micro_batches=batches,
        losses=terms,
        loss_finite=all(map(math.isfinite, losses)),
        parameters=dict(zip(stream.tensor_names, stream.parameters, strict=True)),
        roots=list(stream.roots()),
        buffers=run.buffers,
        fetched=run.seen.fetched,
        loop=loop,
        alone=not stream.together,
        no_lap="the script itself has gone on from this step",
    )


def at_gate(
    run: LiveRun, stream: Stream, optimizer: torch.optim.Optimizer, *, step: int, loss_finite: bool, can_rerun: bool
) -> IncidentContext:
    """The whole step, whose update waits."""
    batches, losses = run.seen.micro_batches, run.seen.losses
    return IncidentContext(
        step=step,
        micro_batches=batches,
        losses=losses,
        loss_finite=loss_finite,
        parameters=dict(zip(stream.tensor_names, stream.parameters, strict=True)),
        roots=list(stream.roots()),
        buffers=run.buffers,
        fetched=run.seen.fetched,
        loop=loop_lines(batches[-1].frames, losses[-1].frames) if batches and losses else None,
        alone=not stream.together,
        no_lap=_why_no_lap(run, stream, optimizer, can_rerun=can_rerun),
    )


def _why_no_lap(run: LiveRun, stream: Stream, optimizer: torch.optim.Optimizer, *, can_rerun: bool) -> str | None:
    """Why the script cannot be let round once more, None where it can."""
    if not can_rerun:
        return "the optimizer runs forward and backward inside its own step"
    if stream.together:
        return "other ranks would wait for this one"
    if len(run.streams) > 1 or len(stream.optimizers) > 1:
        return "several optimizers take turns"
    if not type(optimizer).__module__.startswith("torch.optim"):
        return f"the optimizer {type(optimizer).__qualname__} is not known to leave weights without gradient alone"
    return None
