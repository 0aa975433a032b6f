"""What a survey sees of attention's scale, of a router's balance and of the steps planned; and that no fact that a
cause reads is one that nobody produces."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import steadytrain  # noqa: E402
from steadytrain.experiments.facts import FACTS  # noqa: E402
from steadytrain.survey.calls import Calls  # noqa: E402
from steadytrain.survey.planned_steps import steps_planned  # noqa: E402
from steadytrain.survey.routers import balanced, has_experts  # noqa: E402

SOURCE = Path(steadytrain.__file__).parent
PRODUCERS = (
    "survey",
    "trial_runs/diagnose.py",
    "experiments/rank_facts.py",
    "experiments/crash_facts.py",
    "experiments/device_facts.py",
)
READERS = ("diagnosis/causes", "experiments", "experiments/trials", "diagnosis")


def texts_in(*places: str) -> Iterator[str]:
    """Every text in the code of these files and folders, docstrings aside."""
    for place in places:
        files = [SOURCE / place] if place.endswith(".py") else sorted((SOURCE / place).glob("*.py"))
        assert files, place
        for file in files:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and file.name != "facts.py":
                    yield node.value


def test_every_fact_that_somebody_reads_is_produced_by_somebody() -> None:
    produced = set(texts_in(*PRODUCERS))
    read = set(texts_in(*READERS)) & set(FACTS)
    assert len(read) > 80
    assert sorted(read - produced) == []


def test_every_fact_is_produced() -> None:
    assert sorted(set(FACTS) - set(texts_in(*PRODUCERS))) == []


# Attention.

HEADS, LENGTH, WIDTH = 2, 6, 16
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def by_hand(scale: float, *, before: float = 1.0, norm: bool = False) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if norm:
            q, k = functional.layer_norm(q, (WIDTH,)), functional.layer_norm(k, (WIDTH,))
        q = q * before if before != 1.0 else q
        scores = q @ k.transpose(-2, -1)
        scores = scores / scale if scale != 1.0 else scores
        future = torch.ones(LENGTH, LENGTH).triu(1).bool()
        return scores.masked_fill(future, -math.inf).softmax(-1) @ v

    return attend


def fused(scale: float | None) -> Attention:
    return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, scale=scale)


@pytest.mark.parametrize(
    ("attend", "size", "expected"),
    [
        pytest.param(by_hand(math.sqrt(WIDTH)), 1.0, False, id="divided"),
        pytest.param(by_hand(1.0, before=WIDTH**-0.5), 1.0, False, id="query-scaled-before"),
        pytest.param(by_hand(1.0, norm=True), 1.0, False, id="normed"),
        pytest.param(by_hand(1.0), 0.01, False, id="made-without-a-scale"),
        pytest.param(fused(None), 1.0, False, id="fused"),
        pytest.param(by_hand(1.0), 1.0, True, id="not-divided"),
        pytest.param(fused(1.0), 1.0, True, id="fused-with-one"),
        pytest.param(lambda q, k, v: v, 1.0, None, id="none"),
    ],
)
def test_attention_that_is_not_scaled(attend: Attention, size: float, expected: bool | None) -> None:
    torch.manual_seed(0)
    qkv = nn.Linear(WIDTH, 3 * HEADS * WIDTH)
    calls = Calls()
    calls.look(True)
    try:
        x = torch.randn(4, LENGTH, WIDTH)
        parts = (qkv(x) * size if size != 1.0 else qkv(x)).view(4, LENGTH, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        attend(q, k, v).sum()
    finally:
        calls.look(False)
    assert calls.seen.notes == []
    assert calls.products.unscaled is expected


# Routers.


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(8, 4), nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shares = self.router(x).softmax(-1)
        out = sum(shares[:, at : at + 1] * expert(x) for at, expert in enumerate(self.experts))
        return x + out, 4 * (shares.mean(0) * shares.detach().mean(0)).sum()


def mixtures(weight: float | None, *, of: tuple[int, ...] = (0, 1), stacked: bool = False) -> tuple[Any, Any]:
    torch.manual_seed(0)
    body, first, second, head = nn.Linear(8, 8), Mixture(), Mixture(), nn.Linear(8, 3)
    x, one = first(body(torch.randn(16, 8)))
    x, two = second(x)
    logits, labels = head(x), torch.randint(0, 3, (16,))
    loss = -logits.log_softmax(-1)[torch.arange(16), labels].mean()
    if weight is not None:
        terms = [(one, two)[at] for at in of]
        loss = loss + weight * (torch.stack(terms).mean() if stacked else sum(terms))
    loss = loss / 2
    node = loss.grad_fn
    loss.backward()
    return node, [(first.router, first), (second.router, second)]


@pytest.mark.parametrize(
    ("weight", "options", "expected"),
    [(None, {}, False), (0.01, {}, True), (0.01, {"stacked": True}, True), (0.01, {"of": (1,)}, False)],
    ids=["none", "both", "stacked", "one-of-two"],
)
def test_a_balancing_term_is_found_in_the_graph(weight: float | None, options: dict[str, Any], expected: bool) -> None:
    node, routers = mixtures(weight, **options)
    assert balanced(node, routers) is expected


class Gated(nn.Module):
    """A gated linear unit beside four heads: its gate weighs features."""

    def __init__(self, features: int = 8) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(8, features), nn.Linear(8, features)
        self.heads = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))


class Stacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.first = nn.Linear(8, 4), nn.Parameter(torch.zeros(4, 8, 16))


class Listed(nn.Module):
    """Experts in a plain list, which is a mistake of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 4), [nn.Linear(8, 8) for _ in range(4)]


def test_a_gate_is_a_router_where_it_has_an_output_for_each_expert() -> None:
    assert not has_experts(Gated().gate, Gated())
    for mixture in (Stacked(), Listed(), Gated(4)):
        assert has_experts(mixture.gate, mixture)


def test_a_router_that_may_balance_without_a_gradient_is_not_judged() -> None:
    node, routers = mixtures(None)
    assert balanced(None, routers) is None
    assert balanced(node, []) is None
    routers[0][1].register_buffer("bias_by_load", torch.zeros(4))
    assert balanced(node, routers) is None


# Plans.


def test_steps_that_are_planned() -> None:
    assert steps_planned(1) is None
    assert planned_by(300) == 300
    assert planned_by(3) is None  # fewer than were made: it counts something else


def planned_by(count: int) -> int | None:
    MAX_STEPS = count  # noqa: N806 - as scripts write it
    found = steps_planned(20)
    assert count == MAX_STEPS
    return found


def test_a_trainer_says_how_many_steps_it_makes() -> None:
    class Trainer:
        __module__ = "transformers.trainer"

        def __init__(self) -> None:
            self.state = State()

        def train(self) -> int | None:
            return steps_planned(20)

    assert Trainer().train() == 500


class State:
    max_steps = 500


State.__module__ = "transformers.trainer_callback"
