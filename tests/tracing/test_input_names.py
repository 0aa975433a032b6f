"""The inputs of a model call have the names of its arguments; a batch of graphs has those of its fields."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from steadytrain.tracing.input_names import named_tensors


def test_arguments_and_their_parts_are_named() -> None:
    found = named_tensors((torch.zeros(1), [torch.zeros(2), torch.zeros(3)]), {"mask": torch.zeros(4)})
    assert {name: len(tensor) for name, tensor in found.items()} == {
        "args[0]": 1,
        "args[1].0": 2,
        "args[1].1": 3,
        "mask": 4,
    }


def test_a_batch_of_graphs_is_named_by_its_fields() -> None:
    fields = {"x": torch.zeros(3), "batch": torch.zeros(2, dtype=torch.int64), "y": torch.zeros(1)}
    graphs = SimpleNamespace(_store=SimpleNamespace(_mapping=fields))
    assert list(named_tensors((graphs,), {})) == ["args[0].x", "args[0].batch", "args[0].y"]
