"""Tables are compared with the heads that they may be tied to; other parameters are not paired."""

from __future__ import annotations

import builtins

import pytest
from torch import nn

from steadytrain.capture.looks import tied_tables
from steadytrain.capture.looks.tied_tables import TiedTables


def test_the_work_grows_with_the_parameters_and_not_with_their_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(tied_tables, "id", lambda one: asked.append(one) or builtins.id(one), raising=False)
    TiedTables([nn.Sequential(nn.Embedding(2, 2), *[nn.Linear(2, 2, bias=False) for _ in range(60)])])
    assert len(asked) < 4 * 61


def test_an_equal_table_and_head_are_followed() -> None:
    model = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 3, bias=False))
    model[1].weight.data.copy_(model[0].weight.data)
    assert len(list(TiedTables([model]).rows())) == 1
