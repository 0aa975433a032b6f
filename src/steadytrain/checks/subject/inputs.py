"""Make model inputs differentiable or replace them, for token ids and for numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.checks.subject.model_check import Batch, CannotError, Look, Subject, changed_tree, tensors_of
from steadytrain.checks.subject.scores import scores_of
from steadytrain.checks.subject.tokens import embedding_calls

TARGET_WORDS = ("label", "target", "mask")


@dataclass(frozen=True, eq=False)
class Traced:
    """A look whose inputs are leaves of the graph, with an output whose first dimension is the rows."""

    look: Look
    leaves: Sequence[Tensor]
    output: Tensor


@contextlib.contextmanager
def changed_inputs(subject: Subject, batch: Batch, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Pass all numeric inputs of the model through ``change``: embedded tokens, and floating-point arguments.

    Arguments named labels, targets or masks stay unchanged.
    """
    rows = batch.rows

    def of_embedding(module: nn.Embedding, ids: Tensor, vectors: Tensor) -> Tensor | None:
        return change(vectors) if ids.dim() > 0 and len(ids) == rows else None

    def of_call(module: nn.Module, args: Any, kwargs: Any) -> Any:
        def one(tensor: Tensor) -> Tensor:
            by_rows = tensor.is_floating_point() and tensor.dim() > 1 and len(tensor) == rows
            return change(tensor) if by_rows and not tensor.requires_grad else tensor

        named = {
            name: value if any(word in name for word in TARGET_WORDS) else changed_tree(value, one)
            for name, value in kwargs.items()
        }
        # If the model gets token ids by position, the arguments after them are targets and masks.
        with_ids = any(not t.is_floating_point() and t.dim() > 1 for t in tensors_of(list(args[:1])))
        return (args if with_ids else (changed_tree(args[0], one), *args[1:]) if args else args), named

    called = {id(module): module for module in _called(batch, subject)}
    handles = [m.register_forward_pre_hook(of_call, with_kwargs=True) for m in called.values()]
    try:
        with embedding_calls(subject.model, of_embedding):
            yield
    finally:
        for handle in handles:
            handle.remove()


def traced(subject: Subject, batch: Batch) -> Traced:
    """A look with differentiable inputs.

    Raises:
        CannotError: there are none, or no output has the rows of the batch.
    """
    leaves: list[Tensor] = []

    def leaf(tensor: Tensor) -> Tensor:
        leaves.append(tensor.detach().requires_grad_(True))
        return leaves[-1]

    with changed_inputs(subject, batch, leaf):
        look = subject.look(batch)
    if not leaves:
        raise CannotError("the model's inputs cannot be differentiated: neither embedded tokens nor numbers by rows")
    return Traced(look, leaves, output_by_rows(look, batch))


def output_by_rows(look: Look, batch: Batch) -> Tensor:
    """The scores of the loss, or the model's largest output, whose first dimension is the rows.

    Raises:
        CannotError: there is none: the model returns one number, and its loss function was not seen.
    """
    scores = scores_of(look, batch.rows)
    if scores is not None and len(scores.logits) == batch.rows:
        return scores.logits
    outputs = [t for t in tensors_of([plain_output(look.output)]) if t.is_floating_point() and t.dim() > 0]
    by_rows = [tensor for tensor in outputs if len(tensor) == batch.rows and tensor.dim() > 0]
    by_rows += [call.scores for call in look.loss_calls if call.scores.dim() > 0 and len(call.scores) == batch.rows]
    if not by_rows:
        raise CannotError("no output of the model has the rows of the batch")
    return max(by_rows, key=lambda tensor: tensor.numel())


def plain_output(output: Any) -> Any:
    """An output in containers that can be traversed: the fields of a dataclass."""
    if hasattr(output, "__dataclass_fields__") and not isinstance(output, dict):
        return [getattr(output, name) for name in output.__dataclass_fields__]
    return output


def rows_or_refuse(batch: Batch, at_least: int) -> int:
    """The number of rows in the batch.

    Raises:
        CannotError: it is below ``at_least``, or unknown.
    """
    if batch.rows is None:
        raise CannotError("it is not known what a row of the batch is")
    if batch.rows < at_least:
        raise CannotError(f"a batch of {batch.rows} row{'s' if batch.rows != 1 else ''}; {at_least} are needed")
    return batch.rows


def time_may_come_first(subject: Subject, batch: Batch) -> bool:
    """Whether the first dimension may be time: a layer takes [time, rows, ...], and the targets do not contradict it.

    Next-token targets along the second dimension, or one target per row, show that the first dimension is the rows.
    """
    if not any(getattr(module, "batch_first", None) is False for module in subject.model.modules()):
        return False
    if subject.task in ("causal-lm", "masked-lm"):
        return False
    with torch.no_grad():
        calls = subject.look(batch).loss_calls
    return not any(
        isinstance(c.targets, Tensor) and c.targets.dim() == 1 and len(c.targets) == batch.rows for c in calls
    )


def random_weights(like: Tensor, seed: int = 7) -> Tensor:
    """Fixed random numbers in the shape of ``like``. In a sum with these weights nothing cancels."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator, dtype=torch.float32).to(like.device, like.dtype)


def _called(batch: Batch, subject: Subject) -> Sequence[nn.Module]:
    modules = getattr(batch.way, "modules", None)
    return list(modules) if modules else [subject.model]
