"""Rows of a data set: a bad label stops the run before its loss, and a batch in quarantine is not learned again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from by_hand import Hand, policy_file, watched
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Subset

import steadytrain
from gate_loops import recorded, same

ROWS, BATCH, CLASSES = 24, 4, 3


class Rows(Dataset[tuple[Tensor, int]]):
    """Separable points, of which those of one batch may become huge."""

    def __init__(self, *, bad_label: int | None = None) -> None:
        generator = torch.Generator().manual_seed(0)
        self.points = torch.randn(ROWS, 5, generator=generator)
        self.labels = self.points[:, :CLASSES].argmax(1)
        if bad_label is not None:
            self.labels[17] = bad_label

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.points[row], int(self.labels[row])


class Training:
    def __init__(self, rows: Dataset[tuple[Tensor, int]]) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(5, CLASSES)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.05)
        self.loader = DataLoader(rows, BATCH)

    def epoch(self, left_out: int | None = None) -> None:
        for number, (points, labels) in enumerate(self.loader):
            loss = functional.cross_entropy(self.model(points), labels)
            self.optimizer.zero_grad()
            loss.backward()
            if number != left_out:
                self.optimizer.step()


def test_a_batch_in_quarantine_is_not_learned_again(tmp_path: Path) -> None:
    training, twin = Training(Rows()), Training(Rows())
    with watched(tmp_path, training) as watch:
        training.epoch()
        Hand(watch).hold("quarantine-rows")
        training.epoch()
        Hand(watch).let_go("quarantine-rows")
        training.epoch()
    twin.epoch()
    twin.epoch(left_out=ROWS // BATCH - 1)
    twin.epoch()
    assert same(training.model.state_dict(), twin.model.state_dict())
    assert same(training.optimizer.state_dict(), twin.optimizer.state_dict())
    run = recorded(tmp_path)
    (skip,) = [action for action in run.actions if action.what == "skipped-update"]
    assert (skip.step, skip.reason) == (12, "100% of the rows of its batch are in quarantine")
    kept = json.loads((run.path / "quarantine.json").read_text())
    assert kept["batches"] == {"Rows": [20, 21, 22, 23]}
    assert kept["rows"] == {}


def test_a_row_with_nan_is_remembered_alone(tmp_path: Path) -> None:
    rows = Rows()
    training = Training(Subset(rows, range(ROWS - 1, -1, -1)))
    with watched(tmp_path, training, policy="skip") as watch:
        rows.points[2] = torch.nan
        training.epoch()
        Hand(watch).hold("quarantine-rows")
        rows.points[2] = 1.0
        training.epoch()
    run = recorded(tmp_path)
    assert json.loads((run.path / "quarantine.json").read_text())["rows"] == {"Rows": [2]}
    reasons = {action.step: action.reason for action in run.actions if action.what == "skipped-update"}
    assert reasons[12] == "its batch holds Rows[2], which is in quarantine"


def test_rows_that_no_loader_drew_are_not_known(tmp_path: Path) -> None:
    training = Training(Rows())
    batches = list(training.loader)
    training.loader = batches  # type: ignore[assignment]
    with watched(tmp_path, training) as watch:
        training.epoch()
        with pytest.raises(Exception, match="rows of step 6 are not known"):
            Hand(watch).hold("quarantine-rows")


class Spoilt(Rows):
    """From the 30th pass on, the points of rows 8 to 11 are far too large, and their labels are the wrong ones."""

    asked = 0

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        self.asked += 1
        if 8 <= row < 12 and self.asked > 29 * ROWS:
            return self.points[row] * 40, int(self.points[row, :CLASSES].argmin())
        return super().__getitem__(row)


def test_a_ladder_goes_back_before_the_batch_and_keeps_it_out(tmp_path: Path) -> None:
    text = """
    policy = "steady"
    [symptoms]
    loss-spike = "intervene"
    [ladders]
    default = [["roll-back", "quarantine-rows"], ["roll-back", "quarantine-rows"], ["roll-back", "quarantine-rows"]]
    """
    training = Training(Spoilt())
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.3)
    with watched(tmp_path, training, policy=policy_file(tmp_path, text)):
        for _ in range(40):
            training.epoch()
    run = recorded(tmp_path)
    assert json.loads((run.path / "quarantine.json").read_text())["batches"] == {"Spoilt": [8, 9, 10, 11]}
    made = [action for action in run.actions if action.intervention == "quarantine-rows"]
    assert [action.after["rows"] for action in made] == [4.0]
    later = [action for action in run.actions if "in quarantine" in action.reason]
    assert [action.step % 6 for action in later] == [3] * len(later)
    assert len(later) >= 5


LABELS = 'always = ["check-labels"]\n'


@pytest.mark.parametrize(
    ("label", "why"), [(3, "is outside \\[0, 3\\)"), (-1, "the label -1 in row 1 of the targets, Rows\\[17\\],")]
)
def test_a_label_outside_of_its_classes_stops_the_run(label: int, why: str, tmp_path: Path) -> None:
    training = Training(Rows(bad_label=label))
    with (
        pytest.raises(steadytrain.RunStopped, match=why),
        watched(tmp_path, training, policy=policy_file(tmp_path, LABELS)),
    ):
        training.epoch()
    actions = recorded(tmp_path).actions
    assert [(action.what, action.intervention) for action in actions] == [
        ("applied", "check-labels"),
        ("stopped", "check-labels"),
    ]


def test_ignored_labels_and_probabilities_are_none(tmp_path: Path) -> None:
    training = Training(Rows(bad_label=-100))
    with watched(tmp_path, training, policy=policy_file(tmp_path, LABELS)):
        training.epoch()
        functional.cross_entropy(training.model(torch.ones(2, 5)), torch.full((2, CLASSES), 1 / 3)).backward()
        functional.nll_loss(training.model(torch.ones(2, 5)).log_softmax(1), torch.tensor([9, 0]), ignore_index=9)
