"""Nobody notices the tracer: the same bits, and everything gone after it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (torch is optional for an install of steadytrain)
from torch.nn import functional  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from traced_faults import (  # noqa: E402
    NAN,
    _one_thread_and_nothing_left_behind,  # noqa: F401 (an autouse fixture)
    blamed,
    trace,
    tracer_of,
    values,
)

from steadytrain.core.incident import Finding  # noqa: E402
from steadytrain.tracing import value_watch  # noqa: E402
from steadytrain.tracing.tensor_summary import Kinds  # noqa: E402
from steadytrain.tracing.tracer import NOT_REPRODUCED  # noqa: E402

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
