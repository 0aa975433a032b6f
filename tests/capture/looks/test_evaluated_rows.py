"""What a trained model is evaluated on, beside what it is trained on: rows, scale, and mode after the last update."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from watching import watching

ROWS, EPOCHS = 256, 4
TABLE = torch.randn(2 * ROWS, 6, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(2 * ROWS, 3, 6, 6, generator=torch.Generator().manual_seed(0))

Evaluate = Callable[[nn.Module, Tensor, Tensor], None]


def network(p: float = 0.3) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.LazyLinear(32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(p), nn.Linear(32, 3)
    )


def nothing(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    pass


def found(
    folder: Path, rows: Tensor, *, each: Evaluate = nothing, last: Evaluate = nothing, all_at_once: bool = False
) -> dict[str, str]:
    """What is said of a training with one half of ``rows``, evaluated after ``each`` epoch and at the ``last``."""
    torch.manual_seed(0)
    with watching(folder / "run", "observe") as watcher:
        model = network()
        model(rows[:2])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        trained, other = rows[:ROWS], rows[ROWS:]
        for _ in range(EPOCHS):
            order = torch.randperm(ROWS)
            for batch in [order] if all_at_once else order.split(32):
                x = trained if all_at_once else trained[batch]
                optimizer.zero_grad()
                F.cross_entropy(model(x), x.flatten(1)[:, :3].argmax(1)).backward()
                optimizer.step()
            each(model, trained, other)
        last(model, trained, other)
    return {one.name: one.message for one in watcher.symptoms}


def in_evaluation(model: nn.Module, rows: Tensor, *, size: int = 32) -> None:
    model.eval()
    with torch.no_grad():
        for x in rows.split(size):
            model(x)
    model.train()


# -- the scale of inputs -------------------------------------------------------------------------------------------


def scaled(change: Callable[[Tensor], Tensor]) -> Evaluate:
    return lambda model, trained, other: in_evaluation(model, change(other))


SCALES = {
    "not normalised": (IMAGES, lambda x: 100.0 + 50.0 * x),
    "divided twice": (IMAGES, lambda x: x / 255),
    "between 0 and 1": (IMAGES, lambda x: (x.clamp(-2, 2) + 2) / 4),
    "raw features": (TABLE, lambda x: x * torch.tensor([10.0, 20.0, 5.0, 8.0, 30.0, 100.0])),
}
SAME = {
    "the same": (IMAGES, lambda x: x),
    "twice as bright": (IMAGES, lambda x: 2.0 * x + 1.0),
    "two features": (TABLE[:, :2], lambda x: 10.0 * x),
    "one feature of six": (TABLE, lambda x: x * torch.tensor([10.0, 1.0, 1.0, 1.0, 1.0, 1.0])),
}


@pytest.mark.parametrize("name", SCALES)
def test_another_scale(tmp_path: Path, name: str) -> None:
    rows, change = SCALES[name]
    assert "evaluation-scale" in found(tmp_path, rows, each=scaled(change))


def test_another_scale_at_the_end(tmp_path: Path) -> None:
    assert "evaluation-scale" in found(tmp_path, IMAGES, last=scaled(lambda x: x / 255))


@pytest.mark.parametrize("name", SAME)
def test_scales_that_are_left_alone(tmp_path: Path, name: str) -> None:
    rows, change = SAME[name]
    assert "evaluation-scale" not in found(tmp_path, rows, each=scaled(change))


def test_two_sets_of_which_one_agrees(tmp_path: Path) -> None:
    def both(model: nn.Module, trained: Tensor, other: Tensor) -> None:
        in_evaluation(model, other)
        in_evaluation(model, other / 255)

    assert "evaluation-scale" not in found(tmp_path, IMAGES, each=both)


def test_the_rows_of_training_beside_it_agree_with_nothing(tmp_path: Path) -> None:
    def both(model: nn.Module, trained: Tensor, other: Tensor) -> None:
        in_evaluation(model, trained[:64])
        in_evaluation(model, other / 255)

    assert "evaluation-scale" in found(tmp_path, IMAGES, each=both)


# -- the mode at the end -------------------------------------------------------------------------------------------


def batches(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    for x in other.split(32):
        model(x)


@torch.no_grad()
def without_gradients(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    batches(model, trained, other)


def at_once(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    model(other)


def few_rows(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    model(other[:8])


def again(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    for _ in range(4):
        model(other)


def trained_rows(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    batches(model, trained, trained)


def statistics_first(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    batches(model, trained, trained + 0.1)
    in_evaluation(model, other)


def statistics_only(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    model.get_submodule("2").momentum = None
    batches(model, trained, trained + 0.1)


def new_statistics(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    """With rows that are augmented."""
    torch.optim.swa_utils.update_bn((trained + 0.1).split(32), model)


def with_backward(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    for x in other.split(32):
        model(x).sum().backward()


@pytest.mark.parametrize("last", [batches, without_gradients, at_once])
def test_a_test_in_training_mode(tmp_path: Path, last: Evaluate) -> None:
    message = found(tmp_path, TABLE, last=last)["noisy-evaluation"]
    assert message.startswith("Sequential (dropout and batch norm) is evaluated in training mode after the last update")


@pytest.mark.parametrize(
    "last",
    [
        few_rows,
        again,
        trained_rows,
        statistics_first,
        statistics_only,
        new_statistics,
        with_backward,
        scaled(lambda x: x),
    ],
)
def test_last_calls_that_are_none(tmp_path: Path, last: Evaluate) -> None:
    assert "noisy-evaluation" not in found(tmp_path, TABLE, last=last)


# -- the rows ------------------------------------------------------------------------------------------------------


def validated(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    val_set = trained
    in_evaluation(model, val_set, size=64)


def unnamed(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    in_evaluation(model, trained)


def both(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    val_set = other
    in_evaluation(model, trained)
    in_evaluation(model, val_set)


def whole(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    val_set = trained
    in_evaluation(model, val_set, size=ROWS)


def beside_another_set(model: nn.Module, trained: Tensor, other: Tensor) -> None:
    validated(model, trained, other)
    season = other
    in_evaluation(model, season)


def test_rows_of_training_beside_others(tmp_path: Path) -> None:
    assert "trained-evaluation" in found(tmp_path, TABLE, each=beside_another_set)


def test_rows_of_training(tmp_path: Path) -> None:
    message = found(tmp_path, TABLE, each=validated)["trained-evaluation"]
    assert message.startswith("the 256 rows of the evaluation of val_set were all trained on before")


@pytest.mark.parametrize("each", [unnamed, both])
def test_other_evaluations(tmp_path: Path, each: Evaluate) -> None:
    assert "trained-evaluation" not in found(tmp_path, TABLE, each=each)


def test_one_batch_that_is_all(tmp_path: Path) -> None:
    assert "trained-evaluation" not in found(tmp_path, TABLE, each=whole, all_at_once=True)


def test_rows_that_come_twice_by_their_nature(tmp_path: Path) -> None:
    assert "trained-evaluation" not in found(tmp_path, (TABLE > 0).float(), each=validated)
