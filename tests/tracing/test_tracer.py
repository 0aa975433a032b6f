"""The operation tracer: whom it blames, and whom it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from traced_faults import (  # noqa: E402
    INF,
    NAN,
    _one_thread_and_nothing_left_behind,  # noqa: F401 (an autouse fixture)
    blamed,
    trace,
    values,
)

from steadytrain.core.incident import Finding  # noqa: E402
from steadytrain.tracing.tracer import NOT_REPRODUCED  # noqa: E402

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
