"""What is read from a node of the graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadytrain.capture.looks.graph_nodes import shape_of


@pytest.mark.filterwarnings("ignore")  # nested tensors are a prototype
def test_a_ragged_size_is_no_number() -> None:
    rows = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    out = nn.Linear(3, 5)(rows)
    assert shape_of(out.grad_fn) == (2, -1, 5)
    assert shape_of(nn.Linear(3, 5)(torch.randn(2, 3)).grad_fn) == (2, 5)
