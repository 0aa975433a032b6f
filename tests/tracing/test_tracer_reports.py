"""What the tracer reports of an operation and of a bad input: place, line, ranges and chain."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (torch is optional for an install of steadytrain)
from traced_faults import (  # noqa: E402
    INF,
    NAN,
    _one_thread_and_nothing_left_behind,  # noqa: F401 (an autouse fixture)
    blamed,
    trace,
    tracer_of,
    values,
)

from steadytrain.core.incident import Finding  # noqa: E402
from steadytrain.tracing import value_watch  # noqa: E402
from steadytrain.tracing.tracer import CHAIN_FIRST, CHAIN_LAST  # noqa: E402

# What the finding says.


def test_module_line_inputs_and_chain() -> None:
    class Scale(nn.Module):
        def forward(self, inputs: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
            return inputs / by  # scaled

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.scale = Scale()

        def forward(self, by: torch.Tensor) -> torch.Tensor:
            return self.scale(self.linear(torch.ones(3, 2)), by)

    model = Model()
    located = blamed(trace(lambda: model(torch.tensor([1.0, 0.0])).mean(), model))
    assert (located.phase, located.module, located.code) == ("forward", "scale", "return inputs / by  # scaled")
    assert located.chain == ("aten.div.Tensor in scale", "aten.mean.default")
    by = located.inputs[1]
    assert (by.name, by.shape, by.dtype, by.smallest, by.largest, by.zeros) == ("other", (2,), "float32", 0.0, 1.0, 1)


def test_the_range_of_an_in_place_operation_is_from_before_it() -> None:
    x = values(0.0, 3.0)
    (operand,) = blamed(trace(lambda: (x * 1).log_().sum(), x=x)).inputs
    assert (operand.name, operand.smallest, operand.largest, operand.zeros, operand.inf) == ("self", 0.0, 3.0, 1, 0)


def test_the_range_of_a_huge_in_place_operation_is_from_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_watch, "COPY_BYTES_MAX", 0)
    x = values(0.0, 3.0)
    (operand,) = blamed(trace(lambda: (x * 1).log_().sum(), x=x)).inputs
    assert (operand.smallest, operand.largest, operand.zeros) == (0.0, 3.0, 1)


def test_a_long_chain_is_cut_in_the_middle() -> None:
    x = values(0.0, 1.0)

    def loss() -> torch.Tensor:
        y = x.log()
        for _ in range(30):
            y = y * 2
        return y.sum()

    chain = blamed(trace(loss, x=x)).chain
    assert len(chain) == CHAIN_FIRST + 1 + CHAIN_LAST
    assert chain[CHAIN_FIRST] == "... 20 more ..."
    assert chain[-1] == "aten.sum.default"


def test_carriers_beyond_the_limit_still_lead_to_the_birth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_watch, "CARRIERS_MAX", 2)
    x = values(0.0, 1.0)
    located = blamed(trace(lambda: (x.log() * 2 * 2 * 2 * 2).sum(), x=x))
    assert located.operation == "aten.log.default"
    assert len(located.chain) <= 3


def test_backward_is_told_by_the_forward_line_and_module() -> None:
    class Root(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs.sqrt()  # rooted

    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Identity(), Root()), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.zero_()
    located = blamed(trace(lambda: model(torch.ones(1, 2)).sum(), model))
    assert (located.phase, located.module, located.code) == ("backward", "1.1", "return inputs.sqrt()  # rooted")
    assert located.reached == "gradient of 0.weight"


def test_a_user_written_backward_is_told_by_its_own_line() -> None:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient / torch.zeros(2)  # own backward

    x = values(1.0, 2.0)
    located = blamed(trace(lambda: Bad.apply(x).sum(), x=x))
    assert (located.phase, located.code) == ("backward", "return gradient / torch.zeros(2)  # own backward")


def test_double_backward_is_told_by_the_first_forward() -> None:
    x = values(0.0, 1.0)

    def loss() -> torch.Tensor:
        y = (x * x).sum() ** 1.5 + x.pow(1.5).sum()  # penalised
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        return gradient.pow(2).sum()

    located = blamed(trace(loss, x=x))
    assert located.phase == "backward"
    assert located.code == "y = (x * x).sum() ** 1.5 + x.pow(1.5).sum()  # penalised"


def test_a_shared_module_and_tied_weights() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.Sequential(nn.Identity())
            self.inner = nn.Linear(2, 2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            inputs = self.inner(inputs)
            inputs = self.norm(inputs)
            inputs = self.norm(self.inner(inputs) * 0)
            return inputs / inputs  # outside both

    model = nn.Sequential(Twice())
    located = blamed(trace(lambda: model(torch.ones(1, 2)).sum(), model))
    assert (located.module, located.code) == ("0", "return inputs / inputs  # outside both")


def test_a_module_that_raises_does_not_confuse_the_path() -> None:
    class Raises(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            raise KeyError("on purpose")

    class Catches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.raises = Raises()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            try:
                return self.raises(inputs)
            except KeyError:
                return inputs.log()

    model, x = Catches(), values(0.0, 1.0)
    located = blamed(trace(lambda: model(x).sum(), model, x=x))
    assert (located.phase, located.module) == ("forward", "")
    x.grad = None
    assert blamed(trace(lambda: (model(x + 1) * 0).log().sum(), model, x=x)).phase == "loss"


def test_telling_of_a_module_that_is_not_running_has_no_effect() -> None:
    model, x = nn.Linear(2, 2), values(0.0, 1.0)
    tracer = tracer_of(model, x=x)
    with tracer:
        tracer.enter_module(model)
        tracer.enter_module(nn.Identity())
        loss = (x.log() + model(x)).sum()
        tracer.mark_loss(loss)
        loss.backward()
    assert blamed(tracer.finding()).phase == "loss"


# What came in broken.


def test_a_bad_batch_is_named_with_the_place_of_the_value() -> None:
    model = nn.Linear(32, 1)
    batch = torch.zeros(2, 32)
    batch[1, 17] = NAN
    tracer = tracer_of(model)
    tracer.note_sources({"args[0]": batch})
    with tracer:
        loss = model(batch).mean()
        tracer.mark_loss(loss)
        loss.backward()
    assert tracer.finding() == Finding(
        None,
        "the batch already holds NaN: args[0], 1 of 64 values, first at [1, 17], when the model got it; "
        "it reached the loss",
    )


def test_an_infinite_batch_is_named_though_the_nan_came_later() -> None:
    x, batch = values(1.0, 2.0), torch.tensor([INF, 1.0])
    tracer = tracer_of(x=x)
    tracer.note_sources({"inputs['x']": batch})
    with tracer:
        loss = ((x * batch) - (x * batch)).sum()
        tracer.mark_loss(loss)
        loss.backward()
    assert tracer.finding().why.startswith("the batch already holds +Inf: inputs['x'], 1 of 2 values")


def test_a_bad_batch_that_is_absorbed_is_not_named() -> None:
    x, batch = values(0.0, 2.0), torch.tensor([NAN, 1.0])
    tracer = tracer_of(x=x)
    tracer.note_sources({"args[0]": batch})
    with tracer:
        loss = (x.log() * torch.nan_to_num(batch)).sum()
        tracer.mark_loss(loss)
        loss.backward()
    assert blamed(tracer.finding()).operation == "aten.log.default"


def test_bad_weights_buffers_and_earlier_gradients_are_named() -> None:
    embedding = nn.Embedding(4, 2)
    with torch.no_grad():
        embedding.weight[2] = NAN
    finding = trace(lambda: embedding(torch.tensor([0, 2])).sum(), embedding)
    assert finding.why.startswith("the parameter already holds NaN: weight, 2 of 8 values, first at [2, 0]")

    norm = nn.BatchNorm1d(2).eval()
    norm.running_var[1] = NAN
    finding = trace(lambda: norm(torch.ones(3, 2)).sum(), nn.Sequential(norm))
    assert finding.why.startswith("the buffer already holds NaN: 0.running_var, 1 of 2 values, first at [1]")

    x = values(1.0, 2.0)
    x.grad = torch.tensor([1.0, NAN])
    finding = trace(lambda: x.sum(), x=x)
    assert finding.located is None
    assert finding.why.startswith("the accumulated gradient already holds NaN: x, 1 of 2 values")


def test_an_unknown_tensor_is_told_by_who_read_it() -> None:
    x, unknown = values(1.0, 2.0), torch.tensor([NAN, 1.0])
    finding = trace(lambda: (x * unknown).sum(), x=x)
    assert finding.located is None
    assert (
        "a tensor from before the re-run held NaN: float32 [2], first read by aten.mul.Tensor as other" in finding.why
    )


def test_batch_norm_in_training_does_not_read_its_running_statistics() -> None:
    norm = nn.BatchNorm1d(2)
    norm.running_mean.fill_(NAN)
    x = values(0.0, 1.0)
    located = blamed(trace(lambda: norm(x.expand(3, 2).log()).sum(), norm, x=x))
    assert located.operation == "aten.log.default"
