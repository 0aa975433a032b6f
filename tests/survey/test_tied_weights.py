"""Which two tensors should be one: the head and the table that embeds the tokens, and no other of that shape."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from steadytrain.survey.training_state import State


class Model(nn.Module):
    """Of transformers by its methods; as many places as words."""

    def __init__(self, *, ties: bool) -> None:
        super().__init__()
        self.config = SimpleNamespace(tie_word_embeddings=True)
        self.places, self.words = nn.Embedding(8, 4), nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8, bias=False)
        if ties:
            self.head.weight = self.words.weight

    def get_input_embeddings(self) -> nn.Module:
        return self.words

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def broken(model: nn.Module, *, from_start: bool = False) -> list[list[str]]:
    state = State()
    state.roots = [model]
    return state._ties(from_start=from_start)[1]


def test_the_table_of_places_is_no_table_of_tokens() -> None:
    assert broken(Model(ties=True)) == []
    assert broken(Model(ties=False)) == [["words.weight", "head.weight"]]


def test_equal_values_at_the_start() -> None:
    model = nn.ModuleDict({"table": nn.Embedding(8, 4), "head": nn.Linear(4, 8, bias=False)})
    with torch.no_grad():
        model["head"].weight.copy_(model["table"].weight)  # type: ignore[arg-type]
    assert broken(model, from_start=True) == [["table.weight", "head.weight"]]
    assert broken(model) == []
