"""The tracer's parts: storages and their origins, kinds of values, summaries."""

from __future__ import annotations

import gc
import math

import pytest

torch = pytest.importorskip("torch")


from traced_faults import (  # noqa: E402
    INF,
    NAN,
    _one_thread_and_nothing_left_behind,  # noqa: F401 (an autouse fixture)
)

from steadytrain.core.incident import UNKNOWN_OWNER  # noqa: E402
from steadytrain.tracing import operation_facts, value_origins  # noqa: E402
from steadytrain.tracing.tensor_summary import Kinds, fills_its_storage, kinds_of, summarize  # noqa: E402
from steadytrain.tracing.tracer import OperationTracer  # noqa: E402

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
        for name in operation_facts.FILLS
        | operation_facts.OVERWRITES
        | operation_facts.CONTRACTIONS
        | operation_facts.KEEPS_INFINITIES
        if not hasattr(torch.ops.aten, name)
    ]
    assert missing == []


@pytest.mark.parametrize(("sign", "name"), [(1.0, "+Inf"), (-1.0, "-Inf")])
def test_an_inf_that_changes_its_sign_is_carried_and_not_made(sign: float, name: str) -> None:
    weights = torch.nn.Parameter(torch.ones(3))
    advantages = torch.tensor([1.0, sign * INF, 2.0])
    tracer = OperationTracer(parameters={"weights": weights}, method="")
    with tracer:
        loss = -(weights * advantages).mean()
        tracer.mark_loss(loss)
    found = tracer.finding()
    assert found.located is None
    assert found.why.startswith(f"{UNKNOWN_OWNER} held {name}: float32 [3], first read by aten.mul.Tensor")
