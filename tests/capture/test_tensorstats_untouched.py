"""Measuring tensors changes nothing of the user's, and no mode of the script changes the numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensorstats_rows import filled
from torch import Tensor, nn

from steadytrain.capture.tensors.statistics import COLUMNS, TensorWatch
from steadytrain.capture.tensors.statistics.sample_chunks import plan_for
from steadytrain.capture.tensors.statistics.sample_statistics import SAMPLED


def test_nothing_of_the_users_is_touched() -> None:
    model = nn.Sequential(nn.Linear(300, 200), nn.LayerNorm(200), nn.Linear(200, 3))
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters)
    model(torch.ones(4, 300)).sum().backward()
    optimizer.step()
    seen = copy.deepcopy((model.state_dict(), optimizer.state_dict(), [p.grad for p in parameters]))
    versions = [(p._version, p.grad._version, p.data_ptr()) for p in parameters if p.grad is not None]
    states = [tensor for state in optimizer.state.values() for tensor in state.values()]
    state_versions = [tensor._version for tensor in states]
    random = torch.get_rng_state()
    watch = TensorWatch([str(at) for at in range(len(parameters))], parameters, sample_max=640)
    watch.before_update()
    watch.after_update([optimizer]).result()
    assert torch.equal(torch.get_rng_state(), random)
    assert [(p._version, p.grad._version, p.data_ptr()) for p in parameters if p.grad is not None] == versions
    assert [tensor._version for tensor in states] == state_versions
    now = (model.state_dict(), optimizer.state_dict(), [p.grad for p in parameters])
    flat, flat_now = (torch.utils._pytree.tree_leaves(everything) for everything in (seen, now))
    assert all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in zip(flat, flat_now, strict=True))
    assert all(p.grad is not None and p.grad.grad_fn is None and p.requires_grad for p in parameters)
    assert set(optimizer.state) == set(parameters)


@pytest.mark.parametrize(
    "mode",
    [
        lambda: torch.inference_mode(),
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.device("meta"),
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: 1 / 0),
    ],
    ids=["inference", "autocast", "device", "saved tensors"],
)
def test_modes_of_the_script_change_no_number(mode: Callable[[], Any]) -> None:
    readings = []
    for context in (None, mode):
        parameters = [nn.Parameter(filled((400, 50), torch.float32)), nn.Parameter(filled((7,), torch.float32))]
        for parameter in parameters:
            parameter.grad = filled(tuple(parameter.shape), torch.float32, 1)
        optimizer = torch.optim.AdamW(parameters)
        watch = TensorWatch(["a", "b"], parameters)
        for _ in range(2):  # what is kept from the first look must be usable in the second
            if context is None:
                watch.before_update()
            else:
                with context():
                    watch.before_update()
            optimizer.step()
            if context is None:
                reading = watch.after_update([optimizer]).result()
            else:
                with context():
                    reading = watch.after_update([optimizer]).result()
        watch.before_update()
        readings.append(reading)
    assert np.array_equal(readings[0].values, readings[1].values, equal_nan=True)


def test_defaults_of_the_script_change_no_number() -> None:
    parameter = nn.Parameter(filled((400, 50), torch.float32))
    parameter.grad = filled((400, 50), torch.float32, 1)
    watch = TensorWatch(["p"], [parameter])
    watch.before_update()
    expected = watch.after_update([]).result().values
    try:
        torch.set_default_dtype(torch.float16)
        torch.use_deterministic_algorithms(True)
        watch = TensorWatch(["p"], [parameter])
        watch.before_update()
        assert np.array_equal(watch.after_update([]).result().values, expected, equal_nan=True)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def test_a_dispatch_mode_of_the_script_sees_nothing() -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    calls: list[str] = []

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(str(func))
            return func(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(str(func))
            return func(*args, **(kwargs or {}))

    parameter = nn.Parameter(filled((30, 5), torch.float32))
    parameter.grad = filled((30, 5), torch.float32, 1)
    watch = TensorWatch(["p"], [parameter])
    with Operations():
        watch.before_update()
        watch.after_update([]).result()
    assert calls == []
    with Functions():
        watch.before_update()
        watch.after_update([]).result()
    assert [call for call in calls if "__get__" not in call] == []  # attributes, no operation


def test_what_is_kept_is_counted() -> None:
    parameters = [nn.Parameter(torch.ones(1000, 100)), nn.Parameter(torch.ones(7, dtype=torch.bfloat16))]
    watch = TensorWatch(["a", "b"], parameters)
    assert watch.held_bytes == 0
    watch.before_update()
    assert watch.held_bytes == 2 * 4 * plan_for(parameters[0]).length + 7 * (2 + 4)
    assert all(column in COLUMNS for column in SAMPLED)
