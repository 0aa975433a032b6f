"""Runs the script's lines again on one of several ranks, without the others.

Inside, a data-parallel wrapper calls its module only, so gradients are not reduced and buffers are not synchronised. A
collective that the lines or the model call themselves is refused before it begins: the other ranks would not join it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from steadytrain.capture.incident.context import IncidentContext
from steadytrain.tracing.dispatch_mode import EachOperation
from steadytrain.tracing.line_rerun import CannotRunAgainError
from steadytrain.tracing.operation_facts import COLLECTIVES


def has_whole_model(incident_context: IncidentContext) -> bool:
    """Whether this process can run the model without other ranks."""
    return incident_context.alone or bool(incident_context.wrappers)


@contextlib.contextmanager
def without_others(incident_context: IncidentContext) -> Iterator[None]:
    """Inside, each data-parallel wrapper calls its module and nothing else. Does nothing in a run of one process.

    Raises:
        CannotRunAgainError: inside, where an operation needs the other ranks.
    """
    if incident_context.alone:
        yield
        return
    with contextlib.ExitStack() as stack:
        for wrapper in incident_context.wrappers:
            wrapper.__dict__["forward"] = _call_of(wrapper)
            stack.callback(wrapper.__dict__.pop, "forward", None)
        stack.enter_context(NoCollectives())
        yield


class NoCollectives(EachOperation):
    """Refuses every collective."""

    def operation(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if str(func).startswith(COLLECTIVES):
            raise CannotRunAgainError("they call a collective, which the other ranks would not join")
        return func(*args, **kwargs)


def _call_of(wrapper: nn.Module) -> Callable[..., Any]:
    inner = wrapper.module
    assert isinstance(inner, nn.Module)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    return forward
