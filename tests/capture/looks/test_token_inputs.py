"""Which of the ids that a model is given its labels are compared with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from steadytrain.capture.looks.token_inputs import tokens_beside
from steadytrain.survey.calls import Calls
from steadytrain.survey.input_facts import Batches
from steadytrain.survey.labels import Labels

ROWS, LENGTH, TOKENS = 8, 12, 30


def text(seed: int = 0) -> Tensor:
    return torch.randint(TOKENS, (ROWS, LENGTH + 2), generator=torch.Generator().manual_seed(seed))


class Reads(nn.Module):
    """Is given its labels as well, and returns the loss; ``decoder`` are ids that it reads beside the first."""

    def __init__(self, classes: int = TOKENS) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(TOKENS, 8), nn.Linear(8, classes)

    def forward(self, ids: Tensor, labels: Tensor, mask: Tensor | None = None, decoder: Tensor | None = None) -> Tensor:
        hidden = self.table(ids)
        if decoder is not None:
            hidden = hidden.mean(1, keepdim=True) + self.table(decoder)
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), labels.flatten())


def surveyed(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What one step of it says of its labels."""
    calls, batches, labels = Calls(), Batches(), Labels()
    batches.called(1, args, kwargs)
    calls.look(True)
    try:
        model(*args, **kwargs)
    finally:
        calls.look(False)
    labels.step(1, calls, batches)
    return labels.finish()


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_labels_that_the_model_is_given_are_not_compared_with_themselves(shift: int) -> None:
    ids = text()
    mask = torch.ones(ROWS, LENGTH, dtype=torch.int64)
    facts = surveyed(Reads(), ids[:, :LENGTH], ids[:, shift : shift + LENGTH], mask)
    assert facts["label_shift_trained"] == shift
    assert (facts["labels_equal_inputs"] == 1.0) is (shift == 0)


def test_tags_that_the_model_is_given_are_no_tokens() -> None:
    facts = surveyed(Reads(classes=5), text()[:, :LENGTH], text(1)[:, :LENGTH] % 5)
    assert "label_shift_trained" not in facts
    assert facts["labels_equal_inputs"] < 0.5


@pytest.mark.parametrize(
    ("hidden_share", "told_share", "compared"), [(0.15, 0.15, False), (0.15, 1.0, False), (0.0, 1.0, True)]
)
def test_hidden_words_are_no_next_tokens(hidden_share: float, told_share: float, compared: bool) -> None:
    """A model that is to fill in words predicts the others as it reads them."""
    ids = text()[:, :LENGTH]
    chance = torch.rand(ids.shape, generator=torch.Generator().manual_seed(3))
    read = torch.where(chance < hidden_share, 0, ids)
    labels = torch.where(chance < told_share, ids, -100)
    assert ("label_shift" in surveyed(Reads(), read, labels)) is compared


@pytest.mark.parametrize(("begin", "shift"), [(0, 1), (1, 0)], ids=["shifted", "not shifted"])
def test_labels_are_compared_with_what_a_decoder_reads(begin: int, shift: int) -> None:
    """Where these are the labels themselves, the decoder is given what it has to find out."""
    labels = text(1)
    facts = surveyed(Reads(), text()[:, :LENGTH], labels[:, 1 : LENGTH + 1], decoder=labels[:, begin : begin + LENGTH])
    assert facts["label_shift_trained"] == shift


def test_without_a_table_what_is_not_the_labels_is_read() -> None:
    ids = text()
    tokens, labels = ids[:, :LENGTH], ids[:, 1 : LENGTH + 1]
    assert tokens_beside(labels.flatten(), [tokens, labels], []) is tokens
    assert tokens_beside(labels.flatten(), [labels], []) is labels  # a model of what it is given
    assert tokens_beside(labels.flatten(), [labels[:, :4], torch.ones_like(labels)], []) is None
