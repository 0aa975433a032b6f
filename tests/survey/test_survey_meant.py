"""What only looks like a fault: backwards that are meant so, buffers that only sound like positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from steadytrain.survey.batch_reruns import custom_operations
from steadytrain.survey.call_findings import LossCall
from steadytrain.survey.calls import Calls
from steadytrain.survey.held_gradient import HeldGradient
from steadytrain.survey.input_facts import Batches
from steadytrain.survey.labels import Labels
from steadytrain.survey.loop_order import Loop
from steadytrain.survey.tensor_kinds import places_cut
from steadytrain.survey.training_state import positions


class Twice(torch.autograd.Function):
    """Right."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient


class HalfTold(Twice):
    """Wrong: a factor is missing."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Reversed(torch.autograd.Function):
    """Meant so: the forward changes nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class StraightThrough(Reversed):
    """Meant so: the forward is flat between its jumps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class InFewBits(Twice):
    """Cannot be measured: differences are lost in rounding."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (2 * x.bfloat16()).to(x.dtype)


class Refusing(Twice):
    """Cannot be measured: it takes float32 alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            raise TypeError("float32 is wanted")
        return 2 * x


@pytest.mark.parametrize(
    ("kind", "error"),
    [(Twice, 0.0), (HalfTold, 0.5), (Reversed, None), (StraightThrough, None), (InFewBits, None), (Refusing, None)],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_a_backward_is_held_against_a_forward_that_has_a_slope(kind: Any, error: float | None) -> None:
    torch.manual_seed(0)
    calls = Calls()
    calls.applied = {kind: (torch.randn(64, 8),)}
    found = custom_operations(calls)
    assert found["custom_operations"] == [kind.__name__]
    assert found["custom_gradient_error"] == ({} if error is None else {kind.__name__: pytest.approx(error, abs=1e-6)})


class Untransposed(torch.autograd.Function):
    """Wrong: the gradient of the state takes the weight as it is."""

    @staticmethod
    def forward(ctx: Any, state: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(state, weight)
        return state @ weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        state, weight = ctx.saved_tensors
        return gradient @ weight, state.t() @ gradient


def test_a_state_that_begins_with_zeros_is_not_taken_for_a_forward_that_changes_nothing() -> None:
    torch.manual_seed(0)
    calls = Calls()
    calls.applied = {Untransposed: (torch.zeros(16, 8), torch.randn(8, 8)), Reversed: (torch.zeros(16, 8),)}
    found = custom_operations(calls)["custom_gradient_error"]
    assert found.keys() == {"Untransposed"}
    assert found["Untransposed"] > 0.1


@pytest.mark.parametrize(
    ("name", "table", "equal"),
    [
        ("position_table", [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], True),
        ("rotary.inv_freq", [1.0, 0.5, 0.5], True),
        ("position_table", [[0.0, 1.0], [1.0, 0.0], [1.0, 0.5]], False),
        ("position_table", [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], False),
        ("pos_weight", [1.0, 2.0, 2.0], False),
        ("posterior_variance", [0.0, 0.0, 0.1], False),
    ],
    ids=["equal", "frequencies", "all differ", "not filled yet", "weights of positives", "no word for positions"],
)
def test_tables_of_positions_are_told_by_their_names_and_rows(name: str, table: list[Any], equal: bool) -> None:
    root = nn.Module()
    owner, _, last = name.rpartition(".")
    if owner:
        root.add_module(owner, nn.Module())
    root.get_submodule(owner).register_buffer(last, torch.tensor(table))
    assert (name in positions([root])[1]) is equal


def test_ids_under_other_numbers_keep_their_ranks() -> None:
    torch.manual_seed(0)
    shares, other = torch.softmax(torch.randn(50) * 1.5, 0), torch.randperm(50)
    batches = Batches()
    for step in range(1, 17):
        ids = torch.multinomial(shares, 512, replacement=True).reshape(8, 64)
        batches.called(step, (other[ids] if step >= 9 else ids,), {})
        if step == 9:
            batches.mark(step)
    by_id, by_rank = batches.finish()["token_overlap"]
    assert by_id < 0.5
    assert by_rank > 0.9


def _rows_that_end(pad: int, lengths: Sequence[int], length: int = 12) -> Tensor:
    rows = torch.randint(5, 60, (len(lengths), length))
    for row, kept in enumerate(lengths):
        rows[row, kept:] = pad
    return rows


@pytest.mark.parametrize(
    ("lengths", "found"),
    [((4, 7, 9, 12), True), ((0, 0, 12, 12), False), ((12, 12, 12, 12), False)],
    ids=["filled up", "rows of one token", "full"],
)
def test_padding_is_what_fills_rows_up(lengths: tuple[int, ...], found: bool) -> None:
    torch.manual_seed(0)
    labels, batches, calls = Labels(), Batches(), Calls()
    for step in range(1, 5):
        ids = _rows_that_end(3, lengths)
        batches.called(step, (ids,), {})
        calls.step_losses = [LossCall("cross_entropy", torch.randn(48, 64), ids.flatten(), "mean", -100, "any", "x")]
        labels.step(step, calls, batches)
    facts = labels.finish()
    assert ("pad_id" in facts) is found
    if found:
        assert facts["pad_supervised_share"] == facts["pad_share"]


def test_what_ends_the_rows_of_one_step_only_is_no_padding() -> None:
    torch.manual_seed(0)
    labels, batches, calls = Labels(), Batches(), Calls()
    for step in range(1, 7):
        ids = _rows_that_end(3, (4, 7, 9, 12) if step == 2 else (12, 12, 12, 12))
        batches.called(step, (ids,), {})
        calls.step_losses = [LossCall("cross_entropy", torch.randn(48, 64), ids.flatten(), "mean", -100, "any", "x")]
        labels.step(step, calls, batches)
    assert "pad_id" not in labels.finish()


def test_gradients_are_carried_over_only_where_no_backward_finds_them_cleared() -> None:
    """Of two networks that learn by turns, each is sent gradients by the loss of the other before it is cleared."""
    turns, kept, cleared = Loop(), Loop(), Loop()
    for _ in range(3):
        for there in (True, False, True):  # the other's loss, then two of its own
            turns.backward_begins(there)
        for there in (True, True):
            kept.backward_begins(there)
        for there in (False, True):
            cleared.backward_begins(there)
        for loop in (turns, kept, cleared):
            loop.update_begins()
            loop.update_ended()
    assert (turns.carried_over, kept.carried_over, cleared.carried_over) == (False, True, False)


def test_gradients_that_the_script_replaces_itself_are_not_carried_over() -> None:
    """Master weights that get the gradients of a copy in half precision: no backward ever adds to theirs."""
    loop = Loop()
    for _ in range(3):
        loop.backward_begins(True)
        loop.update_begins(replaced=True)
        loop.update_ended()
    assert not loop.carried_over


@pytest.mark.parametrize("how", ["in place", "anew", "not"])
def test_gradients_that_the_script_divides_by_hand_are_told_from_a_clip(how: str) -> None:
    weight, held = nn.Parameter(torch.ones(4)), HeldGradient()
    loop = Loop()
    for _ in range(3):
        loop.backward_begins(held.backward_begins([weight], loop.clips))
        weight.sum().backward()
    if how == "in place":
        weight.grad /= 3
    elif how == "anew":
        weight.grad = weight.grad / 3
    nn.utils.clip_grad_norm_([weight], 1.0)
    loop.clips += 1
    loop.update_begins(replaced=held.replaced, rescaled=held.rescaled(loop.clips))
    assert loop.rescaled is (how != "not")


def _cast(x: Tensor) -> Tensor:
    return x.half()


@pytest.mark.parametrize(
    ("made", "seen"),
    [
        (lambda: _cast(torch.tensor([7e4, 8e4, 1.0])), True),
        (lambda: _cast(torch.tensor([-7e4, -8e4, 1.0])), True),
        (lambda: torch.tensor([300.0, 1.0]).half() * torch.tensor([300.0, 1.0]).half(), True),
        (lambda: torch.ones(2).half().masked_fill(torch.tensor([True, False]), float("-inf")), False),
        (lambda: torch.full((2,), float("-inf"), dtype=torch.float16), False),
        (lambda: _cast(torch.tensor([-1e9, -1e9, 1.0])), False),
        (lambda: torch.tensor([1.0, 0.0]).half() * -1e9, False),
        (lambda: torch.tensor([-60.0, -70.0]).half() + torch.full((2,), -65504.0).half(), False),
    ],
    ids=["cast", "cast below", "product", "masked fill", "full", "cast of a mask", "times -1e9", "onto a mask"],
)
def test_masks_are_no_overflow(made: Callable[[], Tensor], seen: bool) -> None:
    calls = Calls()
    calls.look(True)
    try:
        made()
    finally:
        calls.look(False)
    assert bool(calls.seen.half_overflow) is seen


@pytest.mark.parametrize("between", ["acts", "evaluates"])
def test_what_a_model_is_asked_between_two_batches_is_no_batch_that_repeats(between: str) -> None:
    """An agent meets few states, and an evaluation has one set; both come first in a step."""
    seen, fixed = Batches(), torch.ones(64, 3)
    for step in range(1, 20):
        if between == "acts":
            seen.called(step, (torch.tensor([1.0, 0.0, float(step % 2)]),), {})
        else:
            with torch.no_grad():
                seen.called(step, (fixed,), {})
        seen.called(step, (torch.randn(16, 3, generator=torch.Generator().manual_seed(step)),), {})
    assert seen.finish()["repeated_batches"] == 0.0


def test_batches_that_repeat_are_seen_between_evaluations() -> None:
    seen = Batches()
    for step in range(1, 21):
        with torch.no_grad():
            seen.called(step, (torch.full((64, 3), float(step)),), {})
        seen.called(step, (torch.full((16, 3), float(step % 4)),), {})
    assert seen.finish()["repeated_batches"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("order", "drawn"), [([3, 0, 2, 1], True), ([0, 1, 2], False), (range(2), False)], ids=["drawn", "cut", "a range"]
)
def test_a_subset_in_another_order_is_not_in_the_order_of_its_data_set(order: Sequence[int], drawn: bool) -> None:
    loop = Loop()
    loop.loaders = [DataLoader(Subset(TensorDataset(torch.arange(4)), order), 2)]
    assert loop.of_loader()["loader_shuffles"] is drawn


@pytest.mark.parametrize(
    ("logits_from", "labels_from", "shift"),
    [(0, 1, 1), (1, 2, 1), (0, 2, 2), (1, 1, 0)],
)
def test_labels_are_compared_with_the_places_that_the_script_left_of_the_logits(
    logits_from: int, labels_from: int, shift: int
) -> None:
    torch.manual_seed(0)
    labels, batches, calls = Labels(), Batches(), Calls()
    head = torch.nn.Linear(8, 12)
    for step in range(1, 4):
        text = torch.randint(0, 12, (6, 17))
        ids = text[:, :-1]
        batches.called(step, (ids,), {})
        logits = head(torch.randn(6, 16, 8))
        wanted = text[:, labels_from:]
        width = min(16 - logits_from, wanted.shape[1])
        given = logits[:, logits_from : logits_from + width].reshape(-1, 12)
        call = LossCall("cross_entropy", given.detach(), wanted[:, :width].reshape(-1), "mean", -100, "any", "x")
        calls.step_losses = [replace(call, places_cut=places_cut(given))]
        labels.step(step, calls, batches)
    assert labels.finish()["label_shift_trained"] == shift
