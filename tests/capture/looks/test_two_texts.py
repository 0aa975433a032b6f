"""Models that translate one text into another of the same length: which of their attentions may see the next token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from looked_loops import Step, adam, found, update
from torch import Tensor, nn

TOKENS, LENGTH, WIDTH = 12, 9, 16


class Translator(nn.Module):
    def __init__(self, *, recurrent: bool = False) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(TOKENS, WIDTH) for _ in range(2)])
        self.pair = nn.Transformer(WIDTH, 2, 1, 1, 32, 0.0, batch_first=True)
        self.decoder = nn.GRU(WIDTH, WIDTH, batch_first=True) if recurrent else None
        self.join = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, source: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        read, given = self.tables[0](source), self.tables[1](target)
        if self.decoder is None:
            return torch.as_tensor(self.head(self.pair(read, given, tgt_mask=mask)))
        told = self.pair.encoder(self.pair.encoder(read))
        state = self.decoder(given)[0]
        return torch.as_tensor(self.head(state + self.join(state, told, told)[0]))


def translates(*, masked: bool, recurrent: bool = False, unshifted: bool = False) -> Callable[[], Step]:
    def begin() -> Step:
        model = Translator(recurrent=recurrent)
        optimizer = adam(model)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH) if masked else None

        def step(at: int) -> None:
            source = torch.randint(2, TOKENS, (8, LENGTH))
            target = torch.cat([torch.ones(8, 1, dtype=torch.int64), source.sort(1).values], 1)
            given = target[:, 1:] if unshifted else target[:, :-1]
            scores = model(source, given, mask)
            update(optimizer, F.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten()))

        return step

    return begin


def test_a_decoder_without_a_mask_sees_the_answer(tmp_path: Path) -> None:
    assert found(tmp_path / "run", translates(masked=False)) == {"visible-labels": "warning"}


@pytest.mark.parametrize(
    "begin", [translates(masked=True), translates(masked=False, recurrent=True)], ids=["masked", "recurrent"]
)
def test_attention_to_the_other_text_is_no_answer(begin: Callable[[], Step], tmp_path: Path) -> None:
    assert "visible-labels" not in found(tmp_path / "run", begin)


@pytest.mark.parametrize("recurrent", [True, False])
def test_a_decoder_that_reads_what_it_is_to_write(recurrent: bool, tmp_path: Path) -> None:
    begin = translates(masked=not recurrent, recurrent=recurrent, unshifted=True)
    assert found(tmp_path / "run", begin)["misplaced-labels"] == "warning"


class ShiftsItself(nn.Module):
    """Gets the labels, and gives its decoder what stands before each of them. The texts differ in length."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Translator()

    def forward(self, source: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        given = torch.cat([torch.ones_like(labels[:, :1]), labels[:, :-1]], 1)
        return F.cross_entropy(self.pair(source, given, mask).flatten(0, 1), labels.flatten())


def test_a_model_that_shifts_its_labels_itself(tmp_path: Path) -> None:
    def begin() -> Step:
        model = ShiftsItself()
        optimizer = adam(model)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)

        def step(at: int) -> None:
            source = torch.randint(2, TOKENS, (8, LENGTH - 4))
            labels = torch.cat([source.sort(1).values, source.flip(1)[:, :4]], 1)
            update(optimizer, model(source, labels, mask))

        return step

    assert found(tmp_path / "run", begin).get("misplaced-labels") != "warning"
