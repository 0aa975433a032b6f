"""Texts whose scores are sliced before the loss, and a model that reads two texts."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from looked_loops import Step
from looked_losses import TOKENS, Reader, adam, text, update
from torch import Tensor, nn


class Translator(Reader):
    """A recurrent decoder that attends to another text of the same length, which has no mask."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.decoder = nn.Embedding(TOKENS, 16), nn.GRU(16, 16, batch_first=True)

    def translate(self, source: Tensor, ids: Tensor) -> Tensor:
        memory, read = self.source(source), self.decoder(self.table(ids))[0]
        logits: Tensor = self.head(read + (read @ memory.mT / 4).softmax(-1) @ memory)
        return logits

    def forward(self, ids: Tensor, source: Tensor | None = None) -> Tensor:
        return self.translate(ids if source is None else source, ids)


def translated() -> Step:
    model = Translator()
    optimizer = adam(model)

    def step(at: int) -> None:
        ids = text()
        scores = model(ids[:, :-1], text()[:, :-1])
        update(optimizer, F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten()))

    return step


def sliced(*, front: bool) -> Callable[[], Step]:
    """The token after the next as label: of the scores from the second place on it is the next one."""

    def begin() -> Step:
        model = Reader()
        optimizer = adam(model)

        def step(at: int) -> None:
            ids = text()
            scores = model(ids[:, :-1])[:, 1:] if front else model(ids[:, :-1])[:, :-1]
            update(optimizer, F.cross_entropy(scores.flatten(0, 1), ids[:, 2:].flatten()))

        return step

    return begin
