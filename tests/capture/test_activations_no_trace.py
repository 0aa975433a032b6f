"""Measuring outputs leaves nothing behind: no hook, no wrapped function, no reference, and no error of ours."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from activation_models import Attending, leftovers
from torch import Tensor, nn

from fingerprint import random_digest
from measuring import cell, measure, untold
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.tensors.activations import Activations
from steadytrain.core.model import Reading


@pytest.mark.parametrize("ending", ["take", "remove", "backward", "arm again", "exception"])
def test_hooks_and_functions_are_as_before(ending: str) -> None:
    model = Attending()
    activations = Activations(Guard(untold))
    activations.arm([model])
    assert leftovers(model)
    if ending == "exception":
        with pytest.raises(RuntimeError):
            model(torch.ones(3, 5))
        model(torch.ones(3, 8))
        activations.take()
    elif ending == "remove":
        model(torch.ones(3, 8))
        activations.remove()
    else:
        loss = model(torch.ones(3, 8)).sum()
        activations.backward_begins()
        loss.backward()
        if ending == "arm again":
            activations.arm([model])
        if ending != "backward":
            activations.take()
    assert leftovers(model) == []


def test_a_forward_that_fails_halfway_leaves_no_trace_in_the_next() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 1))
    activations = Activations(Guard(untold))
    activations.arm([model])
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 2))
    model[1] = nn.Linear(2, 1)  # new, so without a hook
    model(torch.full((1, 2), 2.0))
    readback = activations.take()
    assert readback is not None
    assert readback.result().modules.rows == ("", "0")


def test_nothing_of_the_script_is_kept_alive() -> None:
    kept: list[Any] = []

    class Node(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            kept.append(weakref.ref(ctx))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient

    class Telling(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            output = Node.apply(super().forward(x))
            kept.append(weakref.ref(output))
            return output

    model = nn.Sequential(Telling(4, 4), nn.ReLU(), nn.Linear(4, 1))
    activations = Activations(Guard(untold))
    activations.arm([model])
    before = random_digest()
    loss = model(torch.ones(2, 4)).sum()
    assert random_digest() == before
    activations.backward_begins()
    loss.backward()
    del loss
    gc.collect()
    assert all(reference() is None for reference in kept)
    assert activations.take() is not None


def test_other_threads_are_not_looked_at() -> None:
    model = nn.Linear(2, 2)
    activations = Activations(Guard(untold))
    activations.arm([model])
    thread = threading.Thread(target=lambda: model(torch.full((1, 2), float("nan"))))
    thread.start()
    thread.join()
    model(torch.zeros(1, 2))
    readback = activations.take()
    assert readback is not None
    assert cell(readback.result().modules, "", "nonfinite") == 0


def test_a_copy_or_a_pickle_of_an_armed_model_is_free_of_us() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    keys = list(model.state_dict())
    activations = Activations(Guard(untold))
    activations.arm([model])
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        twin(torch.full((1, 2), float("nan")))
    assert list(model.state_dict()) == keys
    assert b"steadytrain" not in pickle.dumps(model)
    model(torch.ones(1, 2))
    readback = activations.take()
    assert readback is not None
    assert cell(readback.result().modules, "", "nonfinite") == 0


def test_numbers_inside_vmap_are_none_of_ours() -> None:
    model = nn.Linear(2, 1)

    def train() -> Tensor:
        model(torch.ones(1, 2))
        return torch.vmap(model)(torch.ones(3, 2)).sum()

    assert cell(measure(model, train).modules, "", "nonfinite") == 0


@pytest.mark.parametrize("state", ["raise", "warn"])
def test_the_scripts_own_settings_of_numpy_and_torch_are_no_harm(state: Any) -> None:
    model = nn.Linear(2, 2)
    x = torch.tensor([[float("inf"), 3e38]])
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    try:
        with np.errstate(all=state), torch.device("meta"):
            reading = measure(model, lambda: model(x)).modules
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)
    assert cell(reading, "", "nonfinite") == 2


def test_an_error_of_ours_is_told_once_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Awkward(dict[str, Any]):
        def values(self) -> Any:
            raise OSError("no values today")

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return Awkward(x=x)

    monkeypatch.setattr(Guard, "reraise", False)
    told: list[str] = []
    model = nn.Sequential(nn.Linear(2, 2), Model())
    activations = Activations(Guard(told.append))
    for _ in range(2):
        activations.arm([model])
        assert isinstance(model(torch.ones(1, 2)), Awkward)
        readback = activations.take()
        assert readback is not None
        assert readback.result().modules.rows == ("0",)
    assert len(told) == 1
    assert "no values today" in told[0]
    assert leftovers(model) == []


def test_several_devices_and_dtypes_come_back_in_order() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Identity(), nn.Identity()

        def forward(self) -> Tensor:
            self.a(torch.full((3,), 2.0, dtype=torch.float16))
            return self.b(torch.full((3,), 4.0, dtype=torch.float64)).requires_grad_()

    model = Mixed()
    found = measure(model, model)
    assert found.dtypes == {"a": "float16", "b": "float64", "": "float64"}
    assert dict(zip(found.modules.rows, column(found.modules, "abs_max"), strict=True)) == {"": 4.0, "a": 2.0, "b": 4.0}


def column(reading: Reading, name: str) -> list[float]:
    return [float(value) for value in reading.values[:, reading.columns.index(name)]]
