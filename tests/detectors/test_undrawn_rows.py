"""Weighted samplers with a weight for each class, and with one for each row."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from script_windows import looked
from steadytrain.detectors.undrawn_rows import UndrawnRows
from steadytrain.testing import newest
from watching import watching

CLASSES = looked(drawable_rows__WeightedRandomSampler=[5.0], rows_of__WeightedRandomSampler=[2000.0])
SHORT = looked(drawable_rows__WeightedRandomSampler=[1990.0], rows_of__WeightedRandomSampler=[2000.0])
SICK = (CLASSES,)
HEALTHY = (looked(), SHORT)


def test_quiet() -> None:
    assert UndrawnRows().check(looked()) == ()


def test_a_weight_for_each_class_is_a_warning() -> None:
    symptom = newest(UndrawnRows(), CLASSES)
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("WeightedRandomSampler has 5 weights for 2000 rows: only the first 5 rows")


def test_a_list_that_is_a_little_short_is_a_note() -> None:
    symptom = newest(UndrawnRows(), SHORT)
    assert symptom is not None
    assert symptom.severity == "note"


@pytest.mark.parametrize(("of_rows", "expected"), [(False, ["undrawn-rows"]), (True, [])])
def test_a_real_loop(of_rows: bool, expected: list[str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    labels = torch.randint(3, (200,))
    weights = 1.0 / labels.bincount(minlength=3)
    sampler = WeightedRandomSampler((weights[labels] if of_rows else weights).tolist(), 200)
    loader = DataLoader(TensorDataset(torch.randn(200, 6), labels), 20, sampler=sampler)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with watching(tmp_path / "run", "observe") as watcher:
        for _ in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    assert [one.name for one in watcher.symptoms if one.name == "undrawn-rows"] == expected
