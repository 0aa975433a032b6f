"""What a survey makes of single observations: neighbouring labels, cuts of the graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadytrain.capture.recorder import record_call
from steadytrain.lab.surveying.cuts import leaves_behind, moves_output
from steadytrain.lab.surveying.labels import sorted_by


@pytest.mark.parametrize(
    ("pairs", "equal", "known"),
    [(27, 6, False), (27, 3, False), (27, 20, True), (5000, 1200, True), (5000, 500, True), (0, 0, False)],
    ids=["twice by luck", "chance", "sorted", "twice, many", "shuffled, many", "none"],
)
def test_few_pairs_of_labels_do_not_tell_an_order(pairs: int, equal: int, known: bool) -> None:
    """Of batches of two rows, of ten classes."""
    assert (sorted_by(pairs, equal, 0.1) is not None) is known


class Cut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after, self.unused = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.after(self.before(x).detach())
        return result


def test_what_lies_behind_a_cut_is_found_and_moves_the_output() -> None:
    torch.manual_seed(0)
    model, x = Cut(), torch.randn(8, 4)
    assert leaves_behind(model.before(x)) == {id(model.before.weight), id(model.before.bias)}
    call = record_call(model, (x,), {}, None)
    kept = model.before.weight.detach().clone()
    moved, still = (moves_output(call, list(part.parameters())) for part in (model.before, model.unused))
    assert moved is not None
    assert moved > 1e-4
    assert still == 0.0
    assert torch.equal(model.before.weight, kept)
