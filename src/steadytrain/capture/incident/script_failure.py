"""Keeps evidence of memory and communication failures when the script is about to end with its own error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.script_errors import is_of_the_gpu
from steadytrain.capture.incident.crash import COMMUNICATION, Moment, evidence_of, write_evidence
from steadytrain.capture.incident.crash.index_range import tables_of
from steadytrain.capture.incident.source_hashes import is_library
from steadytrain.capture.settings import started_at, utc_now
from steadytrain.capture.step import ranks
from steadytrain.capture.step.input_recorder import MicroBatch, named_tensors_in, tensors_in
from steadytrain.capture.step.script_frames import is_user
from steadytrain.storage.rank_endings import UNEVEN, FirstEnd, RankEnd, first_end_of

if TYPE_CHECKING:
    from steadytrain.capture.step.live_run import LiveRun
    from steadytrain.core.incident import Samples

FIRST_S_MAX = 1.0
"""How long a rank that lost contact waits for the records of the one that ended: they may come a moment later."""

_PAUSE_S = 0.05
MESSAGE_MAX = 160
ROWS_MAX = 3
STREAMS_SAID = 3


def keep_evidence(run: LiveRun, error: BaseException) -> None:
    """Write the evidence about ``error`` into the run folder, and report it."""
    moment = Moment(
        created=utc_now(),
        since=started_at(run.settings),
        rank=ranks.rank(),
        step=run.last_step or None,
        names={
            id(parameter): name
            for stream in run.streams
            # The parameters of a training that is over are gone, its names are not.
            for parameter, name in zip(stream.parameters, stream.tensor_names, strict=False)
        },
        own=list(tensors_in([[batch.args, batch.kwargs] for batch in run.kept_batches()])),
        samples=run.recorder.machine_samples,
        backwards=list(run.backwards),
        given=list(tensors_in([batch for _, batch in run.seen.fetched])),
        fields=[one for _, batch in run.seen.fetched for one in named_tensors_in(batch)],
        inputs=[one for call in run.seen.micro_batches[-1:] for one in named_tensors_in([call.args, call.kwargs])],
        tables=tables_of(root for stream in run.streams for root in stream.roots()),
        **_batch(run),
    )
    documents = evidence_of(error, moment, disk=run.settings.run_dir)
    for line in write_evidence(run.recorder.begin().path, documents) if documents else ():
        run.tell(line)
    if COMMUNICATION in documents:
        first, speaks = ended_first(run), ranks.speaks(run.settings.run_dir)
        if first is not None and not (first.kind == UNEVEN and speaks):  # there a detector reports it
            run.tell(first.cause)


def ended_first(run: LiveRun) -> FirstEnd | None:
    """The rank that ended before this one lost contact; None if no record says."""
    run_dir, until = run.settings.run_dir, time.monotonic() + FIRST_S_MAX
    own = RankEnd(ranks.rank(), run.last_step, "lost contact", run.failure or "")
    while (found := first_end_of(run_dir, own)) is None and time.monotonic() < until:
        time.sleep(_PAUSE_S)
    return found


def _batch(run: LiveRun) -> dict[str, Any]:
    """Rows and data set samples of the model's last input; empty if it was not called in this step."""
    calls = run.seen.micro_batches[-1:]
    tensors = [tensor for call in calls for tensor in tensors_in([call.args, call.kwargs]) if tensor.dim()]
    return {"rows": tensors[0].shape[0], "drawn": _drawn(run, calls)} if tensors else {}


def _drawn(run: LiveRun, calls: Sequence[MicroBatch]) -> tuple[Samples, ...]:
    """The data set samples of ``calls``; none where the batch is on a GPU that has failed."""
    try:
        return run.draws.samples_of(calls)
    except RuntimeError as error:
        if is_of_the_gpu(error):
            return ()
        raise


def how_it_ended(run: LiveRun, error: BaseException) -> str | None:
    """The error that ends the script, in one line: its step, its place, and the model's input.

    None for ``sys.exit(0)`` after a whole step, as at the end of a program; within one it may be a guard of the script.
    """
    step = run.last_step
    begun = bool(run.seen.micro_batches or run.seen.losses)
    when = f"in step {step + 1}" if begun else f"after step {step}"
    if len({one.step for one in run.streams}) > 1:  # of which optimizer the step would have been is not known yet
        steps = [f"{one.step} of {one.name}" for one in run.streams[:STREAMS_SAID]]
        when = f"after step {' and '.join(steps)}"
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted (KeyboardInterrupt) {when}"
    if isinstance(error, SystemExit):
        if not begun and error.code in (None, 0):
            return None
        return f"ended by SystemExit({error.code!r}) {when}"
    frames = [frame for frame in _frames(error) if is_user(frame)]
    place = _place(frames)
    text = " ".join(str(error).split()).rstrip(".")
    text = f": {text[:MESSAGE_MAX]}{'...' if len(text) > MESSAGE_MAX else ''}" if text else ""
    return f"ended by {type(error).__name__} {when}{place}{_module(run, frames)}{text}{_bad_labels(error)}"


def _place(frames: Sequence[FrameType]) -> str:
    """The innermost line of the script itself, then that of a library where it raised."""
    own = [frame for frame in frames if not is_library(frame.f_code.co_filename)]
    places = [("at", own[-1])] if own else []
    places += [("in" if own else "at", frames[-1])] if frames and frames[-1] not in own[-1:] else []
    return "".join(f" {word} {one.f_code.co_filename.rsplit('/', 1)[-1]}:{one.f_lineno}" for word, one in places)


def _frames(error: BaseException) -> list[FrameType]:
    """The frames of the traceback, outermost first; their current lines are the ones that raised."""
    found: list[FrameType] = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    return found


def _module(run: LiveRun, frames: list[FrameType]) -> str:
    """The innermost running module, and the shapes of the model's input."""
    running = [one for frame in frames if isinstance(one := frame.f_locals.get("self"), nn.Module)]
    if not running:
        return ""
    roots = [root for stream in run.streams for root in stream.roots()] or run.modules.called
    names = {id(module): name for root in roots for name, module in root.named_modules()}
    name = names.get(id(running[-1])) or type(running[-1]).__name__
    shapes = (
        [str(list(tensor.shape)) for tensor in tensors_in([run.seen.micro_batches[-1].args])] if _called(run) else []
    )
    return f" in {name}" + (f" (the model's input {', '.join(shapes)})" if shapes else "")


def _called(run: LiveRun) -> bool:
    return bool(run.seen.micro_batches)


def _bad_labels(error: BaseException) -> str:
    """The rows of classification targets that are not valid class indices."""
    if not isinstance(error, IndexError):
        return ""
    for frame in _frames(error):
        scores, targets = frame.f_locals.get("input"), frame.f_locals.get("target")
        ours = frame.f_code.co_name in ("cross_entropy", "nll_loss")
        if ours and isinstance(scores, Tensor) and isinstance(targets, Tensor) and targets.device.type == "cpu":
            classes = scores.shape[1 if scores.dim() > 1 else 0]
            ignored = frame.f_locals.get("ignore_index", -100)
            bad = torch.nonzero(((targets < 0) | (targets >= classes)) & (targets != ignored))[:ROWS_MAX].tolist()
            rows = ", ".join(
                f"{row[0] if len(row) == 1 else row} has label {targets[tuple(row)].item()}" for row in bad
            )
            return f" (of {classes} classes; row {rows})" if bad else ""
    return ""
