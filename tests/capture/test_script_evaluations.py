"""The loss of an evaluation that the script makes itself is recorded, and its course is judged."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from evaluation_loops import BROKEN, HEALTHY, Told, batches, clusters, evaluate, mlp, trained
from torch import Tensor, nn

from resting_loops import pace, resting
from steadytrain.capture.hooks import loss_calls
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.metric_names import TRAINING_LEVEL
from steadytrain.core.torch_private import LOSS_FUNCTIONS
from watching import watching

ORIGINALS = {name: getattr(LOSS_FUNCTIONS.get(), name) for name in loss_calls.FUNCTIONS[:-1]}
SETS = {
    "language_model": ("train", "val"),
    "several_sets": ("near", "far"),
}


def recorded(watcher: Watcher, stream: int = 0) -> dict[str, list[float]]:
    found = watcher.streams[stream].history.window().metrics
    return {name: series.values.tolist() for name, series in found.items() if name != TRAINING_LEVEL}


def steps_of(watcher: Watcher, name: str = "evaluation-loss") -> list[int]:
    return watcher.streams[0].history.window().metrics[name].steps.tolist()


def gaps(watcher: Watcher) -> list[str]:
    return [one.severity for one in watcher.symptoms if one.name in ("validation-gap", "forgetting")]


def watched(loop: Callable[[], Told], folder: Path) -> tuple[Watcher, Told]:
    with watching(folder / "run", "observe") as watcher:
        told = loop()
    return watcher, told


@pytest.mark.parametrize("loop", [*BROKEN, *HEALTHY], ids=lambda loop: loop.__name__)
def test_the_loop_computes_the_same_and_what_gets_worse_only_is_a_warning(
    loop: Callable[[], Told], tmp_path: Path
) -> None:
    plain = loop()
    watcher, told = watched(loop, tmp_path)
    assert told.values == plain.values
    assert all(map(torch.equal, told.weights, plain.weights))
    found = [values for stream in range(len(watcher.streams)) for values in recorded(watcher, stream).values()]
    assert found == [pytest.approx(values, rel=1e-5) for values in told.values.values()]
    assert {name: getattr(LOSS_FUNCTIONS.get(), name) for name in ORIGINALS} == ORIGINALS
    assert not watcher.guard.warnings
    assert gaps(watcher) == (["warning"] if loop in BROKEN else [])


def by_name(name: str) -> Callable[[], Told]:
    return next(loop for loop in (*BROKEN, *HEALTHY) if loop.__name__ == name)


@pytest.mark.parametrize("name", SETS)
def test_each_set_is_a_metric_of_its_own_and_the_first_value_is_of_step_0(name: str, tmp_path: Path) -> None:
    watcher, told = watched(by_name(name), tmp_path)
    first, second = SETS[name]
    found = recorded(watcher)
    assert found["evaluation-loss"] == pytest.approx(told.values[first], rel=1e-5)
    assert found["evaluation-loss 2"] == pytest.approx(told.values[second], rel=1e-5)
    assert steps_of(watcher)[0] == 0


def test_a_training_loss_of_another_kind_is_not_compared(tmp_path: Path) -> None:
    watcher, _ = watched(by_name("smoothed"), tmp_path)
    assert list(recorded(watcher)) == ["evaluation-loss (own scale)"]


def test_detectors_of_metrics_have_data(tmp_path: Path) -> None:
    watcher, _ = watched(by_name("nested"), tmp_path)
    assert not {"forgetting", "validation-gap"} & set(watcher.recorder.idle_detectors)
    assert steps_of(watcher) == [5, 10, 15, 21, 26, 31, 37, 42, 47]


def test_two_losses_of_one_evaluation_are_parts(tmp_path: Path) -> None:
    model, (points, labels) = mlp(), clusters(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(tmp_path / "run", "observe") as watcher:
        for _ in range(3):
            optimizer.zero_grad()
            output = model(points)
            (F.cross_entropy(output, labels) + 0.1 * F.mse_loss(output, output.detach() * 0)).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                output = model(points)
                F.cross_entropy(output, labels)
                F.mse_loss(output, torch.zeros_like(output))
            model.train()
    assert list(recorded(watcher)) == ["evaluation-loss (part)", "evaluation-loss (part) 2"]


@pytest.mark.parametrize(
    ("loss", "single"),
    [
        (lambda out, y: F.cross_entropy(out, y, reduction="sum"), False),
        (lambda out, y: F.cross_entropy(out, y, reduction="none"), False),
        (lambda out, y: F.nll_loss(out.log_softmax(-1), y), False),
        (lambda out, y: nn.BCEWithLogitsLoss()(out, F.one_hot(y, 4).float()), True),
        (lambda out, y: nn.L1Loss()(out, F.one_hot(y, 4).float()), True),
        (lambda out, y: F.smooth_l1_loss(out, F.one_hot(y, 4).float()), True),
        (lambda out, y: F.huber_loss(out, F.one_hot(y, 4).float()), True),
        (lambda out, y: F.binary_cross_entropy(out.sigmoid(), F.one_hot(y, 4).float()), True),
    ],
    ids=["sum", "none", "nll", "bce-logits", "l1", "smooth-l1", "huber", "bce"],
)
def test_every_loss_counts_by_its_rows_or_elements(
    loss: Callable[[Tensor, Tensor], Tensor], single: bool, tmp_path: Path
) -> None:
    model, (points, labels) = mlp(), clusters(100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(tmp_path / "run", "observe") as watcher:
        for _ in range(2):
            optimizer.zero_grad()
            loss(model(points), labels).sum().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, y in batches(points, labels):
                loss(model(x), y)
    with torch.no_grad():
        whole = loss(model(points), labels)
    aim = whole.item() if whole.dim() == 0 and (single or whole < 10) else whole.sum().item() / 100
    (values,) = recorded(watcher).values()
    assert values == [pytest.approx(aim, rel=1e-5)]


def test_losses_outside_of_an_evaluation_do_not_count(tmp_path: Path) -> None:
    """In training mode; on something larger than the output; of a model that nobody trains; with gradients."""
    model, other, (points, labels) = mlp(), mlp().eval(), clusters(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(tmp_path / "run", "observe") as watcher:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(points), labels).backward()
            optimizer.step()
            with torch.no_grad():
                F.cross_entropy(model(points), labels)
                F.cross_entropy(other(points), labels)
                model.eval()
                model(points[:8])
                F.mse_loss(points, points + 1.0)
            F.cross_entropy(model(points), labels)
            model.train()
    assert recorded(watcher) == {}


def test_a_baseline_of_the_size_of_the_output_does_not_count(tmp_path: Path) -> None:
    model, (points, labels) = mlp(), clusters(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(tmp_path / "run", "observe") as watcher:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(points), labels).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                output = model(points)
                F.cross_entropy(torch.zeros(64, 4), labels)
                told = F.cross_entropy(output.view(-1, 4), labels).item()
            model.train()
    (values,) = recorded(watcher).values()
    assert values[-1] == pytest.approx(told, rel=1e-5)


def test_what_the_script_reports_itself_is_not_recorded_again(tmp_path: Path) -> None:
    model, train, held_out = mlp(), clusters(64), clusters(64, seed=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(tmp_path / "run", "observe") as watcher:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(train[0]), train[1]).backward()
            optimizer.step()
            watcher.evaluated({"eval_loss": evaluate(model, *held_out)})
    assert list(recorded(watcher)) == ["eval_loss"]


def test_evaluations_are_recorded_while_the_run_rests(tmp_path: Path) -> None:
    model, train, held_out = mlp(), clusters(64), clusters(100, seed=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    told = []
    with resting(tmp_path / "run", pace=pace()) as watcher:
        assert watcher.resting is not None
        for step in range(1, 301):
            optimizer.zero_grad()
            F.cross_entropy(model(train[0]), train[1]).backward()
            optimizer.step()
            if step % 20 == 0:
                told.append(evaluate(model, *held_out))
    assert watcher.recorded_steps is not None
    assert recorded(watcher)["evaluation-loss"] == pytest.approx(told, rel=1e-5)
    assert steps_of(watcher) == list(range(20, 301, 20))
    assert list(recorded(watcher)) == ["evaluation-loss"]


@pytest.mark.filterwarnings("ignore:.torch.jit.*is deprecated:DeprecationWarning")
def test_a_loss_can_be_scripted_meanwhile_and_nothing_stays(tmp_path: Path) -> None:
    model, (points, labels) = mlp(), clusters(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(tmp_path / "run", "observe"):
        F.cross_entropy(model(points), labels).backward()
        optimizer.step()
        evaluate(model, points, labels)
        assert LOSS_FUNCTIONS.get().mse_loss is not ORIGINALS["mse_loss"]
        scripted = torch.jit.script(scripted_loss)
        torch.testing.assert_close(scripted(points), scripted_loss(points))
        kept = weakref.ref(model)
        del model, optimizer
        gc.collect()
    assert kept() is None
    assert LOSS_FUNCTIONS.get().mse_loss is ORIGINALS["mse_loss"]


def scripted_loss(output: Tensor) -> Tensor:
    return F.mse_loss(output, output * 2.0) + F.binary_cross_entropy_with_logits(output, output.sigmoid())


def test_a_compiled_model_is_not_compiled_again(tmp_path: Path) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    def loop() -> Told:
        torch.manual_seed(0)
        torch.compiler.reset()
        graphs.clear()
        return trained(torch.compile(mlp(), backend=backend), clusters(64), clusters(64, seed=1), epochs=6)

    plain, made = loop(), len(graphs)
    watcher, told = watched(loop, tmp_path)
    assert (told.values, len(graphs)) == (plain.values, made)
    assert recorded(watcher)["evaluation-loss"] == pytest.approx(told.values["validation"], rel=1e-5)
