"""A batch, or a micro-batch of an accumulated step, in which no label counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from steadytrain.survey.call_findings import LossCall  # noqa: E402
from steadytrain.survey.labels import Labels  # noqa: E402
from steadytrain.survey.outlier_rows import Rows  # noqa: E402

IGNORED = -100


def call_of(labels: Tensor, ignore_index: int | None = IGNORED) -> LossCall:
    return LossCall("cross_entropy", torch.zeros(len(labels), 3), labels, "mean", ignore_index, "logits", "a.py:3")


def facts_of(*steps: list[LossCall], table: Tensor | None = None) -> dict[str, Any]:
    """The facts of these steps; the last is the marked one."""
    labels = Labels()
    for number, losses in enumerate(steps, 1):
        rows = len(losses[0].target)
        batches = SimpleNamespace(rows=rows, values=table, ids=[], rows_of=lambda step: [], has_own_targets=bool)
        labels.step(number, SimpleNamespace(step_losses=losses, looked_up=[]), batches)  # type: ignore[arg-type]
        if number == len(steps):
            labels.mark(number)
    return labels.finish()


def test_the_micro_batch_without_labels_is_the_one_that_counts() -> None:
    usual = call_of(torch.tensor([0, 1, 2, 1]))
    empty = call_of(torch.full((4,), IGNORED))
    facts = facts_of([usual] * 4, [usual, usual, empty, usual])
    assert facts["labels_ignored_share"] == 1.0
    assert facts["rows_without_labels"] == [0, 1, 2, 3]
    assert facts_of([usual] * 4, [usual] * 4)["labels_ignored_share"] == 0.0


def test_labels_that_do_not_count_hide_no_other_fact() -> None:
    """Ignored labels are negative, and no count of classes takes those."""
    torch.manual_seed(0)
    usual = torch.randint(0, 3, (64,))
    facts = facts_of([call_of(usual)], [call_of(torch.full((64,), IGNORED))], table=torch.randn(64, 4))
    assert facts["labels_ignored_share"] == 1.0
    assert facts["label_most_common_share"] < 0.6


def test_the_rows_are_those_of_the_micro_batch_whose_labels_are_shown() -> None:
    rows = Rows()
    for part in range(4):
        rows.called(7, [("x", torch.full((2, 3), float(part)))])
    rows.mark(torch.full((2,), IGNORED), call_of_target=2, losses=4)
    told = rows.finish({"rows_without_labels": [0, 1]})["batch_rows"]
    shown = {(one["row"], one["tensor"]): one["values"] for one in told}
    assert shown[(1, "x")] == [2.0, 2.0, 2.0]
    assert shown[(1, "target")] == [IGNORED]


def test_other_numbers_of_model_and_loss_calls_show_the_first_call() -> None:
    rows = Rows()
    for part in range(4):
        rows.called(7, [("x", torch.full((2, 3), float(part)))])
    rows.mark(torch.full((2,), IGNORED), call_of_target=2, losses=3)
    told = rows.finish({"rows_without_labels": [0]})["batch_rows"]
    assert told[0]["values"] == [0.0, 0.0, 0.0]
