"""A schedule that waits for a plateau, and what it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from looked_loops import adam, batch, small, update  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.optim.lr_scheduler import ReduceLROnPlateau  # noqa: E402

from steadytrain.capture.looks.plateau_modes import metrics_of  # noqa: E402
from watching import watching  # noqa: E402


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("scheduler.step(val_acc)", [(1, "val_acc", False)]),
        ("scheduler.step(metrics=report['f1'])", [(1, "report['f1']", False)]),
        ("scheduler.step(evaluate(model).accuracy)", [(1, "evaluate(model).accuracy", False)]),
        ("scheduler.step(val_loss)", [(1, "val_loss", True)]),
        ("scheduler.step(-val_acc)", []),
        ("r = recall_at(model, rows)\nscheduler.step(r)", [(2, "r", False)]),
        ("r = report(model)\nscheduler.step(r)", []),
        ("scheduler.step(1 - accuracy)", []),
        ("scheduler.step(value)", []),
        ("scheduler.step(loss_of(accuracy))", []),  # both
        ("scheduler.step()", []),
        ("optimizer.step(closure)", []),
        ("def (", []),
    ],
)
def test_what_the_names_say(call: str, expected: list[tuple[int, str, bool]]) -> None:
    assert list(metrics_of(call)) == expected


@pytest.mark.parametrize(("mode", "told"), [("min", True), ("max", False)])
def test_an_accuracy_in_either_mode(mode: str, told: bool, tmp_path: Path) -> None:
    model = small()
    optimizer = adam(model)
    scheduler = ReduceLROnPlateau(optimizer, mode=mode, patience=0)
    with watching(tmp_path / "run", "observe") as watcher:
        for at in range(1, 65):
            x, y = batch()
            update(optimizer, functional.cross_entropy(model(x), y))
            if at % 8 == 0:
                accuracy = at / 100
                scheduler.step(accuracy)
    assert ("opposite-metric" in {one.name for one in watcher.symptoms}) is told
