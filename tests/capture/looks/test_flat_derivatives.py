"""Second derivatives that the source takes, and whether those of the model behind the loss are zero."""

from __future__ import annotations

import textwrap

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.looks.flat_derivatives import is_flat
from steadytrain.capture.looks.loss_graph import read_graph
from steadytrain.capture.looks.script_reading import mistakes

KIND = "second-derivative"
SICK = {
    "by name": """
        def residual(model, x):
            u = model(x)
            du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
            ddu = torch.autograd.grad(du.sum(), x, create_graph=True)[0]
            return ddu + u
        """,
    "unpacked, of a column": """
        u = net(xt)
        (d,) = autograd.grad(u, xt, torch.ones_like(u), create_graph=True)
        u_x = d[:, 0:1]
        u_xx = autograd.grad(u_x, xt, torch.ones_like(u_x), create_graph=True)[0][:, 0:1]
        """,
    "by a function of the script": """
        def grad(out, inp):
            (g,) = torch.autograd.grad(out.sum(), inp, create_graph=True)
            return g

        class Trainer:
            def residual(self, x, t):
                u = self.model(x, t)
                u_t, u_x = grad(u, t), grad(u, x)
                return u_t - 0.1 * grad(u_x, x)
        """,
    "nested": """
        def d(y, x):
            return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]

        laplacian = d(d(net(x), x), x)
        """,
}
HEALTHY = {
    "a penalty": """
        score = critic(between)
        slope = torch.autograd.grad(score.sum(), between, create_graph=True)[0]
        loss = (slope.norm(dim=1) - 1).square().mean()
        """,
    "the inner step of a learner": """
        for _ in range(5):
            grads = torch.autograd.grad(loss_of(fast), fast, create_graph=True)
            fast = [p - 0.1 * g for p, g in zip(fast, grads)]
            loss = loss_of(fast)
        """,
    "one of each of two values": """
        du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        dv = torch.autograd.grad(v.sum(), x, create_graph=True)[0]
        """,
    "made anew in between": """
        g = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        g = net(x)
        h = torch.autograd.grad(g.sum(), x, create_graph=True)[0]
        """,
}


def found(source: str) -> list[str]:
    text = textwrap.dedent(source) + "\nloss.backward()\n"
    return [kind for kind, _ in mistakes(text, {}) if kind == KIND]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_a_derivative_of_a_derivative_is_found(source: str) -> None:
    assert found(source)


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_quiet(source: str) -> None:
    assert not found(source)


class Encoded(nn.Module):
    """ReLUs behind Fourier features: curved by its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(torch.cat([torch.sin(x), torch.cos(x)], 1))


def layers(activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(1, 8), activation, nn.Linear(8, 8), activation, nn.Linear(8, 1))


@pytest.mark.parametrize(
    ("model", "flat"),
    [
        (layers(nn.ReLU()), True),
        (layers(nn.LeakyReLU()), True),
        (layers(nn.Tanh()), False),
        (layers(nn.SiLU()), False),
        (layers(nn.GELU()), False),
        (layers(nn.Softplus()), False),
        (nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)), False),
        (Encoded(), False),
    ],
    ids=lambda value: "" if isinstance(value, bool) else type(value).__name__,
)
def test_the_graph_shows_what_the_derivatives_are_of(model: nn.Module, flat: bool) -> None:
    x = torch.rand(16, 1, requires_grad=True)
    slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
    again = torch.autograd.grad(slope.sum(), x, create_graph=True, allow_unused=True, materialize_grads=True)[0]
    loss = (again + slope - torch.sin(3.0 * x)).square().mean()
    assert is_flat(read_graph(loss).derivatives) == flat


def test_a_loss_without_derivatives_says_nothing() -> None:
    assert not is_flat(read_graph(layers(nn.ReLU())(torch.rand(4, 1)).square().mean()).derivatives)
