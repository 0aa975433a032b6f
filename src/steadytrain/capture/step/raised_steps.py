"""Looks at the batch in which the script raised before it had a loss: an operation may refuse what is not finite.

``binary_cross_entropy`` on the CPU and ``torch.distributions`` raise for NaN, and so do many a script's own checks. The
numbers are then at fault, and the message names a range or an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from steadytrain.capture.incident.context import Investigator
from steadytrain.capture.step.incident_contexts import let_go_context
from steadytrain.capture.step.input_recorder import MicroBatch, tensors_in
from steadytrain.capture.step.let_go import SCRIPT_ENDED
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.incident import Finding
from steadytrain.core.torch_private import IS_FUNCTORCH

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_NUMBERS = (ArithmeticError, AssertionError, RuntimeError, ValueError)
"""Errors that a value that is not finite can bring: a missing file or key is another matter."""


def why_raised(
    run: LiveRun, stream: Stream, investigator: Investigator | None, calls: Sequence[MicroBatch], error: BaseException
) -> tuple[str, Finding] | None:
    """What was not finite in the last ``calls`` of the model, in words, and where it came from; None if nothing was.

    Runs the model's forward once more, if its inputs are finite and the policy allows it.
    """
    if not isinstance(error, OF_NUMBERS) or not calls:
        return None
    given = any(_is_bad(one) for one in _inputs(calls[-1]))
    try:
        finding = _found(run, stream, investigator, calls)
    except type(error) as again:
        if str(again) != str(error):
            raise
        finding = None  # the forward raises it again: it is the operation itself that refuses its input
    reached = finding is not None and (finding.located is not None or bool(finding.came_in))
    if not reached and (finding is not None or not given):
        return None  # a model may well mend what it is given
    what = "the batch holds NaN or Inf" if given else "the model's output is not finite"
    why = finding or Finding(None, "the step could not be run again")
    return f"{SCRIPT_ENDED} {type(error).__name__} without a finite loss: {what}", why


def _found(
    run: LiveRun, stream: Stream, investigator: Investigator | None, calls: Sequence[MicroBatch]
) -> Finding | None:
    if run.settings.policy != "stop" or investigator is None:
        return None
    context = let_go_context(run, stream, calls, [], step=stream.step + 1, losses=(), loop=None)
    with torch.autograd.set_detect_anomaly(False):
        answer = investigator.investigate(context)
    return answer if isinstance(answer, Finding) else None


def _inputs(call: MicroBatch) -> Iterator[Tensor]:
    """Those with values of their own: a transform's may have escaped from it."""
    held = (one for one in tensors_in([call.args, call.kwargs]) if not IS_FUNCTORCH(one))
    return (one for one in held if one.is_floating_point() and not one.is_sparse)


@torch.no_grad()
def _is_bad(tensor: Tensor) -> bool:
    return not bool(torch.isfinite(tensor).all())
