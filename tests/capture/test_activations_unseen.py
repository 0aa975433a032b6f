"""What a run could not see of its modules is in its notes, each kind once; and how compiled code can be looked into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import steadytrain
from measuring import untold
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.tensors.activations import Activations
from steadytrain.core.errors import UsageError
from steadytrain.storage.run_folder import Run, open_run

# Raised inside torch's compiler, watched or not.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}:torch.*")
    for kind in ("UserWarning", "DeprecationWarning", "FutureWarning")
]


@pytest.fixture(autouse=True)
def _nothing_is_compiled_yet() -> Iterator[None]:
    _forget_compiled()
    yield
    _forget_compiled()


def _forget_compiled() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 1)))


def notes_of(model: nn.Module, call: Callable[[], Any], *, steps: int = 2, **how: Any) -> list[str]:
    activations = Activations(Guard(untold), **how)
    for _ in range(steps):
        activations.arm([model])
        call()
        activations.take()
    activations.remove()
    return activations.take_notes()


def test_a_model_that_is_seen_whole_has_no_notes() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    assert notes_of(model, lambda: model(torch.randn(2, 3, 8))) == []


def test_attention_that_hides_its_scores() -> None:
    class FusedAttention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch._scaled_dot_product_flash_attention_for_cpu(x, x, x)[0]

    class OpenAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(x, x, self.inner(x))

    hidden, seen = FusedAttention(), OpenAttention()
    model = nn.Sequential(seen, hidden, hidden, nn.Sequential(FusedAttention()))
    (note,) = notes_of(model, lambda: model(torch.randn(1, 2, 4, 8).requires_grad_()))
    assert note.startswith("attention entropy and logits of 2 modules (the first: 1) are not measured:")


def test_attention_that_was_not_called_is_no_news() -> None:
    class SpareAttention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError

    model = Net()
    both = nn.ModuleDict({"net": model, "spare": SpareAttention()})
    assert notes_of(both, lambda: model(torch.ones(1, 3))) == []


def test_torchscript() -> None:
    model = nn.Sequential(torch.jit.trace(nn.Linear(3, 3), torch.ones(1, 3)), nn.Linear(3, 1))
    assert notes_of(model, lambda: model(torch.ones(1, 3))) == [
        "outputs of 0 are not measured: they are inside TorchScript"
    ]


def test_a_model_called_inside_a_compiled_function() -> None:
    model = Net()
    function = torch.compile(lambda x: model(x), backend="eager")
    found = notes_of(model, lambda: function(torch.ones(1, 3)), steps=4)
    assert len(found) == 2  # of the step in which it was traced, and of those after
    assert all("called inside a compiled function" in note for note in found)


def test_slots_that_stayed_on_another_device() -> None:
    model = Net()
    activations = Activations(Guard(untold), in_graph=True)
    activations.compile_called(model)
    model.to("meta")  # like a move to a GPU after torch.compile
    activations.arm([model])
    activations.saw(model, torch.ones(1, 1))
    activations.take()
    activations.remove()
    assert "without memory for them" in activations.take_notes()[0]


# -- a whole run -----------------------------------------------------------------------------------------------------


def train(folder: Path, *, compiled_before: bool = False, steps: int = 3, **options: Any) -> Run:
    torch.manual_seed(0)
    model = Net()
    if compiled_before:
        model.compile(backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadytrain.watch(model, optimizer, runs_dir=folder, name="run", level="full", to=("none",), **options):
        if not compiled_before:
            model.compile(backend="aot_eager")
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()
    assert not any(module._forward_hooks for module in model.modules())
    return open_run(folder / "run")


def notes(run: Run) -> str:
    return "\n".join(run.facts["notes"])


def test_at_the_edges_by_default(tmp_path: Path) -> None:
    run = train(tmp_path)
    assert run.table("modules").rows == ("",)
    assert "outputs of 4 modules (the first: 0) are not measured" in notes(run)
    assert "--compiled inside" in notes(run)


def test_inside_where_it_is_asked_for(tmp_path: Path) -> None:
    run = train(tmp_path, compiled="inside")
    assert run.table("modules").rows == ("", "0", "1", "1.0", "1.1")
    assert "outputs of" not in notes(run)


def test_a_graph_of_another_model_that_is_used_again() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.up(x))

    x = torch.randn(5, 3)
    torch.compile(Plain(), backend="aot_eager")(x)
    model = Plain()
    activations = Activations(Guard(untold), in_graph=True)
    activations.compile_called(model)
    call = torch.compile(model, backend="aot_eager")
    activations.arm([model])
    activations.saw(model, call(x))
    readback = activations.take()
    activations.remove()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert readback is not None
    assert readback.result().silent_slots
    assert readback.result().modules.rows == ("",)


def test_after_the_watch_the_graphs_are_traced_once_more_and_hold_nothing_of_ours() -> None:
    model = Net()
    activations = Activations(Guard(untold), in_graph=True)
    activations.compile_called(model)
    call, x = torch.compile(model, backend="aot_eager", fullgraph=True), torch.randn(5, 3)
    during = call(x)
    activations.remove()
    counters = torch._dynamo.utils.counters["stats"]
    assert counters["unique_graphs"] == 1
    for _ in range(3):
        assert torch.equal(call(x), during)
    assert counters["unique_graphs"] == 2


def test_what_was_compiled_before_is_said_to_be_unseen(tmp_path: Path) -> None:
    run = train(tmp_path, compiled_before=True, compiled="inside")
    assert "compiled before steadytrain started" in notes(run)
    assert notes(run).count("outputs of") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compiled": "everywhere"}, "'everywhere': no such place in compiled code; one of edges, inside"),
        ({"compiled": "inside", "level": "light"}, "the level light measures no outputs"),
    ],
)
def test_what_cannot_be_asked_for(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        steadytrain.watch(Net(), **options)  # type: ignore[arg-type]
