"""Trials of gradients, the graph and the load, on small real loops: each removes its fault, or says why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from wiring_trials import (  # noqa: E402
    EVERY,
    STEPS,
    _plain_process,  # noqa: F401 (an autouse fixture)
    case_of,
    long,
    long_case,
    named,
    tried,
    why_not,
)

from replaying import Loop, record  # noqa: E402

# A backward by hand.


def wrong() -> Any:
    """A new class each time: a change replaces what it finds for good."""

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x.abs()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return -2 * gradient * x.abs()

    return Wrong


def leaves() -> Any:
    class Leaves(torch.autograd.Function):
        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return torch.from_numpy(x.detach().numpy() * 2)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return 2 * gradient

    return Leaves


def by_hand(operation: Any = wrong) -> None:
    torch.manual_seed(0)
    kind = operation()
    net, head = nn.Linear(6, 16), nn.Linear(16, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(STEPS):
        x = torch.randn(32, 6)
        loss = functional.mse_loss(head(kind.apply(net(x))), x[:, :1] * x[:, :1].abs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def leaving() -> None:
    by_hand(leaves)


def test_the_derivative_that_torch_finds(tmp_path: Path) -> None:
    recording = record(by_hand, tmp_path / "run", every=EVERY)
    case = case_of("no-learning", 8, custom_operations=["Wrong"])
    verdict, _ = tried("reference-operation", by_hand, recording, case)
    assert verdict.effect == "removed", verdict


@pytest.mark.long
def test_a_forward_that_leaves_torch_has_no_derivative_to_find(tmp_path: Path) -> None:
    recording = record(leaving, tmp_path / "run", every=EVERY)
    verdict, _ = tried(
        "reference-operation", leaving, recording, case_of("no-learning", 8, custom_operations=["Leaves"])
    )
    assert verdict.effect == "not-run"
    assert "cannot differentiate the forward of Leaves" in verdict.why
    assert "custom backward" in why_not("reference-operation", custom_operations=[])


# A graph that is cut.


class Cut(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.encoder, self.head, self.how = nn.Linear(16, 1), nn.Linear(1, 1), how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "no-grad":
            with torch.no_grad():
                code = self.encoder(x)
            return self.head(code)
        code = self.encoder(x)
        code = code.detach() if self.how == "detach" else code.data  # cut
        return self.head(code)


def cut(how: str = "detach") -> None:
    torch.manual_seed(0)
    net = Cut(how)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(STEPS):
        x = torch.randn(32, 16)
        loss = functional.mse_loss(net(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def cut_by_data() -> None:
    cut("data")


def cut_by_no_grad() -> None:
    cut("no-grad")


def line_of_cut() -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"{Path(__file__).name}:{next(at for at, line in enumerate(lines, 1) if line.endswith('# cut'))}: code = ..."


@pytest.mark.parametrize("loop", [cut, long(cut_by_data), long(cut_by_no_grad)], ids=named)
def test_gradients_pass_where_the_graph_was_cut(loop: Loop, tmp_path: Path) -> None:
    recording = record(loop, tmp_path / "run", every=EVERY)
    facts: dict[str, Any] = {"parameters_without_gradient": ["encoder.weight", "encoder.bias"]}
    facts |= {"no_grad_calls": ["encoder"]} if loop is cut_by_no_grad else {"detached_calls": [line_of_cut()]}
    verdict, _ = tried("reattach", loop, recording, case_of("no-learning", 8, **facts))
    assert verdict.effect == "removed", verdict


@pytest.mark.long
def test_a_cut_elsewhere_or_through_numpy_is_not_joined(tmp_path: Path) -> None:
    recording = record(cut, tmp_path / "run", every=EVERY)
    facts = {"parameters_without_gradient": ["encoder.weight"], "detached_calls": ["test_other.py:3: x = y.detach()"]}
    verdict, _ = tried("reattach", cut, recording, case_of("no-learning", 8, **facts))
    assert (verdict.effect, verdict.why) == ("not-run", "nothing is detached at these lines")
    facts["detached_calls"] = ["train.py:3: code = torch.tensor(code.detach().numpy())"]
    assert "leaves torch" in why_not("reattach", **facts)
    assert "every trainable parameter" in why_not("reattach", detached_calls=["train.py:3: x.detach()"])
    assert "nothing cuts the graph" in why_not("reattach")


# Experts.


class Mixture(nn.Module):
    def __init__(self, favoured: bool) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.head = nn.Linear(8, 4)
        if favoured:
            nn.init.constant_(self.router.bias[:1].data, 3.0)

    def forward(self, x: Tensor) -> Tensor:
        shares = self.router(x).softmax(-1)
        weight, chosen = shares.max(-1)
        parts = [(chosen == at).float()[:, None] * expert(x) for at, expert in enumerate(self.experts)]
        return self.head(x + weight[:, None] * sum(parts))


def mix(favoured: bool = True) -> None:
    torch.manual_seed(0)
    net = Mixture(favoured)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(80):
        x = torch.randn(64, 8)
        loss = functional.cross_entropy(net(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def mix_fairly() -> None:
    mix(favoured=False)


@pytest.mark.long
def test_a_balancing_loss_evens_the_load_out(tmp_path: Path) -> None:
    recording = record(mix, tmp_path / "run", every=EVERY)
    case = replace(long_case(router_share={"router": 1.0}), onset=30, after=50)
    verdict, outcomes = tried("balance-router", mix, recording, case)
    assert verdict.effect == "removed", verdict
    assert outcomes[0].measured["load"] > 3
    recording = record(mix_fairly, tmp_path / "other", every=EVERY)
    verdict, _ = tried("balance-router", mix_fairly, recording, case)
    assert (verdict.effect, "no collapse to remove" in verdict.why) == ("inconclusive", True)
    assert "no router" in why_not("balance-router")


def test_trials_of_several_ranks_say_why_they_are_not_run() -> None:
    for name, why in (("one-rank", "cannot be launched again"), ("synchronize", "no change averages gradients")):
        assert "one process" in why_not(name, ranks=1)
        assert why in why_not(name, ranks=4)
