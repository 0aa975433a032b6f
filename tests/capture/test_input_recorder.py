"""What a re-run needs: inputs as the model got them, random and autocast state, buffers, schedules; all bounded."""

from __future__ import annotations

import random
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.step import input_recorder
from steadytrain.capture.step.input_recorder import (
    RING_BYTES_MAX,
    RING_STEPS,
    AutocastState,
    BatchRing,
    BufferKeeper,
    MicroBatch,
    RandomState,
    Schedule,
    map_tensors,
    record_call,
    tensors_in,
)

Pair = namedtuple("Pair", "first second")


def recorded(*args: Any, **kwargs: Any) -> MicroBatch:
    return record_call(nn.Identity(), args, kwargs, None)


def test_small_inputs_are_copied() -> None:
    inputs = torch.ones(3)
    batch = recorded([inputs, {"mask": inputs}], scale=2.0)
    inputs.zero_()
    assert batch.args[0][0].tolist() == [1, 1, 1]
    assert batch.args[0][1]["mask"].tolist() == [1, 1, 1]
    assert batch.kwargs == {"scale": 2.0}
    assert not batch.changed_since()


@pytest.mark.parametrize("keep", ["large", "needs a gradient"])
def test_what_is_held_by_reference_is_known_to_have_changed(keep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if keep == "large":
        monkeypatch.setattr(input_recorder, "COPIED_BYTES_MAX", 8)
    inputs = torch.ones(3, requires_grad=keep != "large")
    batch = recorded(inputs)
    assert batch.args[0] is inputs
    assert not batch.changed_since()
    with torch.no_grad():
        inputs.add_(1)
    assert batch.changed_since()


# What is handed to the model: samples and tokens in it.
SIZES: dict[str, tuple[tuple[Any, ...], dict[str, Any], int, int | None]] = {
    "an image batch": ((torch.zeros(4, 3, 8, 8),), {}, 4, None),
    "token ids": ((torch.zeros(4, 7, dtype=torch.long),), {}, 4, 28),
    "ids and a mask": ((torch.zeros(4, 7, dtype=torch.long), torch.ones(4, 7, dtype=torch.bool)), {}, 4, 28),
    "by name": ((), {"input_ids": torch.zeros(2, 5, dtype=torch.int32)}, 2, 10),
    "a number first": ((torch.tensor(0.5), torch.zeros(6, 2)), {}, 6, None),
    "nothing": ((), {}, 0, None),
    "no tensor": (("text", 3), {}, 0, None),
}


@pytest.mark.parametrize("name", SIZES)
def test_samples_and_tokens(name: str) -> None:
    args, kwargs, samples, tokens = SIZES[name]
    batch = recorded(*args, **kwargs)
    assert (batch.samples, batch.tokens) == (samples, tokens)
    assert batch.size_bytes == sum(t.numel() * t.element_size() for t in tensors_in((args, kwargs)))


def test_a_vector_that_a_linear_layer_gets_is_one_sample() -> None:
    for module, count in ((nn.Linear(4, 2), 1), (nn.ReLU(), 4)):
        assert record_call(module, (torch.randn(4),), {}, None).samples == count


def test_containers_are_walked_and_others_are_left() -> None:
    one = torch.ones(1)
    value = {"a": [one, (one, Pair(one, "x"))], "b": {"c": one}, "d": {1, 2}}
    changed = map_tensors(value, lambda tensor: tensor * 2)
    assert changed["a"][1][1] == Pair(torch.tensor([2.0]), "x")
    assert type(changed["a"][1][1]) is Pair
    assert changed["d"] is value["d"]
    assert len(list(tensors_in(value))) == 4
    endless: list[Any] = []
    endless.append(endless)
    assert list(tensors_in(endless)) == []


def test_random_states_give_the_same_draws_again() -> None:
    def draws() -> list[Any]:
        return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(3).tolist()]

    random.gauss(0, 1)  # leaves the second of a pair behind, which belongs to the state
    np.random.randn()
    state = RandomState.take()
    first = draws()
    assert draws() != first
    state.restore()
    assert draws() == first


def test_autocast_is_recorded() -> None:
    assert AutocastState.take({"cpu"}).enabled == ()
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        state = AutocastState.take({"cpu"})
    assert state == AutocastState(("cpu",), (("cpu", torch.bfloat16),), cache=False)


def test_the_ring_is_bounded_in_steps_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = BatchRing()
    for step in range(1, 20):
        ring.add(step, [recorded(torch.zeros(1024))])
    assert [step for step, _ in ring.steps()] == list(range(20 - RING_STEPS, 20))
    assert ring.size_bytes == RING_STEPS * 4096 <= RING_BYTES_MAX
    monkeypatch.setattr(input_recorder, "RING_BYTES_MAX", 5000)
    ring.add(20, [recorded(torch.zeros(1024))])
    assert [step for step, _ in ring.steps()] == [20]
    ring.add(21, [recorded(torch.zeros(100_000))])  # the newest stays, however large
    assert [step for step, _ in ring.steps()] == [21]


# -- buffers -----------------------------------------------------------------------------------------------------------


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("table", torch.arange(4))
        self.register_buffer("spread", torch.ones(1).expand(4))
        self.register_buffer("ema", torch.zeros(2))
        self.register_buffer("absent", None)
        self.register_buffer("bits", torch.tensor([True, False]))
        self.register_buffer("odd", torch.tensor([float("nan"), -0.0]))


def replace_ema(module: Holder) -> None:
    module.ema = module.ema + 1


MOVES = {
    "batch normalisation": lambda module: module.norm(torch.randn(4, 2)),
    "in place": lambda module: module.ema.add_(1),
    "through .data": lambda module: module.ema.data.add_(1),
    "another tensor": replace_ema,
    "integers": lambda module: module.table.add_(1),
    "bits": lambda module: module.bits.logical_not_(),
    "NaN": lambda module: module.odd.zero_(),
    "nothing": lambda module: None,
}


def contents(module: nn.Module) -> dict[str, tuple[int, bytes]]:
    return {name: (id(b), b.contiguous().numpy().tobytes()) for name, b in module.named_buffers()}


@pytest.mark.parametrize("move", MOVES)
def test_buffers_are_put_back_to_the_beginning_of_the_step(move: str) -> None:
    module, keeper = Holder(), BufferKeeper()
    for step in range(3):
        before = contents(module)
        keeper.keep(module)
        MOVES[move](module)
        keeper.keep(module)  # a second call in the step
        after = contents(module)
        assert step or (before == after) == (move == "nothing")
        now = keeper.as_now()
        keeper.restore()
        assert contents(module) == before
        for kept in now:
            kept.restore()
        assert contents(module) == after
        keeper.step_ends()
    keeper.restore()  # nothing was called in this step
    assert contents(module) == after


def test_putting_back_is_hidden_from_a_graph_that_saved_the_buffer() -> None:
    module, keeper = Holder(), BufferKeeper()
    weight = torch.ones(2, requires_grad=True)
    keeper.keep(module)
    module.ema.data.add_(1)
    product = (weight * module.ema).sum()
    keeper.restore()
    product.backward()  # torch would refuse it after a change that it can see


def test_modules_that_are_gone_are_not_kept() -> None:
    keeper = BufferKeeper()
    for _ in range(5):
        keeper.keep(Holder())
        keeper.step_ends()
    assert len(keeper._kept) <= 2 * len(list(Holder().buffers()))


def test_buffers_beyond_the_bound_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_recorder, "BUFFER_BYTES_MAX", 10)
    module, keeper = nn.BatchNorm1d(4), BufferKeeper()
    keeper.keep(module)
    module(torch.randn(4, 4))
    keeper.restore()
    assert module.num_batches_tracked == 1


def test_a_schedule_is_put_back() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([{"params": [parameter], "lr": torch.tensor(0.1)}], betas=(0.9, 0.99))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    schedule = Schedule.take([optimizer])
    before = (float(optimizer.param_groups[0]["lr"]), scheduler.state_dict())
    optimizer.step()
    scheduler.step()
    optimizer.param_groups[0]["betas"] = (0.5, 0.5)
    schedule.restore()
    assert (float(optimizer.param_groups[0]["lr"]), scheduler.state_dict()) == before
    assert optimizer.param_groups[0]["betas"] == (0.9, 0.99)
    assert isinstance(optimizer.param_groups[0]["params"][0], Tensor)


def test_random_states_that_stayed_the_same_are_kept_once() -> None:
    """A tape has some of each call: 30 kB, of which a recurrent model makes hundreds in a step."""
    first, second = RandomState.take(), RandomState.take()
    assert first.python is second.python
    assert first.torch is second.torch
    torch.rand(1)
    third = RandomState.take()
    assert third.torch is not second.torch
    assert third.python is second.python
    second.restore()
    assert torch.equal(torch.get_rng_state(), first.torch)
