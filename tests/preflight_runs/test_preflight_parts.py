"""The bench gives everything back, the batch is one thing in all its places, the guest hears what the first hears."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from steadytrain import preflight  # noqa: E402
from steadytrain.capture.step.observers import CompositeObserver, StepObserver  # noqa: E402
from steadytrain.checks.subject.model_check import Batch, CannotError  # noqa: E402
from steadytrain.core.errors import UsageError  # noqa: E402
from steadytrain.preflight_runs.forward_calls import LossWatch  # noqa: E402
from steadytrain.preflight_runs.model_copies import Values, Workbench, fingerprint, moved  # noqa: E402


class Odd(nn.Module):
    """Tied tensors, a view as a parameter, counters, lists, a buffer that is replaced, a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.two.weight = nn.Parameter(self.one.weight.data.t())
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(1))
        self.calls, self.log, self.cache = 0, {"losses": [1.0]}, torch.zeros(2)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.log["losses"].append(float(self.calls))
        self.seen = self.seen + 1
        self.cache += 1
        return self.norm(self.two(torch.relu(self.one(x))))


def test_the_bench_gives_everything_back() -> None:
    torch.manual_seed(0)
    model = Odd()
    generator, plain = torch.Generator().manual_seed(3), random.Random(4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.randn(6, 4)).sum().backward()
    optimizer.step()
    before = fingerprint([model], [optimizer])
    memory = {name: (id(t), t.data_ptr()) for name, t in model.state_dict(keep_vars=True).items()}
    attributes = (model.calls, list(model.log["losses"]), model.cache.clone(), plain.getstate())
    drawn = generator.get_state()
    with Workbench([model], objects=[generator, plain]).copies(seed=1):
        assert model.one.weight.data_ptr() != memory["one.weight"][1]
        assert model.one.weight.data_ptr() == model.two.weight.data_ptr(), "what shared memory shares it in the copy"
        assert all(p.grad is None for p in model.parameters())
        model.eval()
        model.double()
        for parameter in model.parameters():
            parameter.requires_grad_(False)
            parameter.zero_()
        model(torch.randn(6, 4, dtype=torch.float64))
        model.extra = nn.Linear(2, 2)
        model.one.register_forward_hook(lambda *given: None)
        torch.randn(3, generator=generator), plain.random(), random.random(), np.random.rand()
    assert fingerprint([model], [optimizer]) == before
    assert {name: (id(t), t.data_ptr()) for name, t in model.state_dict(keep_vars=True).items()} == memory
    assert (model.calls, model.log["losses"], plain.getstate()) == (attributes[0], attributes[1], attributes[3])
    assert torch.equal(model.cache, attributes[2])
    assert torch.equal(generator.get_state(), drawn)
    assert not hasattr(model, "extra")
    assert not model.one._forward_hooks
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_bench_gives_everything_back_after_an_error() -> None:
    model = Odd()
    before = fingerprint([model])
    bench = Workbench([model])

    def fail() -> None:
        with bench.copies(seed=1):
            model(torch.randn(6, 4)).sum().backward()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert fingerprint([model]) == before


def test_a_check_begins_with_the_values_of_before_the_first_update() -> None:
    model = nn.Linear(3, 1)
    initial = Values.take(model.parameters())
    start = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.add_(1.0)
    bench = Workbench([model], initial)
    for _ in range(2):
        with bench.copies(seed=0):
            assert torch.equal(model.weight.detach(), start)
            model.weight.data.zero_()
    assert torch.equal(model.weight.detach(), start + 1.0)


def test_a_fingerprint_tells_what_was_moved() -> None:
    model = Odd()
    before = fingerprint([model])
    with torch.no_grad():
        model.norm.running_mean[0] += 1e-7
    torch.rand(1)
    after = fingerprint([model])
    assert [name for name in before if before[name] != after[name]] == [
        "model 0: norm.running_mean",
        "random numbers of torch",
    ]


def test_a_batch_is_changed_in_all_its_places() -> None:
    ids, labels = torch.arange(12).view(4, 3), torch.arange(4)
    batch = Batch(1, {"inputs": {"ids": ids, "labels": labels}, "scale": torch.tensor(2.0)}, (ids,), {}, rows=4)
    two = batch.taken([2, 0])
    assert two.rows == 2
    assert two.values["inputs"]["ids"] is two.args[0]
    assert two.args[0].tolist() == [[6, 7, 8], [0, 1, 2]]
    assert two.values["inputs"]["labels"].tolist() == [2, 0]
    assert float(two.values["scale"]) == 2.0
    assert list(batch.tensors()) == ["inputs.ids", "inputs.labels", "scale"]
    with pytest.raises(CannotError, match="rows"):
        Batch(1, {"x": torch.ones(5)}, rows=4).taken([0])


def test_the_loss_watch_knows_what_made_the_scores() -> None:
    scores, labels = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0])
    with LossWatch() as watch:
        functional.cross_entropy(scores, labels, label_smoothing=0.1)
        nn.CrossEntropyLoss()(scores.softmax(-1).float().reshape(4, 3), target=labels)
        functional.nll_loss(input=torch.log(scores.softmax(-1)), target=labels)
        functional.binary_cross_entropy_with_logits(scores[:, 0].sigmoid() * 2, labels.float())
    seen = [(call.function, call.made_by) for call in watch.calls]
    assert seen == [
        ("cross_entropy", ""),
        ("cross_entropy", "softmax"),
        ("log", "softmax"),
        ("nll_loss", "log"),
        ("binary_cross_entropy_with_logits", ""),
    ]
    assert watch.calls[0].options["label_smoothing"] == 0.1


def test_a_guest_is_told_everything_and_answers_nothing() -> None:
    def public(cls: type) -> set[str]:
        return {name for name in vars(cls) if not name.startswith("_")} - {
            "gates_max",
            "replays",
            "from_start",
            "scalers",
        }

    assert public(StepObserver) <= public(CompositeObserver)
    told: list[str] = []

    class First(StepObserver):
        from_start = True

        def fetched(self, dataset: int, batch: Any) -> Any:
            told.append("first")
            return "other batch"

    class Guest(StepObserver):
        def fetched(self, dataset: int, batch: Any) -> Any:
            told.append("guest")
            return "ignored"

    both = CompositeObserver(First(), Guest())
    assert both.fetched(0, None) == "other batch"
    assert both.from_start
    assert not CompositeObserver(Guest(), First()).from_start
    assert sorted(told) == ["first", "guest"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "gpt"}, "model must be a torch.nn.Module, got str"),
        ({"batches": []}, "batches is empty"),
        ({"batches": torch.ones(3, 2)}, "batches must be several batches"),
        ({"batches": [["a", "b"]]}, "holds no tensor"),
        ({"optimizer": 0.1}, "optimizer must be a torch.optim.Optimizer, got float"),
        ({"checks": ["causalty"]}, "did you mean causality"),
        ({"batches": [torch.ones(3, 5)]}, "mat1 and mat2"),
        ({"loss_fn": lambda model, batch: model(batch)}, "no scalar loss"),
    ],
)
def test_bad_arguments_are_named(given: dict[str, Any], words: str) -> None:
    right: dict[str, Any] = {
        "model": nn.Linear(2, 1),
        "batches": [torch.ones(3, 2)],
        "loss_fn": lambda model, batch: model(batch).square().mean(),
    }
    with pytest.raises(UsageError, match=words):
        preflight(**{**right, **given})


def test_what_says_most_for_its_time_comes_first() -> None:
    from steadytrain.preflight_runs.check_catalog import checks
    from steadytrain.preflight_runs.runner import _turn

    ordered = sorted(checks(), key=_turn)
    costs = [check.cost for check in ordered]
    assert costs == sorted(costs, key=("free", "seconds", "minutes").index)
    minutes = [check.quick for check in ordered if check.cost == "minutes"]
    assert minutes == sorted(minutes, reverse=True)
    assert {True, False} <= set(minutes)


def test_a_gpu_that_was_not_in_use_before_was_not_moved() -> None:
    before = {"random numbers of torch": "a", "random numbers of GPU 0": "b", "model 0: weight": "c"}
    assert moved(before, {**before, "random numbers of GPU 1": "d"}) == ()
    after = {**before, "random numbers of GPU 0": "e", "model 0: extra": "f"}
    assert moved(before, after) == ("model 0: extra", "random numbers of GPU 0")
