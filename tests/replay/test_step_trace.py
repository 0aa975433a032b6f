"""The trace of a step: invisible to training, and two of them say what parted. In one process, without a launch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from steadytrain.replay.step_trace import StepTrace  # noqa: E402
from steadytrain.replay.trace_comparison import Part, TracedOperation, first_part  # noqa: E402

Change = Callable[[Any, Any], Any]


def training(change: Change, *, traced: bool) -> tuple[list[TracedOperation], list[bytes]]:
    """Two steps, the second one traced; the trace, and the bits of losses, weights and random state."""
    torch.manual_seed(0)
    layers = (nn.Linear(16, 32), nn.GELU(), nn.BatchNorm1d(32), nn.Dropout(0.1), nn.Linear(32, 4))
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    trace = StepTrace({module: name for name, module in model.named_modules()})
    bits = []
    for step in range(2):
        if traced and step == 1:
            trace.begin()
        outputs = model(torch.randn(64, 16))
        loss = nn.functional.cross_entropy(outputs, torch.randint(0, 4, (64,)))
        if step == 1:
            loss = change(loss, outputs)
        optimizer.zero_grad()
        trace.backward_begins()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        trace.end()
        bits.append(loss.detach().numpy().tobytes())
    assert trace.trouble is None
    bits += [value.numpy().tobytes() for value in model.state_dict().values()]
    return trace.operations, [*bits, torch.get_rng_state().numpy().tobytes()]


def parted(change: Change) -> Part | None:
    return first_part(training(change, traced=True)[0], training(change, traced=True)[0])


def as_it_is(loss: Any, outputs: Any) -> Any:
    return loss


def test_training_is_the_same_to_the_bit_and_nothing_of_the_trace_stays() -> None:
    anomaly = torch.is_anomaly_enabled()
    assert training(as_it_is, traced=True)[1] == training(as_it_is, traced=False)[1]
    assert torch.is_anomaly_enabled() == anomaly
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_an_operation_has_its_phase_module_and_line_in_backward_too() -> None:
    operations, _ = training(as_it_is, traced=True)
    places = {(operation.place["phase"], operation.place["module"]) for operation in operations}
    assert {("forward", "0"), ("forward", "4"), ("backward", "0"), ("loss", ""), ("optimizer", "")} <= places
    assert all(operation.place["file"] for operation in operations if operation.place["phase"] == "backward")
    written = json.loads(json.dumps([operation.to_json() for operation in operations]))
    assert [TracedOperation.from_json(operation) for operation in written] == operations


def test_the_same_step_twice_does_not_part() -> None:
    assert parted(as_it_is) is None


def test_a_clock_is_a_number() -> None:
    part = parted(lambda loss, outputs: loss * (1 + time.perf_counter()))
    assert part is not None
    assert part.operation is not None
    assert (part.parting, part.operation.name) == ("number", "aten.mul.Tensor")


def test_an_unseeded_generator_is_one() -> None:
    def draw(loss: Any, outputs: Any) -> Any:
        generator = torch.Generator()
        generator.seed()
        return loss + torch.rand(1, generator=generator).sum()

    part = parted(draw)
    assert part is not None
    assert part.parting == "generator"


def test_data_from_outside_of_torch_comes_from_outside() -> None:
    numbers = iter(range(100))
    part = parted(lambda loss, outputs: loss + torch.tensor([float(next(numbers))]).sum())
    assert part is not None
    assert part.parting == "outside"


def test_what_is_only_looked_at_is_no_difference() -> None:
    turns = iter(range(100))

    def look(loss: Any, outputs: Any) -> Any:
        if next(turns) % 2 == 1:
            float(loss.detach() * 2)
        return loss

    assert parted(look) is None


def test_memory_that_nobody_wrote_is_told_as_such() -> None:
    held = [torch.full((4096,), float(number)) for number in range(2)]

    def read(loss: Any, outputs: Any) -> Any:
        memory = torch.empty(4096)
        memory.numpy()[:] = held.pop().numpy()  # as if the allocator had given it so
        return loss + memory.sum()

    one, _ = training(read, traced=True)
    other, _ = training(read, traced=True)
    part = first_part(one, other)
    assert part is not None
    assert part.parting == "memory"


def test_a_seed_that_fused_attention_leaves_unwritten_is_no_difference() -> None:
    """On a GPU such a kernel returns the seed of its dropout, which without dropout is uninitialised memory."""
    unwritten = iter(range(100))

    @torch.library.custom_op("steadytrain_tests::_scaled_dot_product_on_a_gpu", mutates_args=())
    def attention(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return values * 2.0, torch.full((), next(unwritten))

    @torch.library.custom_op("steadytrain_tests::_scaled_dot_product_on_a_gpu_backward", mutates_args=())
    def attention_backward(values: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        return values * 3.0

    def with_attention(loss: Any, outputs: Any) -> Any:
        out, seed = attention(outputs.detach())
        return loss + attention_backward(out, seed).mean()

    first, second = (training(with_attention, traced=True)[0] for _ in range(2))
    seen = [one for one in first if "_on_a_gpu" in one.name]
    assert [len(one.outputs) for one in seen] == [2, 1]
    assert first_part(first, second) is None
