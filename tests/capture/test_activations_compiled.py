"""Compiled models: as many graphs, no breaks, the same numbers; and what is seen of them at all."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from fingerprint import digest, seed
from hard_tensors import tensors, truth, values_of
from measuring import cell, untold
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.tensors.activations import DTYPES, Activations
from steadytrain.capture.tensors.activations.graph_slots import slot_row
from steadytrain.capture.tensors.in_graph import new_slot, write
from steadytrain.core.model import Reading

# Raised inside torch's compiler, watched or not.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}:torch.*")
    for kind in ("UserWarning", "DeprecationWarning", "FutureWarning")
]

STEPS = 4


class Block(nn.Module):
    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)
        self.attention = Attention()
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.work, x, use_reentrant=False) if self.checkpointed else self.work(x)

    def work(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)[0]
        return x + self.down(self.act(self.up(self.norm(x))))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, -1)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1), None


class Model(nn.Module):
    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 8)
        self.blocks = nn.ModuleList(Block(checkpointed=checkpointed) for _ in range(2))
        self.head = nn.Linear(8, 40)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    _forget_compiled()
    yield
    _forget_compiled()


def _forget_compiled() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def compiled_call(model: nn.Module, way: str, backend: str) -> Callable[..., Tensor]:
    if way == "module":
        return torch.compile(model, backend=backend, fullgraph=True)
    if way == "method":
        model.compile(backend=backend, fullgraph=True)
    if way == "blocks":
        for block in model.blocks:
            block.compile(backend=backend, fullgraph=True)
    if way == "wrapped blocks":
        for at, block in enumerate(model.blocks):
            model.blocks[at] = torch.compile(block, backend=backend, fullgraph=True)
    if way == "function":
        function = torch.compile(lambda ids: model(ids), backend=backend, fullgraph=True)
        return lambda ids: function(ids)
    if way == "loss":
        loss = torch.compile(lambda logits: logits.logsumexp(-1), backend=backend, fullgraph=True)
        return lambda ids: loss(model(ids))
    return model


class Trained:
    """A few steps: what they gave, what the compiler counted, and what was measured in the last one."""

    def __init__(self, way: str, *, measured: bool, backend: str = "aot_eager", **how: Any) -> None:
        _forget_compiled()
        seed(3)
        self.how = how
        self.model = how.pop("model", Model)()
        self.reading: Reading | None = None
        activations = Activations(Guard(untold), in_graph=how.pop("in_graph", False))
        if measured and how.get("told", True):
            _tell(activations, self.model, way)
        call = compiled_call(self.model, way, backend)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        lines = []
        for step in range(STEPS):
            if measured and step != 1:  # off in between, so that compiled code sees hooks come and go
                activations.arm([self.model])
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=how.get("half", False)):
                output = call(torch.randint(40, (2, 6)))
            if measured:
                activations.saw(self.model, output)
            loss = output.float().square().mean()
            activations.backward_begins()
            loss.backward()
            lines.append(digest([loss.detach(), [parameter.grad for parameter in self.model.parameters()]]))
            optimizer.step()
            readback = activations.take()
            self.reading = readback.result().modules if readback is not None else None
        self.activations = activations
        counters = torch._dynamo.utils.counters
        self.told = [*lines, digest([*self.model.state_dict().values()]), list(self.model.state_dict())]
        self.counted = (counters["stats"]["unique_graphs"], dict(counters["graph_break"]), dict(counters["frames"]))


def _tell(activations: Activations, model: Any, way: str) -> None:
    """As the watcher does when the script calls ``torch.compile``."""
    if way == "module":
        activations.compile_called(model)
    if way == "method":
        activations.compile_called(model._call_impl)
    if way in ("blocks", "wrapped blocks"):
        for block in model.blocks:
            activations.compile_called(block._call_impl if way == "blocks" else block)
    if way in ("function", "loss"):
        activations.compile_called(lambda: None)


WAYS = ["eager", "module", "method", "blocks", "wrapped blocks", "function", "loss"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "told", [pytest.param(True, id="told"), pytest.param(False, id="compiled before", marks=pytest.mark.long)]
)
def test_as_many_graphs_and_the_same_numbers(way: str, told: bool) -> None:
    bare = Trained(way, measured=False)
    ours = Trained(way, measured=True, told=told)
    assert ours.told == bare.told
    assert ours.counted == bare.counted
    ours.activations.remove()
    assert not any(module._forward_hooks for module in ours.model.modules())


@pytest.mark.long
def test_what_is_outside_of_compiled_code_is_seen() -> None:
    rows = {way: _rows(Trained(way, measured=True)) for way in WAYS}
    inside = [row for row in rows["eager"] if row.startswith("blocks.0.")]
    assert inside
    assert rows["module"] == rows["method"] == [""]
    assert rows["function"] == []  # what a compiled function calls cannot be told from outside
    assert rows["loss"] == rows["eager"]
    assert rows["wrapped blocks"] == ["", "words", "blocks.0", "blocks.1", "head"]
    assert rows["blocks"] == ["", "words", "head"]  # the watcher shows what its own stand-in for their call sees


def test_a_compiled_block_is_seen_where_it_ends() -> None:
    model = Model()
    activations = Activations(Guard(untold))
    for block in model.blocks:
        activations.compile_called(block._call_impl)
        block.compile(backend="aot_eager")
    model(torch.randint(40, (2, 6)))
    activations.arm([model])
    with torch.no_grad():
        activations.saw(model.blocks[0], torch.full((1,), math.nan))
    activations.saw(model.blocks[0], torch.ones(3))
    readback = activations.take()
    assert readback is not None
    assert cell(readback.result().modules, "blocks.0", "mean") == 1.0
    activations.remove()


# -- statistics inside the graph -------------------------------------------------------------------------------------


on_torch_2_6 = pytest.mark.xfail(torch.__version__.startswith("2.6."), reason="docs/versions.md: lost on torch 2.6")


@pytest.mark.parametrize(
    "way",
    [
        "module",
        pytest.param("method", marks=pytest.mark.long),
        *(pytest.param(way, marks=on_torch_2_6) for way in ("blocks", "wrapped blocks")),
    ],
)
def test_slots_are_written_without_a_break_or_another_graph(way: str) -> None:
    bare = Trained(way, measured=False)
    ours = Trained(way, measured=True, in_graph=True)
    assert ours.told == bare.told
    assert ours.counted == bare.counted
    assert set(_rows(Trained("eager", measured=True))) - set(_rows(ours)) <= {"blocks", "blocks.0", "blocks.1"}


def test_slots_tell_what_hooks_tell() -> None:
    eager = Trained("eager", measured=True).reading
    ours = Trained("module", measured=True, in_graph=True).reading
    assert eager is not None
    assert ours is not None
    for row in ("words", "blocks.1.attention", "blocks.1.attention.qkv", "blocks.0.act", "head"):
        for column in ("mean", "std", "abs_max", "headroom", "nonfinite", "zero_share", "kurtosis", "dtype"):
            assert cell(ours, row, column) == pytest.approx(cell(eager, row, column), rel=1e-3, abs=1e-6), (row, column)


@pytest.mark.long
def test_slots_under_autocast_and_checkpointing() -> None:
    how = {"model": lambda: Model(checkpointed=True), "half": True}
    bare = Trained("module", measured=False, **how)
    ours = Trained("module", measured=True, in_graph=True, **how)
    assert ours.told == bare.told
    assert ours.counted == bare.counted
    assert ours.reading is not None
    assert cell(ours.reading, "blocks.0.up", "dtype") == 2.0  # bfloat16


@pytest.mark.long
def test_a_slot_tells_of_numbers_that_are_not_finite() -> None:
    model = Model()
    activations = Activations(Guard(untold), in_graph=True)
    activations.compile_called(model)
    call = torch.compile(model, backend="aot_eager", fullgraph=True)
    model.blocks[0].up.weight.data[0, 0] = math.inf
    activations.arm([model])
    activations.saw(model, call(torch.randint(40, (2, 6))))
    readback = activations.take()
    assert readback is not None
    found = readback.result().modules
    assert cell(found, "words", "nonfinite") == 0
    assert cell(found, "blocks.0.up", "nonfinite") == 12  # one channel of 2 x 6 tokens
    assert math.isfinite(cell(found, "blocks.0.up", "mean"))
    assert cell(found, "head", "nonfinite") == 2 * 6 * 40
    assert math.isnan(cell(found, "head", "mean"))


@pytest.mark.long
def test_an_evaluation_writes_no_slot_and_is_no_other_graph_than_before() -> None:
    def train(*, in_graph: bool) -> tuple[Reading, Any]:
        _forget_compiled()
        seed(5)
        model = Small()
        model.words.weight.data[39] = math.nan
        activations = Activations(Guard(untold), in_graph=in_graph)
        activations.compile_called(model)
        call = torch.compile(model, backend="aot_eager", fullgraph=True)
        for length in (4, 6, 9):  # the second one is a graph for all lengths
            activations.arm([model])
            output = call(torch.randint(39, (2, length)))
            activations.saw(model, output)
            with torch.no_grad():
                call(torch.full((2, length), 39))
            activations.backward_begins()
            output.sum().backward()
            readback = activations.take()
            assert readback is not None
        counters = torch._dynamo.utils.counters
        return readback.result().modules, (counters["stats"]["unique_graphs"], dict(counters["graph_break"]))

    ours, counted = train(in_graph=True)
    assert counted == train(in_graph=False)[1]
    assert ours.rows == ("", "words", "norm", "act", "head")
    assert all(cell(ours, row, "nonfinite") == 0 for row in ours.rows)


@settings(max_examples=60)
@given(tensors(layouts=("contiguous", "strided", "transposed", "0-d", "empty")))
def test_what_a_graph_computes_against_float64(tensor: Tensor) -> None:
    slot = new_slot(torch.device("cpu"))
    write(slot, tensor)
    row, expected = slot_row(slot.tolist()), truth(tensor)
    values = values_of(tensor)
    if not values.size:
        assert row == {}
        return
    assert DTYPES[int(row["dtype"])] == str(tensor.dtype).removeprefix("torch.")
    if np.abs(values[np.isfinite(values)]).max(initial=0.0) * values.size > 3e38:
        return  # more than float32 can sum
    assert row["nonfinite"] == expected.nonfinite
    if expected.nonfinite == expected.count:
        assert set(row) == {"dtype", "nonfinite"}
        return
    wide = values.astype(np.float32).astype(np.float64)[np.isfinite(values)]
    assert row["zero_share"] == pytest.approx((values == 0).mean())
    assert row["abs_max"] == pytest.approx(np.abs(wide).max(), rel=1e-6)
    assert row["mean"] == pytest.approx(wide.mean(), rel=1e-4, abs=max(1e-5 * expected.size, 1e-44))
    around = (wide - wide.mean()) / (np.abs(wide).max() or 1.0)
    spread = math.sqrt((around**2).mean())
    if np.abs(wide).max() > 1e-36:  # below, float32 has no more digits
        assert row["std"] == pytest.approx(spread * np.abs(wide).max(), rel=1e-3, abs=1e-5 * np.abs(wide).max())
    if spread > 1e-2 and np.abs(wide).max() > 1e-36:
        assert row["kurtosis"] == pytest.approx((around**4).mean() / spread**4, rel=1e-2)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="torch 2.6 compiles no such model, without us neither")
def test_a_model_of_transformers_puts_out_no_plain_tensors_and_has_slots_all_the_same() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        use_cache=False,
    )
    counted = []
    for in_graph in (False, True):
        _forget_compiled()
        model = transformers.LlamaForCausalLM(config)
        activations = Activations(Guard(untold), in_graph=in_graph)
        activations.compile_called(model)
        call = torch.compile(model, backend="aot_eager")
        for _ in range(2):
            activations.arm([model])
            output = call(input_ids=torch.randint(50, (2, 6)))
            activations.saw(model, output)
            output.logits.sum().backward()
            readback = activations.take()
        assert readback is not None
        counters = torch._dynamo.utils.counters
        counted.append((counters["stats"]["unique_graphs"], dict(counters["graph_break"])))
        rows = readback.result().modules.rows
    assert counted[0] == counted[1]
    assert {"model", "model.layers.0", "model.layers.0.self_attn", "model.layers.0.mlp.down_proj"} <= set(rows)


@on_torch_2_6
def test_copies_pickles_and_exports_hold_no_slot() -> None:
    model = Model()
    keys = list(model.state_dict())
    plain = pickle.dumps(model)
    activations = Activations(Guard(untold), in_graph=True)
    activations.compile_called(model)
    assert list(model.state_dict()) == keys
    assert b"steadytrain" not in pickle.dumps(model)
    assert len(pickle.dumps(model)) < len(plain) + 5000
    ids = torch.randint(40, (2, 6))
    twin = copy.deepcopy(model)
    assert torch.equal(torch.compile(twin, backend="aot_eager", fullgraph=True)(ids), twin(ids))
    exported = torch.export.export(model, (ids,))
    assert not exported.constants
    assert len(exported.graph_signature.user_outputs) == 1
    activations.remove()
    assert not any(module._forward_hooks for module in model.modules())


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.act, self.head = nn.Embedding(40, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 40)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.act(self.norm(self.words(ids))))


@pytest.mark.long
@pytest.mark.slow
def test_inductor_gives_the_same_numbers_with_slots_for_this_model() -> None:
    """Not a promise: where the compiler fuses differently because of the slots, the last bits of a model may change."""
    bare = Trained("module", measured=False, backend="inductor", model=Small)
    ours = Trained("module", measured=True, in_graph=True, backend="inductor", model=Small)
    assert ours.told == bare.told
    assert ours.counted == bare.counted
    assert _rows(ours) == ["", "words", "norm", "act", "head"]


def _rows(trained: Trained) -> list[str]:
    return list(trained.reading.rows) if trained.reading is not None else []
