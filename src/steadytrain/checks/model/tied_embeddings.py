"""Do input and output embeddings share one tensor if they should?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed


@final
@dataclass(frozen=True)
class TiedEmbeddings(Check):
    """Tied embeddings are one tensor.

    Means:
        If the configuration ties the output layer to the embedding, or both hold the same values, they must share
        memory. Two tensors with equal values differ after the first update, and a format that stores tied weights once
        saves only one of them.

    Causes:
        - weights that were copied (`a.weight.data = b.weight.data.clone()`, `copy_`) instead of assigned
        - a wrapper, a cast or a load that copied one of the two
        - `resize_token_embeddings` or a new head without `tie_weights()` after it

    Next:
        1. Assign the parameter itself: `head.weight = embedding.weight`, and create the optimizer after that.
        2. Call `model.tie_weights()` after loading or resizing.
    """

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "tied weights that were lost in wrapping, loading and compiling; transformers tie_weights"

    def inspect(self, subject: Subject) -> Outcome:
        config = getattr(subject.model, "config", None)
        said = _says_tied(config)
        embeddings = {n: m for n, m in subject.model.named_modules() if isinstance(m, nn.Embedding)}
        heads = {n: m for n, m in subject.model.named_modules() if isinstance(m, nn.Linear)}
        pairs = [
            (e, h)
            for e, embedding in embeddings.items()
            for h, head in heads.items()
            if embedding.weight.shape == head.weight.shape and embedding.num_embeddings > embedding.embedding_dim
        ]
        if not pairs:
            return not_run("the model has no embedding and output layer of the same shape")
        shared = [(e, h) for e, h in pairs if _same_memory(embeddings[e].weight, heads[h].weight)]
        copied = [
            (e, h)
            for e, h in pairs
            if (e, h) not in shared and torch.equal(embeddings[e].weight.detach(), heads[h].weight.detach())
        ]
        numbers: dict[str, Any] = {"tied": shared, "equal_but_apart": copied, "configuration": said}
        if copied:
            e, h = copied[0]
            return failed(f"{e} and {h} hold the same values in two tensors: they part in the first update", **numbers)
        if said and not shared:
            return failed("the configuration ties input and output embeddings, and they are two tensors", **numbers)
        if shared:
            return passed(f"{shared[0][0]} and {shared[0][1]} are one tensor", **numbers)
        return passed("input and output embeddings are two tensors, and nothing says that they are tied", **numbers)


def _says_tied(config: object) -> bool:
    if config is None:
        return False
    get = getattr(config, "get_text_config", None)
    inner = get() if callable(get) else config
    return bool(getattr(inner, "tie_word_embeddings", False))


def _same_memory(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.data_ptr() == other.data_ptr() and one.data_ptr() != 0)
