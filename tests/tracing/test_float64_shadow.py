"""The second opinion: the shadows are what float64 really gives, and the run beside them is not touched."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402 (torch is optional for an install of steadytrain)
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from steadytrain.storage.step_look import SecondOpinion  # noqa: E402
from steadytrain.tracing.float64_shadow import Float64Shadows  # noqa: E402
from steadytrain.tracing.second_looks import SecondLook  # noqa: E402
from steadytrain.tracing.tracer import OperationTracer  # noqa: E402


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1)
        self.layer.self_attn.dropout = 0.0  # it is no module: what it lets through cannot be seen
        self.norm = nn.BatchNorm1d(5)
        self.head = nn.Linear(80, 3)  # the norm of a normalized output would be the same whatever it is

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm(self.layer(inputs))
        hidden[:, 0] *= 2.0  # in place, through a view
        return self.head(hidden.transpose(1, 2).reshape(len(inputs), -1))


def convolving() -> nn.Module:
    return nn.Sequential(nn.Conv1d(5, 8, 3), nn.GELU(), nn.Flatten(), nn.Linear(8 * 14, 3))


def step(model: nn.Module, optimizer: Any, inputs: Tensor) -> Tensor:
    loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss


@pytest.fixture
def _exact_attention() -> Iterator[None]:
    """Without the fused kernel, which in float64 too has an exponential that is right to eight digits only."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


@pytest.mark.usefixtures("_exact_attention")
@pytest.mark.parametrize("make", [Attending, convolving], ids=["attention", "convolution"])
def test_shadows_are_the_step_in_float64_and_the_step_is_the_same_to_the_last_bit(make: Any) -> None:
    torch.manual_seed(0)
    model, inputs = make(), torch.randn(4, 5, 16)
    plain, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    random = torch.get_rng_state()
    dropped = kept_by_dropouts(plain)
    step(plain, torch.optim.AdamW(plain.parameters(), lr=1e-2, eps=1e-6), inputs)

    shadows = Float64Shadows()
    tracer = OperationTracer(parameters=dict(model.named_parameters()), method="", observer=shadows)
    torch.set_rng_state(random)
    with tracer:
        loss = step(model, torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-6), inputs)
    assert tracer.trouble is None
    assert shadows.names == ()
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), plain.parameters(), strict=True))

    drop_again(exact, dropped)
    loss64 = step(exact, torch.optim.AdamW(exact.parameters(), lr=1e-2, eps=1e-6), inputs.double())
    assert float(value(shadows, loss)) == pytest.approx(loss64.item(), rel=1e-13)
    for (name, own), other in zip(model.named_parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(value(shadows, own), other.detach(), rtol=1e-9, atol=1e-12, msg=name)
    assert float(value(shadows, loss)) == pytest.approx(loss.item(), rel=1e-5)


def kept_by_dropouts(model: nn.Module) -> dict[str, Tensor]:
    """What each dropout lets through, once the model has run."""
    kept: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda module, args, output: kept.__setitem__(name, output.detach() != 0)

    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(keep(name))
    return kept


def drop_again(model: nn.Module, kept: dict[str, Tensor]) -> None:
    """Have the dropouts let through the same elements."""

    def drop(name: str, rate: float) -> Any:
        return lambda module, args, output: args[0] * kept[name] / (1 - rate)

    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(drop(name, module.p))


def value(shadows: Float64Shadows, tensor: Tensor) -> Tensor:
    found = shadows.value(tensor)
    assert found is not None
    return found.detach()


def opinion(make_loss: Any, **parameters: Tensor) -> SecondOpinion:
    second = SecondLook({}, parameters, step=1)
    tracer = OperationTracer(parameters=parameters, method="", observer=second.shadows)
    tracer.note_sources({"x": parameters["x"].detach()})
    with tracer:
        loss = make_loss(**parameters)
        tracer.mark_loss(loss)
        second.loss_seen(loss)
        loss.backward()
    return second.opinion(tracer.finding())


def leaf(*numbers: float) -> Tensor:
    return torch.tensor(numbers, requires_grad=True)


def custom(x: Tensor) -> Tensor:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return torch.ops.steadytrain_test.doubled(x)  # type: ignore[no-any-return]

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * 2

    return Doubled.apply(x)  # type: ignore[no-any-return]


def test_what_overflows_in_half_is_the_format_and_what_divides_by_zero_is_the_mathematics() -> None:
    half = opinion(lambda x: (x.half() * 300).half().float().sum(), x=leaf(300.0, 1.0))
    assert (half.verdict, half.loss, half.loss_float64) == ("number-format", math.inf, 90300.0)
    assert half.text == "finite in float64: the number format is at fault"
    assert half.relative_error is None

    zero = opinion(lambda x: (x / (x - x)).sum(), x=leaf(1.0, 2.0))
    assert (zero.verdict, zero.bad_gradients, zero.bad_gradients_float64) == ("mathematics", 1, 1)

    backward = opinion(lambda x: (x - x.detach()).pow(2).sum().sqrt(), x=leaf(1.0, 4.0))
    assert backward.verdict == "mathematics"

    given = opinion(lambda x: x.sum(), x=leaf(math.nan))
    assert given.verdict == "input"


def test_a_finite_step_tells_the_error_of_its_loss() -> None:
    fine = opinion(lambda x: (x.bfloat16() * 3).float().sum(), x=leaf(1.001))
    assert fine.verdict == "both-finite"
    assert fine.loss_float64 == pytest.approx(3.003)
    assert fine.relative_error == pytest.approx(1e-3, rel=0.5)


def test_the_loss_is_told_without_what_a_scaler_puts_in_front_of_it() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaled = opinion(lambda x: scaler.scale(x.square().mean()), x=leaf(2.0, 4.0))
    assert (scaled.loss, scaled.loss_float64) == (10.0, 10.0)


def test_a_custom_kernel_is_taken_as_it_is_and_named() -> None:
    library = torch.library.Library("steadytrain_test", "DEF")
    library.define("doubled(Tensor x) -> Tensor")
    library.impl("doubled", lambda x: torch.from_numpy(x.numpy() * 2), "CPU")
    broken = opinion(lambda x: (custom(x) / 0.0).sum(), x=leaf(1.0))
    assert (broken.verdict, broken.not_cast) == ("unknown", ("steadytrain_test.doubled.default",))
    assert "could not be done in float64" in broken.text
    fine = opinion(lambda x: custom(x).sum(), x=leaf(1.0))
    assert (fine.verdict, fine.loss_float64) == ("both-finite", 2.0)


def test_clipping_and_list_operations_are_done_in_float64() -> None:
    parameters = [nn.Parameter(torch.full((3,), float(number))) for number in range(1, 4)]
    shadows = Float64Shadows()
    tracer = OperationTracer(parameters={}, method="", observer=shadows)
    with tracer:
        torch.stack([parameter.half().square().sum() for parameter in parameters]).sum().backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        torch.optim.AdamW(parameters, lr=0.1, foreach=True).step()
    assert (tracer.trouble, shadows.names) == (None, ())
    gradients = torch.cat([value(shadows, parameter.grad) for parameter in parameters if parameter.grad is not None])
    assert gradients.dtype == torch.float64
    assert float(gradients.norm()) == pytest.approx(1.0, rel=1e-6)


def test_memory_is_bounded_and_what_that_costs_is_said() -> None:
    shadows = Float64Shadows(bytes_max=1000)
    tracer = OperationTracer(parameters={}, method="", observer=shadows)
    with tracer:
        kept = [torch.zeros(50) + number for number in range(10)]
    assert len(kept) == 10
    assert tracer.trouble is None
    assert shadows.stopped is not None
    assert "would be needed" in shadows.stopped
