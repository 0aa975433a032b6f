"""The operation tracer: whom it blames, whom it does not, and that nobody notices it."""

from __future__ import annotations

import copy
import gc
import json
import math
import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (torch is optional for an install of steadytrain)
from torch.nn import functional  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_pre_hook  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from steadytrain.core.incident import Finding, Located  # noqa: E402
from steadytrain.tracing import operation_facts, value_origins, value_watch  # noqa: E402
from steadytrain.tracing.tensor_summary import Kinds, fills_its_storage, kinds_of, summarize  # noqa: E402
from steadytrain.tracing.tracer import CHAIN_FIRST, CHAIN_LAST, NOT_REPRODUCED, OperationTracer  # noqa: E402

INF, NAN = float("inf"), float("nan")
ZOO = Path(__file__).parents[2] / "zoo" / "nonfinite"
CASES = json.loads((ZOO / "cases.json").read_text())["cases"]


@pytest.fixture(autouse=True)
def _one_thread_and_nothing_left_behind() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
    assert not torch.is_anomaly_enabled()
    assert torch._C._len_torch_dispatch_stack() == 0


def values(*numbers: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor([float(number) for number in numbers]))


def tracer_of(model: nn.Module | None = None, **parameters: torch.Tensor) -> OperationTracer:
    modules = {} if model is None else {module: path for path, module in model.named_modules()}
    named = {} if model is None else dict(model.named_parameters())
    return OperationTracer(modules=modules, parameters={**named, **parameters}, method="test")


def trace(forward: Callable[[], torch.Tensor], model: nn.Module | None = None, **parameters: torch.Tensor) -> Finding:
    """Run forward and backward once under the tracer."""
    tracer = tracer_of(model, **parameters)
    with tracer:
        loss = forward()
        tracer.mark_loss(loss)
        loss.backward()
    finding = tracer.finding()
    assert tracer.trouble is None
    return finding


def blamed(finding: Finding) -> Located:
    assert finding.located is not None, finding.why
    assert finding.located.file == __file__ or finding.located.file is None
    return finding.located


# Who is blamed. Each entry: what x holds, the loss made of x, and the phase, operation and kind to be found.
FAULTS: dict[str, tuple[list[float], Callable[[Any], Any], tuple[str, str, str]]] = {
    "log of zero": ([0, 1, 2], lambda x: x.log().mean(), ("loss", "aten.log.default", "inf")),
    "log of a negative": ([-1, 1, 2], lambda x: x.log().mean(), ("loss", "aten.log.default", "nan")),
    "sqrt of a negative": ([-1, 1], lambda x: x.sqrt().mean(), ("loss", "aten.sqrt.default", "nan")),
    "sqrt of zero, backward": ([0, 1], lambda x: x.sqrt().mean(), ("backward", "aten.div.Tensor", "inf")),
    "zero by zero": ([0, 1], lambda x: (x / (x * 0)).sum(), ("loss", "aten.div.Tensor", "nan")),
    "one by zero": ([1, 2], lambda x: (x / torch.zeros(2)).sum(), ("loss", "aten.div.Tensor", "inf")),
    "power": ([-2, 1], lambda x: (x**0.5).sum(), ("loss", "aten.pow.Tensor_Scalar", "nan")),
    "power of zero, backward": ([0, 1], lambda x: (x**0.5).sum(), ("backward", "aten.pow.Tensor_Scalar", "inf")),
    "acos": ([2, 0], lambda x: x.acos().sum(), ("loss", "aten.acos.default", "nan")),
    "norm of zero, backward": (
        [0, 0],
        lambda x: x.pow(2).sum().sqrt(),
        ("backward", "aten.div.Tensor", "inf"),
    ),
    "exp overflows, noticed two operations later": (
        [100, 1],
        lambda x: (x.exp() - x.exp()).sum(),
        ("loss", "aten.exp.default", "inf"),
    ),
    "in-place log": ([0, 1], lambda x: (x * 1).log_().sum(), ("loss", "aten.log_.default", "inf")),
    "where, damaged in backward": (
        [0, 1],
        lambda x: torch.where(x > 0, x.log(), torch.zeros(2)).sum(),
        ("backward", "aten.div.Tensor", "nan"),
    ),
    "where, damaged by a saved Inf": (
        [100, 1],
        lambda x: torch.where(x < 10, x.exp(), x).sum(),
        ("loss", "aten.exp.default", "inf"),
    ),
    "fully masked softmax": (
        [0, 1],
        lambda x: x.masked_fill(x < 9, -INF).softmax(0).sum(),
        ("loss", "aten._softmax.default", "nan"),
    ),
    "softmax fully masked by log(0)": (
        [0, 1],
        lambda x: (x + torch.zeros(2).log()).softmax(0).sum(),
        ("loss", "aten._softmax.default", "nan"),
    ),
    "softmax of an overflown product": (
        [60000, 60000],
        lambda x: (-(x[None].half() @ x[:, None].half()).expand(1, 2)).float().softmax(-1).sum(),
        ("loss", "aten.mm.default", "inf"),
    ),
    "all targets ignored": (
        [0, 1],
        lambda x: functional.cross_entropy(x[None], torch.tensor([-100])),
        ("loss", "aten.nll_loss_forward.default", "nan"),
    ),
    "a masked class is the target": (
        [0, 1],
        lambda x: functional.cross_entropy(x.masked_fill(x > 0, -INF)[None], torch.tensor([1])),
        ("loss", "aten.nll_loss_forward.default", "inf"),
    ),
    "masked mean of nothing": (
        [1, 2],
        lambda x: (x * torch.zeros(2)).sum() / torch.zeros(2).sum(),
        ("loss", "aten.div.Tensor", "nan"),
    ),
    "half overflow in a cast": ([1e6, 1], lambda x: x.half().float().sum(), ("loss", "aten._to_copy.default", "inf")),
    "half overflow in a product": (
        [4e4, 4e4],
        lambda x: (x[None].half() @ torch.ones(2, 1).half()).float().sum() * 3,
        ("loss", "aten.mm.default", "inf"),
    ),
    "half overflow in a hand-written norm": (
        [300, 1],
        lambda x: (x.half() / (x.half().pow(2).sum() - x.half().pow(2).sum())).float().sum(),
        ("loss", "aten.pow.Tensor_Scalar", "inf"),
    ),
    "mask times zero": (
        [0, 1],
        lambda x: (torch.full((2,), -INF) * x).sum(),
        ("loss", "aten.mul.Tensor", "nan"),
    ),
    "entropy of a masked policy": (
        [0, 1],
        lambda x: (lambda p: -(p.exp() * p).sum())(x.masked_fill(x > 0, -INF).log_softmax(0)),
        ("loss", "aten.mul.Tensor", "nan"),
    ),
    "where lets the later fault through": (
        [-1, 0],
        lambda x: (torch.where(torch.tensor([True, False]), x.sqrt().detach(), x.log()) + x).sum(),
        ("loss", "aten.sqrt.default", "nan"),
    ),
    "a slice of a buffer": (
        [0, 1],
        lambda x: torch.zeros(2, 2).index_copy(0, torch.tensor([1]), x.log()[None])[1].sum(),
        ("loss", "aten.log.default", "inf"),
    ),
    "a constant that went too far": (
        [0, 1],
        lambda x: x.masked_fill(x > 0, -INF).mean(),
        ("loss", "aten.masked_fill.Scalar", "inf"),
    ),
    "complex": (
        [0, 1],
        lambda x: torch.view_as_real(torch.complex(x, x) / torch.complex(x * 0, x * 0)).sum(),
        ("loss", "aten.div.Tensor", "nan"),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_first_bad_operation_is_named(name: str) -> None:
    numbers, loss, (phase, operation, produced) = FAULTS[name]
    x = values(*numbers)
    located = blamed(trace(lambda: loss(x), x=x))
    assert (located.phase, located.operation, located.produced) == (phase, operation, produced)
    assert located.code is not None
    assert located.method == "test"
    assert located.chain[0].startswith(operation)
    assert located.reached == ("gradient of x" if phase == "backward" or "saved" in name else "loss")


# Who is not blamed: the loss and the gradients are finite in the end.
BENIGN: dict[str, Callable[[Any], Any]] = {
    "causal mask": lambda x: (x + torch.full((2, 2), -INF).triu(1)).softmax(-1).pow(2).sum(),
    "log(0) as a mask": lambda x: (x + torch.tensor([1.0, 0.0]).log()).softmax(-1)[0],
    "masked_fill": lambda x: x.masked_fill(torch.tensor([True, False]), -INF).log_softmax(-1)[1],
    "where with a constant": lambda x: torch.where(torch.tensor([True, False]), -INF, x).logsumexp(0),
    "where takes NaN out of data": lambda x: (torch.where(torch.tensor([True, False]), x, x.detach().log())).sum(),
    "nan_to_num": lambda x: (x * torch.nan_to_num(torch.zeros(2) / torch.zeros(2))).sum(),
    "exp of -Inf": lambda x: x.masked_fill(torch.tensor([True, False]), -INF).exp().sum(),
    "maximum of padding": lambda x: functional.pad(x, (1, 1), value=-INF).max(),
    "max pooling": lambda x: functional.max_pool1d(x[None], 2, padding=1).sum(),
    "detached metric": lambda x: (x.detach().mul(1e9).exp(), x.sum())[1],
    "uninitialised memory, then written": lambda x: torch.empty(2).copy_(x).sum(),
    "library norm of zero": lambda x: torch.linalg.vector_norm(x * 0),
    "overwritten NaN": lambda x: (torch.full((2,), NAN).copy_(x) * x).sum(),
    "attention row without keys": lambda x: functional.scaled_dot_product_attention(
        x[None, None, :, None], x[None, None, :, None], x[None, None, :, None], torch.eye(2)[:, :].bool()
    ).sum(),
}


@pytest.mark.parametrize("name", BENIGN)
def test_nobody_is_blamed_for_what_is_absorbed(name: str) -> None:
    x = values(0.5, 1.5)
    assert trace(lambda: BENIGN[name](x), x=x) == Finding(None, NOT_REPRODUCED)


def test_a_fault_beside_a_benign_mask_is_found_behind_it() -> None:
    x = values(0.0, 1.0)

    def loss() -> torch.Tensor:
        mask = torch.tensor([1.0, 0.0]).log()
        return ((x - 1).sqrt() + mask).softmax(-1).sum()

    assert blamed(trace(loss, x=x)).operation == "aten.sqrt.default"


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
        "the batch already holds NaN: args[0], 1 of 64 values, first at [1, 17], before any operation; "
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


# Invisible.


def small_transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return nn.Sequential(
        nn.Embedding(11, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 11)
    )


@pytest.mark.parametrize("autocast", [False, True])
def test_results_are_the_same_bits_with_and_without(autocast: bool) -> None:
    def step(model: nn.Module) -> list[torch.Tensor]:
        torch.manual_seed(7)
        tokens = torch.randint(0, 11, (4, 8))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            logits = model(tokens)
        loss = functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        return [logits.detach(), loss.detach(), *gradients, torch.get_rng_state()]

    model = small_transformer()
    twin = copy.deepcopy(model)
    expected = step(model)
    tracer = tracer_of(twin)
    with tracer:
        found = step(twin)
    assert tracer.trouble is None
    assert len(expected) == len(found)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.LSTM(4, 4, 2, dropout=0.1), (5, 3, 4)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Dropout(0.2)), (2, 1, 6, 6)),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), (3, 4)),
        (nn.Sequential(nn.Linear(4, 4), nn.RMSNorm(4), nn.Softplus()), (3, 4)),
    ],
    ids=["lstm", "convolution and batch norm", "spectral norm", "rms norm"],
)
def test_other_layers_are_the_same_bits_too(model: nn.Module, shape: tuple[int, ...]) -> None:
    def step(model: nn.Module) -> list[torch.Tensor]:
        torch.manual_seed(7)
        outputs = model(torch.randn(shape))
        loss = (outputs[0] if isinstance(outputs, tuple) else outputs).pow(2).sum()
        loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        return [loss.detach(), *gradients, *model.buffers(), torch.get_rng_state()]

    twin = copy.deepcopy(model)
    expected = step(model)
    tracer = tracer_of(twin)
    with tracer:
        found = step(twin)
    assert tracer.trouble is None
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_everything_is_gone_after_the_exit_and_after_an_exception() -> None:
    model = small_transformer()
    torch.set_anomaly_enabled(True, False)
    try:
        with pytest.raises(TypeError), tracer_of(model):
            model("no tensor")
        assert torch.is_anomaly_enabled()
        assert not torch.is_anomaly_check_nan_enabled()
    finally:
        torch.set_anomaly_enabled(False, True)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._forward_hooks_always_called
    assert torch._C._len_torch_dispatch_stack() == 0


def test_our_own_mistake_never_reaches_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(tensor: torch.Tensor) -> Kinds:
        raise RuntimeError("cannot look")

    x = values(1.0, 2.0)
    tracer = tracer_of(x=x)
    with tracer:
        monkeypatch.setattr(value_watch, "kinds_of", broken)
        loss = (x * 2).sum()
        tracer.mark_loss(loss)
        loss.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]
    assert tracer.trouble == "RuntimeError: cannot look"
    assert "the trace is incomplete: RuntimeError: cannot look" in tracer.finding().why


def test_a_sparse_gradient_is_looked_at() -> None:
    embedding = nn.Embedding(3, 1, sparse=True)
    with torch.no_grad():
        embedding.weight.zero_()
    located = blamed(trace(lambda: embedding(torch.tensor([0, 1])).sqrt().sum(), embedding))
    assert (located.phase, located.operation, located.reached) == ("backward", "aten.div.Tensor", "gradient of weight")


def test_the_users_own_dispatch_modes_see_only_their_own_operations() -> None:
    class Lists(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = values(0.0, 1.0)
    with Lists() as bare_outside, Lists() as bare_inside:  # torch 2.6 itself shows the outer mode one detach more
        x.log().sum().backward()
    for outside in (True, False):
        x.grad, tracer, mode = None, tracer_of(x=x), Lists()
        first, second = (mode, tracer) if outside else (tracer, mode)
        with first, second:
            loss = x.log().sum()
            tracer.mark_loss(loss)
            loss.backward()
        assert mode.seen == (bare_outside if outside else bare_inside).seen
        assert blamed(tracer.finding()).operation == "aten.log.default"


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # deprecated, and still in people's models
def test_strange_tensors_pass_through() -> None:
    x = values(1.0, 2.0)

    class Plain(torch.Tensor):
        pass

    def loss() -> torch.Tensor:
        torch.empty(3, device="meta").add(1)
        torch.eye(3).to_sparse().coalesce().to_dense()
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).dequantize()
        torch.tensor([NAN]).to(torch.float8_e4m3fn).float()
        torch.zeros(0).log()
        torch.arange(3) // 2
        with torch._subclasses.FakeTensorMode():
            torch.ones(2).log()
        return (torch.ones(2).as_subclass(Plain) * x).sum().as_subclass(torch.Tensor)

    assert trace(loss, x=x) == Finding(None, NOT_REPRODUCED)


def test_a_wrapper_subclass_is_looked_into() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    x = values(0.0, 1.0)
    tracer = tracer_of(x=x)
    with tracer:
        both = TwoTensor(x * 1, x * 1)
        loss = both.log().sum().a if hasattr(both, "a") else x.log().sum()
        tracer.mark_loss(loss)
    assert blamed(tracer.finding()).operation == "aten.log.default"


# The parts.


def test_a_reused_address_is_not_mistaken_for_the_dead_tensor() -> None:
    holdings = value_origins.Holdings()
    tensor = torch.full((64,), NAN)
    storage = tensor.untyped_storage()._cdata
    holdings.write(tensor, [value_origins.Record(1, Kinds.NAN, "old")])
    del tensor
    gc.collect()
    reused = [torch.full((64,), NAN) for _ in range(50)]
    assert all(other.untyped_storage()._cdata != storage for other in reused)
    assert all(not holdings.origins(other, Kinds.NAN) for other in reused)
    assert holdings.by_storage[storage].storage.expired(), "the memory itself is not held"


def test_dead_storages_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_origins, "PRUNE_FROM", 8)
    holdings = value_origins.Holdings(prune_at=8)
    for order in range(100):
        holdings.write(torch.full((2,), NAN), [value_origins.Record(order, Kinds.NAN, "x")])
    assert len(holdings) <= 8


def test_partial_writes_keep_the_rest_and_full_writes_do_not() -> None:
    holdings, buffer = value_origins.Holdings(), torch.zeros(2, 2)
    first, second = value_origins.Record(1, Kinds.NAN, "first"), value_origins.Record(2, Kinds.NAN, "second")
    holdings.write(buffer[0], [first])
    holdings.write(buffer[1], [second])
    assert holdings.origins(buffer, Kinds.NAN) == (first, second)
    holdings.write(buffer.t(), ())
    assert holdings.origins(buffer, Kinds.NAN) == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float8_e5m2])
def test_the_kinds_in_a_tensor(dtype: torch.dtype) -> None:
    for numbers, kinds in [
        ([0.0, -1.0], Kinds.NONE),
        ([NAN, 1.0], Kinds.NAN),
        ([INF, 1.0], Kinds.POSITIVE_INF),
        ([-INF, INF], Kinds.NEGATIVE_INF | Kinds.POSITIVE_INF),
        ([-INF, NAN], Kinds.NEGATIVE_INF | Kinds.NAN),
    ]:
        tensor = torch.tensor(numbers, dtype=torch.float32).to(dtype)
        assert kinds_of(tensor) == kinds
        assert kinds_of(tensor.expand(3, 2).t()) == kinds
    assert kinds_of(torch.tensor([complex(0, INF)])) == Kinds.POSITIVE_INF
    assert kinds_of(torch.tensor([1])) == Kinds.NONE


def test_covering_the_storage() -> None:
    base = torch.zeros(4, 6)
    assert fills_its_storage(base)
    assert fills_its_storage(base.t())
    assert not fills_its_storage(base[1:])
    assert fills_its_storage(torch.zeros(1).expand(5))


def test_summaries() -> None:
    found = summarize("x", torch.tensor([0.0, -2.0, NAN, INF, 5.0]))
    assert (found.smallest, found.largest, found.zeros, found.nan, found.inf) == (-2.0, 5.0, 1, 1, 1)
    assert summarize("x", torch.tensor([True, False])).largest == 1.0
    assert summarize("x", torch.zeros(0)).smallest is None
    assert summarize("x", torch.empty(2, device="meta")).shape == (2,)
    assert summarize("x", [1] * 100).text is not None
    assert math.isclose(summarize("x", torch.tensor([1.5], dtype=torch.bfloat16)).largest or 0, 1.5)


def test_every_named_operation_exists() -> None:
    # A misspelt name in these sets would only show as a wrong verdict.
    missing = [
        name
        for name in operation_facts.FILLS | operation_facts.OVERWRITES | operation_facts.CONTRACTIONS
        if not hasattr(torch.ops.aten, name)
    ]
    assert missing == []


# The zoo: unmodified scripts, traced from the root's forward to the optimizer's step.


@dataclass
class _Stopped(Exception):  # noqa: N818 (not an error: how the script is ended)
    finding: Finding


def traced_script(script: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> Finding:
    """The finding of one step of a script, the way a watcher would come to it from outside."""
    running: list[OperationTracer] = []
    steps = 1
    engine = torch.autograd._engine_run_backward

    def root_forward(module: nn.Module, args: tuple[Any, ...]) -> None:
        if running or steps != step:
            return
        running.append(tracer_of(module))
        running[0].note_sources({f"args[{place}]": value for place, value in enumerate(args)})
        running[0].__enter__()
        running[0].enter_module(module)

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        for tracer in running:
            tracer.mark_loss(tensors[0])
        return engine(tensors, *args, **kwargs)

    def before_step(*_: object) -> None:
        nonlocal steps
        if running:
            tracer = running.pop()
            tracer.__exit__(None, None, None)
            assert tracer.trouble is None
            raise _Stopped(tracer.finding())
        steps += 1

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", backward)
    handles = [
        nn.modules.module.register_module_forward_pre_hook(root_forward),
        register_optimizer_step_pre_hook(before_step),
    ]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except _Stopped as stopped:
        return stopped.finding
    finally:
        for handle in handles:
            handle.remove()
    raise AssertionError("the script never came to that step")


OTHERWISE = {
    "group_of_one.py",  # torch warns of it as well
    "root_of_zero_inf.py",  # a parameter of no module, which is not looked at here
    "healthy_compiled.py",  # the tracer does not look into compiled code
}
TRACED = [case for case in CASES if case.get("by") != "locate" and case["script"] not in OTHERWISE]
"""What lies between a forward and its backward; all others are named by the commands (``tests/zoo/test_zoo.py``)."""


@pytest.mark.slow
@pytest.mark.parametrize("case", TRACED, ids=lambda case: Path(case["script"]).stem)
def test_the_zoo(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    script = ZOO / case["script"]
    finding = traced_script(script, case.get("step", 7), monkeypatch)
    if case["exit"] == 0:
        assert finding == Finding(None, NOT_REPRODUCED)
        return
    # The steps before it are healthy, so a watcher must stop at exactly this one.
    assert traced_script(script, case["step"] - 1, monkeypatch) == Finding(None, NOT_REPRODUCED)
    if case["phase"] is None:
        assert finding.located is None
        assert finding.why.startswith(case["why"])
        return
    located = finding.located
    assert located is not None, finding.why
    lines = script.read_text().splitlines()
    (marked,) = [number for number, line in enumerate(lines, 1) if case["marker"] in line]
    assert (located.phase, located.module, located.line) == (case["phase"], case["module"], marked)
    assert located.file == str(script)
    assert located.operation in case["operations"]
    assert located.reached.startswith(case["reached"])


def test_the_zoo_lists_every_script() -> None:
    assert sorted(case["script"] for case in CASES) == sorted(path.name for path in ZOO.glob("*.py"))


@pytest.mark.parametrize("begins_inside", [False, True])
def test_the_anomaly_mode_of_the_script_is_its_own_where_blocks_overlap(begins_inside: bool) -> None:
    tracer = OperationTracer(parameters={}, method="")
    block = torch.autograd.set_detect_anomaly
    if begins_inside:
        with block(True):
            tracer.__enter__()
            assert torch.is_anomaly_enabled()
        assert not torch.is_anomaly_enabled()
        tracer.__exit__(None, None, None)
    else:
        tracer.__enter__()
        assert not torch.is_anomaly_enabled()
        with block(True):
            tracer.__exit__(None, None, None)
            assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, True)
    assert not torch.is_anomaly_enabled()
