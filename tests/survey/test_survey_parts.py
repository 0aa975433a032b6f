"""What a survey makes of single observations: neighbouring labels, cuts of the graph."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from steadytrain.capture.step.input_recorder import record_call
from steadytrain.survey import attention_scale
from steadytrain.survey.calls import Calls
from steadytrain.survey.compiled_model import compiled
from steadytrain.survey.graph_cuts import cut_off, leaves_behind, moves_output
from steadytrain.survey.labels import held_by, leaked_columns, sorted_by


@pytest.mark.parametrize(
    ("pairs", "equal", "known"),
    [(27, 6, False), (27, 3, False), (27, 20, True), (5000, 1200, True), (5000, 500, True), (0, 0, False)],
    ids=["twice by luck", "chance", "sorted", "twice, many", "shuffled, many", "none"],
)
def test_few_pairs_of_labels_do_not_tell_an_order(pairs: int, equal: int, known: bool) -> None:
    """Of batches of two rows, of ten classes."""
    assert (sorted_by(pairs, equal, 0.1) is not None) is known


def test_a_column_tells_the_label_and_rows_that_come_again_do_not() -> None:
    torch.manual_seed(0)
    labels = torch.randint(10, (256,))
    values = torch.cat([torch.randn(256, 3), labels[:, None].float()], 1)
    assert leaked_columns(values.repeat(8, 1), labels.repeat(8), 10) == [{"input": 3, "share": 1.0}]
    assert leaked_columns(values[:, :3].repeat(8, 1), labels.repeat(8), 10) == []


def test_a_place_of_the_input_that_holds_the_target_of_every_row_is_found() -> None:
    """A window that is one value too long, in the shape of a sequence and of a table."""
    torch.manual_seed(0)
    windows, others = torch.randn(2, 32, 25), torch.randn(32, 7)
    target = windows[0, :, 24].clone()
    first = held_by([others, windows[0].unsqueeze(-1)], target, None)
    assert first == [(1, 24)]
    assert held_by([others, windows[1].unsqueeze(-1)], windows[1, :, 24:].clone(), first) == [(1, 24)]
    assert held_by([others, windows[1].unsqueeze(-1)], torch.randn(32), first) == []


def test_a_target_that_is_not_in_the_input_or_is_meant_to_be_is_no_leak() -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 6)
    assert held_by([x], x.sum(1), None) == []
    assert held_by([x], x, None) is None  # reconstructed
    assert held_by([x[:, :1]], x[:, :1], None) == []  # an input of one number a row
    assert held_by([x.round()], x[:, 2].round(), None) is None  # few values: chance


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


class Tables(nn.Module):
    """Two towers whose scores have one dimension."""

    def __init__(self, *, cut: bool) -> None:
        super().__init__()
        self.user, self.scale, self.unused = nn.Embedding(8, 4), nn.Parameter(torch.ones(1)), nn.Linear(4, 4)
        self.cut = cut

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        table = self.user.weight.data if self.cut else self.user.weight
        return self.scale * table[ids].sum(-1)


def test_parameters_without_a_gradient_that_move_the_output_are_cut_off_whatever_did_it() -> None:
    torch.manual_seed(0)
    model = Tables(cut=True)
    call = record_call(model, (torch.arange(8),), {}, None)
    lost = {id(model.user.weight): model.user.weight}
    found, moves = cut_off([call], lost, set())
    assert found == [id(model.user.weight)]
    assert moves is not None
    assert moves > 1e-4
    assert cut_off([call], {id(model.unused.weight): model.unused.weight}, set()) == ([], 0.0)
    assert cut_off([], lost, set()) == ([], None)
    assert cut_off([call], {}, set()) == ([], None)


def test_a_graph_that_is_cut_by_data_is_cut() -> None:
    """Values of a parameter are read and written that way, which cuts nothing."""
    model, calls = Cut(), Calls()
    calls.in_forward = 1
    calls.look(True)
    try:
        hidden = model.before(torch.randn(8, 4))
        model.before.weight.data.clamp_(-1, 1)
        assert calls.seen.detached == []
        assert not hidden.data.requires_grad
    finally:
        calls.look(False)
    (line,) = calls.seen.detached
    assert line.startswith("test_survey_parts.py:")
    assert calls.seen.behind_cuts == {id(model.before.weight), id(model.before.bias)}


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "apart"), [(0.0, False), (1e-2, True)], ids=["other draws", "another result"])
def test_compiled_code_may_draw_otherwise_and_not_say_otherwise(wrong: float, apart: bool) -> None:
    """Dropout in compiled code has numbers of its own; then evaluation mode is compared."""
    torch._dynamo.reset()
    torch.manual_seed(0)

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Any:
        def run(*inputs: Any) -> Any:
            torch.rand(3)
            return [out * (1 + wrong) for out in graph.forward(*inputs)]

        return run

    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4))
    fast, x = torch.compile(model, backend=backend), torch.randn(8, 8)
    facts = compiled(record_call(fast, (x,), {}, None))
    assert model.training
    assert facts["compiled_rounding"] < 30.0
    assert (facts["compiled_difference"] > 100.0) is apart


@pytest.mark.parametrize(
    ("row", "masked"),
    [
        ([-math.inf] * 4, True),
        ([-1e9, -1e9 + 3, -1e9 - 2, -1e9], True),
        ([-1e4 - 8.0, -1e4 - 31.0, -1e4 - 40.0, -1e4 - 2.0], True),
        ([-3.4e38] * 4, True),
        ([-2e4, -9e5, -4e6, -3e5], False),
        ([-2e4, -math.inf, -math.inf, -math.inf], False),
        ([0.3, -math.inf, -1e9, -1e9], False),
        ([math.nan, -1e9, -1e9, -1e9], False),
    ],
    ids=["-inf", "-1e9", "-1e4", "smallest", "exploded", "exploded, causal", "one key", "nan"],
)
def test_scores_that_exploded_are_no_mask(row: list[float], masked: bool) -> None:
    """Without clipping or with a momentum of 0.99, scores reach -1e5 and differ from each other."""
    assert bool(attention_scale.without_keys(torch.tensor([row]))[0]) is masked
