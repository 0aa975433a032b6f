"""Which positions an output may read, where a model has several inputs of token ids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadytrain.survey.batch_reruns import _leaks

ROWS, LENGTH, WORDS = 8, 6, 12


class Translator(nn.Module):
    """An encoder that reads both ways, and a decoder that does (``leaks``) or does not."""

    def __init__(self, *, leaks: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.encoder = nn.GRU(16, 8, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(16, 8, batch_first=True, bidirectional=leaks)
        self.head = nn.Linear(32 if leaks else 24, WORDS)

    def forward(self, source: Tensor, target: Tensor) -> Any:
        memory, _ = self.encoder(self.embedding(source))
        written, _ = self.decoder(self.embedding(target))
        return self.head(torch.cat([memory.flip(1), written], -1))


class Reader(nn.Module):
    """A language model that may read on, called with a mask beside its ids."""

    def __init__(self, *, leaks: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.recurrent = nn.GRU(16, 8, batch_first=True, bidirectional=leaks)
        self.head = nn.Linear(16 if leaks else 8, WORDS)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Any:
        return self.head(self.recurrent(self.embedding(ids) * attention_mask[..., None])[0])


def measured(model: nn.Module, labels: Tensor, *inputs: Tensor) -> dict[str, Any]:
    call: Any = SimpleNamespace(args=inputs, kwargs={})
    last: Any = SimpleNamespace(target=labels.flatten(), ignore_index=-100)
    return _leaks(model.eval(), call, last)


@pytest.mark.parametrize("leaks", [False, True])
def test_an_encoder_may_read_both_ways(leaks: bool) -> None:
    torch.manual_seed(0)
    source, target = torch.randint(0, WORDS, (2, ROWS, LENGTH + 1))
    found = measured(Translator(leaks=leaks), target[:, 1:], source[:, :-1], target[:, :-1])
    assert (found["causal_gradient"] > 0.0) == leaks


@pytest.mark.parametrize("width", [LENGTH, LENGTH - 1])
@pytest.mark.parametrize("leaks", [False, True])
def test_a_mask_beside_the_ids_is_no_text(leaks: bool, width: int) -> None:
    torch.manual_seed(0)
    text = torch.randint(0, WORDS, (ROWS, LENGTH + 1))
    labels = text[:, 1 : width + 1].clone()
    labels[:, :2] = -100
    found = measured(Reader(leaks=leaks), labels, text[:, :-1], torch.ones(ROWS, LENGTH, dtype=torch.int64))
    assert (found["causal_gradient"] > 0.0) == leaks


def test_no_label_that_tells_which_input_goes_on_leaves_it_open() -> None:
    torch.manual_seed(0)
    source, target, labels = torch.randint(0, WORDS, (3, ROWS, LENGTH))
    assert "causal_gradient" not in measured(Translator(leaks=False), labels, source, target)
