"""The tracer on whole steps: accumulation, scaling, clipping, checkpointing, autocast and compiled modules."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (torch is optional for an install of steadytrain)
from torch.utils.checkpoint import checkpoint  # noqa: E402
from traced_faults import (  # noqa: E402
    _one_thread_and_nothing_left_behind,  # noqa: F401 (an autouse fixture)
    blamed,
    trace,
    tracer_of,
    values,
)

# The whole step: several backwards, scalers, clipping, checkpointing, autocast, compilation.


def test_accumulation_names_the_one_bad_micro_batch() -> None:
    model = nn.Linear(2, 1)
    tracer = tracer_of(model)
    with tracer:
        for micro in range(3):
            weights = torch.full((4,), 0.0 if micro == 1 else 1.0)
            loss = (model(torch.ones(4, 2)).squeeze(-1) * weights).sum() / weights.sum()
            tracer.mark_loss(loss)
            loss.backward()
    located = blamed(tracer.finding())
    assert (located.phase, located.operation, located.reached) == ("loss", "aten.div.Tensor", "loss")
    assert located.inputs[1].largest == 0.0


def test_scaler_clipping_and_foreach_after_a_bad_backward() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tracer = tracer_of(model)
    with tracer:
        loss = scaler.scale((model(torch.ones(1, 2)) * 0).pow(2).sum().sqrt())
        tracer.mark_loss(loss)
        loss.backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    located = blamed(tracer.finding())
    assert tracer.trouble is None
    assert (located.phase, located.operation) == ("backward", "aten.div.Tensor")


def test_gradients_damaged_between_backward_and_the_update_are_the_clip_phase() -> None:
    x = values(1.0, 2.0)
    tracer = tracer_of(x=x)
    with tracer:
        loss = x.sum()
        tracer.mark_loss(loss)
        loss.backward()
        assert x.grad is not None
        x.grad /= torch.zeros(2)  # averaged over nothing
    located = blamed(tracer.finding())
    assert (located.phase, located.reached) == ("clip", "gradient of x")
    assert located.code == "x.grad /= torch.zeros(2)  # averaged over nothing"


def test_list_operations_keep_their_elements_apart() -> None:
    x, y = values(1.0, 2.0), values(1.0, 2.0)
    tracer = tracer_of(x=x, y=y)
    with tracer:
        loss = x.sum() + y.sum()
        tracer.mark_loss(loss)
        loss.backward()
        assert x.grad is not None
        assert y.grad is not None
        x.grad.sub_(1).log_()  # x breaks first, but is given up
        y.grad.sub_(2).sqrt_()
        torch._foreach_mul_([x.grad, y.grad], 2.0)
        x.grad = None
    located = blamed(tracer.finding())
    assert (located.operation, located.reached) == ("aten.sqrt_.default", "gradient of y")


def test_a_value_that_is_overwritten_by_the_operation_it_breaks_keeps_its_origin() -> None:
    x = values(0.0, 1.0)
    tracer = tracer_of(x=x)
    with tracer:
        total, found = x.detach().log(), torch.zeros(1)
        torch._amp_foreach_non_finite_check_and_unscale_([total], found, torch.zeros(1))
        assert total.isnan().any()
        loss = (x * total).sum()
        tracer.mark_loss(loss)
        loss.backward()
    assert blamed(tracer.finding()).operation == "aten.log.default"


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_forward_and_backward(reentrant: bool) -> None:
    class Root(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs.sqrt()  # checkpointed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.root = Root()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return checkpoint(lambda x: self.root(self.inner(x)), inputs, use_reentrant=reentrant)

    model = nn.Sequential(nn.Linear(2, 2), Model(), nn.Linear(2, 1))
    with torch.no_grad():
        model[1].inner.weight.zero_()
        model[1].inner.bias.zero_()
    located = blamed(trace(lambda: model(torch.ones(1, 2)).sum(), model))
    assert (located.phase, located.module, located.code) == (
        "backward",
        "1.root",
        "return inputs.sqrt()  # checkpointed",
    )
    model.zero_grad()
    with torch.no_grad():
        model[1].inner.bias.fill_(-1.0)
    located = blamed(trace(lambda: model(torch.ones(1, 2)).sum(), model))
    assert (located.phase, located.module, located.operation) == ("forward", "1.root", "aten.sqrt.default")


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_only_the_recomputation_hands_on_is_a_forward_fault(reentrant: bool) -> None:
    x = values(100.0, 1.0)

    def guarded(inputs: torch.Tensor) -> torch.Tensor:
        return torch.where(inputs < 10, inputs.exp(), inputs)  # saved Inf

    located = blamed(trace(lambda: checkpoint(guarded, x * 1, use_reentrant=reentrant).sum(), x=x))
    assert (located.phase, located.operation, located.reached) == ("loss", "aten.exp.default", "gradient of x")
    assert located.code == "return torch.where(inputs < 10, inputs.exp(), inputs)  # saved Inf"


def test_autocast_keeps_working() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    tracer = tracer_of(model)
    with tracer, torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(torch.ones(2, 4))
        assert outputs.dtype == torch.bfloat16
        loss = (outputs.float() * 0).log().sum()
        tracer.mark_loss(loss)
        loss.backward()
    assert blamed(tracer.finding()).operation == "aten.log.default"


def test_a_compiled_module_runs_under_the_tracer() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    compiled(torch.ones(1, 2))
    located = blamed(trace(lambda: (compiled(torch.ones(1, 2)) * 0).log().sum(), model))
    assert located.operation == "aten.log.default"
