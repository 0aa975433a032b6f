"""Builds the input of the search for the first bad operation: a whole step, or one model call before its backward."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from steadytrain.capture.hooks.model_discovery import plain_name
from steadytrain.capture.incident.context import IncidentContext
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.loss import LossTerm
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.script_frames import LoopLines, loop_lines


def before_backward(run: LiveRun) -> IncidentContext:
    """The last model call and its loss, while the variables of the lines that computed them still exist."""
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
        no_lap="the loss was checked before backward",
        wrappers=tuple(module for stream in run.streams for module in _replicated(stream)),
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
    """A batch for which the script itself makes no update."""
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
        no_lap="the script itself has continued after this step",
        wrappers=_replicated(stream),
    )


def at_gate(
    run: LiveRun, stream: Stream, optimizer: torch.optim.Optimizer, *, step: int, loss_finite: bool, can_rerun: bool
) -> IncidentContext:
    """The whole step, right before its update."""
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
        wrappers=_replicated(stream),
    )


def _replicated(stream: Stream) -> tuple[nn.Module, ...]:
    return stream.joint.replicated() if stream.joint is not None else ()


def _why_no_lap(run: LiveRun, stream: Stream, optimizer: torch.optim.Optimizer, *, can_rerun: bool) -> str | None:
    """Why the script's loop cannot run once more; None if it can."""
    if not can_rerun:
        return "the optimizer runs forward and backward inside its own step"
    if stream.together:
        return "other ranks would wait for this one"
    if len(stream.optimizers) > 1:
        return "several optimizers step together"
    if run.turns.may_be_next(stream, run.streams):
        known = "several optimizers take turns"
        return known if stream.own_steps else "this is its optimizer's first step, after steps of another one"
    if not type(optimizer).__module__.startswith("torch.optim"):
        return f"the optimizer {type(optimizer).__qualname__} may change weights that have no gradient"
    return None
