"""Token ids: the embedding that reads them, and a forward whose embedded inputs can be differentiated or replaced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.checks.subject.model_check import Batch, CannotError, Look, Subject, tensors_of


@dataclass(eq=False)
class Embedded:
    """A look at a batch: the ids that entered embeddings, and the resulting vectors as leaves of the graph."""

    ids: list[Tensor] = field(default_factory=list)
    modules: list[nn.Embedding] = field(default_factory=list)
    vectors: list[Tensor] = field(default_factory=list)
    look: Look | None = None


def token_ids(batch: Batch) -> dict[str, Tensor]:
    """Integer tensors [rows, positions] of the model's call, by name."""
    named = {**{f"args[{at}]": value for at, value in enumerate(batch.args)}, **batch.kwargs}
    found: dict[str, Tensor] = {}
    for name, value in named.items():
        for tensor in tensors_of(value):
            if tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32) and tensor.shape[1] > 1:
                found.setdefault(name, tensor)
    return found


@contextlib.contextmanager
def embedding_calls(
    model: nn.Module, change: Callable[[nn.Embedding, Tensor, Tensor], Tensor | None]
) -> Iterator[None]:
    """``change(module, ids, vectors)`` sees each call of an embedding with token ids, and may return other vectors."""

    def ends(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        ids = args[0] if args else kwargs.get("input")
        if isinstance(module, nn.Embedding) and isinstance(ids, Tensor) and isinstance(output, Tensor):
            return change(module, ids, output)
        return None

    handles = [m.register_forward_hook(ends, with_kwargs=True) for m in model.modules() if isinstance(m, nn.Embedding)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def main_embedding(subject: Subject, batch: Batch) -> tuple[nn.Embedding, Tensor]:
    """The embedding that reads the model's token ids, and these ids [rows, positions].

    Raises:
        CannotError: no embedding is called with token ids of the batch's rows, so the model has no text.
    """
    found: list[tuple[nn.Embedding, Tensor]] = []

    def note(module: nn.Embedding, ids: Tensor, vectors: Tensor) -> None:
        if ids.dim() == 2 and ids.shape[1] > 1 and (batch.rows is None or len(ids) == batch.rows):
            found.append((module, ids.detach()))

    with embedding_calls(subject.model, note):
        subject.look(batch)
    if not found:
        raise CannotError("the model reads no token ids: no embedding is called with rows of them")
    wanted = token_ids(batch)
    named = [one for one in found if any(_same(one[1], ids) for ids in wanted.values())]
    # Positions and token types are embedded, too; the vocabulary is the largest table.
    return max(named or found, key=lambda one: one[0].num_embeddings)


def look_with_leaves(subject: Subject, batch: Batch, wanted: nn.Embedding) -> Embedded:
    """A look in which the vectors of ``wanted`` are leaves of the graph."""
    seen = Embedded()

    def leaf(module: nn.Embedding, ids: Tensor, vectors: Tensor) -> Tensor | None:
        if module is not wanted:
            return None
        vectors = vectors.detach().requires_grad_(True)
        seen.ids.append(ids)
        seen.modules.append(module)
        seen.vectors.append(vectors)
        return vectors

    with embedding_calls(subject.model, leaf):
        seen.look = subject.look(batch)
    return seen


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other.to(one.device, one.dtype))
